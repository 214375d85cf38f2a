"""Parts of a model made local functions: which nodes may go together, and the function that says what they
say.

Names of a model's values are taken to be unique over its graph and all bodies, as in programs that opsieve
makes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto

from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.graph.graph import BodyGraph
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.model.structure import all_nodes, bodies
from opsieve.gen.model.tensors import DTYPES

_LIFTED: Final = frozenset(
    (
        AttributeProto.INT,
        AttributeProto.FLOAT,
        AttributeProto.STRING,
        AttributeProto.TENSOR,
        AttributeProto.INTS,
        AttributeProto.FLOATS,
        AttributeProto.STRINGS,
    )
)
_GRAPHS: Final = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
_DEFAULTS_IR, _FUNCTIONS_IR = 9, 8


@dataclass(frozen=True, slots=True)
class RewriteRates:
    """How often, as rates between 0 and 1.

    A function gives every result (`all_results`), has names of its own, keeps an attribute as it is
    (`fixed`), has a `default` for one, which its call has `relied_on`. An equal node calls the same function
    (`shared`), a call is `repeated`, and its twin is read (`twin_read`). A branch has a call of the function
    where its nodes would do (`plain_call`); what is handed on is handed before the call (`handed_before`).
    """

    all_results: float = 0.1
    own_names: float = 0.5
    fixed: float = 0.5
    default: float = 0.3
    relied_on: float = 0.5
    shared: float = 0.7
    repeated: float = 0.25
    plain_call: float = 0.5
    handed_before: float = 0.5
    twin_read: float = 0.5


RATES: Final = RewriteRates()
_REACH: Final = 40  # places before and after the first node of a part at which others are looked for


class NodeEnds(NamedTuple):
    """What a node reads and what it makes, by names. It holds the node, so that no other one has its id."""

    node: NodeProto
    read: Sequence[str]
    made: Sequence[str]


@dataclass(slots=True)
class Parts:
    """A model taken apart: the nodes of its graph in order, its functions by name, what the graph gives.

    `model` is the whole, whose nodes these are; `versions` are those of the operator sets in use, `ir` is the
    least IR version. `twins` are results that are copies, by name, with those that they are copies of.
    """

    model: onnx.ModelProto
    nodes: list[NodeProto]
    given: Set[str]
    versions: Mapping[str, int]
    twins: dict[str, str] = field(default_factory=dict)
    functions: dict[str, FunctionProto] = field(default_factory=dict)
    ir: int = _FUNCTIONS_IR
    _ends: dict[int, NodeEnds] = field(default_factory=dict)
    _types: dict[str, str] = field(default_factory=dict)

    def new_name(self) -> str:
        """A name that no function has."""
        return f"f{len(self.functions) + 1}"

    def ends(self, node: NodeProto) -> NodeEnds:
        """What a node reads and makes: looked up in the message once, until it is `changed`."""
        found = self._ends.get(id(node))
        if found is None:
            found = self._ends[id(node)] = NodeEnds(node, reads(node), [*filter(None, node.output)])
        return found

    def changed(self, node: NodeProto) -> None:
        """Note that a node reads or makes something else now."""
        self._ends.pop(id(node), None)

    def know(self, builder: GraphBuilder) -> None:
        """Take what nodes read and make, and dtypes, from the builder that the model was written from."""
        read = [leaf for leaf in builder.program.leaves if leaf.reads]
        constants = [leaf for leaf in read if leaf.leaf == "constant"]
        self._types = {tensor.name: tensor.dtype for tensor in read}
        for proto, leaf in zip(self.nodes, constants, strict=False):
            self._ends[id(proto)] = NodeEnds(proto, (), (leaf.name,))
        for proto, node in zip(self.nodes[len(constants) :], builder.nodes, strict=True):
            made = [out.name for out in node.outs if out.name]
            self._types.update((out.name, out.dtype) for out in node.outs)
            if not any(isinstance(value, BodyGraph | LearnedBody) for value in node.attrs.values()):
                self._ends[id(proto)] = NodeEnds(
                    proto, [each.name for each in node.ins if each is not None], made
                )

    def import_domains(self, function: FunctionProto) -> None:
        """Have a function import the domains of its nodes, in the versions of the model."""
        for domain in sorted({node.domain for node in all_nodes(function.node)}):
            function.opset_import.add(domain=domain, version=self.versions.get(domain, 1))

    def types(self) -> Mapping[str, str]:
        """The dtypes of values as the model had them."""
        if not self._types:
            graph = self.model.graph
            self._types = {
                info.name: _dtype(info.type) for info in (*graph.value_info, *graph.input, *graph.output)
            }
            for tensor in graph.initializer:
                self._types[tensor.name] = DTYPES.get(tensor.data_type, "")
            for node in graph.node:
                if node.op_type == "Constant" and node.attribute[0].type == AttributeProto.TENSOR:
                    self._types[node.output[0]] = DTYPES.get(node.attribute[0].t.data_type, "")
        return self._types

    def type_of(self, name: str) -> str | None:
        """The dtype of a value; None where it is not known."""
        while name in self.twins:
            name = self.twins[name]
        return self.types().get(name)

    def dtypes_read(self, part: Sequence[int]) -> list[str | None]:
        """The dtypes of what a function of these nodes would take."""
        ends = [self.ends(self.nodes[place]) for place in part]
        made = {name for node in ends for name in node.made}
        return [self.type_of(name) for node in ends for name in node.read if name not in made]


def parts(model: bytes) -> Parts:
    """A serialised model without functions, taken apart."""
    own = onnx.ModelProto.FromString(model)
    graph = own.graph
    versions = {entry.domain: entry.version for entry in own.opset_import}
    return Parts(own, list(graph.node), {info.name for info in graph.output}, versions)


def assemble(taken: Parts) -> onnx.ModelProto:
    """The model with these nodes and functions, and every operator set that is called; the parts are used
    up.
    """
    made = taken.model
    del made.graph.node[:]
    made.graph.node.extend(taken.nodes)
    made.functions.extend(taken.functions.values())
    made.ir_version = max(made.ir_version, taken.ir)
    for domain in sorted({function.domain for function in taken.functions.values()}):
        entry = made.opset_import.add()
        entry.domain, entry.version = domain, 1
    kept = {name for node in taken.nodes for name in node.output}
    infos = list(made.graph.value_info)
    left = [info for info in infos if info.name in kept]
    if len(left) < len(infos):  # the others are a function's own
        del made.graph.value_info[:]
        made.graph.value_info.extend(left)
    return made


def reads(node: NodeProto) -> list[str]:
    """The names that a node reads, in order, those that its bodies take from around it among them."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type in _GRAPHS:
            names += _captured(node)
            break
    return names


