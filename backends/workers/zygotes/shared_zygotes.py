"""Zygotes shared by all `Workers` of this process, and by lanes of its campaign: each compiler is imported
once.
"""

import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping

from opsieve.backends.workers.zygotes.joined_zygote import meet_zygote
from opsieve.backends.workers.zygotes.zygote import Zygote

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
        """From now on share them with other processes of this user that use the same name."""
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
                    started = meet_zygote(
                        f"{self._meeting} {sys.executable} {what!r} {sorted(key[1])}", start
                    )
                else:
                    started = start(None)
            except BaseException:
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
            for key in [key for key, zygote in self._zygotes.items() if zygote in zygotes]:
                self._zygotes[key] = self._zygotes.pop(key)
            unused = self._remove_surplus() | {zygote for zygote in zygotes if not self._users[zygote]}
            unused -= set(self._zygotes.values())
        _close_all(unused)

    def keep_idle(self, idle: int, ignored: Collection[str] = ()) -> None:
        """From now on keep this many unused zygotes; the variables `ignored` do not distinguish
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
