"""What a worker of a cluster keeps for its next task, and ends when none comes for a while."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_PATIENCE = 120.0  # seconds that a thing waits for a task


class Kept(Generic[T]):
    """Things that wait, by the campaign or reduction that they serve; `end` ends one. Thread-safe."""

    def __init__(self, end: Callable[[T], object]):
        self._end = end
        self._waiting: dict[str, list[tuple[T, threading.Timer]]] = {}
        self._lock = threading.Lock()

    def take(self, owner: str) -> T | None:
        """A thing that waits, no longer kept; None where there is none."""
        with self._lock:
            waiting = self._waiting.get(owner)
            if not waiting:
                return None
            thing, timer = waiting.pop()
        timer.cancel()
        return thing

    def keep(self, owner: str, thing: T) -> None:
        """Have it wait for the next task, for a while."""
        timer = threading.Timer(_PATIENCE, self._give_up, (owner, thing))
        timer.daemon = True
        with self._lock:
            self._waiting.setdefault(owner, []).append((thing, timer))
        timer.start()

    def end(self, owner: str) -> None:
        """End all that waits for an owner."""
        while (thing := self.take(owner)) is not None:
            self._end(thing)

    def _give_up(self, owner: str, thing: T) -> None:
        with self._lock:
            waiting = self._waiting.get(owner, [])
            left = [item for item in waiting if item[0] is not thing]
            if len(left) == len(waiting):
                return  # it was taken at that moment
            self._waiting[owner] = left
        self._end(thing)
