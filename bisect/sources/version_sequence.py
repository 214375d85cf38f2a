"""A row of versions, such as the releases of a package, that a case is tried on: a search, or a sweep over
all of them.

Plug-ins bring other rows. They are found by entry point in the group `opsieve.version_sources`: an entry is a
function `open_source(case, target, argument, offline)` that returns a context manager of a `VersionSource`;
`opsieve bisect CASE --source NAME:ARGUMENT` opens it (docs/how-to/bisect.md shows one). Commits are no row,
and have a search of their own.

Several probes run at once, on threads, so that Ctrl-C is always heard, and SIGTERM as Ctrl-C.
"""

import importlib.metadata
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, cast

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.installers import release_key
from opsieve.bisect.search.search import Given, ReproductionRate, TestResult
from opsieve.bisect.search.search_loop import SearchProgress, SearchResult, bisection, measure
from opsieve.bisect.sources.journal import ProbeJournal
from opsieve.bisect.sources.outcome import VersionOutcome, is_without, result_for
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was seen: `seen` has an entry for each of `versions`, None where none was needed; `wanted` is the
    failure followed.

    `outcome` is the search's, None after a sweep. `probed` counts the probes that were made, `recalled` those
    read from disk.
    """

    versions: tuple[str, ...]
    seen: tuple[VersionOutcome | None, ...]
    wanted: VersionOutcome | None
    outcome: SearchResult | None
    probed: int
    recalled: int

    def within(self, around: "Timeline") -> "Timeline":
        """This row in the place of its two ends in another one, which was searched before; the counts are the
        later ones.
        """
        first, last = around.versions.index(self.versions[0]), around.versions.index(self.versions[-1])
        versions = (*around.versions[:first], *self.versions, *around.versions[last + 1 :])
        seen = (*around.seen[:first], *self.seen, *around.seen[last + 1 :])
        outcome = self.outcome and self.outcome.moved(first)
        return Timeline(versions, seen, self.wanted or around.wanted, outcome, self.probed, self.recalled)


class VersionSequence:
    """Probes of one case in a row of versions: `look` tries a version, the journal keeps what it saw, `name`
    is for the log.
    """

    def __init__(
        self, evaluate: Callable[[str], VersionOutcome], journal: ProbeJournal, name: str, say: Say = print
    ):
        self._evaluate, self._name, self._say = evaluate, name, say
        self.journal = journal
        self._turns: Counter[str] = Counter()
        self.probed = self.recalled = 0

    def recall(self, version: str, turn: int = 0) -> VersionOutcome | None:
        """What an earlier probe saw, without making one."""
        return self.journal.get(self.key(version), turn)

    def key(self, version: str) -> str:
        """What the probes of a version are kept by."""
        return version

    def test(self, version: str) -> VersionOutcome:
        """What a version shows. The same version again is a new turn."""
        turn = self._turns[version]
        self._turns[version] += 1
        known = self.journal.get(self.key(version), turn)
        if known is not None:
            self.recalled += 1
            return known
        start = time.monotonic()
        found = self._evaluate(version)
        self.journal.put(self.key(version), found, time.monotonic() - start, turn)
        self.probed += 1
        self._say(f"{self._name} {version}: {found.symptom}")
        return found

    def _measured(self, version: str, seen: VersionOutcome, wanted: VersionOutcome) -> ReproductionRate:
        """How often a failing version shows the failure; `seen` is its first probe."""
        steps = measure()
        next(steps)
        while True:
            try:
                steps.send(result_for(seen, wanted))
            except StopIteration as stop:
                found: ReproductionRate = stop.value
                self._say(f"{version} showed the failure in {found.failures} of {found.runs} runs")
                return found
            seen = self.test(version)

    def sweep(self, versions: Sequence[str], jobs: int = 1) -> Timeline:
        """Every version, `jobs` at a time; those that were seen before are not probed again."""
        self._turns.clear()
        with ThreadPoolExecutor(jobs) as pool:
            seen = tuple(in_order(pool, self.test, versions))
        wanted = next((item for item in reversed(seen) if item.state == "bad"), None)
        return self._timeline(versions, seen, wanted, None)

    def search(
        self,
        versions: Sequence[str],
        good: int | None,
        bad: int | None,
        *,
        chance: Given = None,
        confidence: float = 0.99,
        jobs: int = 1,
        progressed: Callable[[SearchProgress], None] = lambda progress: None,
    ) -> Timeline:
        """Follow one failure: that of the bad end, else of the newest version, else of the oldest.

        A chance of `auto` is measured there, by running it several times; one that is None when it was seen
        to be flaky.
        """
        seen: dict[int, VersionOutcome] = {}
        first: dict[int, VersionOutcome] = {}
        wanted: VersionOutcome | None = None

        def probe(place: int) -> VersionOutcome:
            return first.pop(place, None) or self.test(versions[place])

        for place in [bad] if bad is not None else [len(versions) - 1, 0]:
            if place not in seen:
                seen[place] = first[place] = self.test(versions[place])
            if seen[place].state == "bad":
                wanted = seen[place]
                break
        belief: float | ReproductionRate = chance if isinstance(chance, float) else 1.0
        known: dict[int, TestResult] = {}
        if wanted is not None and (chance == "auto" or (chance is None and wanted.flaky)):
            belief, known = self._measured(versions[place], first.pop(place), wanted), {place: TestResult.BAD}
        steps = bisection(
            len(versions), good, bad, chance=belief, confidence=confidence, width=jobs, known=known
        )
        places, progress = next(steps)
        with ThreadPoolExecutor(jobs) as pool:
            while True:
                if progress is not None:
                    progressed(progress)
                answers: list[TestResult] = []
                for place, found in zip(places, in_order(pool, probe, places), strict=True):
                    wanted = wanted or (found if found.state == "bad" else None)
                    if place not in seen or found.state == "bad":
                        seen[place] = found
                    answers.append(result_for(found, wanted))
                try:
                    places, progress = steps.send(answers)
                except StopIteration as stop:
                    outcome: SearchResult = stop.value
                    break
        row = [seen.get(place) for place in range(len(versions))]
        return self._timeline(versions, row, wanted, outcome)

    def _timeline(
        self,
        versions: Sequence[str],
        seen: Sequence[VersionOutcome | None],
        wanted: VersionOutcome | None,
        outcome: SearchResult | None,
    ) -> Timeline:
        """The row, in which a version that is without the failure followed is good."""
        row = tuple(
            replace(item, state="good") if item and wanted and is_without(item, wanted) else item
            for item in seen
        )
        return Timeline(tuple(versions), row, wanted, outcome, self.probed, self.recalled)


def place_of(release: str | None, versions: Sequence[str], name: str) -> int | None:
    """Where a release named by the user stands; BadInput when it is not there."""
    if release is None:
        return None
    if release not in versions:
        raise BadInput(
            f"{name} {shown(release)} is not among the {len(versions)} versions; {_near(release, versions)}"
        )
    return versions.index(release)


def _near(release: str, versions: Sequence[str]) -> str:
    """Where a version that is not there would stand; of versions that are no release numbers only the first
    and last are named.
    """
    try:
        key = release_key(release)
        near = [version for version in versions if release_key(version) > key][:1] or list(versions[-1:])
    except BadInput:
        return f"they go from {shown(versions[0])} to {shown(versions[-1])}"
    return f"the next one is {near[0]}"


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_HEED = 0.2  # seconds


def in_order(pool: Executor, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """`function` of every item, in order; what has not begun is cancelled when one fails or the user
    interrupts.

    The wait is in steps: a signal that comes just before a thread sleeps on a lock is seen only when it
    wakes.
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
def ending_on_sigterm() -> Iterator[None]:
    """Have SIGTERM end the block as Ctrl-C does: scripts are killed, folders removed, probes kept. Only the
    main thread can.
    """
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
    """Versions in a row, oldest first, and what each shows of a case."""

    versions: Sequence[str]

    def evaluate(self, version: str) -> VersionOutcome:
        """Try the case on a version; `skip` where it cannot be tried, never an exception for a version that
        is broken.
        """


class Opener(Protocol):
    """What an entry point names."""

    def __call__(
        self, case: Case, target: ResolvedTarget, argument: str, offline: bool
    ) -> AbstractContextManager[VersionSource]:
        """The source, for a case on a target; `argument` is what the user wrote behind the name. BadInput for
        one that is no good.
        """


def opener(name: str) -> Opener:
    """The source called `name`; BadInput when there is none, or it cannot be loaded."""
    entries = importlib.metadata.entry_points(group=GROUP)
    found = [entry for entry in entries if entry.name == name]
    if not found:
        there = ", ".join(sorted({entry.name for entry in entries})) or "none"
        raise BadInput(f"there is no source of versions {shown(name)}; there are {there}")
    try:
        return cast(Opener, found[0].load())
    except (ImportError, AttributeError, SyntaxError) as error:
        raise BadInput(
            f"the source of versions {shown(name)} cannot be loaded ({error}): reinstall its package"
        ) from None
