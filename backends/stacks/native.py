"""The prerequisites of native frames: the shim that writes them, compiled on demand, and the build-ids of
their modules.

The shim is `native.c` beside this file. A worker loads it with ctypes and calls `opsieve_install(fd)`; this
module never runs inside a worker, and everything works, with fewer frames, on a machine without a C compiler.
"""

import functools
import hashlib
import os
import platform
import shutil
import stat
import struct
import subprocess
import tempfile
from pathlib import Path

import platformdirs

_SOURCE = Path(__file__).with_name("native.c")
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC")
# A compiler behind a wrapper or on a slow disk takes seconds; without the shim a run still works.
_COMPILE_SECONDS = 60.0
# Program headers read of one module; real ones have about ten
_MAX_HEADERS = 128
# Bytes of notes read of one segment
_MAX_NOTES = 1 << 16
# Bytes of a build-id; linkers write 16 or 20
_MAX_ID = 64
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3


def shim(cache: Path | None = None) -> Path | None:
    """Return the compiled shim; it is compiled now if `cache` (by default the user's cache folder) does not
    hold it. None if that fails.
    """
    return _build(_folder(cache))[0]


def reason(cache: Path | None = None) -> str:
    """Return a sentence that says why `shim` gives None, or ""."""
    return _build(_folder(cache))[1]


def build_id(module: Path | str) -> str:
    """Return the GNU build-id of an ELF file in hexadecimal; "" if it has none, cannot be read or is not ELF.

    The path may come out of a hostile log and the file may be made to deceive: only regular files are read,
    and of them a bounded part.
    """
    try:
        found = os.stat(module)
    except (OSError, ValueError):
        # ValueError: a NUL in the path
        return ""
    return (
        _build_id(os.fspath(module), found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else ""
    )


def _folder(cache: Path | None) -> Path:
    return cache if cache is not None else platformdirs.user_cache_path("opsieve") / "native"


@functools.lru_cache(maxsize=16)
def _build(cache: Path) -> tuple[Path | None, str]:
    """Return the shim in `cache`, or `None` with the reason."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None, "Native frames need a C compiler: install one that is called cc, gcc or clang."
    try:
        found = os.stat(compiler)
        # Another compiler or machine gives another file: a home folder may be shared between machines.
        identity = (os.path.realpath(compiler), found.st_size, found.st_mtime_ns, platform.machine(), _FLAGS)
        digest = hashlib.sha256(_SOURCE.read_bytes() + repr(identity).encode()).hexdigest()[:16]
        target = cache / f"native-{digest}.so"
        if target.is_file():
            return target, ""
        # 0700: whoever could write here could make workers load code.
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Inside the cache, so that the rename stays on one file system.
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch, "native.so")
            command = [compiler, *_FLAGS, "-o", str(made), str(_SOURCE), "-ldl"]
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_COMPILE_SECONDS
            )
            if done.returncode:
                first = next(
                    (line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200]
                )
                return None, f"Native frames are off: {compiler} cannot compile the shim ({first[:200]!r})."
            # atomic: another process that builds it too ends with the same file
            os.replace(made, target)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"Native frames are off: the shim cannot be built in {str(cache)!r} ({error})."
    return target, ""


@functools.lru_cache(maxsize=1024)
def _build_id(path: str, size: int, mtime_ns: int) -> str:
    """Return the `build_id` of a regular file; size and time of change tell a replaced file from
    the old one.
    """
    try:
        # NONBLOCK: should the path become a FIFO since it was looked at, opening it does not wait.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            for offset, length in _note_segments(file.fileno()):
                found = _find_note(os.pread(file.fileno(), min(length, _MAX_NOTES), offset))
                if found:
                    return found
    except (
        OSError,
        OverflowError,
        struct.error,
    ):
        # unreadable, an offset out of this world, or shorter than it says
        return ""
    return ""


def _note_segments(file: int) -> list[tuple[int, int]]:
    """List offset and length of the note segments of an ELF file; raises struct.error if it is cut short."""
    # 64 bytes: the size of the larger one of the two ELF headers.
    head = os.pread(file, 64, 0)
    if head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        return []
    order, wide = "<" if head[5] == 1 else ">", head[4] == 2
    (table,) = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)
    size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
    fields = struct.Struct(order + ("II6Q" if wide else "8I"))
    segments = []
    for index in range(min(count, _MAX_HEADERS)):
        header = fields.unpack(os.pread(file, fields.size, table + index * size))
        if header[0] == _PT_NOTE:
            segments.append((header[2], header[5]) if wide else (header[1], header[4]))
    return segments


def _find_note(notes: bytes) -> str:
    """Find the build-id among the notes of one segment, in either byte order."""
    order, at = "<", 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from(order + "III", notes, at)
        # Sizes out of range: the file has the other byte order, or is no valid one in either.
        if name > len(notes) or size > len(notes):
            if order == ">":
                return ""
            order = ">"
            continue
        # Name and value are padded to four bytes each.
        begin = at + 12 + (name + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[begin : begin + min(size, _MAX_ID)].hex()
        at = begin + (size + 3 & ~3)
    return ""
