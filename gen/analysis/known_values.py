"""Sizes that a model computes: what its nodes make of shapes and small constants, once the shapes are known.

Exporters of models with open sizes write a Reshape whose shape is put together of Shape, Gather, Slice,
Concat and some arithmetic. Rules of types need those numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from opsieve.gen.declarations.tensor import Attributes, Tensor
from opsieve.gen.graph.graph import is_closed

# Elements
_MOST: Final = 64
_WHOLE: Final = ("int64", "int32", "bool")
_PLAIN: Final[Mapping[str, Callable[..., Any]]] = {
    "Identity": lambda x: x,
    "Cast": lambda x: x,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": lambda x, y: np.trunc(np.divide(x, y)),
    "Mod": np.mod,
    "Equal": np.equal,
    "Where": np.where,
    "Reshape": lambda x, sizes: x.reshape([int(size) for size in sizes]),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(int(axis) for axis in axes)),
    "Squeeze": lambda x, axes=None: np.squeeze(
        x, None if axes is None else tuple(int(axis) for axis in axes)
    ),
    "ConstantOfShape": lambda sizes: np.zeros([int(size) for size in sizes], np.int64),
    "Range": lambda start, limit, step: np.arange(start, limit, step),
}


def known_values(
    op: str, ins: Sequence[Tensor | None], attrs: Attributes, out: Tensor
) -> tuple[Any, ...] | None:
    """Compute the elements of an ONNX node's result, whole numbers or truths, from those of its inputs;
    returns `None` if they are unknown.
    """
    if (
        out.dtype not in _WHOLE
        or not ins
        or (op != "Shape" and op not in _PLAIN and op not in ("Gather", "Concat", "Slice"))
    ):
        return None
    first = ins[0]
    if op == "Shape" and first is not None and is_closed(first.shape):
        return first.shape[slice(attrs.get("start"), attrs.get("end"))]
    arrays = []
    for each in ins:
        if each is None or each.values is None or each.dtype not in _WHOLE:
            return None
        arrays.append(np.array(each.values).reshape(each.shape))
    try:
        found = np.asarray(_evaluate_node(op, arrays, attrs))
    except (
        IndexError,
        TypeError,
        ValueError,
        ZeroDivisionError,
        MemoryError,
    ):
        # what a model of anybody says
        return None
    return (
        tuple(found.astype(np.int64).ravel().tolist())
        if found.size <= _MOST and found.shape == out.shape
        else None
    )


def _evaluate_node(op: str, arrays: Sequence[Any], attrs: Attributes) -> Any:
    if op == "Gather":
        return np.take(arrays[0], arrays[1].astype(np.int64), attrs.get("axis", 0))
    if op == "Concat":
        return np.concatenate(arrays, attrs["axis"])
    if op == "Slice":
        starts, ends, *rest = arrays[1:]
        axes, steps = (list(rest[place]) if place < len(rest) else None for place in (0, 1))
        cuts = [slice(None)] * arrays[0].ndim
        for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
            cuts[int(axes[place]) if axes else place] = slice(
                int(start), int(end), int(steps[place]) if steps else 1
            )
        return arrays[0][tuple(cuts)]
    if op == "ConstantOfShape" and "value" in attrs:
        return np.full([int(size) for size in arrays[0]], attrs["value"].item())
    if op == "Squeeze" and "axes" in attrs:
        return np.squeeze(arrays[0], tuple(attrs["axes"]))
    return _PLAIN[op](*arrays)
