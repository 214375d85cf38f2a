"""Tzer's fuzzing loop (Algorithm 1 of the paper) without its I/O: choose the next attempt, learn from its
result.

Seeds are pairs of a function and a pass sequence with a counter. After `patience` (N_max) mutations of its
function without new coverage, a seed has its passes mutated once; attempts with new coverage are kept,
failures are reported and dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import general, nodes, passes
from opsieve.gen.irs.tir.domain import DOMAIN
from opsieve.gen.irs.tvm.nodes import ObjectNode

# N_max: the best value of the paper's figure 8
PATIENCE = 4
# Nodes of a function that is kept; the paper finds small ones to be quicker (section 5.3)
LARGEST = 400
TRIES = 8
# The number of candidates over which recent yield is averaged.
MEMORY = 50
# The least share of new functions that go either way.
LEAST = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """The enabled parts: the paper's ablation (figure 6) disables them one by one.

    `joint` is `none` (no passes), `random` (each new function with a new random sequence), `evolving`
    (Algorithm 1) or `adaptive`: Algorithm 1, in which a new function goes with a new sequence as often as
    that has lately paid more than going with its seed's own.
    """

    coverage: bool = True
    domain: bool = True
    joint: str = "adaptive"
    # Functions are mutated at all
    programs: bool = True
    patience: int = PATIENCE


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function and a sequence to try, the part that changed ("function", "passes" or "both"), and its
    seed.
    """

    function: ObjectNode
    sequence: tuple[str, ...]
    changed: str
    seed: int
    how: str = ""


@dataclass(slots=True)
class _Seed:
    function: ObjectNode
    sequence: tuple[str, ...]
    failed: int = 0  # N


class SeedPool:
    """The pool of seeds. `next` and `learn` alternate in any order: several candidates may be under way."""

    def __init__(self, seeds: Sequence[ObjectNode], key: str, settings: Settings = Settings()):
        self.settings = settings
        self._rng = Rng(f"tir {key}", 0)
        start = () if settings.joint == "none" else None
        self.pool = [_Seed(item, passes.draw_passes(self._rng) if start is None else start) for item in seeds]
        self._untried = list(range(len(self.pool)))
        # Candidates that were valid and reached something new
        self.valuable = 0
        # The recent share of valuable candidates, by kind.
        self._paid = {"function": 1.0, "both": 1.0}

    def next(self) -> Mutant:
        """What to try: first every seed as it is, then lines 5 to 18 of the algorithm."""
        rng = self._rng
        if self._untried:
            at = self._untried.pop(0)
            return Mutant(self.pool[at].function, self.pool[at].sequence, "", at, "seed")
        at = rng.below(len(self.pool))
        seed = self.pool[at]
        evolving = self.settings.joint in ("evolving", "adaptive")
        if not self.settings.programs or (evolving and seed.failed >= self.settings.patience):
            other = self.pool[rng.below(len(self.pool))].sequence
            return Mutant(
                seed.function, passes.mutate_passes(rng, seed.sequence, other), "passes", at, "passes"
            )
        function, how = mutate_function(rng, seed.function, self.settings.domain)
        if self.settings.joint == "random":
            return Mutant(function, passes.draw_passes(rng), "function", at, how)
        if self.settings.joint == "adaptive" and rng.chance(self._share()):
            return Mutant(function, passes.draw_passes(rng), "both", at, how)
        return Mutant(function, seed.sequence, "function", at, how)

    def _share(self) -> float:
        """Return the share of new functions that get a new sequence, by the recent yield of both options;
        always above zero.
        """
        both, function = self._paid["both"], self._paid["function"]
        return min(max(both / (both + function + 1e-9), LEAST), 1 - LEAST)

    def learn(self, candidate: Mutant, failed: bool, new: bool) -> None:
        """Lines 9 to 26: what fails was reported by whoever ran it; what reached something new becomes a
        seed.
        """
        seed = self.pool[candidate.seed]
        if new and not failed:
            self.valuable += 1
        if candidate.changed in self._paid:
            paid = float(new and not failed)
            self._paid[candidate.changed] += (paid - self._paid[candidate.changed]) / MEMORY
        keep = new or not self.settings.coverage
        # An unchanged seed: if its sequence does not fit, it gets another.
        if not candidate.changed:
            if failed and seed.failed < TRIES:
                seed.failed += 1
                seed.sequence = passes.draw_passes(self._rng) if seed.failed < TRIES else ()
                self._untried.append(candidate.seed)
            else:
                seed.failed = 0
        elif candidate.changed == "passes":
            if not failed and keep:
                seed.sequence = candidate.sequence
            seed.failed = 0
        elif candidate.changed == "both":
            if keep and not failed:
                self._add(candidate)
                seed.failed = 0
        elif candidate.changed == "function":
            if failed:
                # The paper's line 20 reports and lets the counter be; its program counts, and else a sequence
                # that suits no mutant of its function would never be exchanged.
                seed.failed += 1
            elif keep:
                self._add(candidate)
                seed.failed = 0
            else:
                seed.failed += 1

    def _add(self, candidate: Mutant) -> None:
        if nodes.size(candidate.function) <= LARGEST:
            self.pool.append(_Seed(candidate.function, candidate.sequence))


def mutate_function(rng: Rng, function: ObjectNode, domain: bool = True) -> tuple[ObjectNode, str]:
    """Mutate the function once, and return the mutator's name; after some failed tries the function is
    unchanged.
    """
    for _ in range(TRIES):
        mutator = rng.choice((*general.GENERAL, *DOMAIN) if domain else general.GENERAL)
        changed = mutator(rng, function)
        if changed is not None and changed is not function and nodes.size(changed) <= 2 * LARGEST:
            return changed, mutator.__name__
    return function, "none"
