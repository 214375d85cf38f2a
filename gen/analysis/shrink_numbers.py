"""Simplify instances of nodes: one number gets smaller, and the numbers that rules tie to it follow.

The numbers of a small graph are the sizes of its leaves, the elements of leaves that hold shapes or the like,
and the whole numbers in attributes. The requirements of the declarations tie them, so a convolution's kernel
takes its weight and its paddings along, a hidden size the weights of all gates, a batch all equal sizes. The
method has no rules per operator: after a move, it repairs broken rules one after the other, each time by the
number (among those that the node depends on) whose change leaves the fewest broken. The result satisfies
every rule that could be evaluated; nodes that the declarations do not cover are not checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from opsieve.gen.analysis.validity import Typing, settle_types
from opsieve.gen.declarations.tensor import Attributes, Tensor, Typed

# The most numbers that may follow one.
_REPAIRS = 12
# The most instances checked for one system: about a tenth of a second.
_TRIALS = 6_000
# The size up to which every smaller one is tried if no likely one helps.
_NEAR = 12
# The number of rules charged for a node that can no longer be checked.
_LOST = 100
# The number of the rule that outputs have elements.
_EMPTY = 1_000


@dataclass(frozen=True, slots=True)
class RuledNode:
    """A node: its qualified operator, its inputs and outputs by name ("" for one left out), its attributes as
    rules read them.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attributes

    @property
    def key(self) -> str:
        """The first output that is there, by which the node is known; "" without one."""
        return next(filter(None, self.outputs), "")


@dataclass(frozen=True, slots=True)
class NumberPlace:
    """Where a number stands: `size` of a leaf's axis, element (`value`) of a leaf, or in the `attribute` of a
    node.

    `owner` is the leaf, or the node's `key`; `index` the axis, the element, or the item of a list (-1: it is
    no list).
    """

    kind: Literal["size", "value", "attribute"]
    owner: str
    name: str
    index: int


Numbers: TypeAlias = dict[NumberPlace, int]
# Broken rules, types of outputs
_Reading: TypeAlias = tuple[tuple[int, ...], tuple[Typed | None, ...]]
# A part and a rule of it, each
_BrokenRules: TypeAlias = frozenset[tuple[int, int]]


