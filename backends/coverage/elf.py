"""Read the code of an ELF library for x86-64, symbols stripped or not: sections, functions, names.

`.eh_frame_hdr` (Linux Standard Base, Core, 10.6) is what stripping leaves: a sorted table of every function
with unwind information.
"""

import mmap
import os
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.int64]
_DATAREL_SDATA4, _PCREL_SDATA4, _UDATA4 = 0x3B, 0x1B, 0x03
_SHT_NOTE, _NT_GNU_BUILD_ID = 7, 3
_STT_FUNC = 2
# R_X86_64_RELATIVE, R_X86_64_64
_RELATIVE, _WORD = 8, 1
# The size in bytes of both Elf64_Rela and Elf64_Sym.
_ROW = 24
# Section names come from the file; the limit refuses a damaged string table.
_LONGEST_SECTION = 256


class Unreadable(Exception):
    """Not a library that can be traced; the message says why."""


@dataclass(frozen=True, slots=True)
class Section:
    """The place of a section: its address in memory, its offset in the file, its size in bytes."""

    address: int
    offset: int
    size: int


class Library:
    """An ELF file, mapped for reading; its code is never run."""

    def __init__(self, path: Path):
        self.path = path
        try:
            # What a record names may be a FIFO by now, whose writer nobody waits for.
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise Unreadable(f"{path.name} cannot be read: {error}") from None
        if self._data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", self._data, 18)[0] != 62:
            raise Unreadable(f"{path.name} is not an ELF library for x86-64")
        self._notes: list[Section] = []
        try:
            self.sections = self._read_sections()
        except (struct.error, ValueError, IndexError, OverflowError):
            raise Unreadable(f"the section table of {path.name} is broken") from None

    def _read_sections(self) -> dict[str, Section]:
        # e_shoff, then e_shentsize, e_shnum and e_shstrndx of the ELF header
        (table,) = struct.unpack_from("<Q", self._data, 40)
        size, count, names_at = struct.unpack_from("<HHH", self._data, 58)
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size
        rows = [struct.unpack_from("<IIQQQQ", self._data, table + at * size) for at in range(count)]
        if not rows:
            return {}
        names = self._data[rows[names_at][4] : rows[names_at][4] + rows[names_at][5]]
        found = {}
        for name, kind, _, address, offset, length in rows:
            section = Section(address, offset, length)
            if kind == _SHT_NOTE:
                self._notes.append(section)
            found[names[name : names.index(b"\0", name, name + _LONGEST_SECTION)].decode()] = section
        return found

    def bytes_of(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the content of a section, u8. Raises Unreadable if the section is missing."""
        section = self.sections.get(name)
        if section is None or section.offset + section.size > len(self._data):
            raise Unreadable(f"{self.path.name} has no section {name}")
        return np.frombuffer(self._data, np.uint8, section.size, section.offset)

    def words(self, name: str) -> npt.NDArray[np.int64]:
        """Return the content of a section as words of eight bytes, its addresses as the loader makes them (at
        a load address of 0).
        """
        content = self.bytes_of(name)
        words = content[: len(content) // 8 * 8].view("<i8").astype(np.int64)
        # Pointers in a shared library are 0 in the file: the loader fills them from the relocations.
        if ".rela.dyn" not in self.sections:
            return words
        rows = self._rows(".rela.dyn").view("<i8").reshape(-1, 3)
        at, kind, symbol, value = (
            rows[:, 0] - self.sections[name].address,
            rows[:, 1] & 0xFFFFFFFF,
            rows[:, 1] >> 32,
            rows[:, 2],
        )
        ours = (at >= 0) & (at < 8 * len(words)) & (at % 8 == 0)
        relative = ours & (kind == _RELATIVE)
        words[at[relative] // 8] = value[relative]
        # what other libraries may define besides, as every function that is exported
        if ".dynsym" in self.sections:
            defined = self._rows(".dynsym").view("<i8").reshape(-1, 3)[:, 1]
            named = ours & (kind == _WORD) & (symbol < len(defined))
            words[at[named] // 8] = defined[symbol[named]] + value[named]
        return words

    def _rows(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the content of a table of relocations or symbols, in whole rows."""
        content = self.bytes_of(name)
        return content[: len(content) // _ROW * _ROW]

    @property
    def text(self) -> Section:
        """The section that holds its code. Raises Unreadable if there is none."""
        if ".text" not in self.sections:
            raise Unreadable(f"{self.path.name} has no code")
        return self.sections[".text"]

    @cached_property
    def build_id(self) -> str:
        """GNU build-id in hexadecimal, "" when it has none."""
        for note in self._notes:
            name, size, kind = struct.unpack_from("<III", self._data, note.offset)
            if kind == _NT_GNU_BUILD_ID and name == 4 and size <= 64:
                return self._data[note.offset + 16 : note.offset + 16 + size].hex()
        return ""

    @cached_property
    def functions(self) -> tuple[Addresses, Addresses]:
        """Address and size in bytes of every function in `.text` that has unwind information, ascending.

        What a compiler split off as cold has an entry of its own. Unreadable when the table is not the usual
        one.
        """
        header = bytes(self.bytes_of(".eh_frame_hdr"))
        frames = self.sections.get(".eh_frame")
        # The encodings that all linkers write; others would need a full DWARF reader.
        if frames is None or header[1:4] != bytes((_PCREL_SDATA4, _UDATA4, _DATAREL_SDATA4)):
            raise Unreadable(f"{self.path.name} has no table of its functions")
        base = self.sections[".eh_frame_hdr"].address
        # Relative to the header itself (DW_EH_PE_datarel)
        pairs = np.frombuffer(header, "<i4", 2 * struct.unpack_from("<I", header, 8)[0], 12).reshape(-1, 2)
        starts, entries = (pairs[:, at].astype(np.int64) + base for at in (0, 1))
        inside = (starts >= self.text.address) & (starts < self.text.address + self.text.size)
        starts, entries = starts[inside], entries[inside]
        # behind length, CIE pointer and start: the function's size, u32
        where = entries - frames.address + 12
        content = self.bytes_of(".eh_frame")
        sizes = np.zeros(len(starts), np.int64)
        # Byte by byte, since the entries are not aligned.
        for byte in range(4):
            sizes |= content[where + byte].astype(np.int64) << (8 * byte)
        order = np.argsort(starts, kind="stable")
        starts, sizes = starts[order], sizes[order]
        # Folded functions (`--icf`) share an address and would be two probes in one place.
        first = np.ones(len(starts), bool)
        first[1:] = starts[1:] != starts[:-1]
        return starts[first], sizes[first]

    @cached_property
    def symbols(self) -> dict[int, str]:
        """Names of functions by address, from `.symtab` where it was left, else `.dynsym`."""
        # `.symtab` has local functions as well, but is what `strip` removes.
        for table, strings in ((".symtab", ".strtab"), (".dynsym", ".dynstr")):
            if table not in self.sections or strings not in self.sections:
                continue
            rows = bytes(self._rows(table))
            names = bytes(self.bytes_of(strings))
            found: dict[int, str] = {}
            # Characters that are kept: linkers share the ends of names, and only a stranger all of them.
            left = 4 * len(names)
            for name, info, _, section, address, _ in struct.iter_unpack("<IBBHQQ", rows):
                if info & 15 == _STT_FUNC and section and address and name < len(names) and left > 0:
                    found[address] = names[name : names.index(b"\0", name)].decode("utf-8", "replace")
                    left -= len(found[address])
            return found
        return {}
