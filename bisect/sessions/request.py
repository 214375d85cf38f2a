"""The request for one call of `opsieve bisect`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsieve.backends.compare import POLICY, Policy
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.search.search import Given
from opsieve.bisect.sources.build_sandbox import LIMITS, CheckLimits


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """A failure and where to search for its origin.

    `case` is a model or case folder; `good` and `bad` name the ends; `target` is the backend and its options
    ("": the case's own). `packages` hold the same compiler as the searched one, `indexes` win
    over the configured one, `pre` includes pre-releases; `builds` is a folder of builds. `sweep` tests
    every version. `repro_rate` is the probability that a bad version fails in one run, `auto` to estimate it,
    None if it always does. `build`, `check`, `sparse`, `paths` and `first_parent` are for commits;
    `then_commits` is a repository in which to continue between the tags of two releases. `history` is a clone
    in which the commits between two releases are ranked; with `fixed` the search is for the fix, not the
    origin. `limits` are those of a check; `fresh` ignores probes of earlier calls. `jobs` versions are tried
    at once: one by default, or, with the `scheduler` of a Dask cluster, as many as its workers with
    `resources` have threads. `tolerance` is (relative, absolute) and replaces the policy's.
    `oracles` are consulted too. `seconds` and `memory` (bytes) limit each run of the compiler.
    """

    case: Path | None
    good: str | None = None
    bad: str | None = None
    target: str = ""
    oracles: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    pre: bool = False
    builds: Path | None = None
    sweep: bool = False
    build: Path | None = None
    check: Path | None = None
    sparse: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    first_parent: bool = False
    then_commits: Path | None = None
    history: Path | None = None
    fixed: bool = False
    limits: CheckLimits = LIMITS
    fresh: bool = False
    # None is not 1.0: it lets a flaky end switch the search to `auto`, which a stated rate forbids.
    repro_rate: Given = None
    confidence: float = 0.99
    jobs: int | None = None
    scheduler: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    inputs: Path | None = None
    expected: Path | None = None
    seed: int = 0
    tolerance: tuple[float, float] | None = None
    # Of one run, as for every command but `fuzz` and `reduce`, which run thousands.
    seconds: float = 60.0
    memory: int = 4 << 30
    attribute: bool = True
    offline: bool = False
    dry_run: bool = False

    @property
    def probes_at_once(self) -> int:
        """How many versions are tried at once."""
        return self.jobs or 1

    @property
    def run_limits(self) -> Limits:
        """The limits of each run of the compiler."""
        return Limits(seconds=self.seconds, memory=self.memory)

    @property
    def policy(self) -> Policy:
        """How outputs are compared."""
        return replace(POLICY, tolerance=self.tolerance)
