"""What screens ask of the app that they are on, so that they need not import it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from textual.screen import Screen
from textual.widget import Widget

if TYPE_CHECKING:
    from opsieve.triage.store.decisions import Ledger
    from opsieve.triage.store.queries import Queries
    from opsieve.triage.store.rows import ClusterRow, Decision
    from opsieve.tui.app.services.job_board import Job, JobBoard, Kind


@dataclass(frozen=True, slots=True)
class ActionSubject:
    """What an action is applied to: a cluster, those marked beside it, and a member ("": the
    representative).
    """

    cluster: "ClusterRow"
    marked: tuple[str, ...] = ()
    member: str = ""

    @property
    def name(self) -> str:
        """What commands that take a case or a cluster are called with."""
        return self.member or self.cluster.id


@runtime_checkable
class HasSubject(Protocol):
    """A screen with something to act on."""

    @property
    def subject(self) -> ActionSubject | None:
        """What the keys act on now."""


class TriageApp(Protocol):
    """The app, to its screens."""

    folder: Path
    board: "JobBoard"
    revision: int
    offline: bool

    @property
    def store(self) -> "Queries":
        """The store, to look at."""

    @property
    def title_of_store(self) -> str:
        """What to call the store on the screen."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen on top."""

    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object:
        """Show a screen; `callback` gets what it is dismissed with."""

    def copy_to_clipboard(self, text: str) -> None:
        """Send text to the clipboard of the terminal (OSC 52)."""

    def suspend(self) -> AbstractContextManager[None]:
        """The terminal for another program, as long as the block lasts."""

    def forget_marks(self) -> None:
        """The selected rows have become one."""

    def now(self) -> float:
        """Seconds since 1970."""

    def show_notice(self, sentence: str, severity: str = "information") -> None:
        """A notice."""

    def decide(self, *decisions: "Callable[[Ledger], Decision]") -> None:
        """Make decisions, in a thread, one after the other."""

    def run_job(
        self, kind: "Kind", subject: str, *commands: tuple[str, ...], watched: Path | None = None
    ) -> "Job":
        """Begin a job and tell so."""


def app_of(widget: Widget) -> TriageApp:
    """The app that a widget is on."""
    return cast(TriageApp, widget.app)
