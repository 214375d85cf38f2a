"""Parts of programs as local functions, and the calls rewritten (HirFuzz, sections 3.2 and 3.3.2).

What a program computes stays the same, so its outputs are to be those of the program before. As HirFuzz
composes functions from subgraphs, parts that hang together become functions, one inside another now and then.
Its three rewrites of a function f, in the terms of ONNX, where a function is no value:

    closure   f becomes a local closure of a new g: the calls go to g, where f stands in the branch of an If
    that
              captures g's parameters
    handed    f is wrapped in an empty function: what f takes or gives goes through a function that hands it
    on through   f is called and returned by a new g of the same parameters, which forwards its attributes;
    the
              calls go to g
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, helper

from opsieve.gen.declarations import catalogue, tensor
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.graph.scope import Supports
from opsieve.gen.model.structure import all_nodes, copied
from opsieve.gen.model.tensors import NUMBERS
from opsieve.gen.rewrites.parts import (
    RATES,
    Parts,
    assemble_model,
    choose_part,
    compose_function,
    rename_values,
)

_DOMAINS: Final = ("local", "local.inner", "opsieve")
# The most nodes of one function.
_MOST: Final = 6
_IDENTITY, _IF = "Identity", "If"
# onnxruntime refuses optionals, eight-bit floats and four-bit integers as parameters of functions.
_PASSED: Final = frozenset((*tensor.PLAIN, "string"))
_SEQUENCE: Final = "sequence("


@dataclass(frozen=True, slots=True)
class RewriteLimits:
    """Limits of a rewrite: operators of `only` (None: any) that the compilers have by `supports` (None:
    unknown).
    """

    only: frozenset[str] | None = None
    supports: Supports | None = None

    def is_passable(self, dtype: str | None) -> bool:
        """Return whether a function may take a value of a dtype; an unknown dtype is passable."""
        if self.supports is None or dtype is None:
            return True
        while dtype.startswith(_SEQUENCE):
            dtype = dtype[len(_SEQUENCE) : -1]
        return dtype in _PASSED

    def list_copyable(self, opset: int) -> frozenset[str]:
        """Return the dtypes that an Identity may copy."""
        had = catalogue.form(_IDENTITY, opset)
        if had is None or (self.only is not None and _IDENTITY not in self.only):
            return frozenset()
        allowed = had.types[had.inputs[0].type]
        if self.supports is None:
            return allowed
        identity = catalogue.operators()[_IDENTITY]
        return frozenset(
            dtype
            for dtype in sorted(allowed & _PASSED)
            if self.supports(identity, [tensor.Tensor("x", dtype, (1,))], {}, opset)
        )


def rewrite_parts(taken: Parts, rng: Rng, limits: RewriteLimits) -> bytes:
    """Turn one to three parts of a model into functions, rewrite their calls, and serialise the model."""
    for _ in range(rng.between(1, 3)):
        part = choose_part(taken, rng, _MOST)
        if part is None or not all(map(limits.is_passable, taken.list_input_dtypes(part))):
            continue
        call = compose_function(taken, part, rng.choice(_DOMAINS), rng)
        if len(part) == 1 and rng.chance(RATES.shared):
            _share_function(taken, taken.functions[call.op_type], call)
        if rng.chance(RATES.repeated):
            _repeat_call(taken, call, rng)
        for rewrite in rng.some(_REWRITES, rng.choice((0, 1, 1, 2))):
            rewrite(taken, taken.functions[call.op_type], rng, limits)
    return bytes(assemble_model(taken).SerializeToString(deterministic=True))


def _wrap_in_closure(taken: Parts, f: FunctionProto, rng: Rng, limits: RewriteLimits) -> None:
    """Call f inside a branch of an If in a new function."""
    if limits.only is not None and not {_IF, "Constant"} <= limits.only:
        return
    had = catalogue.form(_IF, taken.versions[""])
    given = [name for node in taken.nodes if node.op_type == f.name for name in node.output]
    # Every result of the calls in the graph has to be a tensor that a branch may give.
    if had is None or not given or not all(_is_of_dtype(taken, name, had.types["V"]) for name in given):
        return
    then, otherwise = (_make_branch(name, f, rng) for name in ("then_branch", "else_branch"))
    g = _make_empty_like(taken, f, rng)
    condition = helper.make_node("Constant", [], ["always"])
    value = condition.attribute.add()
    value.name, value.type = "value", AttributeProto.TENSOR
    value.t.data_type = TensorProto.BOOL
    # Both branches compute the same, so either value of the condition will do.
    value.t.int32_data.append(rng.below(2))
    switch = helper.make_node(_IF, ["always"], list(g.output), then_branch=then, else_branch=otherwise)
    g.node.extend([condition, switch])
    taken.import_domains(g)
    _redirect_calls(taken, f, g)


def _make_branch(name: str, f: FunctionProto, rng: Rng) -> GraphProto:
    """Return a graph that captures the parameters of f and returns its results, by a call or by its nodes."""
    graph = GraphProto(name=name)
    outputs = [f"{name}_{output}" for output in f.output]
    attributes = [*f.attribute, *(value.name for value in f.attribute_proto)]
    # Nodes that refer to f's attributes are valid inside f alone, and a parameter that f returns has no node.
    if attributes or rng.chance(RATES.plain_call) or set(f.output) & set(f.input):
        graph.node.append(_make_call(f, f.input, outputs))
    else:
        renamed = {made: f"{name}_{made}" for node in f.node for made in node.output if made}
        for node in f.node:
            graph.node.append(node)
            graph.node[-1].name = f"{name}_{node.name}"
        rename_values(graph.node, renamed)
    for output in outputs:
        graph.output.add().name = output
    return graph


def _pass_through_empty(taken: Parts, f: FunctionProto, rng: Rng, limits: RewriteLimits) -> None:
    """Pass the arguments or results of f through an empty function."""
    before = bool(f.input) and rng.chance(RATES.handed_before)
    calls = [place for place, node in enumerate(taken.nodes) if _is_call(node, f)]
    copied = limits.list_copyable(taken.versions[""])
    names = {
        name
        for place in calls
        for name in (taken.nodes[place].input if before else taken.nodes[place].output)
    }
    if not calls or not copied or not all(_is_of_dtype(taken, name, copied) for name in names):
        return
    count = len(f.input) if before else len(f.output)
    g = FunctionProto(domain=rng.choice(_DOMAINS), name=taken.new_name())
    g.input.extend(f"in_{place}" for place in range(count))
    g.output.extend(f"out_{place}" for place in range(count))
    for entered, left in zip(g.input, g.output, strict=True):
        g.node.append(helper.make_node(_IDENTITY, [entered], [left]))
    g.opset_import.add(domain="", version=taken.versions[""])
    taken.functions[g.name] = g
    # From the back, so that the places of earlier calls stay right.
    for ordinal, place in enumerate(reversed(calls)):
        call = taken.nodes[place]
        held = [f"{g.name}_{ordinal}_{number}" for number in range(count)]
        if before:
            extra = NodeProto(op_type=g.name, domain=g.domain, input=list(call.input), output=held)
            call.input[:] = held
        else:
            extra = NodeProto(op_type=g.name, domain=g.domain, input=held, output=list(call.output))
            call.output[:] = held
        extra.name = f"call_{g.name}_{ordinal}"
        taken.mark_changed(call)
        taken.nodes.insert(place if before else place + 1, extra)


def _call_through(taken: Parts, f: FunctionProto, rng: Rng, limits: RewriteLimits) -> None:
    """Call f through a new function of the same parameters."""
    g = _make_empty_like(taken, f, rng)
    g.node.append(_make_call(f, g.input, g.output))
    g.opset_import.add(domain=f.domain, version=1)
    _redirect_calls(taken, f, g)


_Rewrite = Callable[[Parts, FunctionProto, Rng, RewriteLimits], None]
_REWRITES: Final[tuple[_Rewrite, ...]] = (_wrap_in_closure, _pass_through_empty, _call_through)


def _make_empty_like(taken: Parts, f: FunctionProto, rng: Rng) -> FunctionProto:
    """Return a function with the parameters of f and without nodes."""
    g = FunctionProto(domain=rng.choice(_DOMAINS), name=taken.new_name())
    g.input.extend(f.input)
    g.output.extend(f"{name}_out" for name in f.output)
    g.attribute.extend(f.attribute)
    g.attribute_proto.extend(f.attribute_proto)
    return g


def _make_call(f: FunctionProto, inputs: Iterable[str], outputs: Iterable[str]) -> NodeProto:
    """Return a call of f from a function with the same attributes."""
    call = NodeProto(op_type=f.name, domain=f.domain, name=f"inner_{f.name}", input=inputs, output=outputs)
    # A function lists only names of its attributes; their kinds follow from the nodes that use them.
    kinds = {item.ref_attr_name: item.type for node in all_nodes(f.node) for item in node.attribute}
    for name in (*f.attribute, *(value.name for value in f.attribute_proto)):
        call.attribute.add(name=name, type=kinds[name], ref_attr_name=name)
    return call


def _redirect_calls(taken: Parts, f: FunctionProto, g: FunctionProto) -> None:
    """Call g instead of f everywhere except inside g."""
    for function in taken.functions.values():
        for node in all_nodes(function.node):
            if _is_call(node, f):
                node.op_type, node.domain = g.name, g.domain
        if any(_is_call(node, g) for node in all_nodes(function.node)) and g.domain not in {
            entry.domain for entry in function.opset_import
        }:
            function.opset_import.add(domain=g.domain, version=1)
    for node in taken.nodes:
        if _is_call(node, f):
            node.op_type, node.domain = g.name, g.domain
    taken.functions[g.name] = g


def _is_call(node: NodeProto, f: FunctionProto) -> bool:
    """Return whether a node calls a function."""
    return node.op_type == f.name and node.domain == f.domain


def _share_function(taken: Parts, f: FunctionProto, call: NodeProto) -> None:
    """Let other nodes that equal the node of f, apart from attributes that f takes, call f."""
    pattern = f.node[0]
    if any(
        attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in pattern.attribute
    ):
        return
    absent = [not name for name in pattern.input]
    # A node that reads one value twice gave f a single parameter for both.
    if len(set(filter(None, pattern.input))) < len(pattern.input) - sum(absent):
        return
    lifted = {item.name: item.ref_attr_name for item in pattern.attribute if item.ref_attr_name}
    fixed = {item.name: item.SerializeToString() for item in pattern.attribute if not item.ref_attr_name}
    # A constant that becomes a call has no declared type.
    taken.get_dtypes()
    for node in taken.nodes:
        if (node.op_type, node.domain, len(node.output)) != (pattern.op_type, pattern.domain, len(f.output)):
            continue
        given = {item.name: item for item in node.attribute}
        own = {name: item.SerializeToString() for name, item in given.items() if name not in lifted}
        if (
            [not name for name in node.input] == absent
            and len(f.output) == len(pattern.output)
            and all(node.output)
            and own == fixed
            and given.keys() == lifted.keys() | fixed.keys()
            and all(given[name].type == item.type for item in pattern.attribute for name in (item.name,))
        ):
            wanted = [given[name] for name in lifted]
            del node.attribute[:]
            for item, name in zip(wanted, lifted.values(), strict=True):
                node.attribute.add().CopyFrom(item)
                node.attribute[-1].name = name
            node.input[:] = [name for name in node.input if name]
            node.op_type, node.domain = call.op_type, call.domain
            taken.mark_changed(node)


def _repeat_call(taken: Parts, call: NodeProto, rng: Rng) -> None:
    """Call a function a second time on the same inputs, for some readers of the results."""
    place = taken.nodes.index(call)
    again = copied(call)
    again.name = f"{call.name}_again"
    twins = {name: f"{name}_{call.op_type}" for name in call.output if name}
    again.output[:] = [twins.get(name, "") for name in call.output]
    for node in taken.nodes[place + 1 :]:
        if rng.chance(RATES.twin_read):
            node.input[:] = [twins.get(name, name) for name in node.input]
            taken.mark_changed(node)
    taken.nodes.insert(place + 1, again)
    taken.twins.update((twin, name) for name, twin in twins.items())


def _is_of_dtype(taken: Parts, name: str, allowed: frozenset[str]) -> bool:
    """Return whether a value is known to be a tensor of one of the dtypes."""
    dtype = taken.get_dtype(name)
    return dtype in NUMBERS and dtype in allowed