class System:
    """The numbers of a graph and the rules that tie them. Parts are in order; leaves are tensors that no part
    makes.
    """

    def __init__(self, parts: Sequence[RuledNode], leaves: Mapping[str, Typing], opset: int) -> None:
        self.parts = parts
        self.leaves = leaves
        self.opset = opset
        self.numbers: Numbers = dict(_numbers(parts, leaves))
        self._trials = 0
        self._known: dict[tuple[object, ...], _Reading | None] = {}
        self._above = _above(parts)
        answers = [answer for answer, _ in self._walk({})]
        # Parts that have rules.
        self._spoken = frozenset(index for index, answer in enumerate(answers) if answer is not None)
        self.sound = all(not answer[0] for answer in answers if answer is not None)

    def together(self, place: NumberPlace, target: int) -> Numbers | None:
        """Set a number to a target and adapt the tied numbers; returns `None` if the search fails, or the
        system is not sound itself.
        """
        old = self.numbers[place]
        new = {place: target}
        met: set[_BrokenRules] = set()
        # Repairing one rule can break the next one, so the repair is repeated until all hold or the limit is
        # met.
        for _ in range(_REPAIRS):
            broken, near = self._find_broken_rules(new)
            if not broken:
                return new
            met.add(broken)
            found = self._mend_number(new, near, met, len(broken), (old, target), wide=False)
            if found is None or len(found[2]) == len(broken):
                found = self._mend_number(new, near, met, len(broken) - 1, (old, target), wide=True) or found
            if found is None:
                return None
            new[found[0]] = found[1]
        return None

    def _mend_number(
        self,
        new: Numbers,
        near: list[NumberPlace],
        met: set[_BrokenRules],
        most: int,
        move: tuple[int, int],
        wide: bool,
    ) -> tuple[NumberPlace, int, _BrokenRules] | None:
        """Choose the change of one more number that leaves the fewest rules broken, at most `most` and a set
        not met before; returns `None` if there is no such change.
        """
        found = None
        for other in near:
            if other in new:
                continue
            for value in _likely(other, self.numbers[other], *move, wide):
                if self._trials > _TRIALS:
                    return found
                broken, _ = self._find_broken_rules({**new, other: value})
                if len(broken) <= most and broken not in met:
                    most, found = len(broken) - 1, (other, value, broken)
                    if not broken:
                        return found
        return found

    def _find_broken_rules(self, new: Numbers) -> tuple[_BrokenRules, list[NumberPlace]]:
        """Return the rules that are broken under new numbers, and the numbers on which the first node with
        one depends.
        """
        self._trials += 1
        found: set[tuple[int, int]] = set()
        for index, (answer, _) in enumerate(self._walk(new)):
            if answer is not None:
                found.update((index, rule) for rule in answer[0])
            elif index in self._spoken:
                found.update((index, -1 - rule) for rule in range(_LOST))
        if not found:
            return frozenset(), []
        owners = self._above[min(found)[0]]
        return frozenset(found), [place for place in self.numbers if place.owner in owners]

    def _walk(self, new: Numbers) -> Iterator[tuple[_Reading | None, RuledNode]]:
        changed = {place.owner for place in new}
        scope: dict[str, Typing | None] = {
            name: self._leaf(name, typing, new) if name in changed else typing
            for name, typing in self.leaves.items()
        }
        for index, part in enumerate(self.parts):
            own = tuple(
                (place, value)
                for place, value in new.items()
                if place.kind == "attribute" and place.owner == part.key
            )
            ins = tuple(scope.get(name) for name in part.inputs)
            key = (index, own, ins)
            if key not in self._known:
                self._known[key] = self._read_part(part, ins, own)
            answer = self._known[key]
            for place, name in enumerate(part.outputs):
                typed = answer[1][place] if answer is not None and place < len(answer[1]) else None
                scope[name] = None if typed is None else (*typed, None)
            yield answer, part

    def _read_part(
        self, part: RuledNode, ins: Sequence[Typing | None], own: Sequence[tuple[NumberPlace, int]]
    ) -> _Reading | None:
        if any(typing is None and name for typing, name in zip(ins, part.inputs, strict=True)):
            return None
        attrs = dict(part.attrs)
        for place, value in own:
            held = attrs[place.name]
            attrs[place.name] = (
                value if place.index < 0 else [*held[: place.index], value, *held[place.index + 1 :]]
            )
        tensors = [None if typing is None else Tensor("", *typing[:2], values=typing[2]) for typing in ins]
        found = settle_types(part.operator, self.opset, tensors, attrs, len(part.outputs))
        if found is None:
            return None
        empty = any(typed is not None and min(typed[1], default=1) < 1 for typed in found[1])
        # A wrong result does not show in a tensor without elements.
        return (*found[0], _EMPTY) if empty else found[0], found[1]

    def _leaf(self, name: str, typing: Typing, new: Numbers) -> Typing:
        dtype, shape, values = typing
        sides, numbers = list(shape), None if values is None else list(values)
        for place, value in new.items():
            if place.owner == name and place.kind == "size":
                sides[place.index] = value
            elif place.owner == name and numbers is not None:
                numbers[place.index] = value
        if numbers is not None and tuple(sides) != shape:
            numbers = numbers[: sides[0]] if len(sides) == 1 else None
        return dtype, tuple(sides), None if numbers is None else tuple(numbers)


def _numbers(parts: Sequence[RuledNode], leaves: Mapping[str, Typing]) -> Iterator[tuple[NumberPlace, int]]:
    read = {name for part in parts for name in part.inputs}
    for name, (dtype, shape, values) in leaves.items():
        if name not in read:
            continue
        for axis, side in enumerate(shape):
            if side > 1:
                yield NumberPlace("size", name, "", axis), side
        if values is not None and len(shape) < 2 and dtype in ("int64", "int32"):
            for index, value in enumerate(values):
                if value:
                    yield NumberPlace("value", name, "", index), value
    for part in parts:
        for name, held in part.attrs.items():
            if type(held) is int and held:
                yield NumberPlace("attribute", part.key, name, -1), held
            elif isinstance(held, list):
                for index, item in enumerate(held):
                    if type(item) is int and item:
                        yield NumberPlace("attribute", part.key, name, index), item


def _above(parts: Sequence[RuledNode]) -> list[frozenset[str]]:
    """For each part the leaves and the parts (by key) that it depends on, itself among them."""
    made: dict[str, frozenset[str]] = {}
    found = []
    for part in parts:
        owners = frozenset((part.key,)).union(*(made.get(name, frozenset((name,))) for name in part.inputs))
        made.update(dict.fromkeys(part.outputs, owners))
        found.append(owners)
    return found


def _likely(place: NumberPlace, now: int, old: int, target: int, wide: bool) -> Iterator[int]:
    """Yield likely values for a number tied to one that went from `old` to `target`: in proportion, reduced
    by the same amount, the same, the smallest.
    """
    least = 1 if place.kind == "size" else 0
    if wide:
        candidates: Sequence[int] = range(least, min(now, _NEAR)) if now > 0 else ()
    else:
        shared = [now * target // old] if old and now * target % old == 0 else []
        candidates = [*shared, now - (old - target), target, 1, least]
    for value in dict.fromkeys(candidates):
        if least <= value < now:
            yield value
