"""Zygotes shared by the lanes of a campaign: the first lane starts one, the others connect to it.

They meet at an abstract socket address (unix(7)), which one process can bind and which vanishes with its last
holder. The zygote inherits the listening socket; a connection during the compiler's import waits in the
socket's queue.
"""

import hashlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable

from opsieve.backends.workers.zygotes.channels import wait_readable
from opsieve.backends.workers.zygotes.zygote import START_SECONDS, Zygote

# To meet; one that is about to listen, or to end, is away for milliseconds
_TRIES = 100
# Seconds between them
_PAUSE = 0.02
# All lanes of a campaign may connect at once.
_QUEUE = 128
# By the wall's clock: who started it watches its work
_WAIT = 10 * START_SECONDS


class JoinedZygote(Zygote):
    """A zygote started by another process of this user; closing it releases it.

    Raises OSError if it is missing, EOFError if it ends.
    """

    def __init__(self, address: bytes) -> None:
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._control.connect(address)
            _, user, _ = struct.unpack(
                "3i", self._control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
            if user != os.geteuid():
                raise PermissionError("another user's process is there")
            word = self._control.recv(1 << 20) if wait_readable(self._control.fileno(), _WAIT) else b""
            if not word:
                raise EOFError("it ended while importing")
            self._read_start(word)
        except BaseException:
            self._control.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it can still fork."""
        poll = select.poll()
        poll.register(self._control.fileno(), 0)
        return not poll.poll(0)

    def close(self) -> None:
        """Release it."""
        self.dismiss()


def meet_zygote(name: str, start: Callable[[socket.socket | None], Zygote]) -> Zygote:
    """Join the zygote of a shared name, or start it with a socket for other processes; errors of `start` pass
    through.
    """
    address = b"\0opsieve-" + hashlib.sha256(name.encode()).hexdigest()[:40].encode()
    # A zygote ends by itself when it is idle, so its address may vanish between the look and the connection.
    for _ in range(_TRIES):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(address)
            except OSError:
                # Somebody else has begun
                try:
                    return JoinedZygote(address)
                except PermissionError:
                    break
                except (OSError, EOFError):
                    time.sleep(_PAUSE)
                    continue
            listener.listen(_QUEUE)
            return start(listener)
    return start(None)
