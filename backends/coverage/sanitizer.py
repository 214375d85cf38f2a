"""The counters of a library that was built with SanitizerCoverage, as its file tells them.

clang's `-fsanitize-coverage=inline-8bit-counters,pc-table` (or `inline-bool-flag`, `trace-pc-guard` in its
place) gives each block of the instrumented code a counter in one section and, at the same position, an
address and flags in another. Both sections survive stripping. In a library that has them, these counters are
its coverage, and no probe is planted.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsieve.backends.coverage.elf import Addresses, Library

_TABLE = "__sancov_pcs"
# Bytes of a counter
_COUNTERS = {"__sancov_cntrs": 1, "__sancov_bools": 1, "__sancov_guards": 4}
_GUARD_CALLED = "__sanitizer_cov_trace_pc_guard"
# Of a block's flags: it is the entry of its function
_ENTRY = 1
NO_PROBE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class CounterSection:
    """The place of a library's counters: address and size in bytes, bytes of one."""

    address: int
    size: int
    width: int


def counter_section(library: Library) -> CounterSection | None:
    """Return the section of a library's counters; `None` unless a table of addresses accompanies it.

    Guards count through the function they call, so a library that defines that function itself (a fuzzer's)
    has no usable counters.
    """
    table = library.sections.get(_TABLE)
    for name, width in _COUNTERS.items():
        found = library.sections.get(name)
        # An entry of the table is two words; with another number of entries, counters and addresses do not
        # match.
        if found is None or table is None or not found.size or found.size * 16 != table.size * width:
            continue
        if width > 1 and _GUARD_CALLED in library.symbols.values():
            continue
        return CounterSection(found.address, found.size, width)
    return None


def counted_points(library: Library, granularity: str) -> tuple[Addresses, npt.NDArray[np.uint32]]:
    """Return the addresses of the blocks, or of those that are a function's entry (i64, ascending), and for
    each counter its place among them.

    Several counters may be one block's; `NO_PROBE` is what counts no wanted one.
    """
    rows = library.words(_TABLE).reshape(-1, 2)
    places, wanted = rows[:, 0], np.ones(len(rows), bool)
    if granularity == "functions":
        wanted = rows[:, 1] & _ENTRY != 0
    addresses, which = np.unique(places[wanted], return_inverse=True)
    numbers = np.full(len(rows), NO_PROBE, np.uint32)
    numbers[wanted] = which
    return addresses, numbers
