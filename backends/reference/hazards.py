"""Places where ONNX leaves a result open, found from the values that the reference run met.

A mismatch on an output that such a place reaches is nobody's fault: the verdict is `invalid` and names the rule. Each rule
below looks at one node's inputs and outputs; docs/explanation/oracles.md tells why it is there. What ONNX does define is not here: a Clip whose
minimum is above its maximum, ties of TopK and ArgMax, integer casts that drop high bits, TopK of equal values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto

ACCUMULATION = "accumulation"  # not a fault: `accumulation:4096` tells how many terms were added in an order left open
RANDOM = "random-operator"
_LONG = 1024  # terms from which on the order of a sum is worth telling

Values = Sequence[Any]
Open = tuple[
    str, Any
]  # a rule's name, and a mask of the elements of the first output that it leaves open; None for every output
Rule = Callable[[Any, Values, Values], Iterator[Open]]


def open_results(operator: str, node: Any, inputs: Values, outputs: Values) -> list[Open]:
    """The rules that one execution of a node of the standard domain met, with the elements that they leave open.

    `node` has the node's attributes as Python attributes; absent inputs are None.
    """
    met: list[Open] = []
    for rule in _RULES.get(operator, ()):
        met.extend(rule(node, inputs, outputs))
    return met


def leaves_open(rule: str) -> bool:
    """Whether a rule says that a value is open, rather than random or rounded in an open order."""
    return rule != RANDOM and not rule.startswith(ACCUMULATION)


def disturbed(value: Any, mask: Any) -> Any:
    """Another answer that ONNX would allow as well: `value` with the open elements changed.

    What does not change behind it does not depend on the open elements.
    """
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.array(value)
    if array.dtype.kind == "f":
        other = np.where(np.isfinite(array), array * 2 + 1, 0.5).astype(array.dtype)
    elif array.dtype.kind in "iub":
        other = ~array
    elif array.dtype.kind in "OUS":
        other = np.full(array.shape, "?", dtype=object)
    else:
        # bfloat16, float8, int4: whatever is not zero becomes zero, and the other way about.
        other = np.where(array == np.zeros((), array.dtype), 1, 0).astype(array.dtype)
    return other if mask is None else np.where(np.broadcast_to(mask, array.shape), other, array)


def nodes_reaching(graph: GraphProto) -> Mapping[int, frozenset[str]]:
    """For each node, by its place in the graph, the graph outputs that depend on it. Bodies count with their node."""
    reach: dict[str, set[str]] = {value.name: {value.name} for value in graph.output}
    found: dict[int, frozenset[str]] = {}
    for place in range(len(graph.node) - 1, -1, -1):
        node = graph.node[place]
        outputs: set[str] = set().union(*(reach.get(name, set()) for name in node.output if name))
        found[place] = frozenset(outputs)
        for name in inputs_of(node):
            reach.setdefault(name, set()).update(outputs)
    return found


def inputs_of(node: NodeProto) -> Iterable[str]:
    """Names that a node reads: its inputs and whatever its bodies take from outside (names made inside are harmless extras)."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from inputs_of(inner)
            yield from (value.name for value in graph.output)


