"""ONNX models as torch modules: the core of our lowering, which runs in workers only.

`Lowered(model)` is a `torch.nn.Module`; a table maps every operator to a rule, a function `rule(node,
*inputs)` of a few lines over torch tensors. The rules stand in files by family (`FAMILIES`); ONNX's operator
pages (https://onnx.ai/onnx/operators/) are their source. An operator without a rule is lowered through its
function definition in ONNX, if there is one; otherwise it is Unsupported, with the reason. No lowering is
approximate.

Some operands must be known to Python (the shape of a Reshape, the condition of an If): they are *asked*. Run
directly, a module asks the tensors. Compilers trace a module without values, so `record` runs it once on the
inputs at hand and keeps every answer; after that the module asks what it has kept. The program that is
compiled is then the one with those operands constant, which is the same program on these inputs.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Sequence

import onnx
import torch
from onnx import numpy_helper

from opsieve.backends.compilers.torch import (
    elementwise,
    flow,
    indexing,
    math_ops,
    quantized,
    recurrent,
    resampling,
    shapes,
    signal_ops,
    values as onnx_values,
    windows,
)
from opsieve.backends.compilers.torch.values import Unsupported, to_tensor as to_tensor, to_value as to_value

STANDARD = ("", "ai.onnx")
OLDEST = 7  # before it, broadcasting and most reductions were other operators
Rule = Callable[..., Any]


class NodeView:
    """A rule's view of its node: `n("axis", 0)` is an attribute or its default, `opset` its domain's."""

    def __init__(self, op: str, opset: int, attributes: Mapping[str, Any], wanted: int) -> None:
        self.op, self.opset, self.attributes = op, opset, dict(attributes)
        # Looked up now: torch's compiler does not follow calls into onnx.
        numbers = {name: self.attributes.get(name, 0) for name in onnx_values.DTYPE_ATTRIBUTES}
        self.dtypes = {name: onnx_values.element(number) for name, number in numbers.items() if number}
        self.wanted = wanted  # outputs up to the last that has a name

    def __call__(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def dtype(self, name: str, default: Any = None) -> Any:
        """Return the torch dtype of an attribute that holds one of ONNX's numbers of element types."""
        return self.dtypes.get(name, default)

    @staticmethod
    def one(value: Any, default: Any = None) -> Any:
        """Return the requested number, whether its tensor had no dimension or one; the default if it is
        absent.
        """
        value = value[0] if isinstance(value, list) else value
        return default if value is None else value

    def refuse(self, why: str) -> Any:
        """Raise Unsupported."""
        raise Unsupported("%s: %s" % (self.op, why))


class Tape:
    """The operands that Python reads: taken from tensors the first time, kept by the place where they were
    read.
    """

    def __init__(self, kept: dict[int, list[Any]] | None = None) -> None:
        self.recording = kept is None
        self.kept: dict[int, list[Any]] = {} if kept is None else kept
        self.places: dict[int, int] = {}

    def read(self, key: int, value: Any) -> Any:
        """Return the value as a Python number, or as nested lists of them."""
        place = self.places.get(key, 0)
        self.places[key] = place + 1
        if not self.recording:
            return self.kept[key][place]
        plain = None if value is None else value.tolist()
        self.kept.setdefault(key, []).append(plain)
        return plain


class LoweredNode:
    """A node with its rule; `asks` are the positions of its inputs that Python has to know, `also` those it
    wants twice.
    """

    def __init__(self, key: int, node: NodeView, rule: Rule, inputs: list[str], outputs: list[str]) -> None:
        self.key, self.node, self.rule, self.inputs, self.outputs = key, node, rule, inputs, outputs
        self.asks: tuple[int, ...] = ()
        self.also: tuple[int, ...] = ()
        # Control flow and functions: they run blocks
        self.flow: Callable[..., Any] | None = None
        self.blocks: dict[str, Block] = {}

    def run(self, env: Mapping[str, Any], tape: Tape) -> Any:
        """Return the outputs of the node, one value or a tuple of them."""
        values = []
        for position, name in enumerate(self.inputs):
            if name and position in self.asks:
                # A pruned block no longer makes it
                values.append(tape.read(self.key, env.get(name)))
            else:
                values.append(env[name] if name else None)
        if self.flow is not None:
            return self.flow(self, values, env, tape)
        values += [tape.read(self.key, values[position]) for position in self.also]
        return self.rule(self.node, *values)


