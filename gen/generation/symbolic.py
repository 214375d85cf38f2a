"""Symbolic dimensions: which sizes of a finished builder's inputs may be left open, and what that makes of
every other size.

A size is left open where the program stays valid with others in its place. That is tried, not proven: the
sizes are replaced by two sets of larger ones, and every node behind them is checked and inferred anew by its
declaration. A dimension that is of an open size each time gets its name; one that varies otherwise gets a
name that nothing else has, so that no equality is claimed that may not hold. The builder itself, and the
values of its inputs, keep the sizes that they have: they bind the names.
"""

from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

from opsieve.gen.declarations.catalogue import operators, qualified_name
from opsieve.gen.declarations.declaration import Operator, nothing
from opsieve.gen.declarations.instance import viewed
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import LARGEST, Tensor, Typed, is_float
from opsieve.gen.graph.graph import BodyGraph, Named, Node
from opsieve.gen.graph.graph_builder import GraphBuilder

_Place: TypeAlias = tuple[Tensor, int]  # an input and an axis
_Sizes: TypeAlias = Mapping[str, tuple[int, ...]]
_TRIES = 6
_ALONE = 0.5  # of the names stand for one size
_MOST = 3
_MORE = ((2, 7, 13), (17, 5, 29))  # by round and group
_NAMES = ("N", "batch", "sequence", "height", "width", "past", "M", "K")
# Families whose declarations do not say all about the sizes of further inputs: a bias, a scale, a mask.
_PARTLY_CLOSED = ("recurrent", "attention", "quantised", "contrib")


def open_sizes(builder: GraphBuilder, rng: Rng) -> dict[str, Named]:
    """Shapes with names in them, by the name of the tensor; of a tensor that is not among them all sizes are
    fixed.
    """
    places = [
        (leaf, axis)
        for leaf in builder.program.leaves
        if leaf.leaf == "input"
        and leaf.reads
        and leaf.values is None
        and leaf.dtype in LARGEST
        and leaf.dtype != "string"  # which may yet become an initializer, when the program is written
        for axis in range(len(leaf.shape))
    ]
    groups: list[tuple[_Place, ...]] = []
    free = list(places)
    for _ in range(_TRIES):
        if not free or len(groups) == _MOST:
            break
        group = _group(free, rng)
        if all(_resized(builder, trial) is not None for trial in ([(group, 1)], _trial([*groups, group], 0))):
            groups.append(group)
            free = [place for place in free if place not in group]
    names = rng.shuffled(_NAMES)[: len(groups)]
    return _named(builder, groups, names) if groups else {}


def _group(free: Sequence[_Place], rng: Rng) -> tuple[_Place, ...]:
    """Dimensions that are to have one name: a single one, or several of the same size."""
    tensor, axis = first = rng.choice(free)
    if rng.chance(_ALONE):
        return (first,)
    alike = [place for place in free if place[0].shape[place[1]] == tensor.shape[axis] and place != first]
    share = rng.choice((0.5, 1.0))
    return (first, *(place for place in alike if rng.random() < share))


_Trial: TypeAlias = Sequence[tuple[Sequence[_Place], int]]  # how much larger each group is to be


def _trial(groups: Sequence[Sequence[_Place]], round_: int) -> _Trial:
    """All groups larger, each by a number of its own: in no round is one half of another, as behind a stride,
    or differs as in the other.
    """
    return [(group, _MORE[round_][place]) for place, group in enumerate(groups)]


