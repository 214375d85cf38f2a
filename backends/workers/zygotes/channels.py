"""Channels between the main process and a child: pipes and sockets read with timeouts, files in memory."""

import fcntl
import json
import os
import select
import socket
import struct
import time
from typing import Any

# The end of a log names the crash; a compiler that prints in a loop must not fill the main process.
_LOG_LIMIT = 256 << 10
# process, user and group
_CREDENTIALS = struct.Struct("3i")


def identify_sender(channel: socket.socket, seconds: float) -> int:
    """Return the process that wrote the first line of a channel, as the kernel numbers it here; 0 on
    timeout.
    """
    if not wait_readable(channel.fileno(), seconds):
        return 0
    # Three bytes, so that the next line stays in the channel for `read_line`.
    line, ancillary, _, _ = channel.recvmsg(3, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, data in ancillary:
        if line == b"{}\n" and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return 0


def read_line(pipe: int, unread: bytes, seconds: float) -> tuple[dict[str, Any] | None, bytes]:
    """Read the next JSON object of a pipe after `unread`; return it with the rest: {} at the end, None on
    timeout.
    """
    deadline = time.monotonic() + seconds
    while b"\n" not in unread:
        if not wait_readable(pipe, max(0.0, deadline - time.monotonic())):
            return None, unread
        data = os.read(pipe, 4096)
        if not data:
            return {}, unread
        unread += data
    line, _, unread = unread.partition(b"\n")
    word: dict[str, Any] = json.loads(line)
    return word, unread


def wait_readable(fd: int, seconds: float) -> bool:
    """Whether the descriptor becomes readable within that time (poll: select refuses descriptors above
    1023).
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def make_memory_file(name: str, append: bool = False) -> int:
    """Make a file in memory that vanishes with its last descriptor, so that the disk stays clean."""
    fd = os.memfd_create(f"opsieve-{name}")
    if append:
        # Worker and its children share the file; without O_APPEND one would write over the other's lines.
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


def read_log(fd: int) -> str:
    """Read a log file: its beginning and its end if it is long."""
    size = os.fstat(fd).st_size
    if size <= _LOG_LIMIT:
        return os.pread(fd, size, 0).decode("utf-8", "replace")
    half = _LOG_LIMIT // 2
    head, tail = (os.pread(fd, half, at).decode("utf-8", "replace") for at in (0, size - half))
    return f"{head}\n[... {size - _LOG_LIMIT} bytes left out ...]\n{tail}"