def _integers(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "iu"


def _floats(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f"


def _has_nan(value: Any) -> bool:
    return _floats(value) and bool(np.isnan(value).any())


def _integer_division(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    a, b = inputs[0], inputs[1]
    if not _integers(b):
        return
    zero = b == 0
    if zero.any():
        yield "integer-division-by-zero", zero
    if b.dtype.kind == "i":
        overflow = (a == np.iinfo(b.dtype).min) & (b == -1)
        if overflow.any():
            yield "integer-division-overflow", overflow


def _float_cast(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    source, target = inputs[0], outputs[0]
    if not _floats(source):
        return
    if target.dtype.kind in "OUS":
        yield "float-as-text", None
    if not (target.dtype.kind in "iu" or target.dtype.name.startswith(("int", "uint"))):
        return
    wide = np.trunc(np.asarray(source, np.float64))
    nan = np.isnan(wide)
    if nan.any():
        yield "cast-of-nan", nan
    low, high = _range(target.dtype)
    outside = (wide < low) | (wide >= high)
    if outside.any():
        yield "cast-out-of-range", outside


def _range(dtype: "np.dtype[Any]") -> tuple[float, float]:
    # The bounds as floats, the upper one excluded: int64's largest value has no float64 of its own.
    bits = int("".join(filter(str.isdigit, dtype.name)))
    return (0.0, 2.0**bits) if dtype.name.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))


def _shift(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    far = np.asarray(inputs[1]) >= inputs[0].dtype.itemsize * 8
    if far.any():
        yield "shift-too-far", far


def _integer_pow(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    base, exponent = inputs[0], inputs[1]
    if not _integers(base):
        return
    negative = np.asarray(exponent) < 0
    if negative.any():
        yield "negative-integer-power", negative
    yield from _differs(np.power(np.asarray(base, np.float64), np.asarray(exponent, np.float64)), outputs[0])


def _overflow(exact: Callable[..., Any]) -> Rule:
    """Signed overflow: the result in float64 is far from the integer one (a wrap moves it by at least 2**8)."""

    def rule(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
        given = [np.asarray(value, np.float64) for value in inputs if value is not None]
        if _integers(outputs[0]) and outputs[0].dtype.kind == "i" and given:
            yield from _differs(exact(*given), outputs[0])

    return rule


def _differs(exact: Any, result: Any) -> Iterator[Open]:
    if not _integers(result) or result.dtype.kind != "i":
        return
    low, high = _range(result.dtype)
    away = np.abs(exact - np.asarray(result, np.float64))
    wrapped = ~(away < (high - low) / 2)
    if wrapped.any():
        yield "integer-overflow", wrapped


def _total(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    # A sum over any axes keeps the total, so the axes need not be known.
    if _integers(inputs[0]) and inputs[0].dtype.kind == "i":
        before = np.asarray(inputs[0], np.float64).sum()
        after = np.asarray(outputs[0], np.float64).sum()
        low, high = _range(inputs[0].dtype)
        if abs(before - after) >= (high - low) / 2:
            yield "integer-overflow", None


def _nan_input(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    if any(_has_nan(value) for value in inputs):
        yield "nan-input", None


def _nan_element(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    # Of an elementwise operator only the elements that a NaN goes into are open.
    if any(_has_nan(value) for value in inputs):
        yield "nan-input", _any_element([np.isnan(value) for value in inputs if _floats(value)])


def _any_element(masks: Sequence[Any]) -> Any:
    met = masks[0]
    for mask in masks[1:]:
        met = met | mask
    return met


def _softmax(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    infinite = _floats(inputs[0]) and bool(np.isposinf(inputs[0]).any())
    if infinite or (_has_nan(outputs[0]) and not _has_nan(inputs[0])):
        yield "softmax-of-infinity", np.isnan(outputs[0]) if _floats(outputs[0]) else None


def _unsorted(node: Any, _: Values, __: Values) -> Iterator[Open]:
    if getattr(node, "sorted", 1) == 0:
        yield "topk-unsorted", None


def _repeated_elements(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    data, indices = inputs[0], np.asarray(inputs[1])
    if indices.size < 2 or getattr(node, "reduction", None) not in (None, "none", b"none"):
        return
    axis = int(getattr(node, "axis", 0) or 0)
    along = np.moveaxis(np.where(indices < 0, indices + data.shape[axis], indices), axis, 0)
    ordered = np.sort(along, axis=0)
    if (ordered[1:] == ordered[:-1]).any():
        yield "duplicate-scatter", None


def _repeated_rows(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    data, indices = inputs[0], np.asarray(inputs[1])
    if indices.size < 2 or getattr(node, "reduction", None) not in (None, "none", b"none"):
        return
    width = indices.shape[-1]
    rows = indices.reshape(-1, width)
    rows = np.where(rows < 0, rows + np.array(data.shape[:width]), rows)
    if len(np.unique(rows, axis=0)) < len(rows):
        yield "duplicate-scatter", None


def _split_of_empty(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    # Nothing or one empty substring: the page of StringSplit says neither.
    if getattr(node, "delimiter", None) and any(
        str(text) == "" for text in np.asarray(inputs[0], dtype=object).ravel()
    ):
        yield "split-of-empty-string", None


def _random(_: Any, __: Values, ___: Values) -> Iterator[Open]:
    yield RANDOM, None


def _dropout(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    training = len(inputs) > 2 and inputs[2] is not None and bool(np.asarray(inputs[2]).any())
    ratio = inputs[1] if len(inputs) > 1 and inputs[1] is not None else getattr(node, "ratio", None)
    if training and (ratio is None or bool((np.asarray(ratio) != 0).any())):
        yield RANDOM, None


def _long(terms: Callable[[Any, Values, Values], float]) -> Rule:
    def rule(node: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
        if _floats(outputs[0]):
            count = int(terms(node, inputs, outputs))
            if count >= _LONG:
                yield f"{ACCUMULATION}:{count}", None

    return rule


def _reduced(_: Any, inputs: Values, outputs: Values) -> float:
    return int(inputs[0].size) / max(int(outputs[0].size), 1)


def _gemm(node: Any, inputs: Values, _: Values) -> float:
    return float(inputs[0].shape[0 if getattr(node, "transA", 0) else 1])


def _convolved(_: Any, inputs: Values, __: Values) -> float:
    return float(np.prod(inputs[1].shape[1:]))


def _convolved_back(_: Any, inputs: Values, __: Values) -> float:
    return float(inputs[1].shape[0]) * float(np.prod(inputs[1].shape[2:]))


def _norm(_: Any, inputs: Values, __: Values) -> float:
    return float(np.prod(inputs[0].shape[2:])) if inputs[0].ndim > 2 else float(inputs[0].shape[-1])


def _sum(*values: Any) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


_NAN_ELEMENTWISE = (
    *(
        "Relu",
        "LeakyRelu",
        "PRelu",
        "ThresholdedRelu",
        "Elu",
        "Selu",
        "Celu",
        "HardSigmoid",
        "HardSwish",
        "Clip",
        "Max",
        "Min",
    ),
    *("Sign", "Shrink", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
)
_NAN_ANYWHERE = (
    *(
        "ReduceMax",
        "ReduceMin",
        "ArgMax",
        "ArgMin",
        "MaxPool",
        "GlobalMaxPool",
        "MaxRoiPool",
        "RoiAlign",
        "Unique",
        "Hardmax",
    ),
    *("NonZero", "QuantizeLinear", "DynamicQuantizeLinear", "NonMaxSuppression"),
)
_RULES: Mapping[str, tuple[Rule, ...]] = {
    "Div": (_integer_division,),
    "Mod": (_integer_division,),
    "Cast": (_float_cast,),
    "CastLike": (_float_cast,),
    "BitShift": (_shift,),
    "Pow": (_integer_pow,),
    "Add": (_overflow(np.add),),
    "Sub": (_overflow(np.subtract),),
    "Mul": (_overflow(np.multiply),),
    "Sum": (_overflow(_sum),),
    "Neg": (_overflow(np.negative),),
    "Abs": (_overflow(np.abs),),
    "MatMul": (_overflow(np.matmul), _long(lambda _, inputs, __: float(inputs[0].shape[-1]))),
    "ReduceSum": (_total, _long(_reduced)),
    **dict.fromkeys(
        ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "GlobalAveragePool"),
        (_long(_reduced),),
    ),
    "CumSum": (_long(lambda _, inputs, __: float(inputs[0].shape[int(np.asarray(inputs[1]).item())])),),
    "Gemm": (_long(_gemm),),
    "Conv": (_long(_convolved),),
    "ConvTranspose": (_long(_convolved_back),),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "InstanceNormalization", "LpNormalization"), (_long(_norm),)),
    **dict.fromkeys(_NAN_ELEMENTWISE, (_nan_element,)),
    **dict.fromkeys(_NAN_ANYWHERE, (_nan_input,)),
    "TopK": (_nan_input, _unsorted),
    "StringSplit": (_split_of_empty,),
    "Softmax": (_softmax,),
    "LogSoftmax": (_softmax,),
    "ScatterElements": (_repeated_elements,),
    "Scatter": (_repeated_elements,),
    "ScatterND": (_repeated_rows,),
    "Dropout": (_dropout,),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"), (_random,)
    ),
}  # fmt: skip