def _resized(builder: GraphBuilder, trial: _Trial) -> _Sizes | None:
    """Every shape that is another in a trial, by name; None when the program is not valid then, or that
    cannot be said.
    """
    there: dict[str, Tensor] = {}  # everything that is computed from what is larger
    changed: set[str] = set()
    for group, more in trial:
        for tensor, axis in group:
            now = there.get(tensor.name, tensor)
            there[tensor.name] = viewed(
                tensor, (*now.shape[:axis], now.shape[axis] + more, *now.shape[axis + 1 :])
            )
            changed.add(tensor.name)
    for node in builder.nodes:
        if not changed.isdisjoint(_captured(node)):
            return None  # what a body is declared to give is of fixed size
        if not any(tensor is not None and tensor.name in there for tensor in node.ins):
            continue
        ins = [tensor if tensor is None else there.get(tensor.name, tensor) for tensor in node.ins]
        types = _inferred(node, ins, changed)
        if types is None:
            return None
        for out, typed in zip(node.outs, types, strict=False):
            if out.name and typed is not None:
                if len(typed[1]) != len(out.shape) or 0 in typed[1]:
                    # Squeeze without axes: even the rank depends on the sizes; a Slice counted from the end:
                    # nothing is left
                    return None
                there[out.name] = out if typed[1] == out.shape else viewed(out, typed[1])
                if typed[1] != out.shape:
                    changed.add(out.name)
    return {name: there[name].shape for name in there if name in changed}


def _inferred(node: Node, ins: Sequence[Tensor | None], changed: Set[str]) -> Sequence[Typed | None] | None:
    """The types of a node's outputs for other inputs; None when it cannot have them, or that cannot be
    said.
    """
    operator = operators().get(qualified_name(node.domain, node.op))
    if operator is None or not tells_sizes(operator, ins):
        return None
    if any(isinstance(value, BodyGraph) for value in node.attrs.values()):
        if any(tensor is not None and tensor.name in changed for tensor in node.ins):
            return None
        return [(out.dtype, out.shape) for out in node.outs]
    try:
        if not all(operator.requires(ins, node.attrs)):  # type: ignore[arg-type]
            return None
        return operator.infer(ins, node.attrs)  # type: ignore[arg-type]
    except AssertionError:  # the rule needs elements that only a run tells, such as a shape that is computed
        return None


def tells_sizes(operator: Operator, ins: Sequence[Tensor | None], every: bool = False) -> bool:
    """Whether a declaration says all about the sizes of such inputs: `requires` rejects those that do not go
    together.

    Unless `every` input counts, whole numbers that are known are taken for a shape or axes rather than data.
    """
    if operator.sizes_unsaid:
        return False
    several = [
        tensor
        for tensor in ins
        if tensor is not None and tensor.rank and (every or tensor.values is None or is_float(tensor.dtype))
    ]
    certain = operator.requires is not nothing and operator.family not in _PARTLY_CLOSED
    return certain or len(several) < 2


def _captured(node: Node) -> set[str]:
    """The names that bodies of a node read; what they make themselves among them, which does no harm."""
    found: set[str] = set()
    left = [value for value in node.attrs.values() if isinstance(value, BodyGraph)]
    while left:
        body = left.pop()
        found |= {tensor.name for tensor in body.outputs}
        for inner in body.nodes:
            found |= {tensor.name for tensor in inner.ins if tensor is not None}
            left += [value for value in inner.attrs.values() if isinstance(value, BodyGraph)]
    return found


def _named(
    builder: GraphBuilder, groups: Sequence[Sequence[_Place]], names: Sequence[str]
) -> dict[str, Named]:
    """Every shape that depends on the groups, their names in the place of their sizes."""
    trials = [_trial(groups, round_) for round_ in (0, 1)]
    rounds = [_resized(builder, trial) for trial in trials]
    first, second = rounds
    if first is None or second is None:
        return {}
    shapes = {leaf.name: leaf.shape for leaf in builder.program.leaves}
    shapes |= {out.name: out.shape for node in builder.nodes for out in node.outs}
    seen: dict[tuple[int, ...], str] = {}
    for place, (group, name) in enumerate(zip(groups, names, strict=True)):
        tensor, axis = group[0]
        size = tensor.shape[axis]
        seen[(size, *(size + trial[place][1] for trial in trials))] = name
    found: dict[str, Named] = {}
    unknown = 0
    for tensor_name in dict.fromkeys((*first, *second)):
        now = shapes[tensor_name]
        sides: list[int | str] = []
        for sizes in zip(now, first.get(tensor_name, now), second.get(tensor_name, now), strict=True):
            if len(set(sizes)) == 1:
                sides.append(sizes[0])
            elif sizes in seen:
                sides.append(seen[sizes])
            else:
                unknown += 1
                sides.append(f"d{unknown}")
        found[tensor_name] = tuple(sides)
    return found
