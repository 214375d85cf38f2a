"""The interface of the app for its screens, so that they need not import it."""

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
    """The subject of an action: a cluster, the marked ones beside it, and a member ("": the
    representative).
    """

    cluster: "ClusterRow"
    marked: tuple[str, ...] = ()
    member: str = ""

    @property
    def name(self) -> str:
        """The name for commands that take a case or a cluster."""
        return self.member or self.cluster.id


@runtime_checkable
class HasSubject(Protocol):
    """A screen with something to act on."""

    @property
    def subject(self) -> ActionSubject | None:
        """The current subject of the keys."""


class TriageApp(Protocol):
    """The app as its screens see it."""

    folder: Path
    board: "JobBoard"
    # Rises with each change of the store, so that a hidden screen knows whether to reload.
    revision: int
    offline: bool

    @property
    def store(self) -> "Queries":
        """The open store, for reading."""

    @property
    def store_title(self) -> str:
        """The title of the store on the screen."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen on top."""

    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object:
        """Show a screen; `callback` gets the value with which it is dismissed."""

    def copy_to_clipboard(self, text: str) -> None:
        """Send text to the clipboard of the terminal (OSC 52)."""

    def suspend(self) -> AbstractContextManager[None]:
        """Give the terminal to another program as long as the block lasts."""

    def forget_marks(self) -> None:
        """Clear the marks after the selected rows were merged."""

    def now(self) -> float:
        """Return seconds since 1970."""

    def show_notice(self, sentence: str, severity: str = "information") -> None:
        """Show a notice."""

    def decide(self, *decisions: "Callable[[Ledger], Decision]") -> None:
        """Make decisions in a thread, one after the other."""

    def run_job(
        self, kind: "Kind", subject: str, *commands: tuple[str, ...], watched: Path | None = None
    ) -> "Job":
        """Start a job and announce it."""


def get_app(widget: Widget) -> TriageApp:
    """Return the app of a widget."""
    return cast(TriageApp, widget.app)