def _captured(node: NodeProto) -> Iterator[str]:
    for body in bodies(node):
        made = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
        made |= {name for inner in all_nodes(body.node) for name in inner.output}
        for inner in all_nodes(body.node):
            # What a deeper body is handed is made by no node; its own inputs are skipped by name.
            made |= {info.name for deeper in bodies(inner) for info in deeper.input}
        for inner in all_nodes(body.node):
            yield from (name for name in inner.input if name and name not in made)
        yield from (info.name for info in body.output if info.name not in made)


def choose_part(taken: Parts, rng: Rng, most: int) -> list[int] | None:
    """Places of up to `most` nodes that hang together and that no path leaves and comes back to; None when a
    draw gave none.
    """
    if not taken.nodes:
        return None
    first = rng.below(len(taken.nodes))
    near_by = range(max(0, first - _REACH), min(len(taken.nodes), first + _REACH))
    ends = {place: taken.ends(taken.nodes[place]) for place in near_by}
    part = {first}
    made, read = set(ends[first].made), set(ends[first].read)
    for _ in range(rng.below(most)):
        joined = [
            place
            for place, node in ends.items()
            if place not in part and not (made.isdisjoint(node.read) and read.isdisjoint(node.made))
        ]
        if not joined:
            break
        added = rng.choice(joined)
        part.add(added)
        made.update(ends[added].made)
        read.update(ends[added].read)
    return sorted(part) if _follows(taken, part) is not None else None


