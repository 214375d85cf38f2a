"""When a smaller subject still shows the same failure, and not just any.

The levels are those of `opsieve.triage.fingerprint.sameness`; at `fingerprint` and `cure` what accepted the program before must accept it
still, and at `cure` the same builds of the compiler (its levels of optimisation) fail, and the same are well.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import KIND_OF_OUTCOME, WRONG_OUTPUTS, Mismatch, Verdict
from opsieve.triage.fingerprint.evidence import NOTHING
from opsieve.triage.fingerprint.fingerprint import Fingerprint, fingerprint
from opsieve.triage.fingerprint.sameness import Level, same

LEVELS: tuple[Level, ...] = ("loose", "fingerprint", "cure")


@dataclass(frozen=True)
class Failure:
    """What is kept while a subject shrinks: the verdict on the whole model and its fingerprint."""

    verdict: Verdict
    fingerprint: Fingerprint

    def shown_by(
        self,
        verdict: Verdict,
        observation: Observation,
        operators: Sequence[str],
        level: Level,
        names: Collection[str] = frozenset(),
        any_type: bool = False,
    ) -> bool:
        """Whether a failing verdict is this failure, as far as one run of the target tells; `names` are those of the program that was run.

        With `any_type`, a wrong result of any element type is the same: what stood behind the bug only converted it."""
        mine = self.verdict.mismatch
        if any_type and mine is not None and verdict.mismatch is not None:
            return verdict.mismatch.what == mine.what
        return same(self.fingerprint, fingerprint(verdict, observation, operators, NOTHING, names), level)


def ended(observation: Observation, like: Verdict) -> Verdict | None:
    """The failing verdict of a run that did not end well; None for one that did, or could not be asked."""
    kind = KIND_OF_OUTCOME.get(observation.outcome)
    if kind is None:
        return None
    return Verdict("fail", "", kind, observation.stage, observation.message, blame=like.blame)


def differed(worst: Mismatch, like: Verdict) -> Verdict:
    """The failing verdict of a run whose outputs are wrong."""
    kind = like.kind if like.kind in WRONG_OUTPUTS else "mismatch"
    return Verdict("fail", "", kind, "run", mismatch=worst, blame=like.blame)


def builds(target: ResolvedTarget) -> tuple[ResolvedTarget, ...]:
    """Other builds of the same compiler, by the options that its unoptimised build sets. Those that are well are the cure."""
    backend = target.backend
    others = (
        target.with_options(**{option: value})
        for option, plain in backend.baseline.items()
        if plain not in backend.options[option][:1]  # what is off anyhow is no build
        for value in backend.options[option]
    )
    return tuple(dict.fromkeys(other for other in others if other != target))
