"""Zygotes shared by all `Workers` of this process, and by lanes of its campaign: each compiler is imported
once.
"""

import hashlib
import os
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping

from opsieve.backends.workers.zygotes.channels import wait_readable
from opsieve.backends.workers.zygotes.zygote import START_SECONDS, Zygote

# With a socket on which other processes may ask for it
Start = Callable[[socket.socket | None], Zygote]


class SharedZygotes:
    """Zygotes by their configuration. Unused ones are closed, except those kept by `keep_idle`. Thread-safe.

    A zygote serves several users at once: a request for a fork is a single message, and each fork has
    channels of its own.
    """

    def __init__(self) -> None:
        self._idle, self._ignored = 0, frozenset[str]()
        self._meeting = ""
        # Ordered by last use, most recent last.
        self._zygotes: dict[Hashable, Zygote] = {}
        self._users: Counter[Zygote] = Counter()
        self._starting: dict[Hashable, threading.Lock] = {}
        self._guard = threading.Lock()

    def share_as(self, name: str) -> None:
        """Share zygotes with other processes of this user that use the same name."""
        self._meeting = name

    def take_zygote(self, what: Hashable | None, environment: Mapping[str, str], start: Start) -> Zygote:
        """Return the living zygote of `what` (None: a private one) in an environment, started if necessary.

        It must be given back once. Errors of `start` pass through.
        """
        key = (
            object() if what is None else what,
            frozenset(item for item in environment.items() if item[0] not in self._ignored),
        )
        with self._guard:
            starting = self._starting.setdefault(key, threading.Lock())
        # Who asks meanwhile waits for it instead of starting one more
        with starting:
            with self._guard:
                found = self._zygotes.get(key)
                if found is not None and found.is_alive:
                    self._users[found] += 1
                    return found
            try:
                if self._meeting and what is not None:
                    # All that distinguishes two zygotes is in the name, so that equal names mean equal
                    # processes.
                    started = meet_zygote(
                        f"{self._meeting} {sys.executable} {what!r} {sorted(key[1])}", start
                    )
                else:
                    started = start(None)
            except BaseException:
                # The next request tries again: the reason may be gone by then.
                self._starting.pop(key, None)
                raise
            with self._guard:
                self._starting.pop(key, None)
                # The current user returns it.
                killed = self._zygotes.pop(key, None)
                self._zygotes[key] = started
                self._users[started] += 1
                unused = [killed] if killed is not None and not self._users[killed] else []
            _close_all(unused)
            return started

    def give_back(self, zygotes: Collection[Zygote]) -> None:
        """Give back taken zygotes, after the workers that were forked from them have ended."""
        with self._guard:
            self._users.subtract(zygotes)
            # Moved to the end of the dictionary, which is in the order of use.
            for key in [key for key, zygote in self._zygotes.items() if zygote in zygotes]:
                self._zygotes[key] = self._zygotes.pop(key)
            unused = self._remove_surplus() | {zygote for zygote in zygotes if not self._users[zygote]}
            unused -= set(self._zygotes.values())
        _close_all(unused)

    def keep_idle(self, idle: int, ignored: Collection[str] = ()) -> None:
        """Keep this many unused zygotes from now on; the variables `ignored` do not distinguish
        environments.
        """
        with self._guard:
            self._idle, self._ignored = idle, frozenset(ignored)
            unused = self._remove_surplus()
        _close_all(unused)

    def _remove_surplus(self) -> set[Zygote]:
        """Remove and return the unused zygotes beyond the limit."""
        idle = [key for key, zygote in self._zygotes.items() if not self._users[zygote]]
        return {self._zygotes.pop(key) for key in idle[: max(0, len(idle) - self._idle)]}


def _close_all(zygotes: Collection[Zygote]) -> None:
    """Close them; all get the message to end before the first one is waited for."""
    for zygote in zygotes:
        zygote.dismiss()
    for zygote in zygotes:
        zygote.close()


ZYGOTES = SharedZygotes()


# Zygotes shared by the lanes of a campaign: the first lane starts one, the others connect to it.


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
                # An abstract address has no owner: another user could wait at it and send answers.
                "3i",
                self._control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12),
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
    # Abstract (a leading zero), so that no file stays behind; at most 107 bytes fit, hence a hash.
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
    # A zygote of one's own is slower to start, and always works.
    return start(None)
