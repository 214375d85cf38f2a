"""Programs with structures that optimisers look for (gen/strategies/patterns/tables.py), among random nodes; two of five structures are near misses."""

from opsieve.gen.build.graph_builder import GraphBuilder
from opsieve.gen.case.case import Case
from opsieve.gen.generation.pattern_builder import Misfit, PatternBuilder
from opsieve.gen.generation.random_graph import GenRequest, draw, finish, start
from opsieve.gen.spec.catalogue import choices
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


def pattern(request: GenRequest, seed: int) -> Case:
    """The program of a seed."""
    return finish(planted(request, seed), request, NAME, seed)


def planted(request: GenRequest, seed: int) -> GraphBuilder:
    """A structure first, then in turn with random nodes others, until there are as many nodes as wished."""
    builder = start(request, seed, NAME, palettes=_PALETTES)
    from_all = builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    rng, rates = builder.rng, PatternBuilder.rates
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        if not builder.nodes or rng.chance(rates.planted):
            try:
                rng.choice(_ALL)(PatternBuilder(builder, rng.chance(rates.near_miss)))
            except Misfit:
                continue
        else:
            builder.grow(draw(builder, from_all))
    return builder
