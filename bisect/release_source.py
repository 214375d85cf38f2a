"""A case through the releases of a package: a search, or a sweep over all of them."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from opsieve.backends.compare import POLICY, Policy
from opsieve.backends.installers import release_key
from opsieve.backends.lab import Lab
from opsieve.backends.registry import display, names, plugin, resolve
from opsieve.backends.releases import ReleaseStore
from opsieve.backends.target import Target
from opsieve.backends.workers import Workers
from opsieve.bisect.chance import Chance, Given
from opsieve.bisect.driver import Outcome, Progress, bisection, measure
from opsieve.bisect.journal import Journal, case_digest
from opsieve.bisect.pool import in_order
from opsieve.bisect.search import Answer
from opsieve.bisect.sighting import Sighting, answer, look
from opsieve.gen.bad_input import BadInput, shown
from opsieve.gen.case import Case
from opsieve.triage.fingerprint import VERSION

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


class Releases:
    """Probes of one case in the releases of a package; `target` gives the backend and its options, its release is ignored."""

    def __init__(
        self, case: Case, target: Target, workers: Workers, root: Path, *, policy: Policy = POLICY, say: Say = print
    ):
        self._case, self._workers, self._policy, self._say = case, workers, policy, say
        self.target = replace(resolve(target), release="")
        self._journal = Journal(
            root,
            {
                "case": case_digest(case),
                "target": display(self.target),
                "tolerance": list(policy.tolerance) if policy.tolerance else None,
                "fingerprints": VERSION,
                "source": "releases",
            },
        )
        self._turns: Counter[str] = Counter()
        self.asked = self.recalled = 0

    def recall(self, version: str, turn: int = 0) -> Sighting | None:
        """What an earlier probe saw, without making one."""
        return self._journal.get(version, turn)

    def see(self, version: str) -> Sighting:
        """What a release shows; a release that cannot be installed or imported is untestable. The same release again is a new turn."""
        turn = self._turns[version]
        self._turns[version] += 1
        known = self._journal.get(version, turn)
        if known is not None:
            self.recalled += 1
            return known
        start = time.monotonic()
        found = look(self._case, replace(self.target, release=version), Lab(self._workers), self._policy)
        self._journal.put(version, found, time.monotonic() - start, turn)
        self.asked += 1
        self._say(f"{self.target.backend} {version}: {found.symptom}")
        return found

    def _measured(self, version: str, seen: Sighting, wanted: Sighting) -> Chance:
        """How often a failing release shows the failure; `seen` is its first probe."""
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
        """Every release, `jobs` at a time; those that were seen before are not asked again."""
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
        """Follow one failure: that of the bad end, else of the newest release, else of the oldest.

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


def backend_of(package: str) -> str:
    """The backend whose releases are those of a package; BadInput when none is."""
    there = {plugin(name).backend.package: name for name in names() if plugin(name).backend.package}
    if package not in there:
        raise BadInput(f"no backend runs the package {shown(package)}; there are {', '.join(sorted(there))}")
    return there[package]


def releases_of(package: str, offline: bool, store: ReleaseStore | None = None) -> list[str]:
    """The releases to search, oldest first: those of the index, or those in the store when `offline`."""
    store = store or ReleaseStore()
    found = (
        list(dict.fromkeys(release for release, _ in store.installed(package))) if offline else store.available(package)
    )
    if not found:
        where = "in the store; leave --offline out" if offline else "that can run here"
        raise BadInput(f"there is no release of {shown(package)} {where}")
    return found


def place_of(release: str | None, versions: Sequence[str], name: str) -> int | None:
    """Where a release named by the user stands; BadInput when it is not there."""
    if release is None:
        return None
    if release not in versions:
        key = release_key(release)
        near = [version for version in versions if release_key(version) > key][:1] or list(versions[-1:])
        raise BadInput(f"{name} {shown(release)} is not among the {len(versions)} releases; the next one is {near[0]}")
    return versions.index(release)