class Block(torch.nn.Module):  # type: ignore[misc]  # torch is not there when types are checked
    """A graph, a body or a function: constants (buffers), steps in order, names of inputs and outputs."""

    def __init__(self, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        super().__init__()
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.steps: list[LoweredNode] = []
        self.constants: dict[str, str] = {}

    def constant(self, name: str, value: torch.Tensor) -> None:
        """Add a constant."""
        self.constants[name] = "c%d" % len(self.constants)
        self.register_buffer(self.constants[name], value)

    def forward(self, env: Mapping[str, Any], tape: Tape) -> list[Any]:
        """Compute the outputs; `env` holds the inputs and the values visible from outside."""
        env = dict(env)
        for name, buffer in self.constants.items():
            if name not in env or name not in self.inputs:
                env[name] = getattr(self, buffer)
        for step in self.steps:
            made = step.run(env, tape)
            made = made if isinstance(made, tuple) else (made,)
            if len(made) < len(step.outputs):
                raise Unsupported("%s: output %d is not made" % (step.node.op, len(made)))
            for name, value in zip(step.outputs, made):
                if name:
                    env[name] = value
        return [env[name] if name else None for name in self.outputs]


class Lowered(torch.nn.Module):  # type: ignore[misc]  # as above
    """A model as a torch module. `names` are the inputs that its forward takes, in order; `outputs` those
    that it returns.
    """

    def __init__(self, model: Any, fed: Iterable[str]) -> None:
        super().__init__()
        fed = set(fed)
        self.names = [item.name for item in model.graph.input if item.name in fed]
        self.outputs = [item.name for item in model.graph.output]
        opsets = {item.domain: item.version for item in model.opset_import}
        self.block = Lowering(model).graph(model.graph, opsets)
        given = {name for name in self.block.constants}
        missing = [item.name for item in model.graph.input if item.name not in fed and item.name not in given]
        self.absent = {name: None for name in missing}  # an optional input that was left out
        self.kept: dict[int, list[Any]] | None = None

    def forward(self, *values: Any) -> tuple[Any, ...]:
        """Compute the outputs for the inputs `names`."""
        env = dict(self.absent)
        env.update(zip(self.names, values))
        return tuple(self.block(env, Tape(self.kept)))

    def to_tensors(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of forward, from values by name."""
        return [to_tensor(values[name]) for name in self.names]

    def to_values(self, made: Iterable[Any]) -> dict[str, Any]:
        """Return values by name, from the result of forward."""
        return dict(zip(self.outputs, map(to_value, made)))

    def record(self, *values: Any) -> list[str]:
        """Run once, keep all asked values, drop the steps that only served those; returns the operators that
        asked for data-dependent values.
        """
        tape = Tape()
        env = dict(self.absent)
        env.update(zip(self.names, values))
        self.block(env, tape)
        self.kept = tape.kept
        decided = sorted(asks_data(self.block, set(self.names)))
        prune(self.block)
        return decided


class Lowering:
    """Makes blocks of one model's graphs."""

    def __init__(self, model: Any) -> None:
        self.functions = {(item.domain, item.name): item for item in model.functions}
        self.count = 0
        self.depth = 0
        self.opsets: dict[str, int] = {}

    def graph(self, graph: Any, opsets: Mapping[str, int], bound: Mapping[str, Any] | None = None) -> Block:
        """Make a block for a GraphProto; `bound` are the attributes of the function around it."""
        if graph.sparse_initializer:
            raise Unsupported("sparse initializers")
        block = Block((item.name for item in graph.input), (item.name for item in graph.output))
        for tensor in graph.initializer:
            block.constant(tensor.name, to_tensor(numpy_helper.to_array(tensor)))
        self.nodes(block, graph.node, opsets, bound or {})
        return block

    def function(
        self, function: Any, opsets: Mapping[str, int], node: NodeView, named: Sequence[bool]
    ) -> Block:
        """Make a block for one call of a FunctionProto; `named` are the outputs that the node names."""
        self.depth += 1
        # A stranger's functions may call each other in a circle.
        if self.depth > 100:
            raise Unsupported("functions that are nested more than 100 deep")
        bound = {item.name: onnx_values.attribute(item) for item in function.attribute_proto}
        bound.update((name, node.attributes[name]) for name in function.attribute if name in node.attributes)
        bound.update((name, node.attributes[name]) for name in list(bound) if name in node.attributes)
        versions = dict(opsets)
        versions.update((item.domain, item.version) for item in function.opset_import)
        block = Block(function.input, [name if asked else "" for name, asked in zip(function.output, named)])
        self.nodes(block, function.node, versions, bound)
        self.depth -= 1
        return block

    def nodes(
        self, block: Block, nodes: Iterable[Any], opsets: Mapping[str, int], bound: Mapping[str, Any]
    ) -> None:
        """Add a step for every node."""
        for proto in nodes:
            outputs = list(proto.output)
            while outputs and not outputs[-1]:
                outputs.pop()
            domain = "" if proto.domain in STANDARD else proto.domain
            opset = opsets.get(domain, opsets.get("ai.onnx", 0) if not domain else 0)
            given, bodies = onnx_values.attributes(proto, bound)
            node = NodeView(proto.op_type, opset, given, len(outputs))
            if not domain and opset < OLDEST:
                raise Unsupported("opset %d, which is older than %d" % (opset, OLDEST))
            if not domain and proto.op_type == "Constant":
                block.constant(outputs[0], onnx_values.constant(node))
                continue
            self.count += 1
            step = LoweredNode(self.count, node, _refuse_node, list(proto.input), outputs)
            step.blocks = {name: self.graph(body, opsets, bound) for name, body in bodies.items()}
            self.choose(step, proto, domain, opsets)
            block.steps.append(step)
            for name, body in step.blocks.items():
                block.add_module("b%d_%s" % (step.key, name), body)

    def choose(self, step: LoweredNode, proto: Any, domain: str, opsets: Mapping[str, int]) -> None:
        """Give a step its rule."""
        op = proto.op_type
        local = self.functions.get((proto.domain, op)) or self.functions.get((domain, op))
        if local is not None:
            step.blocks["definition"] = self.function(
                local, opsets, step.node, [bool(name) for name in step.outputs]
            )
            step.flow = _call
        elif not domain and op in FLOWS:
            step.flow = FLOWS[op]
        elif not domain and op in TABLE:
            step.rule, step.asks, step.also = TABLE[op], ASKS.get(op, ()), ALSO.get(op, ())
        else:
            schema = schema_of(op, step.node.opset, domain)
            # Its definition can depend on the types of its inputs: it is lowered when it runs first.
            step.flow = _Defined(self, schema, proto, domain, dict(opsets))


class _Defined:
    """An operator that runs as ONNX's definition of it."""

    def __init__(
        self, lowering: Lowering, schema: Any, proto: Any, domain: str, opsets: dict[str, int]
    ) -> None:
        self.lowering, self.schema, self.proto = lowering, schema, proto
        self.domain, self.opsets = domain, opsets

    def __call__(self, step: LoweredNode, values: list[Any], env: Mapping[str, Any], tape: Tape) -> Any:
        if "definition" not in step.blocks:
            step.blocks["definition"] = self.lower(step, values)
        return _call(step, values, env, tape)

    def lower(self, step: LoweredNode, values: list[Any]) -> Block:
        """Return the block of the definition, for inputs of these types."""
        schema, opset = self.schema, step.node.opset
        if schema.has_function:
            versions = [version for version in schema.function_opset_versions if version <= opset]
            data = (
                schema.get_function_with_opset_version(max(versions))
                if versions and not self.domain
                else None
            )
            function = onnx.FunctionProto.FromString(data) if data else schema.function_body
        else:
            types = [onnx_values.serialised_type(value) for value in values]
            node = onnx.NodeProto()
            node.CopyFrom(self.proto)
            del node.attribute[:]
            for item in self.proto.attribute:
                if not item.ref_attr_name:
                    node.attribute.append(item)
                elif isinstance(step.node(item.name), torch.Tensor):
                    raise Unsupported("%s: a tensor that the function around it is given" % step.node.op)
                elif step.node(item.name) is not None:
                    node.attribute.append(onnx.helper.make_attribute(item.name, step.node(item.name)))
            versions = [item for item in schema.context_dependent_function_opset_versions if item <= opset]
            version = max(versions) if versions and not self.domain else schema.since_version
            data = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), types
            )
            function = onnx.FunctionProto.FromString(data)
        return self.lowering.function(function, self.opsets, step.node, [bool(name) for name in step.outputs])


