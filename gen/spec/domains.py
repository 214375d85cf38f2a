"""What values an operator can make sense of, by operator and input position.

A table for inputs that nobody gave: an index lies inside its axis, an integer divisor is not zero, a shape is one that the data
can take. It need not be complete: an input without an entry may hold anything. Sources: the ONNX operator documentation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """Numbers from `low` to `high`, both included, without 0 if `nonzero`; or, if given, `exact` numbers in this order.

    `numeral` asks of a string that it reads as a number.
    """

    low: float = -math.inf
    high: float = math.inf
    nonzero: bool = False
    exact: tuple[float, ...] | None = None
    numeral: bool = False

    def meet(self, other: "Domain") -> "Domain":
        """What both allow; what they cannot agree on is taken from `self`."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low > high:
            low, high = self.low, self.high
        exact = other.exact if self.exact is None else self.exact
        return Domain(low, high, self.nonzero or other.nonzero, exact, self.numeral or other.numeral)

    def unordered(self) -> "Domain":
        """The same numbers in any order."""
        if not self.exact:
            return Domain(self.low, self.high, self.nonzero, None, self.numeral)
        return Domain(min(self.exact), max(self.exact), self.nonzero)


@dataclass(frozen=True, slots=True)
class Site:
    """A use of a value: the node, the place among its inputs, and what is known of the shapes and constants around it."""

    node: onnx.NodeProto
    position: int
    shapes: Mapping[str, Shape | None]
    constants: Mapping[str, np.ndarray[Any, Any]]

    def shape(self, position: int) -> Shape | None:
        """The shape of the node's input at `position`, None when it is unknown or not there."""
        return self.shapes.get(self.node.input[position]) if position < len(self.node.input) else None

    def output(self, position: int = 0) -> Shape | None:
        """The shape of an output, None when it is unknown."""
        return self.shapes.get(self.node.output[position]) if position < len(self.node.output) else None

    def constant(self, position: int) -> list[int] | None:
        """The integers of an input that is constant."""
        name = self.node.input[position] if position < len(self.node.input) else ""
        return [int(item) for item in self.constants[name].ravel()] if name in self.constants else None

    def attribute(self, name: str, default: int) -> int:
        """An integer attribute."""
        return next((item.i for item in self.node.attribute if item.name == name), default)

    @property
    def length(self) -> int:
        """How many elements the value itself has; 1 when that is unknown."""
        shape = self.shape(self.position)
        return 1 if shape is None else math.prod(shape)


Rule = Callable[[Site], Domain]
ANY = Domain()


def domain_at(site: Site) -> Domain:
    """What the node asks of the value at this place."""
    if site.node.domain not in ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"):
        return ANY
    found = _TABLE.get((site.node.op_type, site.position))
    if found is None:
        return ANY
    return found if isinstance(found, Domain) else found(site)


def asks(operator: str, position: int | None = None) -> bool:
    """Whether something is asked of the numbers that an operator of ONNX's own takes at an input position, or at any."""
    return operator in _ASKING if position is None else (operator, position) in _ASKED


def _exact(values: Sequence[float]) -> Domain:
    return Domain(exact=tuple(values))


def _below(size: int | None) -> Domain:
    return Domain(0, max(size - 1, 0)) if size is not None else Domain(0, 0)


def _dim(shape: Shape | None, axis: int) -> int | None:
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _axis_index(default: int) -> Rule:
    return lambda site: _below(_dim(site.shape(0), site.attribute("axis", default)))


def _dim_index(position: int, axis: int) -> Rule:
    return lambda site: _below(_dim(site.shape(position), axis))


def _gather_nd(site: Site) -> Domain:
    data, indices, start = site.shape(0), site.shape(1), site.attribute("batch_dims", 0)
    if data is None or not indices:
        return Domain(0, 0)
    return _below(min(data[start : start + indices[-1]], default=1))


def _reshape(site: Site) -> Domain:
    data, length = site.shape(0), site.length
    out = site.output()
    if data is None:
        return _exact((-1, *[1] * (length - 1))[:length])
    if out is not None and len(out) == length and math.prod(out) == math.prod(data):
        return _exact(out)
    if length > len(data):
        return _exact((*[1] * (length - len(data)), *data))
    return _exact((*data[: length - 1], math.prod(data[length - 1 :])) if length else ())


def _expand(site: Site) -> Domain:
    data, out = site.shape(0), site.output()
    if out is not None and len(out) == site.length:
        return _exact(out)
    return _exact([1] * site.length) if data is None else _exact(([1] * site.length + list(data))[-site.length :])


def _like_output(fallback: Domain) -> Rule:
    def rule(site: Site) -> Domain:
        out = site.output()
        return _exact(out) if out is not None and len(out) == site.length else fallback

    return rule


