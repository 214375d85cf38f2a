"""Where an operator computes every row of the first axis by itself: which of its inputs are split with the
batch.

From the operator pages of ONNX. Of families that are elementwise it follows from the family
(gen/metamorphic/batches.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsieve.gen.declarations.tensor import Tensor

# Of each input, whether it is split along its first axis; None where the operator does not keep rows apart.
RowRule = Callable[[Sequence[Tensor], Mapping[str, Any]], Sequence[bool] | None]


def row_count(tensor: Tensor) -> int:
    """The size of the first axis, 0 where there is none or it is not known."""
    return tensor.shape[0] if tensor.shape and isinstance(tensor.shape[0], int) else 0


def broadcast_rows(ins: Sequence[Tensor]) -> Sequence[bool] | None:
    """The operands that have the first axis of the result; those that lack it, or have 1 there, are given
    whole.
    """
    rank = max(tensor.rank for tensor in ins)
    sizes = {row_count(tensor) for tensor in ins if tensor.rank == rank}
    if not rank or 0 in sizes or len(sizes - {1}) != 1:
        return None
    return [tensor.rank == rank and row_count(tensor) > 1 for tensor in ins]


def rows_of_first(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """The first input alone: the others are the same for every row."""
    return [place == 0 for place in range(len(ins))]


def rows_beside_axis(default: int) -> RowRule:
    """Of an operator along one axis, which is another than the first."""

    def rule(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
        rank = ins[0].rank
        return rows_of_first(ins, attributes) if rank and attributes.get("axis", default) % rank else None

    return rule


def normalised_rows(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """LayerNormalization: scale and bias reach over the normalised axes, or more as far as they are 1
    there.
    """
    split = rows_beside_axis(-1)(ins, attributes)
    return split if all(each.rank < ins[0].rank or row_count(each) == 1 for each in ins[1:]) else None


def concatenated_rows(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """Every input, joined along another axis than the first."""
    return [True] * len(ins) if ins[0].rank and attributes.get("axis", 0) % ins[0].rank else None


def transposed_rows(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """The input, where the first axis stays the first."""
    order = attributes.get("perm")
    return [True] if isinstance(order, list) and order and order[0] == 0 else None


def product_rows(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """MatMul: rows of the first factor where it is a matrix, else stacks of matrices, which broadcast."""
    first, second = ins
    if max(first.rank, second.rank) > 2:
        return broadcast_rows(ins)
    return [True, False] if first.rank == 2 else None


def gemm_rows(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """Rows of the first factor, and of what is added where it has as many."""
    if attributes.get("transA", 0):
        return None
    return [True, False, *(each.rank == 2 and row_count(each) > 1 for each in ins[2:])]


def reduced_rows(ins: Sequence[Tensor], attributes: Mapping[str, Any]) -> Sequence[bool] | None:
    """A reduction over known axes, none of which is the first."""
    axes = attributes.get("axes") or (ins[1].values if len(ins) > 1 else None)
    if (
        not isinstance(axes, list | tuple)
        or not axes
        or any(int(axis) % max(1, ins[0].rank) == 0 for axis in axes)
    ):
        return None
    return rows_of_first(ins, attributes)
