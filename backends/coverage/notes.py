"""A worker's notes of the probes that it reached, read by the main process."""

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator

# As in tracer.py
HEAD, NEW = 4096, 0x80000000


class Notes:
    """A file in memory that one worker writes (`tracer.Tracer.watch`) and this process reads, also when the
    worker is dead.

    Behind the notes of at most `room` probes it has the pages of the counters that libraries bring, so many
    bytes.
    """

    def __init__(self, room: int, counter_pages: int = 0):
        self.file = os.memfd_create("opsieve-notes")
        self._pages = -(-(HEAD + 4 * room) // mmap.PAGESIZE) * mmap.PAGESIZE
        size = self._pages + counter_pages
        os.ftruncate(self.file, size)
        # Mapped and not sent: notes of a worker that died in native code can still be read.
        self._memory = mmap.mmap(self.file, size, prot=mmap.PROT_READ)
        self._room = room
        self._read = 0

    def every(self, begin: int, end: int) -> tuple[int, ...]:
        """Return the numbers of the probes noted from one place to another, in the order in which they were
        reached.
        """
        return tuple(number & ~NEW for number in self._between(begin, end))

    def new(self, begin: int | None = None, end: int | None = None) -> tuple[int, ...]:
        """Return the probes that this campaign reached for the first time; by default of all notes since the
        last read.
        """
        if begin is None or end is None:
            begin, end = self._read, int(struct.unpack_from("<Q", self._memory)[0])
        return tuple(number & ~NEW for number in self._between(begin, end) if number >= NEW)

    @contextlib.contextmanager
    def counters(self) -> Iterator[memoryview]:
        """Return the pages of the counters."""
        with memoryview(self._memory) as memory, memory[self._pages :] as pages:
            yield pages

    def _between(self, begin: int, end: int) -> tuple[int, ...]:
        # The number was written by the worker's process, which a compiler may have corrupted.
        end = min(end, self._room)
        self._read = end
        if not 0 <= begin < end:
            return ()
        return struct.unpack_from(f"<{end - begin}I", self._memory, HEAD + 4 * begin)

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        os.close(self.file)
