"""A thread that watches the store for changes, so that the screens stay up to date."""

import threading
from collections.abc import Callable

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.queries import Queries

# Seconds between looks
_EVERY = 0.5


class Watch:
    """Calls `changed` after others' commits, and `trouble` once for each new problem ("": it is solved)."""

    def __init__(self, store: Queries, changed: Callable[[], None], trouble: Callable[[str], None]) -> None:
        self._store, self._changed, self._trouble = store, changed, trouble
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, daemon=True, name="watch")

    def start_watching(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop_watching(self) -> None:
        """Stop the thread and wait for its last query."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run_loop(self) -> None:
        said, first = "", True
        while not self._end.is_set():
            now = self._check_store(first)
            first = False
            if now != said:
                said = now
                self._trouble(now)
            self._end.wait(_EVERY)

    def _check_store(self, first: bool) -> str:
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
