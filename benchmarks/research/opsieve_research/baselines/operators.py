"""The operators of the baselines, with their shape rules and no more: which shapes go, what comes out (ONNX
operator pages, opset 13).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from opsieve.gen.declarations.symbolic_arith import broadcast as together, broadcasts
from opsieve_research.baselines.drawing import StreamRng

Shape: TypeAlias = tuple[int, ...]
Attributes: TypeAlias = dict[str, Any]
Shapes: TypeAlias = Sequence[Shape]

_MAX_ELEMENTS = 4096
_MAX_RANK = 5


def fits(shape: Shape) -> bool:
    """Whether a tensor is small enough to go on with, and not empty."""
    return len(shape) <= _MAX_RANK and 0 < math.prod(shape) <= _MAX_ELEMENTS


@dataclass(frozen=True, slots=True)
class BaselineOperator:
    """`attributes` draws attributes without a look at shapes; `result` is the shape that comes out, None
    where the operands do not go; `mended` are shapes near those given that might go, for the same number of
    operands.
    """

    name: str
    arity: tuple[int, int]
    attributes: Callable[[StreamRng], Attributes]
    result: Callable[[Shapes, Attributes], Shape | None]
    mended: Callable[[Shapes, Attributes], list[Shape]]


def _none(_rng: StreamRng) -> Attributes:
    return {}


def _axis(rng: StreamRng) -> Attributes:
    return {"axis": rng.between(0, 3)}


def _axes(rng: StreamRng) -> Attributes:
    return {"axes": rng.some(range(4), rng.between(1, 2)), "keepdims": rng.below(2)}


def _order(rng: StreamRng) -> Attributes:
    left = list(range(rng.between(1, 4)))
    return {"perm": [left.pop(rng.below(len(left))) for _ in range(len(left))]}


def _turns(rng: StreamRng) -> Attributes:
    return {"transA": rng.below(2), "transB": rng.below(2)}


def _block(rng: StreamRng) -> Attributes:
    return {"blocksize": rng.between(1, 3)}


def _window(rng: StreamRng) -> Attributes:
    side = rng.between(1, 3)
    return {"kernel_shape": [side, side], "strides": [rng.between(1, 2)] * 2}


def _as_they_are(shapes: Shapes, _attributes: Attributes) -> list[Shape]:
    return list(shapes)


def _like_first(shapes: Shapes, _attributes: Attributes) -> list[Shape]:
    return [shapes[0]] * len(shapes)


def _of_rank(rank: int) -> Callable[[Shapes, Attributes], list[Shape]]:
    """The first operand with its rank made right; sides are kept to 5 so that folding dimensions does not
    make long ones.
    """

    def mended(shapes: Shapes, _attributes: Attributes) -> list[Shape]:
        first = ((1,) * rank + shapes[0])[-rank:]
        return [tuple(min(side, 5) for side in first), *shapes[1:]]

    return mended


def _same(shapes: Shapes, _attributes: Attributes) -> Shape:
    return shapes[0]


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The shape of two operands together by numpy's rule; None where they do not go together."""
    return together(a, b) if all(broadcasts(a, b)) else None


def _broadcast(shapes: Shapes, _attributes: Attributes) -> Shape | None:
    made: Shape | None = shapes[0]
    for shape in shapes[1:]:
        made = None if made is None else broadcast(made, shape)
    return made


def _one_way(shapes: Shapes, _attributes: Attributes) -> Shape | None:
    first, second = shapes
    return first if len(second) <= len(first) and broadcast(first, second) == first else None


def _along(shapes: Shapes, attributes: Attributes) -> Shape | None:
    return shapes[0] if attributes["axis"] < len(shapes[0]) else None


def _flat(shapes: Shapes, attributes: Attributes) -> Shape | None:
    shape, axis = shapes[0], attributes["axis"]
    return (math.prod(shape[:axis]), math.prod(shape[axis:])) if axis <= len(shape) else None


def _turned(shapes: Shapes, attributes: Attributes) -> Shape | None:
    perm = attributes["perm"]
    return tuple(shapes[0][axis] for axis in perm) if len(perm) == len(shapes[0]) else None


def _reduced(shapes: Shapes, attributes: Attributes) -> Shape | None:
    shape, axes = shapes[0], attributes["axes"]
    if max(axes) >= len(shape):
        return None
    keep = attributes["keepdims"]
    return tuple(1 if axis in axes else side for axis, side in enumerate(shape) if keep or axis not in axes)


def _joined(shapes: Shapes, attributes: Attributes) -> Shape | None:
    axis, first = attributes["axis"], shapes[0]
    if axis >= len(first) or any(len(shape) != len(first) for shape in shapes):
        return None
    if any(shape[:axis] + shape[axis + 1 :] != first[:axis] + first[axis + 1 :] for shape in shapes):
        return None
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _product(shapes: Shapes, _attributes: Attributes) -> Shape | None:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        return None
    batch = broadcast(a[:-2], b[:-2])
    return None if batch is None else (*batch, a[-2], b[-1])


def _product_mended(shapes: Shapes, _attributes: Attributes) -> list[Shape]:
    a, b = ((1, 1, *shape)[-max(2, len(shape)) :] for shape in shapes)
    return [a, (a[-1], b[-1])]


def _gemm(shapes: Shapes, attributes: Attributes) -> Shape | None:
    a, b = shapes[:2]
    if len(a) != 2 or len(b) != 2:
        return None
    a = a[::-1] if attributes["transA"] else a
    b = b[::-1] if attributes["transB"] else b
    made = (a[0], b[1])
    if a[1] != b[0] or (len(shapes) == 3 and (len(shapes[2]) > 2 or broadcast(made, shapes[2]) != made)):
        return None
    return made


