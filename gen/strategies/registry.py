"""Strategies by name: each a small policy over the same core (gen/generation/random_graph.py), a function of
a request and a seed.

Found by entry point (`opsieve.strategies`), so that a user's own is one function and one line;
docs/how-to/write-a-strategy.md walks through one. Equal requests and seeds give equal bytes.
"""

import functools
import gc
import traceback
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, load_plugin, shown, suggest_name
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.generation.request import draw_nodes
from opsieve.gen.graph.siblings import Template
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import ONNX, all_irs
from opsieve.gen.values.values import with_special

GROUP = "opsieve.strategies"
Strategy = Callable[[GenRequest, int], Case]
# The strategies whose campaigns depend on what earlier programs have reached.
TIR, RELAX_MUTATE = "tir", "relax-mutate"


# The last program, with what made it and its parts: siblings follow each other.
_KEPT: list[tuple[tuple[str, int, GenRequest], Case, Template | None]] = []
# From a seed to that of a program in place of a sibling that does not exist
_FAR = 1 << 50


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
    point = _find_entry_points()[name]
    found: Strategy = load_plugin(point, "strategy")
    return found if point.module.startswith("opsieve.") else functools.partial(_run_plugin, name, found)


def _run_plugin(name: str, strategy: Strategy, request: GenRequest, seed: int) -> Case:
    """Run a strategy of another package, so that its mistakes are reported as its own."""
    try:
        made = strategy(request, seed)
    except BadInput:
        raise
    except Exception as error:
        # The first frame is ours. The deepest one may be in a function of ours that was called wrongly.
        frames = traceback.extract_tb(error.__traceback__)[1:]
        last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
        raise BadInput(
            f"the strategy {name} failed for seed {seed}: {type(error).__name__}: {error}"
            f" ({last.filename}:{last.lineno})"
        ) from error
    if not isinstance(made, Case):
        raise BadInput(f"the strategy {name} returned {shown(made)} for seed {seed}, which is not a Case")
    return made


def ir_made_by(name: str) -> str:
    """Return the IR that a strategy makes programs of: the one whose record names it, else ONNX."""
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
        made = (_make_sibling if request.sibling else _make_program)(name, seed, request)
        return with_special(made, request.values, made.origin.seed or 0)
    finally:
        if collecting:
            gc.enable()


def _make_program(name: str, seed: int, request: GenRequest) -> Case:
    """Make the program of a seed by a strategy, and keep its parts for siblings."""
    recorded: list[Template] = []
    case = load_strategy(name)(replace(draw_nodes(request, seed), record=recorded.append), seed)
    # A strategy may have changed the program afterwards, or have made it of others.
    fitting = [each for each in recorded[-1:] if each.model == case.program.data]
    _KEPT[:] = [((name, seed, request), case, fitting[0] if fitting else None)]
    return case


def _make_sibling(name: str, seed: int, request: GenRequest) -> Case:
    """Make a sibling of a seed's program; if it has not so many, another program."""
    whole = replace(request, sibling=0)
    if not _KEPT or _KEPT[0][0] != (name, seed, whole):
        _make_program(name, seed, whole)
    _, case, template = _KEPT[0]
    made = template.make_sibling(request.sibling) if template is not None else None
    if made is None:
        # Not by a strategy that would make other programs of a batch first
        return (isra if case.program.ir == ONNX else load_strategy(name))(
            draw_nodes(whole, seed), seed + request.sibling * _FAR
        )
    origin = replace(case.origin, wish={**case.origin.wish, "sibling": str(request.sibling)})
    return Case(OnnxProgram(made[0], f"{case.program.name}.{request.sibling}"), made[1], None, origin)
