"""The coverage of a campaign on disk: its growth, and the final state by library and build-id; two campaigns
compared: how much each reached, the code only one reached, and its source files.

One JSON file for each campaign, `coverage/ID.json` in its store. Addresses are relative to the library's
file, so that campaigns on the same build can be compared wherever and whenever they ran.
"""

import base64
import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from opsieve.backends.coverage import elf, sources
from opsieve.backends.coverage.coverage import Coverage, EffectNumbers, Probes
from opsieve.backends.stacks.demangle import demangle
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import make_folder, write_file
from opsieve.gen.model.files import bound_reading, read_file
from opsieve.gen.model.printable import printable

_FORMAT = 1
# Bytes of a file
_MOST = 32 << 20
# Of all libraries
_MOST_ADDRESSES = 4 << 20
# Libraries of one compiler. A file of a stranger could name any number.
_MOST_LIBRARIES = 32
# Characters
_LONGEST_NAME = 300


@dataclass(frozen=True, slots=True)
class ReachedLibrary:
    """The reached part of one library: addresses in it (i64, ascending), out of `probes`."""

    path: str
    build_id: str
    probes: int
    addresses: npt.NDArray[np.int64]


@dataclass(slots=True)
class CompilerCoverage:
    """The coverage of one compiler: growth as (seconds, tests, points reached), and the reached libraries or
    effects.
    """

    growth: list[tuple[float, int, int]] = field(default_factory=list)
    libraries: list[ReachedLibrary] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CoverageRecord:
    """The coverage of a campaign, by compiler (`tvm`, `onnxruntime==1.20.1`)."""

    campaign: str
    generator: str
    kind: str
    compilers: dict[str, CompilerCoverage] = field(default_factory=dict)

    def add_point(self, coverage: Coverage, seconds: float, tests: int) -> None:
        """Add a point of the growth if it differs from the last one."""
        for (name, release), probes in coverage.maps().items():
            of = self.compilers.setdefault(f"{name}=={release}" if release else name, CompilerCoverage())
            # A flat stretch needs no points: a line between its ends is the same.
            if not of.growth or of.growth[-1][2] != probes.count:
                of.growth.append((round(seconds, 2), tests, probes.count))

    def add_final_state(self, coverage: Coverage, seconds: float, tests: int) -> None:
        """Add the final state."""
        for (name, release), probes in coverage.maps().items():
            of = self.compilers.setdefault(f"{name}=={release}" if release else name, CompilerCoverage())
            of.growth.append((round(seconds, 2), tests, probes.count))
            if isinstance(probes, EffectNumbers):
                of.effects = probes.names()
            else:
                of.libraries = [
                    ReachedLibrary(str(item.library), item.build_id, item.probes, item.addresses)
                    for item in probes.reached()
                ]

    def mark_known(self, place: tuple[str, str], probes: Probes) -> None:
        """Mark the probes that the campaign reached before it was interrupted."""
        name, release = place
        of = self.compilers.get(f"{name}=={release}" if release else name)
        for library in of.libraries if of is not None else ():
            probes.mark(library.build_id, library.addresses)


def save_record(record: CoverageRecord, folder: Path) -> Path:
    """Write the record into a store; return its file.

    Raises:
        BadInput: If they cannot be written.
    """
    place = folder / "coverage"
    try:
        make_folder(place)
        file = place / f"{record.campaign}.json"
        write_file(file, json.dumps(_encode(record)).encode() + b"\n")
    except OSError as error:
        raise BadInput(
            f"cannot write the coverage into {shown(place, 200)}: {error.strerror or error}"
        ) from None
    return file


@bound_reading
def load_record(path: Path) -> CoverageRecord:
    """Load the record in a file, or the newest one of a store.

    Raises:
        BadInput: If it is missing or unreadable.
    """
    if path.is_dir():
        # By time, because the names are hashes.
        found = sorted((path / "coverage").glob("*.json"), key=lambda item: item.stat().st_mtime)
        if not found:
            raise BadInput(
                f"{shown(path, 200)} has no coverage; opsieve fuzz --coverage functions records it"
            )
        path = found[-1]
    try:
        data = json.loads(read_file(path, _MOST))
        return _decode(data)
    # The file may come from a stranger, so every way in which it can be malformed is one refusal.
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error):
        raise BadInput(f"{shown(path, 200)} is not the coverage of a campaign") from None


