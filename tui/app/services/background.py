"""Run blocking queries off the interface thread; the result comes back as a message, an error as one
sentence.
"""

from collections.abc import Callable
from typing import TypeVar

from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from opsieve.gen.errors import BadInput

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
        if worker.is_cancelled:
            return
        try:
            found = question()
        except (BadInput, OSError) as error:
            sentence = str(error)
            if not worker.is_cancelled:
                show_notice = refused or (lambda text: app.notify(text, severity="error", markup=False))
                app.post_message(BackgroundDone(asker, lambda: show_notice(sentence)))
            return
        if not worker.is_cancelled:
            app.post_message(BackgroundDone(asker, lambda: answer(found)))

    asker.run_worker(run_question, group=group, exclusive=True, thread=True, exit_on_error=False)
