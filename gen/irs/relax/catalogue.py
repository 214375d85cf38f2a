"""All operators that are declared, found by type; what ONNX's declarations say of their values; a cache of
solutions.
"""

import math
import random
from functools import cache, lru_cache

from opsieve.gen.declarations.catalogue import operators as onnx_operators
from opsieve.gen.irs.relax.declaration import Declared, Draw, Recogniser, Solution
from opsieve.gen.irs.relax.operators import (
    elementwise,
    layouts,
    normalisations,
    products,
    reductions,
    selection,
    sources,
)
from opsieve.gen.irs.relax.spellings import (
    elementwise as spelled_elementwise,
    folds,
    layouts as spelled_layouts,
    spelling,
    windows,
)
from opsieve.gen.irs.relax.types import RelaxTensorType

_FAMILIES = (elementwise, reductions, layouts, selection, products, normalisations, sources)
# A bound beyond this counts as infinite.
_FAR = 1e4


# Operators that TVM 0.27 cannot build at all; they are generated on request only (Policy.known_faults).
UNBUILDABLE = {
    "relax.nn.pixel_shuffle": "its lowering calls a function that topi no longer has",
    "relax.ewise_fma": "no lowering is registered",
}


@cache
def operators() -> dict[str, Declared]:
    """Return every declared operator by name."""
    return {declared.name: declared for family in _FAMILIES for declared in family.OPERATORS}


def family(name: str) -> str:
    """Return the family of an operator: the module that declares it."""
    return _families()[name]


@cache
def _families() -> dict[str, str]:
    return {
        declared.name: module.__name__.rpartition(".")[2]
        for module in _FAMILIES
        for declared in module.OPERATORS
    }


@cache
def spelling_of(name: str) -> spelling.Spelling | None:
    """Return the meaning of an operator in ONNX: its spelling, or the ONNX operator that its declaration
    names; `None` without these.
    """
    for table in (
        spelled_elementwise.SPELLINGS,
        folds.SPELLINGS,
        windows.SPELLINGS,
        spelled_layouts.SPELLINGS,
    ):
        if name.removeprefix("relax.") in table:
            return table[name.removeprefix("relax.")]
    declared = operators().get(name)
    return spelling.spell_as(declared.onnx) if declared is not None and declared.onnx else None


@cache
def _by_recogniser() -> tuple[tuple[Recogniser, tuple[Declared, ...]], ...]:
    groups: dict[Recogniser, list[Declared]] = {}
    for declared in operators().values():
        groups.setdefault(declared.accepts, []).append(declared)
    return tuple((recogniser, tuple(group)) for recogniser, group in groups.items())


@lru_cache(4096)
def yielding(kind: RelaxTensorType) -> tuple[Declared, ...]:
    """Return the operators that can yield a type. Those that share a recogniser are asked once."""
    return tuple(declared for accepts, group in _by_recogniser() if accepts(kind) for declared in group)


@cache
def domain(onnx: str, position: int) -> tuple[float, float] | None:
    """Return the interval of values that an input of an ONNX operator accepts by its declaration; `None` for
    any value.
    """
    declared = onnx_operators().get(onnx)
    if declared is None or position >= len(declared.safe):
        return None
    safe = declared.safe[position]
    low, high = safe.low, safe.high
    if safe.nonzero and low < 0 < high:
        # A single interval cannot leave out 0, so only its positive part is used.
        low = 0.5
    if low < -_FAR and high > _FAR:
        return None
    return (max(low, -_FAR), min(high, _FAR)) if math.isfinite(low) or math.isfinite(high) else None


# The number of solutions that each declaration is asked for.
_SAMPLES = 4


class Solutions:
    """Sampled solutions by result type, kept over a whole run (the RFC's cache): a type that is met again
    needs no solver.
    """

    def __init__(self, draw: Draw) -> None:
        self._known: dict[RelaxTensorType, list[tuple[Declared, Solution]]] = {}
        for declared in operators().values():
            for _ in range(_SAMPLES):
                try:
                    kind, solution = declared.sample(draw)
                # No drawn type satisfied the declaration's condition.
                except LookupError:
                    break
                self._known.setdefault(kind, []).append((declared, solution))

    def types(self) -> list[RelaxTensorType]:
        """Return the types that have a solution."""
        return list(self._known)

    def of(self, kind: RelaxTensorType, rng: random.Random) -> tuple[Declared, Solution] | None:
        """Return a solution for a type, or None."""
        found = self._known.get(kind)
        return rng.choice(found) if found else None
