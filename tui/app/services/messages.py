"""Messages from threads to the app, since threads must not touch widgets."""

from textual.message import Message

from opsieve.tui.app.services.job_board import Job


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
