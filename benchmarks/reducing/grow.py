"""A host of any size around a small failing model: what a bug looks like before somebody has reduced it.

    python benchmarks/reducing/grow.py MODEL.onnx SIZE OUT.onnx [--seed N] [--above]

Every input of the model passes through a random graph of elementwise operators and arrives unchanged, by the
law of absorption: max(min(x, v), x) is x for every v, also in floating point, and no compiler is known to use
it. Every output feeds such a graph too, unless the host is to lie above only: some bugs need an output that
nobody reads. The same seed gives the same host.
"""

import argparse
import random
from pathlib import Path

import onnx
from onnx import TensorProto, helper

_FLOATS = frozenset([TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
_INTEGERS = frozenset([TensorProto.INT32, TensorProto.INT64])
_INTEGER_MAX = 12  # the opset from which Max and Min take integers
_NEAR = 12  # how far back a node reads
_FAR = 0.1  # the share of nodes that read from anywhere before


def grown(model: onnx.ModelProto, size: int, seed: int = 0, above: bool = False) -> onnx.ModelProto:
    """The model with about `size` nodes of a host around it; inputs keep their names, types and values."""
    draw = random.Random(seed)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in stored and _lane(info, opset)]
    outputs = [info for info in graph.output if _lane(info, opset) and not above]
    if not inputs and not outputs:
        raise ValueError(
            "neither an input nor an output of the model is of a type that a host can be made of"
        )
    share = size // (len(inputs) + len(outputs))
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    types: list[onnx.ValueInfoProto] = []
    fresh = _Names(graph)
    for info in inputs:
        values = _graph(draw, _lane(info, opset), info.name, share - 2, before, fresh)
        arrived = _absorbed(_lane(info, opset), info.name, values[-1], before, fresh)
        types.append(onnx.ValueInfoProto(name=arrived, type=info.type))  # some bugs need to know it
        for node in graph.node:
            for place, name in enumerate(node.input):
                if name == info.name:
                    node.input[place] = arrived
    for info in outputs:
        start = len(after)
        _graph(draw, _lane(info, opset), info.name, share, after, fresh)
        read = {name for node in after[start:] for name in node.input}
        for node in after[start:]:
            if node.output[0] not in read:
                graph.output.append(onnx.ValueInfoProto(name=node.output[0], type=info.type))
    own = list(graph.node)
    del graph.node[:]
    graph.node.extend([*before, *own, *after])
    graph.value_info.extend(types)
    return result


class _Names:
    """Names that the model does not have."""

    def __init__(self, graph: onnx.GraphProto):
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self._taken |= {info.name for info in (*graph.input, *graph.output, *graph.initializer)}
        self._count = 0

    def __call__(self) -> str:
        while f"h{self._count}" in self._taken:
            self._count += 1
        self._count += 1
        return f"h{self._count - 1}"


def _lane(info: onnx.ValueInfoProto, opset: int) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Unary and binary operators over a value of this type; the binary ones are lattice operations, meet
    first.
    """
    dtype = info.type.tensor_type.elem_type
    if not info.type.HasField("tensor_type"):
        return None
    if dtype in _FLOATS:
        return ("Neg", "Abs", "Sigmoid", "Softsign"), ("Min", "Max")
    if dtype in _INTEGERS and opset >= _INTEGER_MAX:
        return ("Neg", "Abs"), ("Min", "Max")
    return (("Not",), ("And", "Or")) if dtype == TensorProto.BOOL else None


def _graph(
    draw: random.Random,
    lane: tuple[tuple[str, ...], tuple[str, ...]] | None,
    start: str,
    size: int,
    nodes: list[onnx.NodeProto],
    fresh: _Names,
) -> list[str]:
    """A random graph over one value; its values, in order."""
    assert lane is not None
    unary, binary = lane
    values = [start]
    for _ in range(max(1, size)):
        near = values if draw.random() < _FAR else values[-_NEAR:]
        operator = draw.choice((*unary, *binary, *binary))
        read = [draw.choice(values[-3:]), *([draw.choice(near)] if operator in binary else [])]
        values.append(fresh())
        nodes.append(helper.make_node(operator, read, values[-1:], f"node_{values[-1]}"))
    return values


def _absorbed(
    lane: tuple[tuple[str, ...], tuple[str, ...]] | None,
    value: str,
    other: str,
    nodes: list[onnx.NodeProto],
    fresh: _Names,
) -> str:
    """The value itself, after a meet and a join with another."""
    assert lane is not None
    low, high = fresh(), fresh()
    nodes.append(helper.make_node(lane[1][0], [value, other], [low], f"node_{low}"))
    nodes.append(helper.make_node(lane[1][1], [low, value], [high], f"node_{high}"))
    return high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("size", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--above", action="store_true", help="nothing reads the outputs of the model")
    options = parser.parse_args()
    model = grown(onnx.load(options.model), options.size, options.seed, options.above)
    onnx.save(model, options.out)
    print(f"{options.out}: {len(model.graph.node)} nodes, {model.ByteSize()} bytes")


if __name__ == "__main__":
    main()
