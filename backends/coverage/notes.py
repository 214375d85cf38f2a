"""What a worker notes of the probes that it reached, as the main process reads it."""

import mmap
import os
import struct

HEAD, NEW = 4096, 0x80000000  # as in tracer.py


class Notes:
    """A file in memory that one worker writes (`tracer.Tracer.watch`) and this process reads, also when the worker is dead."""

    def __init__(self, room: int):
        self.file = os.memfd_create("opsieve-notes")
        os.ftruncate(self.file, HEAD + 4 * room)
        self._memory = mmap.mmap(self.file, HEAD + 4 * room, prot=mmap.PROT_READ)
        self._room = room
        self._read = 0

    def every(self, begin: int, end: int) -> tuple[int, ...]:
        """The numbers of the probes noted from one place to another, in the order in which they were reached."""
        return tuple(number & ~NEW for number in self._between(begin, end))

    def new(self, begin: int | None = None, end: int | None = None) -> tuple[int, ...]:
        """Those of them that nobody had reached before; by default of all that was noted since it was last read."""
        if begin is None or end is None:
            begin, end = self._read, int(struct.unpack_from("<Q", self._memory)[0])
        return tuple(number & ~NEW for number in self._between(begin, end) if number >= NEW)

    def _between(self, begin: int, end: int) -> tuple[int, ...]:
        end = min(end, self._room)
        self._read = end
        if not 0 <= begin < end:
            return ()
        return struct.unpack_from(f"<{end - begin}I", self._memory, HEAD + 4 * begin)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
        os.close(self.file)
