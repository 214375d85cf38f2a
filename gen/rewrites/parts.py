"""Turn parts of a model into local functions: choose nodes that may go together, and build the function.

Names of values must be unique over a model's graph and all bodies, as in programs that opsieve makes.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.graph.graph import BodyGraph
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.irs.onnx.edits import keep
from opsieve.gen.irs.onnx.view import list_captured
from opsieve.gen.model.structure import all_nodes, bodies, copied
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
# IR version 8 brings functions of models, version 9 default values of their attributes.
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
# Places before and after the first node of a part at which others are looked for
_REACH: Final = 40


class NodeEnds(NamedTuple):
    """The names that a node reads and makes. It holds the node, so that its id stays unique."""

    node: NodeProto
    read: Sequence[str]
    made: Sequence[str]


@dataclass(slots=True)
class Parts:
    """A model taken apart: the nodes of its graph in order, its functions by name, its outputs.

    `model` is the whole model with these nodes; `versions` are the operator sets in use, `ir` is the least IR
    version. `twins` maps results that are copies to their originals.
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
        """Return an unused name for a function."""
        return f"f{len(self.functions) + 1}"

    def get_ends(self, node: NodeProto) -> NodeEnds:
        """Return the names that a node reads and makes, cached until the node is marked `changed`."""
        found = self._ends.get(id(node))
        if found is None:
            found = self._ends[id(node)] = NodeEnds(node, list_captured(node), [*filter(None, node.output)])
        return found

    def mark_changed(self, node: NodeProto) -> None:
        """Record that a node reads or makes something else now."""
        self._ends.pop(id(node), None)

    def learn_from(self, builder: GraphBuilder) -> None:
        """Take the names that nodes read and make, and dtypes, from the builder that wrote the model."""
        read = [leaf for leaf in builder.program.leaves if leaf.reads]
        constants = [leaf for leaf in read if leaf.leaf == "constant"]
        self._types = {tensor.name: tensor.dtype for tensor in read}
        for proto, leaf in zip(self.nodes, constants, strict=False):
            self._ends[id(proto)] = NodeEnds(proto, (), (leaf.name,))
        for proto, node in zip(self.nodes[len(constants) :], builder.nodes, strict=True):
            made = [out.name for out in node.outs if out.name]
            self._types.update((out.name, out.dtype) for out in node.outs)
            if not any(isinstance(value, BodyGraph) for value in node.attrs.values()):
                self._ends[id(proto)] = NodeEnds(
                    proto, [each.name for each in node.ins if each is not None], made
                )

    def import_domains(self, function: FunctionProto) -> None:
        """Let a function import the domains of its nodes in the model's versions."""
        for domain in sorted({node.domain for node in all_nodes(function.node)}):
            function.opset_import.add(domain=domain, version=self.versions.get(domain, 1))

    def get_dtypes(self) -> Mapping[str, str]:
        """Return the dtypes of values as the model had them."""
        if not self._types:
            graph = self.model.graph
            self._types = {
                info.name: _read_dtype(info.type) for info in (*graph.value_info, *graph.input, *graph.output)
            }
            for tensor in graph.initializer:
                self._types[tensor.name] = DTYPES.get(tensor.data_type, "")
            for node in graph.node:
                if node.op_type == "Constant" and node.attribute[0].type == AttributeProto.TENSOR:
                    self._types[node.output[0]] = DTYPES.get(node.attribute[0].t.data_type, "")
        return self._types

    def get_dtype(self, name: str) -> str | None:
        """Return the dtype of a value, None if unknown."""
        while name in self.twins:
            name = self.twins[name]
        return self.get_dtypes().get(name)

    def list_input_dtypes(self, part: Sequence[int]) -> list[str | None]:
        """Return the dtypes of the inputs that a function of these nodes would have."""
        ends = [self.get_ends(self.nodes[place]) for place in part]
        made = {name for node in ends for name in node.made}
        return [self.get_dtype(name) for node in ends for name in node.read if name not in made]


def take_apart(model: bytes) -> Parts:
    """Take apart a serialised model without functions."""
    own = onnx.ModelProto.FromString(model)
    graph = own.graph
    versions = {entry.domain: entry.version for entry in own.opset_import}
    return Parts(own, list(graph.node), {info.name for info in graph.output}, versions)


def assemble_model(taken: Parts) -> onnx.ModelProto:
    """Return the model of the parts, with every operator set that is called; the parts cannot be used
    afterwards.
    """
    made = taken.model
    del made.graph.node[:]
    made.graph.node.extend(taken.nodes)
    made.functions.extend(taken.functions.values())
    made.ir_version = max(made.ir_version, taken.ir)
    for domain in sorted({function.domain for function in taken.functions.values()}):
        made.opset_import.add(domain=domain, version=1)
    kept = {name for node in taken.nodes for name in node.output}
    # The other infos describe values that now live in a function.
    keep(made.graph.value_info, lambda info: info.name in kept)
    return made


