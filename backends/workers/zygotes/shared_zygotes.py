"""Zygotes that all `Workers` of this process share, and those of other lanes of its campaign: a compiler is
imported once, however many ask it.
"""

import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping

from opsieve.backends.workers.zygotes.joined_zygote import met
from opsieve.backends.workers.zygotes.zygote import Zygote

Start = Callable[[socket.socket | None], Zygote]  # with a socket on which other processes may ask for it


class SharedZygotes:
    """Zygotes by what they were started with. What nobody uses any more is closed, but for those that `keep`
    asks for. Thread-safe.

    A zygote serves several users at once: a request for a fork is a single message, and each fork has
    channels of its own.
    """

    def __init__(self) -> None:
        self._idle, self._ignored = 0, frozenset[str]()
        self._meeting = ""
        self._zygotes: dict[Hashable, Zygote] = {}  # those given back last stand last
        self._users: Counter[Zygote] = Counter()
        self._starting: dict[Hashable, threading.Lock] = {}
        self._guard = threading.Lock()

    def meet(self, name: str) -> None:
        """From now on share them with the other processes of this user that were given the same name."""
        self._meeting = name

    def take(self, what: Hashable | None, environment: Mapping[str, str], start: Start) -> Zygote:
        """The living zygote of `what` (None: of the taker alone) in an environment, started when there is
        none. To be given back once.

        What `start` raises is raised.
        """
        key = (
            object() if what is None else what,
            frozenset(item for item in environment.items() if item[0] not in self._ignored),
        )
        with self._guard:
            starting = self._starting.setdefault(key, threading.Lock())
        with starting:  # who asks meanwhile waits for it instead of starting one more
            with self._guard:
                found = self._zygotes.get(key)
                if found is not None and found.alive:
                    self._users[found] += 1
                    return found
            try:
                if self._meeting and what is not None:
                    started = met(f"{self._meeting} {sys.executable} {what!r} {sorted(key[1])}", start)
                else:
                    started = start(None)
            except BaseException:
                self._starting.pop(key, None)
                raise
            with self._guard:
                self._starting.pop(key, None)
                killed = self._zygotes.pop(key, None)  # who still has it gives it back
                self._zygotes[key] = started
                self._users[started] += 1
                unused = [killed] if killed is not None and not self._users[killed] else []
            _close(unused)
            return started

    def give_back(self, zygotes: Collection[Zygote]) -> None:
        """Each was taken, and the workers that were forked from it for the taker have ended."""
        with self._guard:
            self._users.subtract(zygotes)
            for key in [key for key, zygote in self._zygotes.items() if zygote in zygotes]:
                self._zygotes[key] = self._zygotes.pop(key)
            unused = self._surplus() | {zygote for zygote in zygotes if not self._users[zygote]}
            unused -= set(self._zygotes.values())
        _close(unused)

    def keep(self, idle: int, ignored: Collection[str] = ()) -> None:
        """From now on keep so many that nobody uses; the variables `ignored` make no other environment."""
        with self._guard:
            self._idle, self._ignored = idle, frozenset(ignored)
            unused = self._surplus()
        _close(unused)

    def _surplus(self) -> set[Zygote]:
        """Forget the idle ones that are too many, and give them."""
        idle = [key for key, zygote in self._zygotes.items() if not self._users[zygote]]
        return {self._zygotes.pop(key) for key in idle[: max(0, len(idle) - self._idle)]}


def _close(zygotes: Collection[Zygote]) -> None:
    """End them; all are asked to before one is waited for."""
    for zygote in zygotes:
        zygote.dismiss()
    for zygote in zygotes:
        zygote.close()


ZYGOTES = SharedZygotes()
