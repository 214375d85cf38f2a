"""A row of versions, such as the releases of a package, on which a case is tried by search or sweep.

Plug-ins bring other rows. They are found by entry point in the group `opsieve.version_sources`: an entry is a
function `open_source(case, target, argument, offline)` that returns a context manager of a `VersionSource`;
`opsieve bisect CASE --source NAME:ARGUMENT` opens it (docs/how-to/bisect.md shows one). Commits are not a
row, and have a search of their own.

Several probes run at once, on threads, so that Ctrl-C always works; SIGTERM acts like Ctrl-C.
"""

import importlib.metadata
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.installers import release_key
from opsieve.bisect.search import search, search_loop
from opsieve.bisect.sources.outcome import ProbeJournal, VersionOutcome, classify_outcome, lacks_failure
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, load_plugin, shown

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The outcomes of a row.

    `seen` has an entry for each of `versions`, None if it was not needed; `wanted` is the failure followed.
    `outcome` is the search's, None after a sweep. `probed` counts the new probes, `recalled` those read from
    disk.
    """

    versions: tuple[str, ...]
    seen: tuple[VersionOutcome | None, ...]
    wanted: VersionOutcome | None
    outcome: search_loop.SearchResult | None
    probed: int
    recalled: int

    def insert_into(self, around: "Timeline") -> "Timeline":
        """Put this row in the place of its two ends in `around`, which was searched before; keep this row's
        counts.
        """
        first, last = around.versions.index(self.versions[0]), around.versions.index(self.versions[-1])
        versions = (*around.versions[:first], *self.versions, *around.versions[last + 1 :])
        seen = (*around.seen[:first], *self.seen, *around.seen[last + 1 :])
        outcome = self.outcome and self.outcome.shift_by(first)
        return Timeline(versions, seen, self.wanted or around.wanted, outcome, self.probed, self.recalled)


@dataclass(slots=True)
class _Runs:
    """The runs of one search: the failure followed, the outcome of each version, the versions that failed,
    and one that failed in some runs only.
    """

    wanted: VersionOutcome | None
    seen: dict[int, VersionOutcome] = field(default_factory=dict)
    failing: dict[int, search.TestResult] = field(default_factory=dict)
    flaky: int | None = None

    def record_outcome(self, place: int, found: VersionOutcome) -> search.TestResult:
        """Record one run of a version and return its result."""
        # The first failure that is met is followed, so that another bug in between does not mislead the
        # search.
        self.wanted = self.wanted or (found if found.state == "bad" else None)
        result = classify_outcome(found, self.wanted)
        before = self.seen.get(place, found)
        if result is search.TestResult.BAD:
            self.failing[place] = result
            if found.flaky or classify_outcome(before, self.wanted) is search.TestResult.GOOD:
                self.flaky = place
        # A good run does not undo a bad one.
        self.seen[place] = found if found.state == "bad" else before
        return result


class VersionSequence:
    """Probes of one case in a row of versions.

    `evaluate` tries a version, the journal keeps its outcome, `name` is for the log.
    """

    def __init__(
        self, evaluate: Callable[[str], VersionOutcome], journal: ProbeJournal, name: str, say: Say = print
    ):
        self._evaluate, self._name, self._say = evaluate, name, say
        self.journal = journal
        self._turns: Counter[str] = Counter()
        self.probed = self.recalled = 0

    def recall_probe(self, version: str, turn: int = 0) -> VersionOutcome | None:
        """Return the outcome of an earlier probe without making one."""
        return self.journal.get_probe(self.make_key(version), turn)

    def make_key(self, version: str) -> str:
        """Return the journal's key for the probes of a version."""
        return version

    def test_version(self, version: str) -> VersionOutcome:
        """Return the outcome of a version; the same version again is a new turn."""
        # A flaky failure is tried several times: each turn has an entry of its own in the journal.
        turn = self._turns[version]
        self._turns[version] += 1
        known = self.journal.get_probe(self.make_key(version), turn)
        if known is not None:
            self.recalled += 1
            return known
        start = time.monotonic()
        found = self._evaluate(version)
        self.journal.add_probe(self.make_key(version), found, time.monotonic() - start, turn)
        self.probed += 1
        self._say(f"{self._name} {version}: {found.symptom}")
        return found

    def _measure_rate(self, version: str, wanted: VersionOutcome) -> search.ReproductionRate:
        """Measure how often a failing version shows the failure."""
        steps = search_loop.measure_rate()
        next(steps)
        while True:
            try:
                steps.send(classify_outcome(self.test_version(version), wanted))
            except StopIteration as stop:
                found: search.ReproductionRate = stop.value
                self._say(f"{version} showed the failure in {found.failures} of {found.runs} runs")
                return found

    def sweep_versions(
        self, versions: Sequence[str], jobs: int = 1, own: VersionOutcome | None = None
    ) -> Timeline:
        """Test every version, `jobs` at a time; known ones are not probed again. `own` is the failure that
        the case is known for.
        """
        # A sweep looks at each version once, also if a search ran it before.
        self._turns.clear()
        with ThreadPoolExecutor(jobs) as pool:
            seen = tuple(map_in_order(pool, self.test_version, versions))
        # The newest failure is the one that a user meets today.
        wanted = next(
            (item for item in reversed(seen) if classify_outcome(item, own) is search.TestResult.BAD), own
        )
        return self._make_timeline(versions, seen, wanted, None, own)

    def search_versions(
        self,
        versions: Sequence[str],
        good: int | None,
        bad: int | None,
        *,
        chance: search.Given = None,
        confidence: float = 0.99,
        jobs: int = 1,
        fixed: bool = False,
        own: VersionOutcome | None = None,
        progressed: Callable[[search_loop.SearchProgress], None] = lambda progress: None,
    ) -> Timeline:
        """Follow one failure: `own`, for which the case is known, else that of the bad end, else of the
        newest version, else of the oldest.

        A chance of `auto` is measured there by running it several times. A chance of None is measured at the
        first version that fails in some runs only; all other results but failures are then taken back.
        """
        runs = _Runs(own)
        first: dict[int, VersionOutcome] = {}

        def probe(place: int) -> VersionOutcome:
            # The search asks for the ends again, which were just probed.
            return first.pop(place, None) or self.test_version(versions[place])

        # Without a named end the failure must be seen before it can be followed.
        for place in [bad] if bad is not None else [len(versions) - 1, 0]:
            if place not in runs.seen:
                runs.seen[place] = first[place] = self.test_version(versions[place])
            if fails := classify_outcome(runs.seen[place], own) is search.TestResult.BAD:
                runs.wanted = runs.seen[place]
                break
        belief: float | search.ReproductionRate | None = chance if isinstance(chance, float) else None
        # A version that fails in some runs only.
        flaky = place if fails and (chance == "auto" or (chance is None and runs.seen[place].flaky)) else None
        outcome: search_loop.SearchResult | None = None
        with ThreadPoolExecutor(jobs) as pool:
            while outcome is None:
                if flaky is not None and runs.wanted is not None:
                    runs.failing[flaky] = search.TestResult.BAD
                    belief, flaky = self._measure_rate(versions[flaky], runs.wanted), None
                known = dict(runs.failing)
                steps = search_loop.bisect_row(
                    len(versions),
                    good,
                    bad,
                    chance=belief,
                    confidence=confidence,
                    width=jobs,
                    known=known,
                    fixed=fixed,
                )
                # The first `send` starts it: a row whose ends are all known has no question.
                answers: Any = None
                while flaky is None:
                    try:
                        places, progress = steps.send(answers)
                    except StopIteration as stop:
                        outcome = stop.value
                        break
                    if progress is not None:
                        progressed(progress)
                    found = map_in_order(pool, probe, places)
                    answers = [runs.record_outcome(*item) for item in zip(places, found, strict=True)]
                    flaky = runs.flaky if belief is None else None
        row = [runs.seen.get(place) for place in range(len(versions))]
        return self._make_timeline(versions, row, runs.wanted, outcome, own)

    def _make_timeline(
        self,
        versions: Sequence[str],
        seen: Sequence[VersionOutcome | None],
        wanted: VersionOutcome | None,
        outcome: search_loop.SearchResult | None,
        own: VersionOutcome | None,
    ) -> Timeline:
        """Make the timeline; a version without the followed failure is good, and one with another failure
        than `own` is not bad.
        """
        row = tuple(
            replace(item, state=classify_outcome(item, wanted).value)
            if item and wanted and (own or lacks_failure(item, wanted))
            else item
            for item in seen
        )
        return Timeline(tuple(versions), row, wanted, outcome, self.probed, self.recalled)