def composed(taken: Parts, part: Sequence[int], domain: str, rng: Rng) -> NodeProto:
    """Make nodes a function, put a call in their place, and give the call. `part` is what `chosen` gave."""
    nodes = [taken.nodes[place] for place in part]
    made = {name for node in nodes for name in taken.ends(node).made}
    within = set(part)
    outside = set[str]().union(
        *(
            taken.ends(node).read
            for place, node in enumerate(taken.nodes[part[0] :], part[0])
            if place not in within
        )
    )
    inputs = list(dict.fromkeys(name for node in nodes for name in taken.ends(node).read if name not in made))
    every = [name for node in nodes for name in taken.ends(node).made]
    outputs = [name for name in every if name in outside or name in taken.given]
    if not outputs or rng.chance(RATES.all_results):
        outputs = every  # results that nobody asks for are results too
    function = FunctionProto(domain=domain, name=taken.new_name(), input=inputs, output=outputs)
    function.node.extend(nodes)
    call = NodeProto(
        op_type=function.name, domain=domain, name=f"call_{function.name}", input=inputs, output=outputs
    )
    _lift(taken, function, call, rng)
    taken.import_domains(function)
    if rng.chance(RATES.own_names):
        _rename(function)
    taken.functions[function.name] = function
    _replace(taken, within, call)
    return call


def _lift(taken: Parts, function: FunctionProto, call: NodeProto, rng: Rng) -> None:
    """Make attributes of the function's nodes its own, given by the call or by a default."""
    named: set[str] = set()
    for node in function.node:
        for attribute in node.attribute:
            if attribute.type not in _LIFTED or attribute.ref_attr_name or rng.chance(RATES.fixed):
                continue
            name = attribute.name
            while name in named:
                name += "_"
            named.add(name)
            value = AttributeProto()
            value.CopyFrom(attribute)
            value.name = name
            inner, kind = attribute.name, attribute.type
            attribute.Clear()
            attribute.name, attribute.type, attribute.ref_attr_name = inner, kind, name
            if rng.chance(RATES.default):
                function.attribute_proto.append(value)
                taken.ir = max(taken.ir, _DEFAULTS_IR)
                if rng.chance(RATES.relied_on):
                    continue  # the call leaves it to the default
            else:
                function.attribute.append(name)
            call.attribute.append(value)


def _rename(function: FunctionProto) -> None:
    """Give a function's values names of its own: those around it have others."""
    names = [*function.input, *(name for node in all_nodes(function.node) for name in node.output if name)]
    names += [info.name for node in all_nodes(function.node) for body in bodies(node) for info in body.input]
    renamed = {name: f"p{place}" for place, name in enumerate(dict.fromkeys(names))}
    function.input[:] = [renamed[name] for name in function.input]
    function.output[:] = [renamed[name] for name in function.output]
    rename_values(function.node, renamed)


def rename_values(nodes: Iterable[NodeProto], renamed: Mapping[str, str]) -> None:
    """Rename what nodes and their bodies read and make; values that are not named in `renamed` stay."""
    for node in all_nodes(nodes):
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
        for body in bodies(node):
            del body.value_info[:]
            for info in (*body.input, *body.output):
                info.name = renamed.get(info.name, info.name)


def _follows(taken: Parts, part: Set[int]) -> set[int] | None:
    """The places between the part's first and last that need what the part makes; None when the part needs
    one of them.
    """
    made: set[str] = set()  # by the part
    later: set[str] = set()  # by others, from what the part made
    after: set[int] = set()
    for place in range(min(part), max(part) + 1):
        ends = taken.ends(taken.nodes[place])
        if place in part:
            if not later.isdisjoint(ends.read):
                return None
            made.update(ends.made)
        elif not (made.isdisjoint(ends.read) and later.isdisjoint(ends.read)):
            later.update(ends.made)
            after.add(place)
    return after


def _replace(taken: Parts, part: Set[int], call: NodeProto) -> None:
    first, last = min(part), max(part)
    after = _follows(taken, part)
    assert after is not None
    between = [place for place in range(first, last + 1) if place not in part]
    order = [taken.nodes[place] for place in between if place not in after]
    order += [call, *(taken.nodes[place] for place in between if place in after)]
    taken.nodes[first : last + 1] = order


def _dtype(type_: onnx.TypeProto) -> str:
    """The dtype of a value, `sequence(float32)` of a sequence; "" where it is open, or of an optional."""
    if type_.HasField("sequence_type"):
        return f"sequence({_dtype(type_.sequence_type.elem_type)})"
    return DTYPES.get(type_.tensor_type.elem_type, "")
