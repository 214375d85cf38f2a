"""Whether two sets of outputs agree, by a policy that was measured (docs/explanation/oracles.md).

An error is the largest absolute difference over the largest magnitude of the expected output, never a
relative one and never in ULPs. Integers, booleans and strings are equal or not. Everything is pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from opsieve.backends.verdict import Mismatch

What = Literal["missing", "type", "shape", "dtype", "nan", "inf", "value", "sign-of-zero"]
Values = Mapping[str, Any]

# The largest scaled error that still passes without asking anybody else, by the declared type of the output.
SCREENS: Mapping[str, float] = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 1e-1,
    # One step of the grid at the largest magnitude: a value on a rounding boundary falls to either side.
    "float8_e4m3fn": 0.13,
    "float8_e4m3fnuz": 0.13,
    "float8_e5m2": 0.26,
    "float8_e5m2fnuz": 0.26,
    "float8_e8m0fnu": 0.51,
    "float4_e2m1fn": 0.34,
    "float6_e2m3fn": 0.13,
    "float6_e3m2fn": 0.26,
    "complex64": 1e-4,
    "complex128": 1e-9,
}
# Compilers may add short floats in their own type, where the error grows with the root of the number of
# terms. From this length on the screen grows with it.
_SHORT_SUM: Mapping[str, int] = {"float16": 1024, "bfloat16": 1024}
# Measured: sequential float32 addition stays within the screen up to this length (docs/benchmarks/judging.md,
# "Sums").
_SHORT_SUM_ELSE = 1 << 20


@dataclass(frozen=True, slots=True)
class Policy:
    """How much two outputs may differ.

    `screens` by dtype name; an output that a sum of more than 1024 terms feeds (2**20 in float32 and wider)
    gets the screen times the root of how much longer it is. `signed_zero` asks that zeros have the same sign.
    `tolerance` is a relative and an absolute tolerance that a user states
    instead: every element of a float output must then keep to both together, and peers excuse nothing.
    """

    screens: Mapping[str, float] = field(default_factory=lambda: SCREENS)
    signed_zero: bool = False
    tolerance: tuple[float, float] | None = None

    def widen(self, dtype: str) -> "Policy":
        """Return the policy for floats that are computed in a shorter type, itself for ""."""
        if not dtype:
            return self
        least = self.screen(dtype)
        return replace(self, screens={name: max(least, screen) for name, screen in self.screens.items()})

    def screen(self, dtype: str, terms: int = 0) -> float:
        """Return the scaled error allowed for one output."""
        screen = self.screens.get(dtype, 0.0)
        return float(screen * max(1.0, terms / _SHORT_SUM.get(dtype, _SHORT_SUM_ELSE)) ** 0.5)

    def get_bound(self, dtype: str, terms: int, size: Any) -> Any:
        """Return the absolute difference allowed where the expected magnitudes are `size`: one number, or one
        per element.
        """
        if self.tolerance is None:
            return max(self.screen(dtype, terms) * float(size.max()), _FLOOR[dtype])
        relative, absolute = self.tolerance
        return absolute + relative * size


POLICY = Policy()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison: the mismatch of each output that has one, and the rules that let others
    pass.
    """

    mismatches: Mapping[str, Mismatch]
    rules: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether no output differs."""
        return not self.mismatches

    @property
    def worst(self) -> Mismatch | None:
        """The mismatch to show: one of structure before one of values, then the largest error."""
        return min(self.mismatches.values(), key=_gravity, default=None)


def compare(
    got: Values,
    expected: Values,
    dtypes: Mapping[str, str],
    policy: Policy = POLICY,
    terms: Mapping[str, int] | None = None,
) -> Comparison:
    """Compare every output of `expected` with its namesake in `got`.

    `dtypes` are the declared dtype names of the outputs, "" or absent where unknown. `expected` may be wider
    than declared (the float64 reference); `got` may not. `terms` are the lengths of the longest sums that
    feed an output.
    """
    mismatches: dict[str, Mismatch] = {}
    rules: set[str] = set()
    # Infinities and NaNs are expected values here, and warnings about them would fill the log.
    with np.errstate(all="ignore"):
        for name, want in expected.items():
            if name not in got:
                mismatches[name] = Mismatch(name, "missing", fraction=1.0, expected=type_text(want))
                continue
            length = terms.get(name, 0) if terms else 0
            found = _value(name, got[name], want, dtypes.get(name, ""), policy, length, rules)
            if found is not None:
                mismatches[name] = found
    return Comparison(mismatches, tuple(sorted(rules)))


def error(got: Any, want: Any) -> float:
    """Return the scaled error of one output: infinity if the two cannot be subtracted, or disagree on NaN or
    infinity.

    The scale of an expected output of zeros is the smallest normal number of its type (1 for integers), so
    that errors can be compared.
    """
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return float("inf")
        return max((error(a, b) for a, b in zip(got, want, strict=True)), default=0.0)
    if want is None or got is None:
        return 0.0 if want is got else float("inf")
    a, b = np.asarray(got), np.asarray(want)
    if a.shape != b.shape:
        return float("inf")
    if a.size == 0:
        return 0.0
    if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":
        return 0.0 if _same_text(a, b).all() else float("inf")
    # By the type that was computed, before both sides become float64.
    limit, least = _largest(a.dtype.name), _least(a.dtype.name)
    a, b = widen(a), widen(b)
    open_, wrong = _special(a, b, limit)
    if wrong.any():
        return float("inf")
    with np.errstate(all="ignore"):
        worst = float(np.where(open_, 0.0, np.abs(a - b)).max())
        scale = float(np.where(open_, 0.0, np.abs(b)).max())
    return worst / max(scale, least)


def identical(a: Any, b: Any) -> bool:
    """Whether two values are the same bit for bit, save for the payload of NaNs and the sign of zeros."""
    if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
        both = isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b)
        return both and all(identical(x, y) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return a is b
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind in "OUS":
        return bool(_same_text(x, y).all())
    # Only a NaN differs from itself
    return bool(((x == y) | ((x != x) & (y != y))).all())


def _value(
    name: str, got: Any, want: Any, dtype: str, policy: Policy, terms: int, rules: set[str]
) -> Mismatch | None:
    if isinstance(want, (list, tuple)) or isinstance(got, (list, tuple)):
        if not (isinstance(want, (list, tuple)) and isinstance(got, (list, tuple))):
            return Mismatch(name, "type", fraction=1.0, got=type_text(got), expected=type_text(want))
        if len(got) != len(want):
            return Mismatch(name, "shape", fraction=1.0, got=type_text(got), expected=type_text(want))
        for index, (a, b) in enumerate(zip(got, want, strict=True)):
            found = _value(f"{name}[{index}]", a, b, dtype, policy, terms, rules)
            if found is not None:
                return found
        return None
    if want is None or got is None:
        if want is got:
            return None
        return Mismatch(name, "type", fraction=1.0, got=type_text(got), expected=type_text(want))
    return _tensor(name, np.asarray(got), np.asarray(want), dtype, policy, terms, rules)


def _tensor(
    name: str,
    got: "np.ndarray[Any, Any]",
    want: "np.ndarray[Any, Any]",
    dtype: str,
    policy: Policy,
    terms: int,
    rules: set[str],
) -> Mismatch | None:
    if got.dtype != want.dtype or dtype:
        asked = dtype or (
            "" if _name(want.dtype) == "float64" and _is_float(_name(got.dtype)) else _name(want.dtype)
        )
        if asked and _name(got.dtype) != asked:
            return Mismatch(name, "dtype", fraction=1.0, got=_name(got.dtype), expected=asked)
    if got.shape != want.shape:
        return Mismatch(name, "shape", fraction=1.0, got=str(got.shape), expected=str(want.shape))
    if got.size == 0:
        return None
    if got.dtype.kind in "OUS":
        same = _same_text(got, want)
        return None if same.all() else _exact(name, got, want, ~same)
    # as most outputs of two levels of a compiler are
    if got.dtype == want.dtype and got.tobytes() == want.tobytes():
        return None
    kind = _name(got.dtype)
    if not _is_float(kind):
        same = np.asarray(got == want)
        return None if same.all() else _exact(name, got, want, ~same)
    a, b = widen(got), widen(want)
    size = np.abs(b)
    # False for a NaN on either side and for an infinity, which are looked at one by one.
    if size.max() < np.inf and (np.abs(a - b) <= policy.get_bound(kind, terms, size)).all():
        return _zeros(name, a, b) if policy.signed_zero else None
    return _slowly(name, kind, a, b, policy, terms, rules)


def _slowly(
    name: str,
    kind: str,
    a: "np.ndarray[Any, Any]",
    b: "np.ndarray[Any, Any]",
    policy: Policy,
    terms: int,
    rules: set[str],
) -> Mismatch | None:
    open_, wrong = _special(a, b, _largest(kind))
    away = np.where(open_, 0.0, np.abs(a - b))
    size = np.where(open_, 0.0, np.abs(b))
    scale = float(size.max())
    bound = policy.get_bound(kind, terms, size)
    if (open_ & ~wrong & np.isfinite(b)).any():
        rules.add("beyond-range")
    bad = wrong | (away > bound)
    if not bad.any():
        return _zeros(name, a, b) if policy.signed_zero else None
    worst = int(np.argmax(wrong) if wrong.any() else np.argmax(np.where(bad, away, -1.0)))
    rel = np.divide(away, size, out=np.zeros_like(away), where=size > 0)
    ulps = away / np.maximum(size * _EPSILON[kind], _FLOOR[kind] * _EPSILON[kind])
    index = tuple(int(i) for i in np.unravel_index(worst, a.shape))
    what: What = "value"
    if wrong.any():
        what = "nan" if np.isnan(a[index]) or np.isnan(b[index]) else "inf"
    largest = float(away.max())
    return Mismatch(
        name,
        what,
        max_abs=largest,
        max_scaled=largest / max(scale, _least(kind)),
        max_rel=float(rel.max()),
        max_ulps=float(ulps.max()),
        fraction=float(bad.mean()),
        index=index,
        got=f"{a[index]:.9g}",
        expected=f"{b[index]:.9g}",
    )


def _special(a: Any, b: Any, limit: float) -> tuple[Any, Any]:
    """Return masks of the elements that are not finite on both sides, and of those among them that disagree.

    An infinity is correct where the float64 value lies beyond the range of the type.
    """
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        beyond = np.isinf(a) & np.isfinite(b) & (np.abs(b) > limit) & (np.sign(a.real) == np.sign(b.real))
    agree = (np.isnan(a) & np.isnan(b)) | (a == b) | beyond
    return ~finite, ~finite & ~agree


def _zeros(name: str, a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> Mismatch | None:
    if a.dtype.kind == "c":
        return None
    bad = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if not bad.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), a.shape))
    return Mismatch(
        name,
        "sign-of-zero",
        fraction=float(bad.mean()),
        index=index,
        got=str(a[index]),
        expected=str(b[index]),
    )


def _exact(name: str, got: Any, want: Any, bad: Any) -> Mismatch:
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    away = scale = 0.0
    if got.dtype.kind not in "OUS" and want.dtype.kind not in "OUS":
        difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
        # Neighbours of 2**53 and above have one float64, so at least one is seen.
        away, scale = max(float(difference.max()), 1.0), float(np.abs(want.astype(np.float64)).max())
        if difference.max():
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), bad.shape))
    return Mismatch(
        name,
        "value",
        max_abs=away,
        max_scaled=away / max(scale, 1.0),
        fraction=float(bad.mean()),
        index=index,
        got=_clip(got[index]),
        expected=_clip(want[index]),
    )


def _same_text(a: Any, b: Any) -> "np.ndarray[Any, Any]":
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    return np.array([_text(x) == _text(y) for x, y in pairs], dtype=bool).reshape(a.shape)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _clip(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 80 else text[:77] + "..."


def type_text(value: Any, dtype: str = "") -> str:
    """Describe a value, as `float32[2,3]`; `dtype` is the type that the model declares, if numpy lacks it."""
    if value is None:
        return "nothing"
    if isinstance(value, (list, tuple)):
        return f"a sequence of {len(value)}"
    array = np.asarray(value)
    return f"{dtype or _name(array.dtype)}[{','.join(map(str, array.shape))}]"


@cache
def _name(dtype: "np.dtype[Any]") -> str:
    # numpy makes a dtype's name anew each time it is asked.
    return "string" if dtype.kind in "OUS" else dtype.name


def widen(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Convert an array to float64 or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _is_float(name: str) -> bool:
    return name in _FLOOR


def _largest(name: str) -> float:
    return LARGEST.get(name, float("inf"))


def _least(name: str) -> float:
    """Return the scale of an expected output that is all zeros."""
    return _FLOOR.get(name, 1.0)


def _gravity(mismatch: Mismatch) -> tuple[int, float]:
    order: Sequence[str] = ("missing", "type", "dtype", "shape", "nan", "inf", "value", "sign-of-zero")
    return order.index(mismatch.what), -mismatch.max_scaled


def _infos() -> dict[str, Any]:
    infos: dict[str, Any] = {
        name: np.finfo(name) for name in ("float16", "float32", "float64", "complex64", "complex128")
    }
    for name in (*SCREENS, "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"):
        if name not in infos and hasattr(ml_dtypes, name):
            infos[name] = ml_dtypes.finfo(getattr(ml_dtypes, name))
    return infos


_INFOS = _infos()
# Differences up to this never count. Compilers may flush the denormals of wide types to zero; the narrow
# types' are ordinary values, where two steps of the grid are rounding.
_FLOOR = {
    name: float(info.tiny) if float(info.tiny) < 1e-30 else 2 * float(info.smallest_subnormal)
    for name, info in _INFOS.items()
}
LARGEST = {name: float(info.max) for name, info in _INFOS.items()}
_EPSILON = {name: float(info.eps) for name, info in _INFOS.items()}