def schema_of(op: str, opset: int, domain: str) -> Any:
    """Return ONNX's schema of an operator that is defined as a function; raises Unsupported if
    there is none.
    """
    label = "%s.%s" % (domain, op) if domain else op
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        raise Unsupported("%s: no such operator in opset %d" % (label, opset)) from None
    # Not in its stub
    defined = schema.has_function or schema.has_context_dependent_function  # type: ignore[attr-defined]
    if not defined:
        raise Unsupported("%s: the table has no rule for it" % label)
    return schema


def _refuse_node(node: NodeView, *_: Any) -> Any:
    node.refuse("no rule")


def _call(step: LoweredNode, values: list[Any], env: Mapping[str, Any], tape: Tape) -> Any:
    body = step.blocks["definition"]
    padded = values + [None] * (len(body.inputs) - len(values))
    return tuple(body(dict(zip(body.inputs, padded)), tape))


def asks_data(block: Block, data: set[str]) -> set[str]:
    """Return the operators of a block that read values that depend on those named in `data`, and not only
    their shapes.
    """
    data, found = set(data), set()
    for step in block.steps:
        used = set(step.inputs) | {name for body in step.blocks.values() for name in free_names(body)}
        positions = range(len(step.inputs)) if step.blocks else (*step.asks, *step.also)
        if any(step.inputs[at] in data for at in positions if at < len(step.inputs)):
            found.add(step.node.op)
        if used & data and step.node.op not in ("Shape", "Size", "SequenceLength"):
            data.update(step.outputs)
    return found