def _tile(site: Site) -> Domain:
    data, out = site.shape(0), site.output()
    if data is None or out is None or len(data) != len(out) or 0 in data:
        return Domain(1, 2)
    return _exact([size // have for size, have in zip(out, data, strict=True)])


def _pads(site: Site) -> Domain:
    data, out = site.shape(0), site.output()
    if data is None or out is None or len(data) != len(out) or site.length != 2 * len(data):
        return Domain(0, 1)
    return _exact([*[0] * len(data), *[size - have for size, have in zip(out, data, strict=True)]])


def _axes(site: Site) -> Domain:
    return _exact(range(site.length))


def _squeeze_axes(site: Site) -> Domain:
    ones = [axis for axis, size in enumerate(site.shape(0) or ()) if size == 1]
    return _exact(ones if len(ones) >= site.length else range(site.length))


def _ends(site: Site) -> Domain:
    data, out, length = site.shape(0), site.output(), site.length
    axes = site.constant(3) or list(range(length))
    if data is None or out is None or len(data) != len(out) or any(not -len(out) <= axis < len(out) for axis in axes):
        return Domain(1, 3)
    return _exact([out[axis] for axis in axes])


def _scales(site: Site) -> Domain:
    data, out = site.shape(0), site.output()
    if data and out and len(data) == len(out) == site.length and 0 not in data:
        return _exact([size / have for size, have in zip(out, data, strict=True)])
    return _exact([1.0 if site.length > 2 and place < 2 else 2.0 for place in range(site.length)])


def _resize(site: Site) -> Domain:
    if site.position == 1 and len(site.node.input) > 2:  # a region of interest, from opset 11 on
        return _exact([*[0.0] * (site.length // 2), *[1.0] * (site.length - site.length // 2)])
    return _scales(site)


def _sizes(site: Site) -> Domain:
    data, out = site.shape(0), site.output()
    if out is not None and len(out) == site.length:
        return _exact(out)
    return _exact(data) if data is not None and len(data) == site.length else Domain(2, 4)


def _top_k(site: Site) -> Domain:
    axis = site.attribute("axis", -1)
    wanted, size = _dim(site.output(), axis), _dim(site.shape(0), axis)
    if wanted is not None:
        return _exact([wanted])
    return Domain(1, min(size, 3)) if size else _exact([1])


def _depth(site: Site) -> Domain:
    return _exact([_dim(site.output(), site.attribute("axis", -1)) or 3])


def _split(site: Site) -> Domain:
    axis = site.attribute("axis", 0)
    sizes = [_dim(site.output(place), axis) for place in range(len(site.node.output))]
    known = [size for size in sizes if size is not None]
    if len(known) == site.length:
        return _exact(known)
    size, parts = _dim(site.shape(0), axis), site.length
    if site.shape(site.position) == () or not parts or size is None:
        return Domain(1, 1)
    return _exact([*[size // parts] * (parts - 1), size - size // parts * (parts - 1)])


def _range(site: Site) -> Domain:
    length = _dim(site.output(), 0)
    if length is not None:
        return _exact([(0, length, 1)[site.position]])
    return (Domain(0, 1), Domain(2, 6), Domain(1, 2))[site.position]


def _lengths(axis_attribute: str, default: int) -> Rule:
    return lambda site: Domain(1, max(_dim(site.shape(0), site.attribute(axis_attribute, default)) or 1, 1))


def _mel(site: Site) -> Domain:
    out = site.output() or (9, 4)
    return _exact([(out[-1], 2 * (out[0] - 1), 8192, 0.0, 4096.0)[site.position]])


def _affine_size(site: Site) -> Domain:
    batch, out = _dim(site.shape(0), 0) or 1, site.output()
    spatial = list(out[1:-1]) if out is not None and len(out) == site.length else [2] * max(site.length - 2, 0)
    return _exact([batch, 1, *spatial])


def _col2im(site: Site) -> Domain:
    blocks = _dim(site.shape(0), 2) or 1
    return _exact([*[1] * (site.length - 1), blocks] if site.position == 1 else [1] * site.length)


def _frame(site: Site) -> Domain:
    return _exact([min(_dim(site.shape(0), 1) or 2, _dim(site.shape(2), 0) or 4)])


def _scatter_start(site: Site) -> Domain:
    axis = site.attribute("axis", -2)
    past, update = _dim(site.shape(0), axis), _dim(site.shape(1), axis)
    return Domain(0, max((past or 0) - (update or 0), 0))


def _unpool(site: Site) -> Domain:
    return _exact(range(min(site.length, 4096)))


_POSITIVE = Domain(0.01, 2)
_ZERO = Domain(0, 0)
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_TABLE: dict[tuple[str, int], Domain | Rule] = {
    ("Acos", 0): Domain(-0.95, 0.95),
    ("Acosh", 0): Domain(1, 8),
    ("Adagrad", 0): _POSITIVE,
    ("Adam", 0): _POSITIVE,
    ("Momentum", 0): _POSITIVE,
    ("Adagrad", 1): Domain(1, 3),
    ("Adam", 1): Domain(1, 3),
    ("Momentum", 1): Domain(1, 3),
    ("AffineGrid", 1): _affine_size,
    ("ArrayFeatureExtractor", 1): _dim_index(0, -1),
    ("Asin", 0): Domain(-0.95, 0.95),
    ("Atanh", 0): Domain(-0.95, 0.95),
    ("Attention", 6): lambda site: Domain(1, max(_dim(site.shape(1), -2) or 1, 1)),
    ("BatchNormalization", 4): Domain(0.1, 2),
    ("Bernoulli", 0): Domain(0, 1),
    ("BitShift", 1): Domain(0, 7),
    ("BlackmanWindow", 0): lambda site: _exact([_dim(site.output(), 0) or 4]),
    ("HammingWindow", 0): lambda site: _exact([_dim(site.output(), 0) or 4]),
    ("HannWindow", 0): lambda site: _exact([_dim(site.output(), 0) or 4]),
    ("Cast", 0): Domain(numeral=True),
    ("CenterCropPad", 1): _like_output(Domain(1, 4)),
    ("Clip", 1): Domain(-2, 0),
    ("Clip", 2): Domain(1, 3),
    ("Col2Im", 1): _col2im,
    ("Col2Im", 2): _col2im,
    ("ConstantOfShape", 0): _like_output(Domain(1, 3)),
    ("CumProd", 1): _ZERO,
    ("CumSum", 1): _ZERO,
    ("DFT", 1): lambda site: _exact([max(_dim(site.shape(0), site.attribute("axis", 1)) or 4, 1)]),
    ("DFT", 2): _exact([1]),
    ("DequantizeLinear", 1): _POSITIVE,
    ("Div", 1): Domain(nonzero=True),
    ("Dropout", 1): Domain(0, 0.5),
    ("Dropout", 2): _exact([0]),
    ("Expand", 1): _expand,
    ("Gather", 1): _axis_index(0),
    ("GatherElements", 1): _axis_index(0),
    ("GatherND", 1): _gather_nd,
    ("GridSample", 1): Domain(-1, 1),
    ("GRU", 4): _lengths("layout", 0),
    ("LSTM", 4): _lengths("layout", 0),
    ("RNN", 4): _lengths("layout", 0),
    ("Log", 0): Domain(0.1, 8),
    ("Loop", 0): Domain(1, 3),
    ("Loop", 1): _exact([1]),
    ("MaxRoiPool", 1): _ZERO,
    ("MaxUnpool", 1): _unpool,
    ("MaxUnpool", 2): _like_output(ANY),
    **{("MelWeightMatrix", place): _mel for place in range(5)},
    ("Mod", 1): Domain(nonzero=True),
    ("NegativeLogLikelihoodLoss", 1): _dim_index(0, 1),
    ("NonMaxSuppression", 2): Domain(1, 3),
    ("NonMaxSuppression", 3): Domain(0, 1),
    ("NonMaxSuppression", 4): Domain(0, 0.5),
    ("OneHot", 0): Domain(0, 2),
    ("OneHot", 1): _depth,
    ("Pad", 1): _pads,
    ("Pad", 3): _axes,
    ("Pow", 0): Domain(0.1, 3),
    ("Pow", 1): Domain(0, 3),
    ("QLinearConv", 1): _POSITIVE,
    ("QLinearConv", 4): _POSITIVE,
    ("QLinearConv", 6): _POSITIVE,
    ("QLinearMatMul", 1): _POSITIVE,
    ("QLinearMatMul", 4): _POSITIVE,
    ("QLinearMatMul", 6): _POSITIVE,
    ("QuantizeLinear", 1): _POSITIVE,
    **{("Range", place): _range for place in range(3)},
    ("Reciprocal", 0): Domain(nonzero=True),
    **{(f"Reduce{kind}", 1): _axes for kind in _REDUCTIONS},
    ("Reshape", 1): _reshape,
    ("Resize", 1): _resize,
    ("Resize", 2): _scales,
    ("Resize", 3): _sizes,
    ("ReverseSequence", 1): _lengths("time_axis", 0),
    ("RoiAlign", 1): Domain(0, 4),
    ("RoiAlign", 2): _dim_index(0, 0),
    ("RotaryEmbedding", 3): _dim_index(1, 0),
    ("STFT", 1): Domain(1, 2),
    ("STFT", 3): _frame,
    ("Scatter", 1): _axis_index(0),
    ("ScatterElements", 1): _axis_index(0),
    ("ScatterND", 1): _gather_nd,
    ("SequenceAt", 1): _ZERO,
    ("SequenceErase", 1): _ZERO,
    ("SequenceInsert", 2): _ZERO,
    ("Slice", 1): _ZERO,
    ("Slice", 2): _ends,
    ("Slice", 3): _axes,
    ("Slice", 4): _exact([1]),
    ("SoftmaxCrossEntropyLoss", 1): _dim_index(0, 1),
    ("Split", 1): _split,
    ("SplitToSequence", 1): _split,
    ("Sqrt", 0): Domain(0, 8),
    ("Squeeze", 1): _squeeze_axes,
    ("TensorScatter", 2): _scatter_start,
    ("Tile", 1): _tile,
    ("TopK", 1): _top_k,
    ("Trilu", 1): Domain(-1, 1),
    ("Unsqueeze", 1): _axes,
    ("Upsample", 1): _scales,
}
_ASKED = frozenset(key for key, found in _TABLE.items() if not (isinstance(found, Domain) and found.numeral))
_ASKING = frozenset(name for name, _ in _ASKED)
