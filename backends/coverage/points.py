"""The places of probes in a library: the entries of its functions, or its basic blocks; kept by build-id.

Blocks are found by a linear sweep over each function: its entry, targets of its jumps, what follows a jump or
a return. Code that only a jump table reaches gets no block of its own. A function that cannot be swept to its
end has its entry alone.
"""

import hashlib
import importlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from opsieve.backends.coverage import elf, sanitizer, sources
from opsieve.gen.errors import BadInput, format_install_command

GRANULARITIES = ("functions", "blocks")
# The version of cached files; others are rebuilt.
_EDITION = 1
# `int3`, the only trap instruction of one byte: it can replace the first byte of any instruction.
_TRAP = 0xCC


@dataclass(frozen=True, slots=True)
class Points:
    """The probes of one library: addresses in it (i64, ascending), and the file that a worker reads them
    from.

    The file holds the addresses as u32 and then the byte that stands at each; where the library counts by
    itself (`counters`), then for each of its counters which address it is, as u32.
    """

    library: Path
    build_id: str
    granularity: str
    addresses: elf.Addresses
    file: Path
    counters: sanitizer.CounterSection | None = None

    def counted(self) -> npt.NDArray[np.uint32]:
        """Return the position of the address of each counter; `NO_PROBE` for counters without one."""
        return np.frombuffer(self.file.read_bytes(), "<u4")[len(self.addresses) :]


def points_of(path: Path, granularity: str, cache: Path, root: str = "") -> Points:
    """Return the probes of a library, from the folder `cache` if it has them.

    With `root`, the beginning of its own source files' paths, only the stretch of code between the first and
    the last function from such a file counts: statically linked code after it is left out. Raises Unreadable
    for a library that cannot be traced, BadInput if blocks are requested without capstone. A library that was
    built with SanitizerCoverage has its own probes.
    """
    library = elf.Library(path)
    # A library may be built without a build-id.
    identity = library.build_id or hashlib.sha256(path.read_bytes()).hexdigest()[:40]
    # The root is part of the name, because it decides which functions count.
    name = hashlib.sha256(f"{_EDITION} {root}".encode()).hexdigest()[:8]
    section = sanitizer.counter_section(library)
    if section is not None:
        file = cache / f"{identity}-{granularity}-{name}.counters"
        if not file.exists():
            addresses, numbers = sanitizer.counted_points(library, granularity)
            _keep(file, _narrow(path, addresses) + numbers.astype("<u4").tobytes())
        data = file.read_bytes()
        count = len(data) // 4 - section.size // section.width
        addresses = np.frombuffer(data, "<u4", count).astype(np.int64)
        return Points(path, identity, granularity, addresses, file, section)
    file = cache / f"{identity}-{granularity}-{name}.points"
    if not file.exists():
        starts, sizes = own_functions(library, root)
        found = starts if granularity == "functions" else _blocks(library, starts, sizes)
        stands = library.bytes_of(".text")[found - library.text.address]
        # A trap of the library's own could not be distinguished from a probe.
        found, stands = found[stands != _TRAP], stands[stands != _TRAP]
        _keep(file, _narrow(path, found) + stands.tobytes())
    data = file.read_bytes()
    addresses = np.frombuffer(data, "<u4", len(data) // 5).astype(np.int64)
    return Points(path, identity, granularity, addresses, file)


def _narrow(path: Path, addresses: elf.Addresses) -> bytes:
    """Return ascending addresses as u32."""
    if len(addresses) and (addresses[0] < 0 or addresses[-1] >= 1 << 32):
        raise elf.Unreadable(f"{path.name} is too large")
    return addresses.astype("<u4").tobytes()


def own_functions(library: elf.Library, root: str) -> tuple[elf.Addresses, elf.Addresses]:
    """Return addresses and sizes of the functions from the first to the last that names a source file under
    `root`, or of all for "".
    """
    starts, sizes = library.functions
    if not root:
        return starts, sizes
    named = [at for at, file in sources.source_files(library).items() if file.startswith(root)]
    if not named:
        return starts, sizes
    # A linker lays object files one behind the other, so that own code is one stretch.
    inside = (starts >= min(named)) & (starts <= max(named))
    return starts[inside], sizes[inside]


def unstable_file(points: Points) -> Path:
    """Return the file that keeps the probes that come and go between equal runs."""
    return points.file.with_suffix(".unstable")


def unstable(points: Points) -> npt.NDArray[np.int64]:
    """Return the positions in `points.addresses` of the probes that came and went between equal runs,
    ascending.
    """
    try:
        found = np.frombuffer(unstable_file(points).read_bytes(), "<u4").astype(np.int64)
    # Without the file, or with a damaged one, probes are calibrated again.
    except (FileNotFoundError, ValueError):
        return np.zeros(0, np.int64)
    return found[found < len(points.addresses)]


def add_unstable(points: Points, positions: npt.NDArray[np.int64]) -> None:
    """Keep more probes as unstable."""
    both = np.union1d(unstable(points), positions).astype("<u4")
    _keep(unstable_file(points), both.tobytes())


def _keep(file: Path, data: bytes) -> None:
    """Write a file at once or not at all: other processes read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    Path(name).replace(file)


def _blocks(library: elf.Library, starts: elf.Addresses, sizes: elf.Addresses) -> elf.Addresses:
    try:
        # An extra: no types where it is not installed
        capstone: Any = importlib.import_module("capstone")
    except ImportError:
        raise BadInput(
            f"coverage of blocks needs capstone ({format_install_command('opsieve[coverage]')}); functions"
            " need nothing"
        ) from None
    reader = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    text, base = library.bytes_of(".text"), library.text.address
    found: list[int] = []
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        code = text[start - base : start - base + size].tobytes()
        found += leaders(reader.disasm_lite(code, start), start, start + size)
    return np.unique(np.array(found, np.int64))


def leaders(code: Iterator[tuple[int, int, str, str]] | Any, start: int, end: int) -> list[int]:
    """Return the starts of blocks in one function, from (address, size, mnemonic, operands) of its
    instructions.
    """
    first_bytes, found = set(), {start}
    follows, last = False, start
    for address, size, name, operands in code:
        first_bytes.add(address)
        last = address + size
        if follows:
            found.add(address)
        jumps = name[0] == "j" or name.startswith("loop")
        follows = jumps or name.startswith("ret")
        if jumps and operands.startswith("0x") and start <= (target := int(operands, 16)) < end:
            found.add(target)
    # A sweep that lost step would put a probe into the middle of an instruction.
    return sorted(found & first_bytes) if last == end else [start]
