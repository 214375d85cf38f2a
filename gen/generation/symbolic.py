"""Symbolic dimensions: choose input sizes to leave open, and derive which other sizes follow.

A size is left open if the program stays valid with other sizes. This is tried rather than proven: two sets of
larger sizes replace the sizes, and the declarations check and infer every node again. Where a node does not
take the larger sizes, a Slice before it restores the old ones. A dimension that always has the same open size
gets its name; one that varies otherwise gets a name of its own, so that no false equality is claimed. The
builder and the values of its inputs keep their sizes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from opsieve.gen.analysis.reading import known_values
from opsieve.gen.declarations.catalogue import operators, qualified_name
from opsieve.gen.declarations.declaration import Operator, SizeRule, nothing
from opsieve.gen.declarations.instance import with_sizes
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import LARGEST, Tensor, is_float
from opsieve.gen.graph.adapters import can_cut, make_cut
from opsieve.gen.graph.graph import BodyGraph, Named, Node
from opsieve.gen.graph.graph_builder import GraphBuilder

# An input and an axis
_Place: TypeAlias = tuple[Tensor, int]
_Sizes: TypeAlias = Mapping[str, tuple[int, ...]]
# The tensors that nodes read at their old sizes, by index of the node and name.
_Cuts: TypeAlias = dict[int, dict[str, Tensor]]
# The increase of each group's size.
_Trial: TypeAlias = Sequence[tuple[Sequence[_Place], int]]
# Drawn groups that are compared, and the most draws until one of them is possible.
_TRIES, _MOST_TRIES = 6, 30
# The share of names that stand for a single dimension.
_ALONE = 0.5
_MOST = 3
# Resized tensors that are worth one more Slice
_WORTH = 2
# The increase by round and group: primes, so that no two sizes keep a simple ratio or a constant difference.
_MORE = ((2, 7, 13), (17, 5, 29))
_NAMES = ("N", "batch", "sequence", "height", "width", "past", "M", "K")
# Families whose declarations do not say all about the sizes of further inputs: a bias, a scale, a mask.
_PARTLY_CLOSED = ("recurrent", "attention", "quantised", "contrib")


def open_sizes(builder: GraphBuilder, rng: Rng) -> dict[str, Named]:
    """Return shapes with named sizes by tensor name; a tensor that is missing has fixed sizes.

    Nodes are added to the builder where sizes have to be restored, and a leaf becomes an input if there is no
    other.
    """
    # Only inputs can have open sizes, so stored leaves are used, as inputs, if there is no other way.
    places = _list_places(builder, ("input",)) or _list_places(builder, ("initializer", "constant"))
    best: tuple[int, list[tuple[_Place, ...]], _Cuts, list[_Sizes]] | None = None
    # Rules read the elements of results that follow from sizes, so that they can be read at other sizes.
    for node in builder.nodes:
        if len(node.outs) == 1 and node.outs[0].values is None:
            node.outs[0].values = known_values(node.op, node.ins, node.attrs, node.outs[0])
    for number in range(_MOST_TRIES if places else 0):
        if best is not None and number >= _TRIES:
            break
        groups = _draw_groups(places, rng)
        cuts: _Cuts = {}
        rounds = _try_sizes(builder, groups, cuts)
        if rounds:
            gain = len(rounds[-1]) - _WORTH * sum(map(len, cuts.values()))
            if best is None or gain > best[0]:
                best = gain, groups, cuts, rounds
    if best is None:
        return {}
    _, groups, cuts, rounds = best
    for group in groups:
        for tensor, _ in group:
            tensor.leaf = "input"
    opened = _name_sizes(builder, groups, rng.shuffle_items(_NAMES)[: len(groups)], rounds)
    _restore_sizes(builder, cuts, rounds[-1])
    return opened


def _list_places(builder: GraphBuilder, kinds: Sequence[str]) -> list[_Place]:
    """List the dimensions that can be left open."""
    return [
        (leaf, axis)
        for leaf in builder.program.leaves
        if leaf.leaf in kinds
        and leaf.reads
        and leaf.values is None
        # Text inputs may become initializers when the program is written, and those have fixed sizes.
        and leaf.dtype in LARGEST
        and leaf.dtype != "string"
        for axis in range(len(leaf.shape))
    ]


def _draw_groups(places: Sequence[_Place], rng: Rng) -> list[tuple[_Place, ...]]:
    """Draw groups of dimensions that share a name: a single one, or several of the same size."""
    groups: list[tuple[_Place, ...]] = []
    free = list(places)
    for _ in range(rng.between(1, _MOST)):
        if not free:
            break
        tensor, axis = first = rng.choice(free)
        alike = [place for place in free if place[0].shape[place[1]] == tensor.shape[axis] and place != first]
        share = 0.0 if rng.chance(_ALONE) else rng.choice((0.5, 1.0))
        group = (first, *(place for place in alike if rng.random() < share))
        groups.append(group)
        free = [place for place in free if place not in group]
    return groups


def _make_trial(groups: Sequence[Sequence[_Place]], round_: int) -> _Trial:
    """Enlarge all groups, each by its own number, so that no two sizes have a simple ratio or a constant
    difference.
    """
    return [(group, _MORE[round_][place]) for place, group in enumerate(groups)]


def _try_sizes(builder: GraphBuilder, groups: Sequence[Sequence[_Place]], cuts: _Cuts) -> list[_Sizes]:
    """Return the shapes that change when all groups grow, in two rounds; [] if that is impossible.

    `cuts` grows until the program is valid with every group alone, and with all of them.
    """
    trials = [*([(group, 1)] for group in groups), _make_trial(groups, 0), _make_trial(groups, 1)]
    while True:
        before = sum(map(len, cuts.values()))
        rounds = [_resize_shapes(builder, trial, cuts) for trial in trials]
        if any(each is None for each in rounds):
            return []
        if before == sum(map(len, cuts.values())):
            return [each for each in rounds[-2:] if each is not None]


def _resize_shapes(builder: GraphBuilder, trial: _Trial, cuts: _Cuts) -> _Sizes | None:
    """Return every shape that changes in a trial, by name; None if the program cannot be made valid.

    What a node does not take at its new size is added to `cuts`.
    """
    while True:
        # Tensors that differ, by their sizes or by elements that rules know
        there: dict[str, Tensor] = {}
        for group, more in trial:
            for tensor, axis in group:
                sides = there.get(tensor.name, tensor).shape
                larger = (*sides[:axis], sides[axis] + more, *sides[axis + 1 :])
                there[tensor.name] = with_sizes(tensor, larger)
        resized, makers = set(there), dict[str, int]()
        for place, node in enumerate(builder.nodes):
            kept = cuts.get(place, {})
            read = [each for each in iterate_reads(node) if each.name in there and each.name not in kept]
            if not read:
                continue
            changed = [
                None if each is None or each.name in kept else there.get(each.name) for each in node.ins
            ]
            try:
                outs = _resize_outputs(node, changed)
            except AssertionError:
                # The rule needs elements that only a run determines, which may depend on the sizes.
                return None
            if outs is None:
                if not _cut_inputs(builder, place, there, makers, cuts):
                    return None
                break
            for out, now in outs:
                there[out.name] = now
                makers[out.name] = place
                if now.shape != out.shape:
                    resized.add(out.name)
        else:
            return {name: there[name].shape for name in there if name in resized}


def iterate_reads(node: Node) -> Iterator[Tensor]:
    """Yield the tensors that a node and its bodies read."""
    yield from (tensor for tensor in node.ins if tensor is not None)
    for value in node.attrs.values():
        if isinstance(value, BodyGraph):
            for inner in value.nodes:
                yield from iterate_reads(inner)


def _cut_inputs(
    builder: GraphBuilder, place: int, there: Mapping[str, Tensor], makers: Mapping[str, int], cuts: _Cuts
) -> bool:
    """Add what a node reads to the cuts; where only elements differ, what they were computed from."""
    cut = False
    for tensor in iterate_reads(builder.nodes[place]):
        kept = cuts.setdefault(place, {})
        if tensor.name not in there or tensor.name in kept:
            continue
        if there[tensor.name].shape == tensor.shape:
            cut = _cut_inputs(builder, makers[tensor.name], there, makers, cuts) or cut
        elif can_cut(builder, tensor):
            kept[tensor.name] = tensor
            cut = True
    return cut


def _resize_outputs(node: Node, changed: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]] | None:
    """Return the outputs of a node that differ, each with its new form, if these inputs differ (None: as they
    were); None if the node is then invalid, or nothing tells.
    """
    operator = operators().get(qualified_name(node.domain, node.op))
    bodies = any(isinstance(value, BodyGraph) for value in node.attrs.values())
    ins = [new or old for new, old in zip(changed, node.ins, strict=True)]
    # The declared results of a body have fixed sizes.
    if operator is None or bodies or not tells_sizes(operator, ins):
        return None
    # An input has other elements at the new sizes. If they are positions or counts they may be out of range
    # then; only sizes and numbers computed from sizes follow.
    if (
        operator.size_rule is SizeRule.NONE
        and any(new and old and new.shape == old.shape for new, old in zip(changed, node.ins, strict=True))
        and any(out.values is None for out in node.outs)
    ):
        return None
    try:
        if not all(operator.requires(ins, node.attrs)):  # type: ignore[arg-type]
            return None
        types = operator.infer(ins, node.attrs)  # type: ignore[arg-type]
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    found = []
    for out, typed in zip(node.outs, types, strict=False):
        if not out.name or typed is None:
            continue
        if len(typed[1]) != len(out.shape) or 0 in typed[1]:
            # After a Squeeze without axes even the rank depends on sizes, and a Slice may leave nothing.
            return None
        now = with_sizes(out, typed[1])
        if out.values is not None:
            now.values = known_values(node.op, ins, node.attrs, now)
            if now.values is None:
                return None
        if (now.shape, now.values) != (out.shape, out.values):
            found.append((out, now))
    return found


def _restore_sizes(builder: GraphBuilder, cuts: _Cuts, sizes: _Sizes) -> None:
    """Put a Slice before each node that reads a tensor at its old sizes; further readers share it."""
    crops: dict[str, Tensor] = {}
    nodes: list[Node] = []
    for place, node in enumerate(builder.nodes):
        kept = {name: tensor for name, tensor in cuts.get(place, {}).items() if name in sizes}
        for name, tensor in kept.items():
            if name not in crops:
                axes = [axis for axis, side in enumerate(sizes[name]) if side != tensor.shape[axis]]
                nodes.append(make_cut(builder, tensor, axes))
                (crops[name],) = nodes[-1].outs
        _read_instead(node, {name: crops[name] for name in kept})
        nodes.append(node)
    builder.nodes[:] = nodes


def _read_instead(node: Node, others: Mapping[str, Tensor]) -> None:
    """Let a node and its bodies read other tensors."""
    node.ins = [others.get(each.name, each) if each is not None else None for each in node.ins]
    for value in node.attrs.values() if others else ():
        if isinstance(value, BodyGraph):
            for inner in value.nodes:
                _read_instead(inner, others)


def tells_sizes(operator: Operator, ins: Sequence[Tensor | None], every: bool = False) -> bool:
    """Return whether a declaration says everything about the sizes of such inputs, so that `requires` rejects
    wrong ones.

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


def _name_sizes(
    builder: GraphBuilder, groups: Sequence[Sequence[_Place]], names: Sequence[str], rounds: Sequence[_Sizes]
) -> dict[str, Named]:
    """Return every shape that depends on the groups, with names in place of sizes."""
    trials = [_make_trial(groups, round_) for round_ in (0, 1)]
    first, second = rounds
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
                # A name of its own: a shared one would claim an equality that two trials do not prove.
                sides.append(f"d{unknown}")
        found[tensor_name] = tuple(sides)
    return found
