"""What screens ask of the app that they are on, so that they need not import it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from textual.widget import Widget

if TYPE_CHECKING:
    from opsieve.triage.store.decision_log import Decision
    from opsieve.triage.store.decisions import Ledger
    from opsieve.triage.store.queries import Queries
    from opsieve.tui.app.services.job_board import Job, JobBoard


class Sieve(Protocol):
    """The app, to its screens."""

    folder: Path
    store: "Queries"
    board: "JobBoard"
    revision: int
    offline: bool
    title_of_store: str

    def now(self) -> float:
        """Seconds since 1970."""

    def tell(self, sentence: str, severity: str = "information") -> None:
        """A notice."""

    def decide(self, *decisions: "Callable[[Ledger], Decision]") -> None:
        """Make decisions, in a thread, one after the other."""

    def run_job(self, title: str, *commands: tuple[str, ...], watched: Path | None = None) -> "Job":
        """Begin a job and tell so."""


def sieve(widget: Widget) -> Sieve:
    """The app that a widget is on."""
    return cast(Sieve, widget.app)
