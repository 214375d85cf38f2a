"""A thread that looks whether anybody wrote to the store, so that the screens show what is there."""

import threading
from collections.abc import Callable

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.queries import Queries

_EVERY = 0.5  # seconds between looks


class Watch:
    """Calls `changed` after others' commits, and `trouble` once for each new sentence of what is wrong ("":
    all is well again).
    """

    def __init__(self, store: Queries, changed: Callable[[], None], trouble: Callable[[str], None]) -> None:
        self._store, self._changed, self._trouble = store, changed, trouble
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="watch")

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns when nothing is asked any more."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        said, first = "", True
        while not self._end.is_set():
            now = self._look(first)
            first = False
            if now != said:
                said = now
                self._trouble(now)
            self._end.wait(_EVERY)

    def _look(self, first: bool) -> str:
        if not (self._store.folder / INDEX).is_file():
            return (
                f"the index of the store {shown(self._store.folder, 120)} has vanished; what you see is what"
                " was read before"
            )
        try:
            if self._store.changed() and not first:
                self._changed()
        except BadInput as error:
            return str(error)
        return ""
