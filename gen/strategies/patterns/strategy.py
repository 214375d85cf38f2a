"""Programs with structures that optimisers look for (gen/strategies/patterns/tables.py), among random nodes; two of five structures are near misses."""

from opsieve.gen.build.graph_builder import Sketch
from opsieve.gen.case.case import Case
from opsieve.gen.generation.pattern_builder import Misfit, Weaver
from opsieve.gen.generation.random_graph import Wish, begun, case
from opsieve.gen.operators.catalogue import choices
from opsieve.gen.strategies.patterns.tables import PATTERNS

NAME = "pattern"
_ALL = tuple(PATTERNS.values())
_PALETTES = (
    ("float32",),
    ("float32",),
    ("float32", "int64"),
    ("float16",),
    ("float64", "float32"),
    ("float32", "bool"),
)


def pattern(wish: Wish, seed: int) -> Case:
    """The program of a seed."""
    return case(planted(wish, seed), wish, NAME, seed)


def planted(wish: Wish, seed: int) -> Sketch:
    """A structure first, then in turn with random nodes others, until there are as many nodes as wished."""
    sketch = begun(wish, seed, NAME, palettes=_PALETTES)
    from_all = sketch.choices = choices(sketch.opset, wish.only, wish.dtypes)
    draw = sketch.draw
    while len(sketch.nodes) + sketch.inner < wish.nodes and sketch.elements < wish.budget.elements:
        if not sketch.nodes or draw.random() < 0.4:
            try:
                draw.choice(_ALL)(Weaver(sketch, draw.random() < 0.4))
            except Misfit:
                continue
        else:
            sketch.grow(draw.choice(from_all))
    return sketch
