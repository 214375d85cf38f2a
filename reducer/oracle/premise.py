"""The failure that a reduction keeps: its description, its oracles, and its reproduction rate."""

from dataclasses import dataclass

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.triage.fingerprint.sameness import Failure, Level


@dataclass(frozen=True)
class Premise:
    """The failure to keep: its target, its arbiter, and the target's observation.

    Attributes:
        named: Whether a user named the arbiter.
        right: The arbiter's observation, if it was run.
        chance: The reproduction rate: 1.0 if every run fails, else the lower end of Wilson's 90 % interval.
        replays: The number of runs that showed the failure, and the number of runs.
        apart: Whether it shows only between processes, not between runs in one process.
        assumed: Whether a wrong result was compared with the unoptimised build only. The judge then has to
            see it in a small subject.
    """

    target: ResolvedTarget
    arbiter: ResolvedTarget | None
    failure: Failure
    observation: Observation
    reason: str
    right: Observation | None = None
    chance: float = 1.0
    replays: tuple[int, int] | None = None
    named: bool = False
    apart: bool = False
    assumed: bool = False

    def is_like(self, other: "Premise") -> bool:
        """Return whether the same tests serve both."""
        own = self.arbiter, self.failure.fingerprint, self.chance, self.apart
        return own == (other.arbiter, other.failure.fingerprint, other.chance, other.apart)

    def describe_level(self, level: Level) -> str:
        """Return a sentence for people that says what a reduction at this level preserves, and in how many
        runs it was seen.
        """
        verdict, key = self.failure.verdict, self.failure.fingerprint.key
        stage = "" if verdict.kind in WRONG_OUTPUTS or not verdict.stage else f" at {verdict.stage}"
        what = {
            "loose": f"a {verdict.kind}{stage}",
            "cure": f"the fingerprint {key}, and which other builds of the compiler fail",
        }.get(level, f"the fingerprint {key}")
        runs = "" if self.replays is None else f"; seen in {self.replays[0]} of {self.replays[1]} runs"
        sure = "; the judge confirms the result" if self.assumed else ""
        return f"held fixed: {what}{runs}{sure}"
