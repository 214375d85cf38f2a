"""Support tables of current releases, which come with the package: made by `opsieve doctor --probe --tables
FOLDER`.

One file for each compiler and version, `BACKEND-VERSION.json.xz`: JSON of the answers to one-operator
programs with their date, compressed with LZMA. Shared texts are stored once.
"""

import functools
import json
import lzma
import re
from dataclasses import dataclass
from pathlib import Path

from opsieve.backends.probing.operator_support import ProbeAnswer
from opsieve.backends.registry import ResolvedTarget

FOLDER = Path(__file__).parent / "tables"
SUFFIX = ".json.xz"
_FORMAT = 1
# Bytes of a table that is unpacked
_MOST = 64 << 20


@dataclass(frozen=True, slots=True)
class SupportTable:
    """The answers of a compiler's version on a date (`2026-11-22`); `dtypes` are the probed first dtypes
    (None: all).
    """

    backend: str
    version: str
    made: str
    dtypes: tuple[str, ...] | None
    answers: tuple[ProbeAnswer, ...]


def find_nearest(target: ResolvedTarget, version: str) -> SupportTable | None:
    """Find the table of this version, else of the nearest version of the compiler, else of its host, if
    any.
    """
    found = _find_closest(target.name, version)
    if found is None and target.runtime is not None:
        found = _find_closest(target.runtime.name, "")
    return None if found is None else read_table(found)


def _find_closest(backend: str, version: str) -> Path | None:
    """Find the table of the nearest version; without a version, the newest."""
    there = {
        path.name.removesuffix(SUFFIX).removeprefix(f"{backend}-"): path
        for path in FOLDER.glob(f"{backend}-*")
    }
    # Not those of a longer name
    there = {name: path for name, path in there.items() if name[:1].isdigit()}
    if not there:
        return None
    newest = max(there, key=split_version)
    return there[min(there, key=lambda name: (compute_distance(name, version or newest), name))]


def compute_distance(one: str, other: str) -> tuple[int, ...]:
    """Return the distance of two versions: major numbers count first, then minor ones."""
    return tuple(abs(a - b) for a, b in zip(split_version(one), split_version(other), strict=True))


def split_version(version: str) -> tuple[int, ...]:
    """Return the first four numbers of a version without its local part: `0.27.dev3+build.12` has 0, 27, 3
    and 0.
    """
    # Nine digits at most, since a version may hold a date or a hash of any length.
    found = [int(part[:9]) for part in re.findall(r"\d+", version.partition("+")[0])[:4]]
    return tuple(found + [0] * (4 - len(found)))


def pack_table(table: SupportTable) -> bytes:
    """Encode a table as a file."""
    probes: dict[str, int] = {}
    messages: dict[str, int] = {}
    rows = [
        [
            probes.setdefault(answer.probe, len(probes)),
            answer.signature,
            answer.rank,
            answer.outcome,
            messages.setdefault(answer.message, len(messages)),
        ]
        for answer in table.answers
    ]
    facts = {
        "format": _FORMAT,
        "backend": table.backend,
        "version": table.version,
        "made": table.made,
        "dtypes": table.dtypes,
        "probes": list(probes),
        "messages": list(messages),
        "answers": rows,
    }
    # A larger dictionary is cleared for each, and finds no more.
    return lzma.compress(json.dumps(facts, separators=(",", ":")).encode(), preset=lzma.PRESET_DEFAULT)


@functools.lru_cache(maxsize=16)
def read_table(path: Path) -> SupportTable:
    """Read the table in a file that comes with the package."""
    return unpack_table(path.read_bytes())


def unpack_table(data: bytes) -> SupportTable:
    """Decode a table of `pack_table`; raises ValueError for other data."""
    try:
        # Bounded: a small file can unpack to any size, and a campaign's tables may be a stranger's.
        facts = json.loads(lzma.LZMADecompressor().decompress(data, _MOST))
        if facts["format"] != _FORMAT:
            raise ValueError("the table has another format")
        dtypes = None if facts["dtypes"] is None else tuple(map(str, facts["dtypes"]))
        probes, messages = facts["probes"], facts["messages"]
        answers = tuple(
            ProbeAnswer(str(probes[probe]), str(signature), int(rank), str(outcome), str(messages[message]))
            for probe, signature, rank, outcome, message in facts["answers"]
        )
        return SupportTable(str(facts["backend"]), str(facts["version"]), str(facts["made"]), dtypes, answers)
    except (
        lzma.LZMAError,
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        RecursionError,
        AttributeError,
        EOFError,
    ) as error:
        raise ValueError(f"no table of operators: {error}") from None


def get_file_name(table: SupportTable) -> str:
    """Return the file name of a table."""
    return f"{table.backend}-{table.version}{SUFFIX}"