def find_place(release: str | None, versions: Sequence[str], name: str) -> int | None:
    """Return the place of a release named by the user.

    Raises:
        BadInput: If the row lacks it.
    """
    if release is None:
        return None
    if release not in versions:
        raise BadInput(
            f"{name} {shown(release)} is not among the {len(versions)} versions;"
            f" {_describe_neighbours(release, versions)}"
        )
    return versions.index(release)


def _describe_neighbours(release: str, versions: Sequence[str]) -> str:
    """Describe where a missing version would stand; for names that are not numbers, name the first and the
    last.
    """
    try:
        key = release_key(release)
        # The next newer one, else the newest of all.
        near = [version for version in versions if release_key(version) > key][:1] or list(versions[-1:])
    except BadInput:
        return f"they go from {shown(versions[0])} to {shown(versions[-1])}"
    return f"the next one is {near[0]}"


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Seconds
_HEED = 0.2


def map_in_order(
    pool: Executor, function: Callable[[_Item], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """Apply `function` to every item and return the results in order.

    Pending calls are cancelled when one fails or the user interrupts. The wait is in steps: a signal just
    before a thread sleeps on a lock is seen only when it wakes.
    """
    futures = [pool.submit(function, item) for item in items]
    try:
        results = []
        for future in futures:
            while not wait([future], _HEED).done:
                pass
            results.append(future.result())
        return results
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does: scripts are killed, folders removed, probes kept.

    Only the main thread can set this up.
    """
    # Python allows handlers of signals in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


GROUP = "opsieve.version_sources"


class VersionSource(Protocol):
    """Versions in a row, oldest first, and the outcome of a case on each."""

    versions: Sequence[str]

    def evaluate(self, version: str) -> VersionOutcome:
        """Try the case on a version.

        A version that cannot be tried, or is broken, is a `skip` rather than an exception.
        """


class Opener(Protocol):
    """The type of an entry point."""

    def __call__(
        self, case: Case, target: ResolvedTarget, argument: str, offline: bool
    ) -> AbstractContextManager[VersionSource]:
        """Open the source for a case on a target; `argument` is the text after the name.

        Raises:
            BadInput: If the argument is invalid.
        """


def load_opener(name: str) -> Opener:
    """Load the source called `name`.

    Raises:
        BadInput: If it is missing or cannot be loaded.
    """
    entries = importlib.metadata.entry_points(group=GROUP)
    found = [entry for entry in entries if entry.name == name]
    if not found:
        there = ", ".join(sorted({entry.name for entry in entries})) or "none"
        raise BadInput(f"there is no source of versions {shown(name)}; there are {there}")
    return cast(Opener, load_plugin(found[0], "source of versions"))
