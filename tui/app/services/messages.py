"""What threads tell the app: messages, since no thread may touch a widget."""

from textual.message import Message

from opsieve.tui.app.services.job_board import Job


class StoreChanged(Message):
    """Somebody wrote to the store."""


class Trouble(Message):
    """Something is wrong with the store, or ("") no longer."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class JobChanged(Message):
    """A job said something, or ended."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