def choose_part(taken: Parts, rng: Rng, most: int) -> list[int] | None:
    """Choose up to `most` connected nodes, by index, that no path leaves and enters again; returns `None` if
    a draw fails.
    """
    if not taken.nodes:
        return None
    first = rng.below(len(taken.nodes))
    near_by = range(max(0, first - _REACH), min(len(taken.nodes), first + _REACH))
    ends = {place: taken.get_ends(taken.nodes[place]) for place in near_by}
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
    return sorted(part) if _find_dependents(taken, part) is not None else None


def compose_function(taken: Parts, part: Sequence[int], domain: str, rng: Rng) -> NodeProto:
    """Turn the nodes of `part`, from `choose_part`, into a function, replace them by a call, and return the
    call.
    """
    nodes = [taken.nodes[place] for place in part]
    made = {name for node in nodes for name in taken.get_ends(node).made}
    within = set(part)
    outside = set[str]().union(
        *(
            taken.get_ends(node).read
            for place, node in enumerate(taken.nodes[part[0] :], part[0])
            if place not in within
        )
    )
    inputs = list(
        dict.fromkeys(name for node in nodes for name in taken.get_ends(node).read if name not in made)
    )
    every = [name for node in nodes for name in taken.get_ends(node).made]
    outputs = [name for name in every if name in outside or name in taken.given]
    if not outputs or rng.chance(RATES.all_results):
        # Unrequested results are results too.
        outputs = every
    function = FunctionProto(domain=domain, name=taken.new_name(), input=inputs, output=outputs)
    function.node.extend(nodes)
    call = NodeProto(
        op_type=function.name, domain=domain, name=f"call_{function.name}", input=inputs, output=outputs
    )
    _lift_attributes(taken, function, call, rng)
    taken.import_domains(function)
    if rng.chance(RATES.own_names):
        # Give a function's values new names, distinct from those around it.
        names = [
            *function.input,
            *(name for node in all_nodes(function.node) for name in node.output if name),
        ]
        names += [
            info.name for node in all_nodes(function.node) for body in bodies(node) for info in body.input
        ]
        renamed = {name: f"p{place}" for place, name in enumerate(dict.fromkeys(names))}
        function.input[:] = [renamed[name] for name in function.input]
        function.output[:] = [renamed[name] for name in function.output]
        rename_values(function.node, renamed)
    taken.functions[function.name] = function
    _replace_nodes(taken, within, call)
    return call


def _lift_attributes(taken: Parts, function: FunctionProto, call: NodeProto, rng: Rng) -> None:
    """Turn attributes of the function's nodes into its own, with values from the call or defaults."""
    named: set[str] = set()
    for node in function.node:
        for attribute in node.attribute:
            if attribute.type not in _LIFTED or attribute.ref_attr_name or rng.chance(RATES.fixed):
                continue
            name = attribute.name
            while name in named:
                name += "_"
            named.add(name)
            value = copied(attribute)
            value.name = name
            inner, kind = attribute.name, attribute.type
            attribute.Clear()
            attribute.name, attribute.type, attribute.ref_attr_name = inner, kind, name
            if rng.chance(RATES.default):
                function.attribute_proto.append(value)
                taken.ir = max(taken.ir, _DEFAULTS_IR)
                if rng.chance(RATES.relied_on):
                    # The call omits the attribute, so the default applies.
                    continue
            else:
                function.attribute.append(name)
            call.attribute.append(value)


def rename_values(nodes: Iterable[NodeProto], renamed: Mapping[str, str]) -> None:
    """Rename what nodes and their bodies read and make; values missing from `renamed` keep their names."""
    for node in all_nodes(nodes):
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
        for body in bodies(node):
            del body.value_info[:]
            for info in (*body.input, *body.output):
                info.name = renamed.get(info.name, info.name)


def _find_dependents(taken: Parts, part: Set[int]) -> set[int] | None:
    """Return the nodes between the part's first and last that depend on the part; returns `None` if the part
    depends on one of them.
    """
    # Values that the part's nodes compute.
    made: set[str] = set()
    # Values that other nodes compute from the part's results.
    later: set[str] = set()
    after: set[int] = set()
    # Nodes are sorted, so a path that leaves the part and enters it again lies between its ends.
    for place in range(min(part), max(part) + 1):
        ends = taken.get_ends(taken.nodes[place])
        if place in part:
            if not later.isdisjoint(ends.read):
                return None
            made.update(ends.made)
        elif not (made.isdisjoint(ends.read) and later.isdisjoint(ends.read)):
            later.update(ends.made)
            after.add(place)
    return after


def _replace_nodes(taken: Parts, part: Set[int], call: NodeProto) -> None:
    """Replace the nodes of a part by a call."""
    first, last = min(part), max(part)
    after = _find_dependents(taken, part)
    assert after is not None
    between = [place for place in range(first, last + 1) if place not in part]
    before, behind = ([taken.nodes[at] for at in between if (at in after) == side] for side in (False, True))
    # The call stands after everything that the part reads and before everything that reads it.
    taken.nodes[first : last + 1] = [*before, call, *behind]


def _read_dtype(type_: onnx.TypeProto) -> str:
    """Return the dtype of a type, `sequence(float32)` for a sequence; "" if it is open or an optional."""
    if type_.HasField("sequence_type"):
        return f"sequence({_read_dtype(type_.sequence_type.elem_type)})"
    return DTYPES.get(type_.tensor_type.elem_type, "")
