"""Programs with rewrites of optimisers (rewrites.txt), among random nodes.

Each rewrite is built in all of its states: every condition is met, or exactly one is broken or on its edge.
The states stand in a shuffled row, and the seed of a program names the place at which it begins, so each
state comes once before any recurs. Rewrites should interact: one begins at the last one's result or at a
tensor inside of it, stands in a body, and gives an inner tensor as an output.
"""

import functools
from pathlib import Path
from typing import Final

from opsieve.gen.case.case import Case
from opsieve.gen.declarations import catalogue, tensor
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation import random_graph
from opsieve.gen.generation.pattern_builder import Misfit
from opsieve.gen.graph import graph, graph_builder
from opsieve.gen.graph.scope import TensorScope, is_numeric_result
from opsieve.gen.strategies.patterns.rewrite_builder import RewriteBuilder
from opsieve.gen.strategies.patterns.rewrite_parser import Rewrite, parse_rewrites

NAME: Final = "pattern"
_TABLE: Final = Path(__file__).with_name("rewrites.txt")
_WITH_BODIES: Final = "control"
# The most states that are tried until one can begin at the chosen tensor.
_TRIES: Final = 6
# The usual number of states in a program: the next seed begins so many places later.
_STRIDE: Final = 4
# The copies of the state in which all conditions are met: it alone shows what a rewrite computes.
_MET_COPIES: Final = 2
# How often the next thing is a rewrite, and otherwise a node with bodies, in which there are rewrites.
_PLANTED: Final = 0.4
_IN_BODY: Final = 0.1
# How often a rewrite begins at the unchanged result of the last one; of these, at an inner tensor of it.
_LINKED: Final = 0.5
_SHARED: Final = 0.3
_PALETTES: Final = (
    ("float32",),
    ("float32",),
    ("float32", "int64"),
    ("float16",),
    ("float64", "float32"),
    ("float32", "bool"),
)


@functools.cache
def load_rewrites() -> tuple[Rewrite, ...]:
    """Load the table."""
    return parse_rewrites(_TABLE.read_text(encoding="utf-8"), _TABLE.name)


@functools.cache
def list_states() -> tuple[tuple[Rewrite, int], ...]:
    """List the states of all rewrites in a shuffled order."""
    states = [
        (rewrite, state)
        for rewrite in load_rewrites()
        for state in (*(0,) * (_MET_COPIES - 1), *range(len(rewrite.states)))
    ]
    return tuple(Rng("states").shuffle_items(states))


def pattern(request: random_graph.GenRequest, seed: int) -> Case:
    """Return the program of a seed."""
    return random_graph.finish(grow_planted(request, seed), request, NAME, seed)


def grow_planted(request: random_graph.GenRequest, seed: int) -> graph_builder.GraphBuilder:
    """Add a rewrite, then random nodes, bodies and other rewrites in turn, up to the requested number of
    nodes.
    """
    builder = random_graph.start(request, seed, NAME, palettes=_PALETTES)
    from_all = builder.program.choices = catalogue.choices(builder.opset, request.only, request.dtypes)
    rng = builder.rng
    bodied = [choice for choice in from_all if choice.op.family == _WITH_BODIES]
    plant = Planter(seed * _STRIDE).plant_rewrite
    builder.program.plant = plant
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        if not builder.nodes or rng.chance(_PLANTED):
            plant(builder)
        elif bodied and rng.chance(_IN_BODY):
            builder.grow(rng.choice(bodied))
        else:
            builder.grow(random_graph.draw_operator(builder, from_all))
    return builder


class Planter:
    """Adds rewrites to a program and its bodies, in the states from a place on. `given` holds the results of
    the last one, `inner` tensors inside of it.
    """

    def __init__(self, place: int) -> None:
        self.given: list[tensor.Tensor] = []
        self.inner: list[tensor.Tensor] = []
        self._where: TensorScope | None = None
        states = list_states()
        self._waiting = [states[(place + at) % len(states)] for at in range(_TRIES)]
        self._next = place + _TRIES

    def plant_rewrite(
        self, builder: graph_builder.GraphBuilder, onto: tensor.Tensor | None = None
    ) -> tensor.Tensor | None:
        """Add the first waiting state that fits, if possible at a tensor, and return its result; those that
        do not fit wait.
        """
        if onto is None and builder.rng.chance(_LINKED):
            onto = self._choose_start(builder)
        states = list_states()
        for start in (onto, None) if onto is not None else (None,):
            for at, (rewrite, state) in enumerate(self._waiting):
                build, mark = RewriteBuilder(builder, state, start), len(builder.nodes)
                try:
                    made = rewrite.build(build)
                except Misfit:
                    builder.undo(mark)
                    continue
                self.given, self.inner, self._where = [made], build.inner, builder.scope
                builder.program.states.append(f"{rewrite.name}: {rewrite.states[state]}")
                self._waiting[at] = states[self._next % len(states)]
                self._next += 1
                return made
        # The longest waiting state may fit no program of this opset.
        self._waiting = [*self._waiting[1:], states[self._next % len(states)]]
        self._next += 1
        return None

    def _choose_start(self, builder: graph_builder.GraphBuilder) -> tensor.Tensor | None:
        """Choose a tensor of the last rewrite at which the next begins: its result or an inner one; None if
        neither is visible.
        """
        scope: TensorScope | None = builder.scope
        while scope is not None and scope is not self._where:
            scope = scope.outer
        shared = self.inner and builder.rng.chance(_SHARED)
        known = [
            x
            for x in (self.inner if shared else self.given)
            if is_numeric_result(x) and graph.is_closed(x.shape)
        ]
        return builder.rng.choice(known) if known and scope is not None else None
