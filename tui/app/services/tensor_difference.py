"""Compare two values of an output: their types, differing elements, the largest errors, and a small map of
the differences, in blocks, which shows where the error is. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from opsieve.backends.compare import type_text

# Elements of a tensor that is shown whole
WHOLE = 24
# Elements that are shown of a larger one
WORST = 12
# Characters of an element
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Element:
    """One element: `index` like [0,3], both values, their difference ("" if not numeric), and whether that is
    too large.
    """

    index: str
    expected: str
    got: str
    difference: str
    differs: bool


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """The difference of one tensor.

    `expected` and `got` are types like float32[2,3], `largest` the index of the largest error, or "".
    `elements` are all of a small tensor, in order, and of a larger one those that differ, the worst first.
    For different shapes they are the first elements of both, in memory order.
    """

    output: str
    expected: str
    got: str
    size: int
    differing: int
    within: float
    largest: str
    elements: tuple[Element, ...]


def compare_values(
    output: str, got: Any, expected: Any, within: float = 0.0, dtype: str = ""
) -> Iterator[TensorDifference]:
    """Compare each tensor of an output; those of a sequence are named `output[0]` and so on.

    An element differs if its distance exceeds `within`. `dtype` is the declared one, "" for that of
    `expected`, whose values may be wider because a reference computes in float64.
    """
    if isinstance(expected, (list, tuple)):
        given = got if isinstance(got, (list, tuple)) else []
        for at, item in enumerate(expected):
            yield from compare_values(
                f"{output}[{at}]", given[at] if at < len(given) else None, item, within, dtype
            )
    else:
        yield _compare_tensor(output, got, expected, within, dtype)


def _compare_tensor(output: str, got: Any, expected: Any, within: float, dtype: str) -> TensorDifference:
    left, right = _make_array(got), _make_array(expected)
    types = type_text(expected, dtype), type_text(got)
    # Elements of different shapes have no counterparts: they are only shown.
    if left.shape != right.shape or not right.size:
        shown = tuple(
            Element(f"{at}", _format_element(right, at), _format_element(left, at), "", differs=True)
            for at in range(min(WORST, max(left.size, right.size)))
        )
        return TensorDifference(output, *types, right.size, max(left.size, right.size), within, "", shown)
    apart = compute_distances(left, right)
    # Not `apart > within`, which is false for NaN.
    differs = ~(apart <= within)
    # A number against no number is worse than any distance, and stands first.
    order = np.argsort(-np.where(np.isnan(apart), np.inf, apart), axis=None, kind="stable")
    places = range(right.size) if right.size <= WHOLE else [at for at in order[:WORST] if differs.flat[at]]
    shown = tuple(
        Element(
            _format_index(at, right.shape),
            _format_element(right, at),
            _format_element(left, at),
            _format_difference(left, right, at),
            bool(differs.flat[at]),
        )
        for at in map(int, places)
    )
    largest = _format_index(int(order[0]), right.shape) if differs.any() else ""
    return TensorDifference(output, *types, right.size, int(differs.sum()), within, largest, shown)


def compute_distances(left: Any, right: Any) -> Any:
    """Return the elementwise distance of two arrays of one shape, float64.

    It is 0 if both are equal or nan, and nan for a single nan or for text.
    """
    if not (_is_numeric(left) and _is_numeric(right)):
        return np.where(np.asarray(left != right), np.nan, 0.0)
    # Differences of unsigned or narrow types would wrap around.
    kind = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    wide, other = left.astype(kind), right.astype(kind)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where((wide == other) | (np.isnan(wide) & np.isnan(other)), 0.0, np.abs(wide - other))


def _is_numeric(array: Any) -> bool:
    # ml_dtypes (bfloat16, float8, int4) are of kind V
    return array.dtype.kind in "fiubcV"


def _make_array(value: Any) -> Any:
    return np.asarray([] if value is None else value)


def _format_index(at: int, shape: tuple[int, ...]) -> str:
    return f"[{','.join(str(int(place)) for place in np.unravel_index(at, shape))}]" if shape else "[]"


def _format_element(array: Any, at: int) -> str:
    flat = array.ravel()
    if at >= flat.size:
        return ""
    # Nine digits tell all float32 apart.
    return f"{float(flat[at]):.9g}" if array.dtype.kind == "f" else str(flat[at])[:_LONGEST]


def _format_difference(left: Any, right: Any, at: int) -> str:
    got, wanted = left.ravel()[at], right.ravel()[at]
    if left.dtype.kind in "iu" and right.dtype.kind in "iu":
        # exact, and of unsigned types below 0
        return f"{int(got) - int(wanted):+d}"
    if not (_is_numeric(left) and _is_numeric(right)) or left.dtype.kind in "bc":
        return ""
    with np.errstate(invalid="ignore", over="ignore"):
        return f"{float(got) - float(wanted):+.4g}"


ROWS, COLUMNS = 8, 32
# No difference; then by the share of elements of a block that differ
SHADES = " ·░▒▓█"


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """`rows` are blocks, row by row, as shades; `fraction` of all elements differ, by at most `worst` (nan:
    not numeric).
    """

    shape: tuple[int, ...]
    rows: tuple[str, ...]
    fraction: float
    worst: float


def make_error_map(got: Any, expected: Any, within: float = 0.0) -> ErrorMap | None:
    """Map the differences of two arrays of one shape; None for other values.

    An element differs if its distance exceeds `within`. The last axis runs across, all others down; each
    character stands for a block of about equal size.
    """
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape or not a.size:
        return None
    apart = compute_distances(a, b)
    differs = ~(apart <= within)
    finite = apart[np.isfinite(apart)]
    worst = float(finite.max()) if finite.size and a.dtype.kind not in "OUS" else float("nan")
    flat = differs.reshape(-1, a.shape[-1] if a.ndim else 1)
    down, across = min(ROWS, flat.shape[0]), min(COLUMNS, flat.shape[1])
    rows = []
    for block in np.array_split(flat, down, axis=0):
        shares = [float(part.mean()) for part in np.array_split(block, across, axis=1)]
        # One wrong element in a block is visible: only without any the block is blank.
        rows.append(
            "".join(
                SHADES[0] if not share else SHADES[max(1, round(share * (len(SHADES) - 1)))]
                for share in shares
            )
        )
    return ErrorMap(tuple(a.shape), tuple(rows), float(differs.mean()), worst)
