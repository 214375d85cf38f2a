"""Questions that block, asked off the interface thread: the answer comes back as a message, a refusal as one
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
    """What a thread found; the app delivers it to whoever asked, if that is still there."""

    def __init__(self, asker: Widget, deliver: Callable[[], None]) -> None:
        super().__init__()
        self.asker = asker
        self.deliver = deliver


def in_background(
    asker: Widget,
    group: str,
    question: Callable[[], T],
    answer: Callable[[T], None],
    refused: Callable[[str], None] | None = None,
) -> None:
    """Ask in a thread; `answer` or `refused` is called in the interface thread. A newer question of the group
    cancels this one.

    A refusal is the sentence of a BadInput or an OSError; without `refused` it is shown as a notice.
    """
    app = asker.app

    def run() -> None:
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

    asker.run_worker(run, group=group, exclusive=True, thread=True, exit_on_error=False)
