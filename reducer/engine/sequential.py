"""A sequential test of a share: as many trials as the evidence needs, and no more. Pure.

Wald's sequential probability ratio test ("Sequential Tests of Statistical Hypotheses", 1945, section 5): of
the hypotheses that a trial succeeds with a probability of at most `FAIR` and of at least `CLEAR`, one is
taken as soon as the likelihood ratio says so.
"""

from dataclasses import dataclass
from math import log
from typing import Literal

# The success rate of pure chance.
FAIR = 0.5
# The success rate that counts as significant.
CLEAR = 0.9
# The probability of either error, about
ERROR = 0.01
# The limit on trials; an open result then counts as `no`.
MOST = 40

Decision = Literal["yes", "no", "open"]


@dataclass(frozen=True, slots=True)
class Trials:
    """Successes among trials so far: eight in a row are enough for `yes`, three failures in a row for
    `no`.
    """

    successes: int = 0
    failures: int = 0

    def with_one(self, success: bool) -> "Trials":
        """These and one trial more."""
        return Trials(self.successes + success, self.failures + (not success))

    @property
    def count(self) -> int:
        """How many there were."""
        return self.successes + self.failures

    @property
    def decision(self) -> Decision:
        """Decide by the trials; `no` if `MOST` of them left it open."""
        evidence = self.successes * log(CLEAR / FAIR) + self.failures * log((1 - CLEAR) / (1 - FAIR))
        bound = log((1 - ERROR) / ERROR)
        if evidence >= bound:
            return "yes"
        return "no" if evidence <= -bound or self.count >= MOST else "open"
