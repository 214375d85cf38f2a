"""What else is known of an operator: rounding and undefined results.

Declarations name these rules; the judge and the reducer ask for them.
docs/explanation/oracles.md tells why each undefined result is there. What ONNX does define is not here: a
Clip whose minimum is above its maximum, ties of TopK and ArgMax, integer casts that drop high bits. Sources:
the ONNX operator pages.
"""

import enum
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.declarations.tensor import NUMBER


class Rounding(enum.Flag):
    """What an operator does with an error in its inputs, and whether it adds one of its own. Most do neither
    of these.
    """

    NONE = 0
    # Values pass on without rounding
    EXACT = enum.auto()
    # Near some values, the smallest error can become any difference behind it
    JUMPS = enum.auto()
    # it adds terms up, which may cancel: its own error is relative to the largest of them, not to what they
    # amount to
    SUMS = enum.auto()
    # Computed by way of numbers around 1 (an exponential less 1, a share of 1): its own error is absolute.
    BOUNDED = enum.auto()
    _INSIDE = enum.auto()
    _SCALES = enum.auto()
    # It computes before it jumps: the value that goes in does not tell on which side it falls.
    COMPUTES = JUMPS | _INSIDE
    # An integer by a quotient of scales: float32 in a compiler, and x.5 falls to either side.
    REQUANTISES = COMPUTES | _SCALES


# A rule gets the attributes of a node and its number of outputs.
RoundingRule = Callable[[Mapping[str, Any], int], Rounding]
# Narrower float types have so few numbers that a Cast to one is a step function.
_FLOATS = frozenset(NUMBER[dtype] for dtype in ("float32", "float16", "bfloat16", "float64"))


def cast_rounding(attrs: Mapping[str, Any], outputs: int) -> Rounding:
    """Return the rounding of a Cast: it jumps unless the target is a wide floating-point type."""
    return Rounding.NONE if attrs.get("to") in _FLOATS else Rounding.JUMPS


# Not a fault: `accumulation:4096` tells how many terms were added in an order left open.
ACCUMULATION = "accumulation"
RANDOM = "random-operator"
# The number of terms from which the order of a sum matters.
_LONG = 1024

Values = Sequence[Any]
# A rule's name, and a mask of the elements of the first output that it leaves open; None for every output.
Open = tuple[str, Any]
# From a node (attributes are Python attributes of it), the values of its inputs and those of its outputs.
OpenRule = Callable[[Any, Values, Values], Iterator[Open]]


