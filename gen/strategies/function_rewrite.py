"""Programs of other strategies with parts of them in local functions, and the calls rewritten
(gen/rewrites/functions.py).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from opsieve.gen.case.case import Case
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.generation.random_graph import GenRequest, finish
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.irs.onnx.program import OnnxProgram, onnx_program
from opsieve.gen.rewrites import functions, parts
from opsieve.gen.strategies import chains, mutate
from opsieve.gen.strategies.patterns.strategy import grow_planted

NAME: Final = "function-rewrite"
_BASES: Final[tuple[tuple[str, Callable[[GenRequest, int], GraphBuilder]], ...]] = (
    ("isra", mutate.grow_again),
    ("chains", chains.grow_chains),
    ("pattern", grow_planted),
    ("mutate", mutate.mutate_program),
)
# From a seed to that of its base: programs that `mix` has of the other strategies are not rewritten, but
# others.
_BESIDE: Final = 1 << 48


def function_rewrite(request: GenRequest, seed: int) -> Case:
    """Return the program of a seed: one of another strategy, rewritten."""
    rng = Rng(f"{NAME} {seed}")
    name, base = rng.choice(_BASES)
    builder = base(request, _BESIDE + seed)
    made = finish(builder, request, name, _BESIDE + seed, types=True)
    taken = parts.take_apart(onnx_program(made.program, NAME).model)
    taken.learn_from(builder)
    model = functions.rewrite_parts(taken, rng, functions.RewriteLimits(request.only, request.supports))
    origin = replace(made.origin, generator=NAME, seed=seed)
    return replace(made, program=OnnxProgram(model, f"{NAME}-{seed}"), origin=origin)
