"""Which source file a function of a stripped library comes from, as far as the library tells.

Checks print `__FILE__`: the code loads the address of that text (`lea reg, [rip + x]`). A function that loads
the path of a translation unit is taken for its own; one that names none, and stands between two functions of
one file, for that file's too, since a linker lays object files one behind the other. Headers (`.h`) say
nothing of where their users were compiled.
"""

import bisect
import re

import numpy as np

from opsieve.backends.coverage.elf import Library, Unreadable

_PATH = re.compile(rb"(?<=\0)[\w./+-]{3,250}\.(?:cc|cpp|cxx|c|cu)(?=\0)")
# Bytes of code looked at at once
_STRIDE = 1 << 24
# Bytes of the instruction
_LEA = 7


def source_files(library: Library) -> dict[int, str]:
    """Map the address of each function that names its source file to the path that its compiler was given."""
    try:
        readable = library.sections[".rodata"]
        content = library.bytes_of(".rodata").tobytes()
    except (KeyError, Unreadable):
        return {}
    paths = {
        found.start() + readable.address: found.group().decode()
        for found in _PATH.finditer(content)
        # A bare file name says nothing of the folder.
        if b"/" in found.group()
    }
    if not paths:
        return {}
    starts = library.functions[0]
    named: dict[int, str] = {}
    for at, path in _loads(library, paths):
        function = int(np.searchsorted(starts, at, "right")) - 1
        if function >= 0:
            named.setdefault(int(starts[function]), path)
    return named


def _loads(library: Library, paths: dict[int, str]) -> list[tuple[int, str]]:
    """Yield where the code loads the address of one of these texts, and which text."""
    text, base = library.bytes_of(".text"), library.text.address
    wanted = np.array(sorted(paths), np.int64)
    found = []
    for begin in range(0, len(text), _STRIDE):
        # With the bytes of one more instruction, which may lie across the border.
        code = text[begin : begin + _STRIDE + _LEA]
        if len(code) <= _LEA:
            break
        width = len(code) - _LEA
        # 48|4C 8D 00rrr101: lea r64, [rip + i32]
        at = np.flatnonzero(
            (code[1 : width + 1] == 0x8D)
            & ((code[:width] & 0xFB) == 0x48)
            & ((code[2 : width + 2] & 0xC7) == 5)
        )
        distance = sum(code[at + 3 + byte].astype(np.uint32) << np.uint32(8 * byte) for byte in range(4))
        target = at + begin + base + _LEA + np.asarray(distance, np.uint32).view(np.int32).astype(np.int64)
        place = np.minimum(np.searchsorted(wanted, target), len(wanted) - 1)
        hit = wanted[place] == target
        found += [(int(a) + begin + base, paths[int(t)]) for a, t in zip(at[hit], target[hit], strict=True)]
    return found


class Names:
    """Names for addresses in one library: a symbol if there is one, and the likely source file."""

    def __init__(self, library: Library):
        self._symbols = library.symbols
        self._starts = library.functions[0]
        files = source_files(library)
        self._at = sorted(files)
        self._files = [files[at] for at in self._at]

    def function(self, address: int) -> int:
        """Return the entry of the function that contains an address."""
        place = int(np.searchsorted(self._starts, address, "right")) - 1
        return int(self._starts[max(place, 0)])

    def symbol(self, function: int) -> str:
        """Return the mangled name of a function; "" for one that a stripped library does not export."""
        return self._symbols.get(function, "")

    def source(self, function: int) -> str:
        """Return the source file of a function, "" if unknown."""
        place = bisect.bisect_right(self._at, function) - 1
        if place >= 0 and self._at[place] == function:
            return self._files[place]
        if 0 <= place < len(self._at) - 1 and self._files[place] == self._files[place + 1]:
            return self._files[place]
        return ""
