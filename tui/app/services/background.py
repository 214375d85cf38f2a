"""Threads beside the interface, which must not touch widgets: they post messages to the app.

Blocking queries come back as a message, or as one sentence for an error. A thread watches the store for
changes, so that the screens stay up to date.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.queries import Queries
from opsieve.tui.app.services.job_board import Job

T = TypeVar("T")


class BackgroundDone(Message):
    """The result of a thread; the app delivers it if its widget still exists."""

    def __init__(self, asker: Widget, deliver: Callable[[], None]) -> None:
        super().__init__()
        self.asker = asker
        self.deliver = deliver


def run_in_background(
    asker: Widget,
    group: str,
    question: Callable[[], T],
    answer: Callable[[T], None],
    refused: Callable[[str], None] | None = None,
) -> None:
    """Run `question` in a thread; `answer` or `refused` is called in the interface thread.

    A newer question of the group cancels this one. `refused` gets the sentence of a BadInput or an OSError;
    without it the sentence is shown as a notice.
    """
    app = asker.app

    def run_question() -> None:
        worker = get_current_worker()
        # It waited for a free thread, and a newer question of the group came meanwhile.
        if worker.is_cancelled:
            return
        try:
            found = question()
        except (BadInput, OSError) as error:
            sentence = str(error)
            # An older answer must not replace a newer one on the screen.
            if not worker.is_cancelled:
                # Markup off: the sentence may quote a stranger's text.
                show_notice = refused or (lambda text: app.notify(text, severity="error", markup=False))
                app.post_message(BackgroundDone(asker, lambda: show_notice(sentence)))
            return
        if not worker.is_cancelled:
            app.post_message(BackgroundDone(asker, lambda: answer(found)))

    # Textual would end the app for an error of a worker; `on_worker_state_changed` shows it instead.
    asker.run_worker(run_question, group=group, exclusive=True, thread=True, exit_on_error=False)


class StoreChanged(Message):
    """Another process changed the store."""


class Trouble(Message):
    """There is a problem with the store, or ("") it is solved."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class JobChanged(Message):
    """A job printed something, or ended."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job


# Seconds between looks
_EVERY = 0.5


class Watch:
    """Calls `changed` after others' commits, and `trouble` once for each new problem ("": it is solved)."""

    def __init__(
        self, store: Queries, changed: Callable[[], object], trouble: Callable[[str], object]
    ) -> None:
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
        # SQLite goes on reading a deleted file without an error.
        if not (self._store.folder / INDEX).is_file():
            return (
                f"the index of the store {shown(self._store.folder, 120)} has vanished; what you see is what"
                " was read before"
            )
        try:
            # The first look only records where the store is.
            if self._store.changed() and not first:
                self._changed()
        except BadInput as error:
            return str(error)
        return ""
