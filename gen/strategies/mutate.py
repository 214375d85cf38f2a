"""Programs made of others: grown, with typed subtrees exchanged, other attributes, other dtypes, other shapes.

What is mutated are programs of the corpus that the wish has (real models), else programs of other strategies. At times a second
one is laid before the first, so that subtrees can come from there. Symbolic sizes of a corpus program's inputs are bound.
"""

import math
from dataclasses import replace

from opsieve.gen.analysis.reading import Source, Unreadable, read
from opsieve.gen.build.graph_builder import Shape, Sketch
from opsieve.gen.build.rng import Draw
from opsieve.gen.case.case import Case
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.generation.mutation import Changes, Replay
from opsieve.gen.generation.random_graph import SUPPORTED, Wish, begun, case, grown, outputs
from opsieve.gen.model.bad_input import BadInput
from opsieve.gen.operators.catalogue import choices
from opsieve.gen.spec.declaration import Tensor
from opsieve.gen.spec.schema import OLDEST
from opsieve.gen.strategies.patterns.strategy import planted

NAME = "mutate"
_DTYPES = ("float32", "float16", "float64", "bfloat16", "int64", "int32", "int8", "uint8")
_KINDS = ("inserted", "inserted", "swapped", "swapped", "redrawn", "dropped", "doubled", "dtype", "shape")
_GROWN = 5  # nodes added to a program of the corpus, at most


def mutate(wish: Wish, seed: int) -> Case:
    """The program of a seed: another one with one to four changes, and new nodes (up to the number wished without a corpus).

    BadInput when nothing in the corpus can be read.
    """
    draw = Draw(f"{NAME} {seed}", wish.bins)
    if wish.corpus:
        source, donor = _from_corpus(wish, draw, seed), None
        tensors = _tensors(source)
        budget = replace(
            wish.budget,
            tensor=max(wish.budget.tensor, *map(_size, tensors)),
            elements=wish.budget.elements + sum(map(_size, tensors)),
            work=1 << 40,
        )
        wished = replace(wish, opset=source.opset, budget=budget, nodes=len(source.nodes) + draw.between(0, _GROWN))
    else:
        opset = wish.opset or (SUPPORTED if draw.random() < 0.5 else draw.between(OLDEST, SUPPORTED))
        wished = replace(wish, opset=opset)
        crossed = wish.nodes > 3 and draw.random() < 0.3
        source = _made(wished, draw, 2 * seed, draw.choice((0.3, 0.4) if crossed else (0.5, 0.7, 0.9)))
        donor = _made(wished, draw, 2 * seed + 1, 0.4) if crossed else None
    sketch = begun(wished, seed, NAME, ranged=not wish.corpus)
    sketch.choices = choices(sketch.opset, wish.only, wish.dtypes)
    if donor is not None:
        Replay(sketch, Changes({})).run(donor)
    Replay(sketch, _changes(source, draw, wish)).run(source)
    grown(sketch, wished)
    return case(sketch, wish, NAME, seed)


def _made(wish: Wish, draw: Draw, seed: int, share: float) -> Source:
    """A program of the strategy isra or pattern with a share of the nodes wished for: as it was grown, never written and read."""
    smaller = replace(wish, nodes=max(1, round(wish.nodes * share)))
    made = draw.choice((_grown_anew, _grown_anew, planted))(smaller, seed)
    return Source(made.opset, tuple(made.nodes), tuple(outputs(made)))


def _grown_anew(wish: Wish, seed: int) -> Sketch:
    sketch = begun(wish, seed, "isra")
    grown(sketch, wish)
    return sketch


def _from_corpus(wish: Wish, draw: Draw, seed: int) -> Source:
    reason = ""
    for program in draw.shuffled(wish.corpus):
        try:
            return read(program.proto, seeded_inputs(program.proto, seed))
        except (Unreadable, BadInput) as error:
            reason = str(error)
    raise BadInput(f"none of the {len(wish.corpus)} models of the corpus can be mutated; one has {reason}")


def _tensors(source: Source) -> list[Tensor]:
    return [tensor for node in source.nodes for tensor in (*node.ins, *node.outs) if tensor is not None and tensor.name]


def _size(tensor: Tensor) -> int:
    return math.prod(side for side in tensor.shape if isinstance(side, int))


def _changes(source: Source, draw: Draw, wish: Wish) -> Changes:
    """One to four changes, at any nodes and leaves."""
    places: dict[str, set[int]] = {kind: set() for kind in _KINDS}
    leaves: dict[str, tuple[str, Shape]] = {}
    if source.nodes:
        for _ in range(draw.between(1, 4)):
            kind = draw.choice(_KINDS)
            if kind == "dtype":
                leaves |= _other_dtype(source, draw, wish)
            elif kind == "shape":
                leaves |= _other_shape(source, draw)
            else:
                places[kind].add(draw.below(len(source.nodes)))
    chosen = {kind: frozenset(places[kind]) for kind in ("inserted", "swapped", "redrawn", "dropped", "doubled")}
    return Changes(leaves, **chosen)


def _data(source: Source) -> list[Tensor]:
    """The leaves that hold data rather than shapes and axes."""
    found = {tensor.name: tensor for tensor in _tensors(source) if tensor.leaf}
    return [leaf for leaf in found.values() if leaf.values is None or (leaf.rank > 0 and "float" in leaf.dtype)]


def _other_dtype(source: Source, draw: Draw, wish: Wish) -> dict[str, tuple[str, Shape]]:
    """Another dtype for one leaf, or for all of its dtype."""
    leaves = [leaf for leaf in _data(source) if leaf.dtype in _DTYPES]
    allowed = [dtype for dtype in _DTYPES if wish.dtypes is None or dtype in wish.dtypes]
    if not leaves or not allowed:
        return {}
    first, dtype = draw.choice(leaves), draw.choice(allowed)
    changed = [leaf for leaf in leaves if leaf.dtype == first.dtype] if draw.random() < 0.6 else [first]
    return {leaf.name: (dtype, leaf.shape) for leaf in changed}


def _other_shape(source: Source, draw: Draw) -> dict[str, tuple[str, Shape]]:
    """Another size for one dimension of a leaf, or for all dimensions of leaves that have this size."""
    leaves = [leaf for leaf in _data(source) if leaf.rank]
    if not leaves:
        return {}
    first = draw.choice(leaves)
    axis = draw.below(first.rank)
    old, new = first.shape[axis], draw.binned(1, 9)
    if draw.random() < 0.3:
        return {first.name: (first.dtype, (*first.shape[:axis], new, *first.shape[axis + 1 :]))}
    return {
        leaf.name: (leaf.dtype, tuple(new if side == old else side for side in leaf.shape))
        for leaf in leaves
        if old in leaf.shape
    }