def _gemm_mended(shapes: Shapes, attributes: Attributes) -> list[Shape]:
    a, b = ((1, 1, *shape)[-2:] for shape in shapes[:2])
    inner, columns = (a[0] if attributes["transA"] else a[1]), b[1]
    return [
        a,
        (columns, inner) if attributes["transB"] else (inner, columns),
        *([(columns,)] * (len(shapes) - 2)),
    ]


def _to_depth(shapes: Shapes, attributes: Attributes) -> Shape | None:
    shape, block = shapes[0], attributes["blocksize"]
    if len(shape) != 4 or shape[2] % block or shape[3] % block:
        return None
    return shape[0], shape[1] * block**2, shape[2] // block, shape[3] // block


def _to_space(shapes: Shapes, attributes: Attributes) -> Shape | None:
    shape, block = shapes[0], attributes["blocksize"]
    if len(shape) != 4 or shape[1] % block**2:
        return None
    return shape[0], shape[1] // block**2, shape[2] * block, shape[3] * block


def _pooled(shapes: Shapes, attributes: Attributes) -> Shape | None:
    shape, kernel, strides = shapes[0], attributes["kernel_shape"], attributes["strides"]
    if len(shape) != 4 or any(side < size for side, size in zip(shape[2:], kernel, strict=True)):
        return None
    spatial = zip(shape[2:], kernel, strides, strict=True)
    return (*shape[:2], *((side - size) // stride + 1 for side, size, stride in spatial))


def _global(shapes: Shapes, _attributes: Attributes) -> Shape | None:
    shape = shapes[0]
    return (*shape[:2], *([1] * (len(shape) - 2))) if len(shape) >= 3 else None


def _convolved(shapes: Shapes, attributes: Attributes) -> Shape | None:
    image, weight = shapes[:2]
    kernel, strides = attributes["kernel_shape"], attributes["strides"]
    if len(image) != 4 or len(weight) != 4 or weight[1] != image[1] or list(weight[2:]) != kernel:
        return None
    if any(side < size for side, size in zip(image[2:], kernel, strict=True)):
        return None
    if len(shapes) == 3 and shapes[2] != weight[:1]:
        return None
    spatial = zip(image[2:], kernel, strides, strict=True)
    return (image[0], weight[0], *((side - size) // stride + 1 for side, size, stride in spatial))


def _convolved_mended(shapes: Shapes, attributes: Attributes) -> list[Shape]:
    image = _of_rank(4)(shapes, attributes)[0]
    channels = min(shapes[1][0], 5) if shapes[1] else 1
    kernel = attributes["kernel_shape"]
    return [image, (channels, image[1], *kernel), *([(channels,)] * (len(shapes) - 2))]


def _normalised(shapes: Shapes, _attributes: Attributes) -> Shape | None:
    shape = shapes[0]
    return shape if len(shape) >= 2 and all(other == (shape[1],) for other in shapes[1:]) else None


def _normalised_mended(shapes: Shapes, _attributes: Attributes) -> list[Shape]:
    shape = (1,) * (2 - len(shapes[0])) + shapes[0]
    return [shape, *([(shape[1],)] * (len(shapes) - 1))]


_SAME = (
    "Abs Neg Floor Ceil Erf Sign Exp Softsign Sigmoid HardSigmoid Relu LeakyRelu Sin Cos Round Selu Elu Tanh"
    " ThresholdedRelu Softplus Identity"
)
OPERATORS: tuple[BaselineOperator, ...] = (
    *(BaselineOperator(name, (1, 1), _none, _same, _as_they_are) for name in _SAME.split()),
    *(
        BaselineOperator(name, (2, 2), _none, _broadcast, _like_first)
        for name in ("Add", "Sub", "Mul", "Div")
    ),
    *(
        BaselineOperator(name, (1, 4), _none, _broadcast, _like_first)
        for name in ("Max", "Min", "Mean", "Sum")
    ),
    BaselineOperator("PRelu", (2, 2), _none, _one_way, _like_first),
    *(BaselineOperator(name, (1, 1), _axis, _along, _as_they_are) for name in ("Softmax", "LogSoftmax")),
    BaselineOperator("Flatten", (1, 1), _axis, _flat, _as_they_are),
    BaselineOperator("Transpose", (1, 1), _order, _turned, _as_they_are),
    *(
        BaselineOperator(name, (1, 1), _axes, _reduced, _as_they_are)
        for name in (
            "ReduceMax",
            "ReduceMin",
            "ReduceMean",
            "ReduceProd",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
        )
    ),
    BaselineOperator("Concat", (1, 4), _axis, _joined, _like_first),
    BaselineOperator("MatMul", (2, 2), _none, _product, _product_mended),
    BaselineOperator("Gemm", (2, 3), _turns, _gemm, _gemm_mended),
    BaselineOperator("SpaceToDepth", (1, 1), _block, _to_depth, _of_rank(4)),
    BaselineOperator("DepthToSpace", (1, 1), _block, _to_space, _of_rank(4)),
    *(
        BaselineOperator(name, (1, 1), _window, _pooled, _of_rank(4))
        for name in ("MaxPool", "AveragePool", "LpPool")
    ),
    *(
        BaselineOperator(name, (1, 1), _none, _global, _of_rank(4))
        for name in ("GlobalAveragePool", "GlobalMaxPool")
    ),
    BaselineOperator("Conv", (2, 3), _window, _convolved, _convolved_mended),
    BaselineOperator("BatchNormalization", (5, 5), _none, _normalised, _normalised_mended),
)