def load_earlier(folder: Path, campaign: str) -> CoverageRecord | None:
    """Load the record of a resumed campaign, if it has one."""
    path = folder / "coverage" / f"{campaign}.json"
    return load_record(path) if path.exists() else None


def _encode(record: CoverageRecord) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "campaign": record.campaign,
        "generator": record.generator,
        "kind": record.kind,
        "compilers": {
            name: {
                "growth": of.growth,
                "effects": of.effects,
                "libraries": [
                    {
                        "path": item.path,
                        "build_id": item.build_id,
                        "probes": item.probes,
                        # Four bytes are enough for an address relative to its library, and compress well in
                        # ascending order.
                        "addresses": base64.b64encode(
                            zlib.compress(item.addresses.astype("<u4").tobytes())
                        ).decode(),
                    }
                    for item in of.libraries
                ],
            }
            for name, of in record.compilers.items()
        },
    }


def _decode(data: Mapping[str, Any]) -> CoverageRecord:
    if data["format"] != _FORMAT:
        raise ValueError("another format")
    record = CoverageRecord(_text(data["campaign"]), _text(data["generator"]), _text(data["kind"]))
    # One budget over all libraries: a small file can hold many that each unpack to the limit.
    left = _MOST_ADDRESSES
    for name, of in data["compilers"].items():
        libraries: list[ReachedLibrary] = []
        for item in of["libraries"][:_MOST_LIBRARIES]:
            reader = zlib.decompressobj()
            # A byte more than may be, at least, for 0 would be no limit.
            unpacked = reader.decompress(base64.b64decode(item["addresses"]), 4 * max(0, left) + 1)
            if len(unpacked) > 4 * left:
                raise ValueError("more addresses than a compiler has")
            addresses = np.frombuffer(unpacked[: len(unpacked) // 4 * 4], "<u4").astype(np.int64)
            left -= len(addresses)
            about = _text(item["path"]), _text(item["build_id"]), _count(item["probes"])
            # Sorted and unique, which the comparisons below rely on and a foreign file need not be.
            libraries.append(ReachedLibrary(*about, np.unique(addresses)))
        growth = [(float(seconds), _count(tests), _count(count)) for seconds, tests, count in of["growth"]]
        record.compilers[_text(name)] = CompilerCoverage(
            growth, libraries, [_text(item) for item in of["effects"]]
        )
    return record


def _text(value: object) -> str:
    """Return a text of a stranger as it may reach a terminal."""
    return printable(str(value)[:_LONGEST_NAME])


def _count(value: Any) -> int:
    """Return a number of points or tests, at most as large as a line can show."""
    return max(0, min(int(value), 1 << 62))


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
        BadInput: If no library is in both, or the kinds of coverage differ.
    """
    if first.kind != second.kind:
        raise BadInput(
            f"one campaign has the coverage of {first.kind}, the other of {second.kind}: they cannot be"
            " compared"
        )
    # By build-id: addresses mean the same code only within one build.
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


def _open_names(*libraries: ReachedLibrary) -> sources.Names | None:
    """Open the names of addresses in a file that is still present in this build."""
    for item in libraries:
        try:
            library = elf.Library(Path(item.path))
            # The file at that path may have been updated since.
            if library.build_id == item.build_id:
                return sources.Names(library)
        except (elf.Unreadable, OSError, ValueError, LookupError, struct.error):
            # A library that a stranger made
            continue
    return None


def _describe_only(names: sources.Names | None, addresses: Addresses) -> OnlyOne:
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
    # Paths begin with the folder of the machine that built the library.
    for root in ("src", "include", "onnxruntime", "core"):
        if root in parts[:-1]:
            at = parts.index(root)
            return "/".join(parts[at:])
    return path.lstrip("/")
