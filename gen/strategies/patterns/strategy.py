"""Programs with structures that optimisers look for (fused.py, moved.py), among random nodes.

Rewrites should interact: a structure begins at the last one's result or at a tensor inside of it, stands in a
body, and gives an inner tensor as an output; two of five are near misses, half of which break exactly one
condition.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from opsieve.gen.case.case import Case
from opsieve.gen.declarations import catalogue, tensor
from opsieve.gen.generation import pattern_builder, random_graph
from opsieve.gen.graph import graph, graph_builder
from opsieve.gen.graph.scope import TensorScope, is_numeric_result
from opsieve.gen.strategies.patterns.fused import FUSED
from opsieve.gen.strategies.patterns.moved import MOVED

Pattern = Callable[[pattern_builder.PatternBuilder], tensor.Tensor]
PATTERNS: Final[dict[str, Pattern]] = {pattern.__name__: pattern for pattern in (*FUSED, *MOVED)}


NAME: Final = "pattern"
_WITH_BODIES: Final = "control"
# The most structures that are tried until one can begin at the chosen tensor.
_TRIES: Final = 6
_ALL: Final = tuple(PATTERNS.values())
_PALETTES: Final = (
    ("float32",),
    ("float32",),
    ("float32", "int64"),
    ("float16",),
    ("float64", "float32"),
    ("float32", "bool"),
)


def pattern(request: random_graph.GenRequest, seed: int) -> Case:
    """Return the program of a seed."""
    return random_graph.finish(grow_planted(request, seed), request, NAME, seed)


def grow_planted(request: random_graph.GenRequest, seed: int) -> graph_builder.GraphBuilder:
    """Add a structure, then random nodes, bodies and other structures in turn, up to the requested number of
    nodes.
    """
    builder = random_graph.start(request, seed, NAME, palettes=_PALETTES)
    from_all = builder.program.choices = catalogue.choices(builder.opset, request.only, request.dtypes)
    rng, rates = builder.rng, pattern_builder.PatternBuilder.rates
    bodied = [choice for choice in from_all if choice.op.family == _WITH_BODIES]
    plant = Planter().plant_structure
    builder.program.plant = plant
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        if not builder.nodes or rng.chance(rates.planted):
            plant(builder)
        elif bodied and rng.chance(rates.in_body):
            builder.grow(rng.choice(bodied))
        else:
            builder.grow(random_graph.draw_operator(builder, from_all))
    return builder


class Planter:
    """Adds structures to a program and its bodies. `given` holds the results of the last one, `inner` tensors
    inside of it.
    """

    def __init__(self) -> None:
        self.given: list[tensor.Tensor] = []
        self.inner: list[tensor.Tensor] = []
        self._where: TensorScope | None = None

    def plant_structure(self, builder: graph_builder.GraphBuilder) -> None:
        """Add a structure, or a near miss of one; if an operator does not fit, the nodes before it stay."""
        rng, rates = builder.rng, pattern_builder.PatternBuilder.rates
        onto = self._choose_start(builder) if rng.chance(rates.linked) else None
        for _ in range(_TRIES if onto is not None else 1):
            twisted = rng.chance(rates.near_miss)
            broken = rng.below(rates.sites) if twisted and rng.chance(rates.single) else None
            laid, before = pattern_builder.PatternBuilder(builder, twisted, broken, onto), len(builder.nodes)
            with contextlib.suppress(pattern_builder.Misfit):
                self.given = [rng.choice(_ALL)(laid)]
                self.inner, self._where = laid.inner, builder.scope
            if len(builder.nodes) > before:
                return

    def _choose_start(self, builder: graph_builder.GraphBuilder) -> tensor.Tensor | None:
        """Choose a tensor of the last structure at which the next begins: its result or an inner one; None if
        neither is visible.
        """
        scope: TensorScope | None = builder.scope
        while scope is not None and scope is not self._where:
            scope = scope.outer
        shared = self.inner and builder.rng.chance(pattern_builder.PatternBuilder.rates.shared)
        known = [
            x
            for x in (self.inner if shared else self.given)
            if is_numeric_result(x) and graph.is_closed(x.shape)
        ]
        return builder.rng.choice(known) if known and scope is not None else None
