"""The failure that a reduction keeps: its description, its oracles, and its reproduction rate."""

from dataclasses import dataclass

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.triage.fingerprint.sameness import Failure, Level


@dataclass(frozen=True)
class Premise:
    """The failure to keep: on which target, against whom, and what the target showed.

    `named` says that a user named the arbiter. `right` is what he showed, where he was consulted. `chance` is
    how often it shows: 1.0 for a failure that always does, else what its `replays` make sure of (the lower
    end of Wilson's interval at 90 %). `replays`: in how many runs it was seen, of how many. `apart`: it shows
    from one process to the next, not between runs in one.
    `assumed`: of a wrong result only the unoptimised build was asked; the judge has to see it in a small
    subject.
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
        sure = "; the judge is asked of the result" if self.assumed else ""
        return f"held fixed: {what}{runs}{sure}"
