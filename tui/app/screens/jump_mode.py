"""Jump mode: a letter on everything that can have the focus; pressing it moves the focus there."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from opsieve.tui.app.widgets.page_bar import PageBar
from opsieve.tui.app.widgets.steady_screen import SteadyDialog

LETTERS = "asdfghjkl"


class JumpMode(SteadyDialog[None]):
    """Labels over the screen beneath."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,ctrl+o", "dismiss", "Stay")]

    def __init__(self, beneath: Screen[object]) -> None:
        super().__init__()
        places = [
            widget for widget in beneath.focus_chain if widget.region and not isinstance(widget, PageBar)
        ]
        self._goals: dict[str, tuple[Widget, int]] = dict(
            zip(LETTERS, ((widget, -1) for widget in places), strict=False)
        )
        self._bar = next(iter(beneath.query(PageBar)), None)
        if self._bar is not None:
            self._goals |= {str(at + 1): (self._bar, at) for at in range(len(self._bar.pages))}

    def compose(self) -> ComposeResult:
        """Make a label at the place of each widget."""
        for letter, (widget, at) in self._goals.items():
            if at < 0:
                label = Static(letter, classes="jump", markup=False)
                label.styles.offset = (widget.region.x, widget.region.y)
                yield label
        yield Static(
            "press a letter to go there, a number for a page · esc stays", classes="jump-hint", markup=False
        )

    def on_key(self, event: events.Key) -> None:
        """Move the focus to the widget of the letter."""
        goal = self._goals.get(event.character or "")
        if goal is None:
            return
        event.stop()
        widget, at = goal
        self.dismiss()
        if at >= 0 and isinstance(widget, PageBar):
            widget.current = at
        else:
            widget.focus()
