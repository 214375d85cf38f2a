"""How often a failing version shows its failure, when nobody said: a belief from repeated runs of one that
fails. Pure.

Under a flat prior the chance has a Beta(1 + failures, 1 + runs - failures) posterior. The search keeps it
beside the weights of the candidates and learns more with every answer, so that what it states holds for the
chance as it is, not for a guess of it.
"""

from dataclasses import dataclass
from typing import Literal

# What a user says: a number, `auto` to measure it, None to measure it where needed.
Given = float | Literal["auto"] | None
ENOUGH = 4  # failures of the failing end, after which it is not run again
MOST = 40  # runs of it
_POINTS = 24


@dataclass(frozen=True, slots=True)
class ReproductionRate:
    """What repeated runs of a failing version showed."""

    failures: int
    runs: int

    @property
    def settled(self) -> bool:
        """Whether it need not be run again before the search."""
        return self.failures >= ENOUGH or self.runs >= MOST

    @property
    def mean(self) -> float:
        """The posterior's mean."""
        return (1 + self.failures) / (2 + self.runs)

    @property
    def belief(self) -> tuple[tuple[float, float], ...]:
        """Chances at the middles of equal steps from 0 to 1, each with its posterior probability."""
        places = [(step + 0.5) / _POINTS for step in range(_POINTS)]
        masses = [place**self.failures * (1 - place) ** (self.runs - self.failures) for place in places]
        return tuple((place, mass / sum(masses)) for place, mass in zip(places, masses, strict=True))


def belief_about(chance: float | ReproductionRate) -> tuple[tuple[float, float], ...]:
    """Return what is believed of a chance: one that is known has all the probability."""
    return chance.belief if isinstance(chance, ReproductionRate) else ((chance, 1.0),)


def count_good_runs(chance: float | ReproductionRate, confidence: float) -> int:
    """Count the runs without a failure after which a version is good with this confidence."""
    belief, runs = belief_about(chance), 1
    while runs < 10 * MOST and sum(share * (1 - shows) ** runs for shows, share in belief) > 1 - confidence:
        runs += 1
    return runs
