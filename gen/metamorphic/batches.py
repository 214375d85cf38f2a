"""The batch split and concatenated: where every row of the first axis is computed by itself, it is computed in two parts.

Whether an operator keeps rows apart follows from its family where that is elementwise, and for the others by the rules below, from the
operator pages of ONNX.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, numpy_helper

from opsieve.gen.generation.wrapping import reads
from opsieve.gen.metamorphic.rewrites import Rewriting
from opsieve.gen.model.structure import bodies
from opsieve.gen.spec.catalogue import operators
from opsieve.gen.spec.schema import OLDEST
from opsieve.gen.spec.tensor import Tensor

# Of each input, whether it is split along its first axis; None where the operator does not keep rows apart.
Rule = Callable[[Sequence[Tensor], Mapping[str, Any]], Sequence[bool] | None]

_UNARY = frozenset(("unary",))
_BROADCASTING = frozenset(("binary", "comparison", "bits", "logic", "variadic"))
_IMAGES = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool",
           "InstanceNormalization", "LRN", "DepthToSpace", "SpaceToDepth")  # fmt: skip


def split_batch(at: Rewriting) -> None:
    """Each node that keeps the rows of its first axis apart runs on two parts of them, and the results are put together again."""
    if at.opset < OLDEST:
        return
    parts: dict[str, tuple[str, str]] = {}
    made: list[NodeProto] = []
    for node in at.nodes:
        split = _split_inputs(at, node)
        if split is None or not at.chosen(node.output[0]):
            made.append(node)
            continue
        for name in dict.fromkeys(name for name, apart in zip(node.input, split, strict=True) if apart):
            if name not in parts:
                parts[name] = (at.fresh(name), at.fresh(name))
                made.append(at.node("Split", [name, _sizes(at, _rows(at.tensors[name]))], parts[name], axis=0))
        halves = [_half(at, node, split, parts, side) for side in (0, 1)]
        made += halves
        for first, second, whole in zip(*(half.output for half in halves), node.output, strict=True):
            parts[whole] = (first, second)
            made.append(at.node("Concat", [first, second], [whole], axis=0))
        at.rewritten = True
    at.nodes = _read_later(made, at.outputs)


def _half(
    at: Rewriting, node: NodeProto, split: Sequence[bool], parts: Mapping[str, tuple[str, str]], side: int
) -> NodeProto:
    half = NodeProto()
    half.CopyFrom(node)
    half.name = at.fresh(node.name or node.output[0])
    half.input[:] = [parts[name][side] if apart else name for name, apart in zip(node.input, split, strict=True)]
    half.output[:] = [at.fresh(name) for name in node.output]
    return half


def _read_later(nodes: list[NodeProto], outputs: set[str]) -> list[NodeProto]:
    """The nodes without the Concats of results whose parts alone are read."""
    read = outputs | {name for node in nodes for name in reads(node)}
    return [node for node in nodes if node.op_type != "Concat" or any(name in read for name in node.output)]


def _sizes(at: Rewriting, rows: int) -> str:
    name = at.fresh(f"rows_{rows}")
    at.model.graph.initializer.append(numpy_helper.from_array(np.array([rows // 2, rows - rows // 2], np.int64), name))
    return name


def _rows(tensor: Tensor) -> int:
    """The size of the first axis, 0 where there is none or it is not known."""
    return tensor.shape[0] if tensor.shape and isinstance(tensor.shape[0], int) else 0


def _split_inputs(at: Rewriting, node: NodeProto) -> Sequence[bool] | None:
    """Which inputs of a node are split; None where the node is left whole."""
    op = operators().get(node.op_type) if at.is_standard(node) else None
    ins = [at.tensors.get(name) for name in node.input]
    if op is None or not all(node.output) or any(each is None or not each.dtype for each in ins) or any(bodies(node)):
        return None
    known = [each for each in ins if each is not None]
    attributes = {each.name: _plain(each) for each in node.attribute}
    if op.family in _UNARY or node.op_type == "Cast":
        split: Sequence[bool] | None = [place == 0 for place in range(len(known))]
    elif op.family in _BROADCASTING and len(node.output) == 1:
        split = _broadcast(known)
    else:
        rule = _RULES.get(node.op_type)
        split = rule(known, attributes) if rule is not None and len(node.output) == 1 else None
    if split is None:
        return None
    rows = {_rows(tensor) for tensor, apart in zip(known, split, strict=True) if apart}
    names = [name for name, apart in zip(node.input, split, strict=True) if apart]
    fits = len(rows) == 1 and min(rows) >= 2 and all(at.takes("Split", name) for name in names)
    return split if fits and all(at.takes("Concat", name) for name in node.output) else None


def _plain(attribute: Any) -> Any:
    return list(attribute.ints) or attribute.i


def _broadcast(ins: Sequence[Tensor]) -> Sequence[bool] | None:
    """The operands that have the first axis of the result; those that lack it, or have 1 there, are given whole."""
    rank = max(tensor.rank for tensor in ins)
    sizes = {_rows(tensor) for tensor in ins if tensor.rank == rank}
    if not rank or 0 in sizes or len(sizes - {1}) != 1:
        return None
    return [tensor.rank == rank and _rows(tensor) > 1 for tensor in ins]


def _first(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    return [place == 0 for place in range(len(ins))]


def _along(default: int) -> Rule:
    """Of an operator along one axis, which is another than the first."""

    def rule(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
        rank = ins[0].rank
        return _first(ins, attributes) if rank and attributes.get("axis", default) % rank else None

    return rule


def _normalised(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """LayerNormalization: scale and bias reach over the normalised axes, or more as far as they are 1 there."""
    split = _along(-1)(ins, attributes)
    return split if all(each.rank < ins[0].rank or _rows(each) == 1 for each in ins[1:]) else None


def _concatenated(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    return [True] * len(ins) if ins[0].rank and attributes.get("axis", 0) % ins[0].rank else None


def _transposed(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    order = attributes.get("perm")
    return [True] if isinstance(order, list) and order and order[0] == 0 else None


def _product(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """MatMul: rows of the first factor where it is a matrix, else stacks of matrices, which broadcast."""
    first, second = ins
    if max(first.rank, second.rank) > 2:
        return _broadcast(ins)
    return [True, False] if first.rank == 2 else None


def _gemm(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    if attributes.get("transA", 0):
        return None
    return [True, False, *(each.rank == 2 and _rows(each) > 1 for each in ins[2:])]


def _reduced(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """A reduction over known axes, none of which is the first."""
    axes = attributes.get("axes") or (ins[1].values if len(ins) > 1 else None)
    if not isinstance(axes, list | tuple) or not axes or any(int(axis) % max(1, ins[0].rank) == 0 for axis in axes):
        return None
    return _first(ins, attributes)


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_IMAGES, _first),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _along(-1)),
    **dict.fromkeys(
        (f"Reduce{name}" for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare")), _reduced
    ),
    "LayerNormalization": _normalised,
    "Concat": _concatenated,
    "Transpose": _transposed,
    "MatMul": _product,
    "Gemm": _gemm,
}