def _integers(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "iu"


def _floats(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f"


def _has_nan(value: Any) -> bool:
    return _floats(value) and bool(np.isnan(value).any())


def integer_division(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    """Yield divisions by 0, and of the least number by -1."""
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


def cast_of_float(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    """Yield floats that the target type does not hold, or that are written as text."""
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


def far_shift(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    """Yield shifts by at least the width of the type."""
    far = np.asarray(inputs[1]) >= inputs[0].dtype.itemsize * 8
    if far.any():
        yield "shift-too-far", far


def integer_power(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    """Yield negative exponents of integers, and powers beyond their type."""
    base, exponent = inputs[0], inputs[1]
    if not _integers(base):
        return
    negative = np.asarray(exponent) < 0
    if negative.any():
        yield "negative-integer-power", negative
    yield from _differs(np.power(np.asarray(base, np.float64), np.asarray(exponent, np.float64)), outputs[0])


def overflow(exact: Callable[..., Any]) -> OpenRule:
    """Signed overflow: the result in float64 is far from the integer one (a wrap moves it by at least
    2**8).
    """

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


def overflow_in_sum(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    """Yield a sum whose total is far from the exact one. Whatever the axes, the total is the same, so they
    need not be known.
    """
    if _integers(inputs[0]) and inputs[0].dtype.kind == "i":
        before = np.asarray(inputs[0], np.float64).sum()
        after = np.asarray(outputs[0], np.float64).sum()
        low, high = _range(inputs[0].dtype)
        if abs(before - after) >= (high - low) / 2:
            yield "integer-overflow", None


def nan_input(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    """Yield if an input has a NaN, because the result then depends on the order of comparisons."""
    if any(_has_nan(value) for value in inputs):
        yield "nan-input", None


def nan_element(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    """Yield a NaN: of an elementwise operator only the elements that it goes into are open."""
    if any(_has_nan(value) for value in inputs):
        # The masks of operands broadcast as the operands do.
        yield (
            "nan-input",
            functools.reduce(operator.or_, [np.isnan(value) for value in inputs if _floats(value)]),
        )


def softmax_of_infinity(_: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
    """Yield if a Softmax subtracts infinity from infinity."""
    infinite = _floats(inputs[0]) and bool(np.isposinf(inputs[0]).any())
    if infinite or (_has_nan(outputs[0]) and not _has_nan(inputs[0])):
        yield "softmax-of-infinity", np.isnan(outputs[0]) if _floats(outputs[0]) else None


def allow_any_order(node: Any, _: Values, __: Values) -> Iterator[Open]:
    """Yield if the operator is asked for unsorted results, whose order is open."""
    if getattr(node, "sorted", 1) == 0:
        yield "topk-unsorted", None


def repeated_elements(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    """Yield if an element is written twice."""
    data, indices = inputs[0], np.asarray(inputs[1])
    if indices.size < 2 or getattr(node, "reduction", None) not in (None, "none", b"none"):
        return
    axis = int(getattr(node, "axis", 0) or 0)
    along = np.moveaxis(np.where(indices < 0, indices + data.shape[axis], indices), axis, 0)
    ordered = np.sort(along, axis=0)
    if (ordered[1:] == ordered[:-1]).any():
        yield "duplicate-scatter", None


def repeated_rows(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    """Yield if a row is written twice."""
    data, indices = inputs[0], np.asarray(inputs[1])
    if indices.size < 2 or getattr(node, "reduction", None) not in (None, "none", b"none"):
        return
    width = indices.shape[-1]
    rows = indices.reshape(-1, width)
    rows = np.where(rows < 0, rows + np.array(data.shape[:width]), rows)
    if len(np.unique(rows, axis=0)) < len(rows):
        yield "duplicate-scatter", None


def split_of_empty(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    """Yield if an empty string is split: the page of StringSplit allows zero substrings or one empty
    substring.
    """
    if getattr(node, "delimiter", None) and any(
        str(text) == "" for text in np.asarray(inputs[0], dtype=object).ravel()
    ):
        yield "split-of-empty-string", None


def case_by_locale(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    """Yield the other case of letters beyond ASCII: StringNormalizer's page calls it environment
    dependent.
    """
    change = getattr(node, "case_change_action", None)
    if change not in ("LOWER", "UPPER"):
        return
    for text in map(str, np.asarray(inputs[0], dtype=object).ravel()):
        if not text.isascii() and (text.lower() if change == "LOWER" else text.upper()) != text:
            yield "case-by-locale", None
            return


def empty_range(_: Any, inputs: Values, __: Values) -> Iterator[Open]:
    """Yield if all elements are zero: DynamicQuantizeLinear's page then divides by zero."""
    if _floats(inputs[0]) and not inputs[0].any():
        yield "quantisation-of-zeros", None


def random_numbers(_: Any, __: Values, ___: Values) -> Iterator[Open]:
    """Yield always: no two compilers draw the same numbers."""
    yield RANDOM, None


def dropout(node: Any, inputs: Values, _: Values) -> Iterator[Open]:
    """Mark elements that are dropped at random in training."""
    training = len(inputs) > 2 and inputs[2] is not None and bool(np.asarray(inputs[2]).any())
    ratio = inputs[1] if len(inputs) > 1 and inputs[1] is not None else getattr(node, "ratio", None)
    if training and (ratio is None or bool((np.asarray(ratio) != 0).any())):
        yield RANDOM, None


def long_sum(terms: Callable[[Any, Values, Values], float]) -> OpenRule:
    """Make the rule for a sum of many terms, whose order is open; it names the number of terms."""

    def rule(node: Any, inputs: Values, outputs: Values) -> Iterator[Open]:
        if _floats(outputs[0]):
            count = int(terms(node, inputs, outputs))
            if count >= _LONG:
                yield f"{ACCUMULATION}:{count}", None

    return rule


def reduced_size(_: Any, inputs: Values, outputs: Values) -> float:
    """Return how many input elements go into one element of the result."""
    return int(inputs[0].size) / max(int(outputs[0].size), 1)


def gemm_size(node: Any, inputs: Values, _: Values) -> float:
    """Return the inner size of a Gemm."""
    return float(inputs[0].shape[0 if getattr(node, "transA", 0) else 1])


def taps(_: Any, inputs: Values, __: Values) -> float:
    """Return the products of one element of a convolution."""
    return float(np.prod(inputs[1].shape[1:]))


def transposed_taps(_: Any, inputs: Values, __: Values) -> float:
    """Return the products of one element of a transposed convolution, at most."""
    return float(inputs[1].shape[0]) * float(np.prod(inputs[1].shape[2:]))


def normalised_size(_: Any, inputs: Values, __: Values) -> float:
    """Return how many elements a mean is taken over."""
    return float(np.prod(inputs[0].shape[2:])) if inputs[0].ndim > 2 else float(inputs[0].shape[-1])


def sum_arrays(*values: Any) -> Any:
    """Add arrays."""
    return functools.reduce(operator.add, values)


def inner_size(_: Any, inputs: Values, __: Values) -> float:
    """Return the inner size of a matrix product."""
    return float(inputs[0].shape[-1])


def running_size(_: Any, inputs: Values, __: Values) -> float:
    """Return the size of the axis that the second input names."""
    return float(inputs[0].shape[int(np.asarray(inputs[1]).item())])
