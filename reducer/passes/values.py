"""Simplify tensors: values (splats, small whole numbers, fewer distinct ones, fewer digits), dimensions and
element types. An input may also become a constant (one input less).

`opsieve.reducer.problem.order.value_complexity` defines simpler values; only those are proposed.
Dimensions and types are changed by classes that change together.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np

from opsieve.gen.irs.view import Array, ProgramEdits, SizeClass, StoredTensor, TypeClass
from opsieve.gen.model.tensors import dtype_name
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.problem.order import DTYPE_RANKS, PLAIN_DTYPES, value_complexity

S = TypeVar("S")
# The largest tensor, in elements, whose elements are simplified one by one: each costs several tests.
_SINGLE = 16


def freeze_inputs(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Make an input a constant: an input less, and its value is part of the program."""
    for name in edits.view(subject).inputs():
        yield Edit(
            f"make the input {name[:40]!r} a constant",
            frozenset((name, name + "=")),
            partial(edits.freeze, name=name),
            frozenset([name]),
        )


def simplify_values(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Give the tensors of a program plainer values."""
    return plainer_values(edits.view(subject).tensors(), edits.store)


def plainer_values(
    tensors: Iterable[StoredTensor], store: Callable[[S, StoredTensor, Array], S | None]
) -> Iterator[Edit[S]]:
    """Give tensors plainer values: whole tensors first, the largest first; then single elements."""
    found = sorted(tensors, key=lambda tensor: -tensor.array.size)
    for tensor in found:
        cost = value_complexity(tensor.array)
        for what, plainer in _plainer(tensor.array):
            if value_complexity(plainer) < cost:
                yield _edit(store, tensor, plainer, what)
    for tensor in found:
        if 1 < tensor.array.size <= _SINGLE:
            # After whole tensors, which may have become plain by then.
            for index, array in _plainer_elements(tensor.array):
                yield _edit(store, tensor, array, f"a plainer element {index}")


def _edit(
    store: Callable[[S, StoredTensor, Array], S | None], tensor: StoredTensor, array: Array, what: str
) -> Edit[S]:
    def change(subject: S) -> S | None:
        return store(subject, tensor, array)

    return Edit(f"give {tensor.name[:40]!r} {what}", frozenset([tensor.key + "="]), change)


def _plainer(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield arrays of the same type and shape that may be plainer, the plainest first."""
    if array.size == 0 or dtype_name(array).startswith("complex"):
        return
    if dtype_name(array) == "string":
        yield "empty strings", np.full_like(array, "")
        yield "one string", np.full_like(array, array.ravel()[0])
        return
    yield "zeros", np.zeros_like(array)
    yield "ones", np.ones_like(array)
    # Of booleans only these two are plainer.
    if array.dtype == bool:
        return
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        first = np.full_like(array, array.ravel()[0])
        if array.size > 1:
            yield "its first value", first
            # Distinct small numbers show which element goes where, as in a transposition.
            yield "small whole numbers", (np.arange(array.size) % 4).reshape(array.shape).astype(array.dtype)
            yield (
                "two values",
                np.where(wide > np.nanmedian(wide), array.ravel()[-1], array.ravel()[0]).astype(array.dtype),
            )
        yield "its signs", np.nan_to_num(np.sign(wide)).astype(array.dtype)
        if "int" not in dtype_name(array):
            for what, parts in (("whole numbers", 1.0), ("halves", 2.0), ("eighths", 8.0)):
                # Clipped before the product, which may overflow; infinities stay as they are, since a failure
                # may need them.
                rounded = np.where(np.isfinite(wide), np.rint(np.clip(wide, -1e6, 1e6) * parts) / parts, wide)
                yield f"rounded to {what}", rounded.astype(array.dtype)
            yield "finite numbers", np.nan_to_num(wide, nan=0, posinf=2, neginf=-2).astype(array.dtype)
        else:
            yield "halved", (wide / 2).astype(array.dtype)
            yield "at most 2", np.clip(array, -1 if array.dtype.kind == "i" else 0, 2).astype(array.dtype)
        yield "absolute values", np.abs(wide).astype(array.dtype)


def _plainer_elements(array: Array) -> Iterator[tuple[int, Array]]:
    """Yield arrays in which one element is plainer, with its index."""
    if dtype_name(array) == "string" or dtype_name(array).startswith("complex"):
        return
    cost = value_complexity(array)
    flat = array.ravel()
    for index in range(array.size):
        seen = set()
        wide = flat[index].astype(np.float64)
        # From the plainest on; half of a value keeps its sign and roughly its size.
        for item in (0, 1, flat[0], np.rint(wide), wide / 2):
            changed = flat.copy()
            with np.errstate(all="ignore"):
                changed[index] = np.asarray(item).astype(array.dtype)
            key = changed.tobytes()
            if key not in seen and value_complexity(changed) < cost:
                seen.add(key)
                yield index, changed.reshape(array.shape)


def list_lesser(value: object) -> list[Any]:
    """Return numbers of the same type that are nearer to 0, the least first; [] for another value."""
    if not isinstance(value, bool | int | float):
        return []
    half = value / 2 if math.isfinite(value) else 0
    found = dict.fromkeys(type(value)(int(each)) for each in (0, 1, half))
    return [less for less in found if abs(less) < abs(value)]


def shrink_dimensions(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Shrink every class of dimensions: all of them to 1 before any to 2, then to 3, to half, by one, those
    with most elements first; then to the last element, and to all but the first.
    """
    found = edits.view(subject).sizes()
    rounds = [_targets(each.size) for each in found]
    for turn in range(max(map(len, rounds), default=0)):
        for each, targets in zip(found, rounds, strict=True):
            if turn < len(targets):
                yield _resize(edits, each, targets[turn])
    for each in found:
        # The elements that the failure needs may be the last ones.
        for target in dict.fromkeys((1, each.size - 1)) if each.is_held else ():
            yield _resize(edits, each, target, keep_last=True)


def _resize(edits: ProgramEdits[S], sizes: SizeClass, target: int, keep_last: bool = False) -> Edit[S]:
    label = f"shrink {sizes.label} from {sizes.size} to {'the last ' if keep_last else ''}{target}"
    change = partial(edits.resize, sizes=sizes, size=target, keep_last=keep_last)
    return Edit(label, sizes.touches, change)


def _targets(size: int) -> list[int]:
    return [target for target in dict.fromkeys((1, 2, 3, size // 2, size - 1)) if 0 < target < size]


def simplify_dtypes(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Turn each element type into every simpler one of float32, int32 and int64: all classes of values that
    have it at once, then each by itself.
    """
    together: dict[tuple[str, str], list[TypeClass]] = {}
    for each in edits.view(subject).dtypes():
        dtype = each.dtype
        rank = DTYPE_RANKS.get(dtype, len(DTYPE_RANKS))
        # Floats only become float32: an integer has no fraction.
        allowed = PLAIN_DTYPES if "int" in dtype or dtype == "bool" else PLAIN_DTYPES[:1]
        for target in [
            target for target in allowed if dtype and DTYPE_RANKS[target] < rank and target != dtype
        ]:
            if target in each.allowed:
                together.setdefault((each.dtype, target), []).append(each)
    largest = sorted(together.items(), key=lambda item: -len(item[1]))
    groups = [(target, classes) for (_, target), classes in largest if len(classes) > 1]
    groups += [(target, [each]) for (_, target), classes in together.items() for each in classes]
    for target, classes in groups:
        what = f"{len(classes)} classes of tensors" if len(classes) > 1 else classes[0].label
        touches = frozenset().union(*(each.touches for each in classes))
        change = partial(edits.retype, classes=classes, dtype=target)
        yield Edit(f"turn {what} from {classes[0].dtype} to {target}", touches, change)
