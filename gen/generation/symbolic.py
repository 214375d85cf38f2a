"""Symbolic dimensions: choose input sizes to leave open, and derive which other sizes follow.

A size is left open if the program stays valid with other sizes. This is tried rather than proven: two sets of
larger sizes replace the sizes, and the declarations check and infer every node again. A dimension that always
has the same open size gets its name; one that varies otherwise gets a name of its own, so that no false
equality is claimed. The builder and the values of its inputs keep their sizes.
"""

from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

from opsieve.gen.declarations.catalogue import operators, qualified_name
from opsieve.gen.declarations.declaration import Operator, nothing
from opsieve.gen.declarations.instance import with_sizes
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import LARGEST, Tensor, Typed, is_float
from opsieve.gen.graph.graph import BodyGraph, Named, Node
from opsieve.gen.graph.graph_builder import GraphBuilder

# An input and an axis
_Place: TypeAlias = tuple[Tensor, int]
_Sizes: TypeAlias = Mapping[str, tuple[int, ...]]
_TRIES = 6
# Of the names stand for one size
_ALONE = 0.5
_MOST = 3
# By round and group
_MORE = ((2, 7, 13), (17, 5, 29))
_NAMES = ("N", "batch", "sequence", "height", "width", "past", "M", "K")
# Families whose declarations do not say all about the sizes of further inputs: a bias, a scale, a mask.
_PARTLY_CLOSED = ("recurrent", "attention", "quantised", "contrib")


def open_sizes(builder: GraphBuilder, rng: Rng) -> dict[str, Named]:
    """Return shapes with named sizes by tensor name; a tensor that is missing has fixed sizes."""
    places = [
        (leaf, axis)
        for leaf in builder.program.leaves
        if leaf.leaf == "input"
        and leaf.reads
        and leaf.values is None
        and leaf.dtype in LARGEST
        # Which may yet become an initializer, when the program is written
        and leaf.dtype != "string"
        for axis in range(len(leaf.shape))
    ]
    groups: list[tuple[_Place, ...]] = []
    free = list(places)
    for _ in range(_TRIES):
        if not free or len(groups) == _MOST:
            break
        group = _draw_group(free, rng)
        if all(
            _resize_shapes(builder, trial) is not None
            for trial in ([(group, 1)], _make_trial([*groups, group], 0))
        ):
            groups.append(group)
            free = [place for place in free if place not in group]
    names = rng.shuffle_items(_NAMES)[: len(groups)]
    return _name_sizes(builder, groups, names) if groups else {}


def _draw_group(free: Sequence[_Place], rng: Rng) -> tuple[_Place, ...]:
    """Draw dimensions that share a name: a single one, or several of the same size."""
    tensor, axis = first = rng.choice(free)
    if rng.chance(_ALONE):
        return (first,)
    alike = [place for place in free if place[0].shape[place[1]] == tensor.shape[axis] and place != first]
    share = rng.choice((0.5, 1.0))
    return (first, *(place for place in alike if rng.random() < share))


# How much larger each group is to be
_Trial: TypeAlias = Sequence[tuple[Sequence[_Place], int]]


def _make_trial(groups: Sequence[Sequence[_Place]], round_: int) -> _Trial:
    """Enlarge all groups, each by its own number, so that no two sizes have a simple ratio or a constant
    difference.
    """
    return [(group, _MORE[round_][place]) for place, group in enumerate(groups)]


def _resize_shapes(builder: GraphBuilder, trial: _Trial) -> _Sizes | None:
    """Return every shape that changes in a trial, by name; None if the program is then invalid, or validity
    is unknown.
    """
    # Every value computed from a larger one.
    there: dict[str, Tensor] = {}
    changed: set[str] = set()
    for group, more in trial:
        for tensor, axis in group:
            now = there.get(tensor.name, tensor)
            there[tensor.name] = with_sizes(
                tensor, (*now.shape[:axis], now.shape[axis] + more, *now.shape[axis + 1 :])
            )
            changed.add(tensor.name)
    for node in builder.nodes:
        if not changed.isdisjoint(_list_names_in_bodies(node)):
            # The declared results of a body have fixed sizes.
            return None
        if not any(tensor is not None and tensor.name in there for tensor in node.ins):
            continue
        ins = [tensor if tensor is None else there.get(tensor.name, tensor) for tensor in node.ins]
        types = _infer_types(node, ins, changed)
        if types is None:
            return None
        for out, typed in zip(node.outs, types, strict=False):
            if out.name and typed is not None:
                if len(typed[1]) != len(out.shape) or 0 in typed[1]:
                    # Squeeze without axes: even the rank depends on the sizes; a Slice counted from the end:
                    # nothing is left
                    return None
                there[out.name] = out if typed[1] == out.shape else with_sizes(out, typed[1])
                if typed[1] != out.shape:
                    changed.add(out.name)
    return {name: there[name].shape for name in there if name in changed}


def _infer_types(
    node: Node, ins: Sequence[Tensor | None], changed: Set[str]
) -> Sequence[Typed | None] | None:
    """Infer the types of a node's outputs for other inputs; None if they are invalid, or unknown."""
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
    except AssertionError:
        # The rule needs elements that only a run determines, such as a computed shape.
        return None


def tells_sizes(operator: Operator, ins: Sequence[Tensor | None], every: bool = False) -> bool:
    """Whether a declaration says everything about the sizes of such inputs, so that `requires` rejects wrong
    ones.

    Unless `every` input counts, known integers are taken as a shape or axes rather than data.
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


def _list_names_in_bodies(node: Node) -> set[str]:
    """Collect the names that bodies of a node read, including the names that they define."""
    found: set[str] = set()
    left = [value for value in node.attrs.values() if isinstance(value, BodyGraph)]
    while left:
        body = left.pop()
        found |= {tensor.name for tensor in body.outputs}
        for inner in body.nodes:
            found |= {tensor.name for tensor in inner.ins if tensor is not None}
            left += [value for value in inner.attrs.values() if isinstance(value, BodyGraph)]
    return found


def _name_sizes(
    builder: GraphBuilder, groups: Sequence[Sequence[_Place]], names: Sequence[str]
) -> dict[str, Named]:
    """Return every shape that depends on the groups, with names in place of sizes."""
    trials = [_make_trial(groups, round_) for round_ in (0, 1)]
    rounds = [_resize_shapes(builder, trial) for trial in trials]
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
