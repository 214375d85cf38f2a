"""Programs with structures that optimisers look for (gen/strategies/patterns/tables.py), among random nodes; two of five structures are near misses."""

import contextlib

from opsieve.gen.build.graph_builder import GraphBuilder
from opsieve.gen.case.case import Case
from opsieve.gen.generation.pattern_builder import Misfit, PatternBuilder
from opsieve.gen.generation.random_graph import GenRequest, draw, finish, start
from opsieve.gen.spec.catalogue import choices
from opsieve.gen.strategies.patterns.tables import PATTERNS

NAME = "pattern"
_WITH_BODIES = "control"
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
    """A structure first, then in turn with random nodes and bodies others, until there are as many nodes as wished."""
    builder = start(request, seed, NAME, palettes=_PALETTES)
    from_all = builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    rng, rates = builder.rng, PatternBuilder.rates
    bodied = [choice for choice in from_all if choice.op.family == _WITH_BODIES]
    builder.program.plant = _plant
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        if not builder.nodes or rng.chance(rates.planted):
            _plant(builder)
        elif bodied and rng.chance(rates.in_body):
            builder.grow(rng.choice(bodied))
        else:
            builder.grow(draw(builder, from_all))
    return builder


def _plant(builder: GraphBuilder) -> None:
    """Lay a structure, or a near miss of one; what was laid until an operator did not fit stays."""
    rng, rates = builder.rng, PatternBuilder.rates
    with contextlib.suppress(Misfit):
        rng.choice(_ALL)(PatternBuilder(builder, rng.chance(rates.near_miss)))