def prune(block: Block) -> None:
    """Drop the steps of a recorded block that only computed asked values."""
    needed, left = set(block.outputs), []
    for step in reversed(block.steps):
        if not needed.intersection(step.outputs):
            continue
        left.append(step)
        needed.update(name for at, name in enumerate(step.inputs) if at not in step.asks)
        for body in step.blocks.values():
            needed.update(free_names(body))
    block.steps = left[::-1]


def free_names(block: Block) -> set[str]:
    """Return the names that a body reads; its own are among them and do no harm."""
    names = set(block.outputs)
    for step in block.steps:
        names.update(step.inputs)
        for body in step.blocks.values():
            names |= free_names(body)
    return names


TABLE: dict[str, Rule] = {}
ASKS: dict[str, tuple[int, ...]] = {}
ALSO: dict[str, tuple[int, ...]] = {}
FLOWS: dict[str, Callable[..., Any]] = flow.FLOWS
FAMILIES: tuple[Any, ...] = (
    elementwise, shapes, indexing, math_ops, windows, resampling, recurrent, quantized, flow, signal_ops
)  # fmt: skip
for _family in FAMILIES:
    TABLE.update(_family.TABLE)
    ASKS.update(getattr(_family, "ASKS", {}))
    ALSO.update(getattr(_family, "ALSO", {}))
