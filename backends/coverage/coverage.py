"""The reached parts of a campaign's compilers in native code: one map of probes per compiler, shared by all
workers.
"""

import mmap
import os
import platform
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from opsieve.backends.coverage import elf, sanitizer
from opsieve.backends.coverage.points import (
    GRANULARITIES,
    Points,
    add_unstable,
    points_of,
    unstable,
    unstable_file,
)
from opsieve.backends.protocol import Backend, facts_of
from opsieve.gen.errors import BadInput

# The fallback: the effects of passes that the compiler reports.
EFFECTS = "passes"
KINDS = (*GRANULARITIES, EFFECTS)
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reached:
    """The reached addresses of one library (ascending), and its number of stable probes."""

    library: Path
    build_id: str
    addresses: Numbers
    probes: int


class Probes:
    """The probes of one compiler, numbered through its libraries, and which of them any worker has
    reached.
    """

    def __init__(self, points: Sequence[Points]):
        self.points = tuple(points)
        self.total = sum(len(item.addresses) for item in points)
        # Shared by its descriptor: a worker that dies leaves its hits, and nothing lies on a disk.
        self.file = os.memfd_create("opsieve-hits")
        # mmap refuses an empty file.
        os.ftruncate(self.file, max(self.total, 1))
        self._memory = mmap.mmap(self.file, max(self.total, 1))
        self._hits = np.frombuffer(self._memory, np.uint8)
        self._firsts = np.cumsum([0, *(len(item.addresses) for item in points)])
        self._stable = np.ones(self.total, bool)
        for first, item in zip(self._firsts.tolist(), points, strict=False):
            self._set_aside(unstable(item) + first)

    def libraries(self) -> list[dict[str, Any]]:
        """Return the zygote's facts about each library: its path, the file of its points, their number, and
        its counters, if it has its own.
        """
        return [
            {
                "path": str(item.library),
                "points": str(item.file),
                "count": len(item.addresses),
                "counters": astuple(item.counters) if item.counters else None,
            }
            for item in self.points
        ]

    @property
    def counter_pages(self) -> int:
        """How many bytes the pages of the libraries' own counters have."""
        return sum(_pages(item.counters)[1] for item in self.points if item.counters)

    def collect(self, pages: memoryview) -> tuple[int, ...]:
        """Return the newly reached probes from the counters of a dead worker; its pages hold one library
        after the other.
        """
        found: list[int] = []
        begin = 0
        for first, item in zip(self._firsts.tolist(), self.points, strict=False):
            if item.counters is None:
                continue
            offset, length = _pages(item.counters)
            values = np.frombuffer(pages, np.uint8, item.counters.size, begin + offset)
            begin += length
            numbers = item.counted()[np.flatnonzero(values) // item.counters.width]
            # Several counters may belong to one probe, and some to none.
            new = np.unique(numbers[numbers != sanitizer.NO_PROBE]).astype(np.int64) + first
            found += new[self._hits[new] == 0].tolist()
        self._hits[found] = 1
        return tuple(found)

    @property
    def count(self) -> int:
        """How many were reached, of the stable ones."""
        return int(np.count_nonzero(self._hits[: self.total] & self._stable))

    def numbers(self) -> Numbers:
        """Return the numbers of the reached stable probes, ascending."""
        return np.flatnonzero(self._hits[: self.total] & self._stable).astype(np.int64)

    def stable(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return those of these probes that can be recognised from one run to the next, as far as known."""
        return tuple(number for number in numbers if self._stable[number])

    def reached(self) -> tuple[Reached, ...]:
        """Return the reached probes by library."""
        every, found = self.numbers(), []
        for at, item in enumerate(self.points):
            first, end = int(self._firsts[at]), int(self._firsts[at + 1])
            here = every[(every >= first) & (every < end)] - first
            count = int(np.count_nonzero(self._stable[first:end]))
            found.append(Reached(item.library, item.build_id, item.addresses[here], count))
        return tuple(found)

    def forget(self) -> None:
        """Reset the map: workers that start from now on have every probe."""
        self._hits[:] = 0
        # Unstable ones stay reached, so that no worker plants them.
        self._hits[: self.total][~self._stable] = 1

    def mark(self, build_id: str, addresses: Numbers) -> None:
        """Mark these as reached before: no worker that begins from now on has a probe there."""
        for at, item in enumerate(self.points):
            if item.build_id == build_id:
                places = np.searchsorted(item.addresses, addresses)
                inside = places < len(item.addresses)
                # searchsorted gives a place for absent addresses, too.
                inside[inside] = item.addresses[places[inside]] == addresses[inside]
                self._hits[self._firsts[at] + places[inside]] = 1

    def disregard(self, numbers: Sequence[int] | Numbers) -> None:
        """Exclude probes that come and go between equal runs, here and in later campaigns."""
        numbers = np.unique(np.asarray(numbers, np.int64))
        self._set_aside(numbers)
        for at, item in enumerate(self.points):
            first, end = self._firsts[at], self._firsts[at + 1]
            here = numbers[(numbers >= first) & (numbers < end)] - first
            # An empty file too: it says that the library was calibrated.
            if len(here) or not unstable_file(item).exists():
                add_unstable(item, here)

    @property
    def is_calibrated(self) -> bool:
        """Return whether the unstable probes are known, perhaps from another campaign."""
        return all(unstable_file(item).exists() for item in self.points)

    def _set_aside(self, numbers: Numbers) -> None:
        self._stable[numbers] = False
        # No worker has a probe planted there
        self._hits[numbers] = 1


def _pages(section: sanitizer.CounterSection) -> tuple[int, int]:
    """Return where a section begins in its pages, and how many bytes these have."""
    offset = section.address % mmap.PAGESIZE
    return offset, -(-(offset + section.size) // mmap.PAGESIZE) * mmap.PAGESIZE


class EffectNumbers:
    """The fallback without probes: names of effects that compilers report, numbered in order of
    appearance.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        # Lanes note their effects at the same time.
        self._guard = threading.Lock()

    @property
    def count(self) -> int:
        """How many different ones there were."""
        return len(self._numbers)

    def new(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of those that were not seen before."""
        with self._guard:
            # All numbers from here on are new ones of this call.
            before = len(self._numbers)
            return tuple(
                at for name in names if (at := self._numbers.setdefault(name, len(self._numbers))) >= before
            )

    def names(self) -> list[str]:
        """List all names, sorted."""
        return sorted(self._numbers)


def can_trace() -> bool:
    """Whether probes can be planted on this machine."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


class Coverage:
    """The coverage of a campaign, for the named compilers. Thread-safe.

    `kind` is `functions`, `blocks` or `passes`. BadInput where this machine cannot trace.
    """

    def __init__(self, kind: str, backends: Sequence[str], cache: Path | None = None):
        if kind not in KINDS:
            raise BadInput(f"coverage is of {', '.join(KINDS)}, not of {kind!r}")
        if kind != EFFECTS and not can_trace():
            raise BadInput(
                f"coverage of {kind} needs Linux on x86-64; --coverage passes needs nothing (TVM alone"
                " has it)"
            )
        self.kind = kind
        self.backends = frozenset(backends)
        self.cache = cache or Path(platformdirs.user_cache_dir("opsieve")) / "coverage"
        self._maps: dict[tuple[str, str], Probes] = {}
        self._effects: dict[tuple[str, str], EffectNumbers] = {}
        self._guard = threading.Lock()
        # Called with the place and the probes of each compiler before any is planted: what is known of an
        # earlier run.
        self.known: Callable[[tuple[str, str], Probes], None] = lambda place, probes: None

    def traces(self, backend: str) -> bool:
        """Whether probes are wanted in this compiler."""
        return self.kind != EFFECTS and backend in self.backends

    def probes(self, place: tuple[str, str], backend: Any, modules: Sequence[str]) -> Probes:
        """Return the probes of the compiler at a place (name and release) that has these libraries loaded.

        Raises BadInput if it has no native code of its own, or only untraceable code.
        """
        with self._guard:
            # Under the lock: two zygotes of one compiler must share a map.
            if place not in self._maps:
                points = []
                for path, root in own_libraries(backend, modules):
                    try:
                        points.append(points_of(path, self.kind, self.cache, root))
                    except elf.Unreadable as error:
                        raise BadInput(f"coverage of {backend.name} cannot be traced: {error}") from None
                if not points:
                    raise BadInput(
                        f"{backend.name} has no native code of its own to trace; leave --coverage out for it"
                    )
                self._maps[place] = Probes(points)
                self.known(place, self._maps[place])
            return self._maps[place]

    def effects(self, place: tuple[str, str]) -> EffectNumbers:
        """Return the names of the effects of the compiler at a place."""
        with self._guard:
            return self._effects.setdefault(place, EffectNumbers())

    def maps(self) -> Mapping[tuple[str, str], Probes | EffectNumbers]:
        """Return all coverage by place."""
        with self._guard:
            return {**self._maps, **self._effects}


def own_libraries(backend: Backend, modules: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the libraries that are the compiler's own code, and the root of its source files ("" if
    unknown).

    A backend can say which they are (`BackendFacts.native_sources`); by default they are what lies in the
    folder of its package.
    """
    sources = facts_of(backend).native_sources
    if sources:
        pairs = [
            (Path(path), root)
            for path in modules
            for name, root in sources.items()
            if Path(path).name.startswith(name)
        ]
        # Sorted: the numbers of probes depend on the order of the libraries.
        return sorted(set(pairs))
    package = backend.package.replace("-", "_")
    # The folder is named like the distribution, or like its last word (`apache-tvm`: `tvm`).
    folders = {backend.name, package, package.rpartition("_")[2]} - {""}
    return [(Path(path), "") for path in sorted(modules) if folders & set(Path(path).parts[:-1])]
