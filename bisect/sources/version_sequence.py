"""A row of versions, such as the releases of a package, that a case is tried on: a search, or a sweep over all of them."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from opsieve.backends.releases.installers import release_key
from opsieve.bisect.search.reproduction_rate import Chance, Given
from opsieve.bisect.search.search import Answer
from opsieve.bisect.search.search_loop import Outcome, Progress, bisection, measure
from opsieve.bisect.sources.journal import Journal
from opsieve.bisect.sources.outcome import Sighting, answer
from opsieve.bisect.sources.pool import in_order
from opsieve.gen.model.bad_input import BadInput, shown

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was seen: `seen` has an entry for each of `versions`, None where none was needed; `wanted` is the failure followed.

    `outcome` is the search's, None after a sweep. `asked` counts the probes that were made, `recalled` those read from disk.
    """

    versions: tuple[str, ...]
    seen: tuple[Sighting | None, ...]
    wanted: Sighting | None
    outcome: Outcome | None
    asked: int
    recalled: int


class Row:
    """Probes of one case in a row of versions: `look` tries a version, the journal keeps what it saw, `name` is for the talk."""

    def __init__(self, look: Callable[[str], Sighting], journal: Journal, name: str, say: Say = print):
        self._look, self._name, self._say = look, name, say
        self.journal = journal
        self._turns: Counter[str] = Counter()
        self.asked = self.recalled = 0

    def recall(self, version: str, turn: int = 0) -> Sighting | None:
        """What an earlier probe saw, without making one."""
        return self.journal.get(version, turn)

    def see(self, version: str) -> Sighting:
        """What a version shows. The same version again is a new turn."""
        turn = self._turns[version]
        self._turns[version] += 1
        known = self.journal.get(version, turn)
        if known is not None:
            self.recalled += 1
            return known
        start = time.monotonic()
        found = self._look(version)
        self.journal.put(version, found, time.monotonic() - start, turn)
        self.asked += 1
        self._say(f"{self._name} {version}: {found.symptom}")
        return found

    def _measured(self, version: str, seen: Sighting, wanted: Sighting) -> Chance:
        """How often a failing version shows the failure; `seen` is its first probe."""
        talk = measure()
        next(talk)
        while True:
            try:
                talk.send(answer(seen, wanted))
            except StopIteration as stop:
                found: Chance = stop.value
                self._say(f"{version} showed the failure in {found.failures} of {found.runs} runs")
                return found
            seen = self.see(version)

    def sweep(self, versions: Sequence[str], jobs: int = 1) -> Timeline:
        """Every version, `jobs` at a time; those that were seen before are not asked again."""
        self._turns.clear()
        with ThreadPoolExecutor(jobs) as pool:
            seen = tuple(in_order(pool, self.see, versions))
        wanted = next((item for item in reversed(seen) if item.state == "fails"), None)
        return Timeline(tuple(versions), seen, wanted, None, self.asked, self.recalled)

    def search(
        self,
        versions: Sequence[str],
        good: int | None,
        bad: int | None,
        *,
        chance: Given = None,
        confidence: float = 0.99,
        jobs: int = 1,
        tell: Callable[[Progress], None] = lambda progress: None,
    ) -> Timeline:
        """Follow one failure: that of the bad end, else of the newest version, else of the oldest.

        A chance of `auto` is measured there, by running it several times; one that is None when it was seen to be flaky.
        """
        seen: dict[int, Sighting] = {}
        first: dict[int, Sighting] = {}
        wanted: Sighting | None = None

        def probe(place: int) -> Sighting:
            return first.pop(place, None) or self.see(versions[place])

        for place in [bad] if bad is not None else [len(versions) - 1, 0]:
            if place not in seen:
                seen[place] = first[place] = self.see(versions[place])
            if seen[place].state == "fails":
                wanted = seen[place]
                break
        belief: float | Chance = chance if isinstance(chance, float) else 1.0
        if wanted is not None and (chance == "auto" or (chance is None and wanted.flaky)):
            belief = self._measured(versions[place], first.pop(place), wanted)
        talk = bisection(len(versions), good, bad, chance=belief, confidence=confidence, width=jobs)
        asked, progress = next(talk)
        with ThreadPoolExecutor(jobs) as pool:
            while True:
                if progress is not None:
                    tell(progress)
                answers: list[Answer] = []
                for place, found in zip(asked, in_order(pool, probe, asked), strict=True):
                    wanted = wanted or (found if found.state == "fails" else None)
                    if place not in seen or found.state == "fails":
                        seen[place] = found
                    answers.append(answer(found, wanted))
                try:
                    asked, progress = talk.send(answers)
                except StopIteration as stop:
                    outcome: Outcome = stop.value
                    break
        row = tuple(seen.get(place) for place in range(len(versions)))
        return Timeline(tuple(versions), row, wanted, outcome, self.asked, self.recalled)


def place_of(release: str | None, versions: Sequence[str], name: str) -> int | None:
    """Where a release named by the user stands; BadInput when it is not there."""
    if release is None:
        return None
    if release not in versions:
        raise BadInput(f"{name} {shown(release)} is not among the {len(versions)} versions; {_near(release, versions)}")
    return versions.index(release)


def _near(release: str, versions: Sequence[str]) -> str:
    """Where a version that is not there would stand; of versions that are no release numbers only the first and last are told."""
    try:
        key = release_key(release)
        near = [version for version in versions if release_key(version) > key][:1] or list(versions[-1:])
    except BadInput:
        return f"they go from {shown(versions[0])} to {shown(versions[-1])}"
    return f"the next one is {near[0]}"
