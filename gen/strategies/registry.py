"""Strategies by name: each a small policy over the same core (gen/generation/random_graph.py), a function of
a request and a seed.

Found by entry point (`opsieve.strategies`), so that a user's own is one function and one line;
docs/how-to/write-a-strategy.md walks through one. Equal requests and seeds give equal bytes.
"""

import functools
import gc
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.generation.request import draw_nodes
from opsieve.gen.irs.registry import ONNX, all_irs
from opsieve.gen.values.values import with_special

GROUP = "opsieve.strategies"
Strategy = Callable[[GenRequest, int], Case]


def isra(request: GenRequest, seed: int) -> Case:
    """Operators uniformly, existing tensors at the picking rate, never a step back (Isra, section III)."""
    builder = start(request, seed, "isra")
    fill(builder, request)
    return finish(builder, request, "isra", seed)


@functools.cache
def _find_entry_points() -> dict[str, EntryPoint]:
    """Find every installed strategy, the first of a name; cached, because that reads a file of every
    distribution.
    """
    return {point.name: point for point in reversed(tuple(entry_points(group=GROUP)))}


@functools.cache
def list_names() -> tuple[str, ...]:
    """List the installed strategies."""
    return tuple(sorted(_find_entry_points()))


@functools.cache
def load_strategy(name: str) -> Strategy:
    """Return the strategy of a name.

    Raises:
        BadInput: If the strategy does not exist.
    """
    if name not in _find_entry_points():
        raise BadInput(
            f"there is no strategy {shown(name)}; there are"
            f" {', '.join(list_names())}{suggest_name(name, list_names())}"
        )
    found: Strategy = _find_entry_points()[name].load()
    return found


def ir_made_by(name: str) -> str:
    """The IR that a strategy makes programs of: the one whose record names it, else ONNX."""
    return next((ir.name for ir in all_irs() if name in ir.strategies), ONNX)


def generate(name: str, seed: int, request: GenRequest | None = None) -> Case:
    """Generate the program of a seed by a strategy, with values for its inputs (except those left to a
    search).

    Raises BadInput for an unknown strategy.
    """
    request = request or GenRequest()
    collecting = gc.isenabled()
    # what makes a program holds no cycles, and looking for some takes a tenth to a sixth of the time
    gc.disable()
    try:
        made = load_strategy(name)(draw_nodes(request, seed), seed)
        return with_special(made, request.values, made.origin.seed or 0)
    finally:
        if collecting:
            gc.enable()
