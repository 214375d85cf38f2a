"""Compare the coverage of two campaigns: how much each reached, the code only one reached, and its source
files.
"""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from opsieve.backends.coverage.elf import Library, Unreadable
from opsieve.backends.coverage.sources import Names
from opsieve.backends.stacks.demangle import demangle
from opsieve.gen.errors import BadInput
from opsieve.triage.campaign.coverage_record import CoverageRecord, ReachedLibrary

Addresses = npt.NDArray[np.int64]
UNKNOWN = "(not told by the library)"


@dataclass(frozen=True, slots=True)
class OnlyOne:
    """Code that only one campaign reached: the amount, named functions, and counts by source directory and
    file.

    `named` are C++ names of exported functions, sorted; directories and files are sorted by count, largest
    first.
    """

    count: int
    # C++ names of exported functions, sorted
    named: tuple[str, ...]
    # Most first
    directories: tuple[tuple[str, int], ...]
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class LibraryComparison:
    """Two campaigns on one library.

    `source_known` is the share of code reached by only one whose source file is known.
    """

    library: str
    build_id: str
    probes: int
    first: int
    second: int
    both: int
    only_first: OnlyOne
    only_second: OnlyOne
    # The share of exclusively reached code whose source file is known.
    source_known: float


def compare_coverage(first: CoverageRecord, second: CoverageRecord) -> list[LibraryComparison]:
    """Compare every library that both campaigns traced in the same build.

    Raises:
        BadInput: If there is no such library, or the kinds of coverage differ.
    """
    if first.kind != second.kind:
        raise BadInput(
            f"one campaign has the coverage of {first.kind}, the other of {second.kind}: they cannot be"
            " compared"
        )
    theirs = {item.build_id: item for of in second.compilers.values() for item in of.libraries}
    found = [
        _compare_libraries(item, theirs[item.build_id])
        for of in first.compilers.values()
        for item in of.libraries
        if item.build_id in theirs
    ]
    if not found:
        raise BadInput(
            "the two campaigns have no build of a library in common, so there is nothing to compare"
        )
    return found


def _compare_libraries(first: ReachedLibrary, second: ReachedLibrary) -> LibraryComparison:
    both = np.intersect1d(first.addresses, second.addresses)
    ours, theirs = (np.setdiff1d(item.addresses, both) for item in (first, second))
    names = _open_names(first, second)
    only = [_describe_only(names, part) for part in (ours, theirs)]
    count = len(ours) + len(theirs)
    unknown = sum(dict(part.files).get(UNKNOWN, 0) for part in only)
    return LibraryComparison(
        Path(first.path).name,
        first.build_id,
        max(first.probes, second.probes),
        len(first.addresses),
        len(second.addresses),
        len(both),
        only[0],
        only[1],
        1 - unknown / count if count else 1.0,
    )


def _open_names(*libraries: ReachedLibrary) -> Names | None:
    """Open the names of addresses in a file that is still present in this build."""
    for item in libraries:
        try:
            library = Library(Path(item.path))
            if library.build_id == item.build_id:
                return Names(library)
        except (Unreadable, OSError, ValueError, LookupError, struct.error):
            # A library that a stranger made
            continue
    return None


def _describe_only(names: Names | None, addresses: Addresses) -> OnlyOne:
    if names is None:
        return OnlyOne(len(addresses), (), ((UNKNOWN, len(addresses)),), ((UNKNOWN, len(addresses)),))
    functions = [names.function(int(address)) for address in addresses]
    named = sorted({demangle(symbol) for function in functions if (symbol := names.symbol(function))})
    files = Counter(shorten_path(names.source(function)) or UNKNOWN for function in functions)
    directories: Counter[str] = Counter()
    for file, count in files.items():
        directories[file if file == UNKNOWN else file.rpartition("/")[0]] += count
    return OnlyOne(
        len(addresses), tuple(named), _sort_by_count(directories.items()), _sort_by_count(files.items())
    )


def _sort_by_count(items: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(items, key=lambda item: (-item[1], item[0])))


def shorten_path(path: str) -> str:
    """Shorten a source path to its project's root: `/project/src/relax/op.cc` is `src/relax/op.cc`."""
    parts = path.split("/")
    for root in ("src", "include", "onnxruntime", "core"):
        if root in parts[:-1]:
            at = parts.index(root)
            return "/".join(parts[at:])
    return path.lstrip("/")
