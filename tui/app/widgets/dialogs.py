"""Small dialogs: choose an option, write a line, confirm."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from opsieve.tui.app.widgets.steady_screen import SteadyDialog
from opsieve.tui.app.widgets.visible import escape_text


class ChoiceDialog(SteadyDialog[str | None]):
    """Choose an option by its first letter, the cursor or the mouse; None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Cancel"),
        Binding("j", "down", "Down", show=False),
        Binding("k", "up", "Up", show=False),
    ]

    def __init__(self, question: str, options: Sequence[tuple[str, str]], current: str = "") -> None:
        """`options` are pairs of an answer and its text."""
        super().__init__()
        self._question, self._options, self._current = question, tuple(options), current

    def compose(self) -> ComposeResult:
        """Make the question and its answers."""
        with Vertical(classes="dialog"):
            yield Static(escape_text(self._question), classes="question", markup=False)
            yield OptionList(
                *(Option(escape_text(text), answer) for answer, text in self._options),
                markup=False,
                compact=True,
            )
            yield Static("enter choose · first letter jumps · esc cancel", classes="hint", markup=False)

    def on_mount(self) -> None:
        """Put the cursor on the current value."""
        asked = self.query_one(OptionList)
        answers = [answer for answer, _ in self._options]
        asked.highlighted = answers.index(self._current) if self._current in answers else 0
        asked.focus()

    def action_down(self) -> None:
        """Move to the next answer."""
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        """Move to the previous answer."""
        self.query_one(OptionList).action_cursor_up()

    def handle_letter(self, letter: str) -> bool:
        """Choose the only answer that begins with a letter; False if there are several or none at all."""
        found = [answer for answer, text in self._options if text[:1].lower() == letter]
        if len(found) == 1:
            self.dismiss(found[0])
        return len(found) == 1

    def on_key(self, event: object) -> None:
        """Choose by first letter."""
        letter = getattr(event, "character", None)
        if letter and letter not in "jkq" and self.handle_letter(letter.lower()):
            event.stop()  # type: ignore[attr-defined]

    @on(OptionList.OptionSelected)
    def dismiss_chosen(self, event: OptionList.OptionSelected) -> None:
        """Dismiss with the selected answer."""
        self.dismiss(event.option.id)


class LineDialog(SteadyDialog[str | None]):
    """Write one line; None if cancelled, "" is an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, question: str, text: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._text, self._hint = question, text, hint

    def compose(self) -> ComposeResult:
        """Make the question and an input."""
        with Vertical(classes="dialog"):
            yield Static(escape_text(self._question), classes="question", markup=False)
            yield Input(self._text, placeholder=self._hint, compact=True)
            yield Static("enter keep · esc cancel", classes="hint", markup=False)

    @on(Input.Submitted)
    def dismiss_line(self, event: Input.Submitted) -> None:
        """Dismiss with the line."""
        self.dismiss(event.value.strip())


class ConfirmDialog(SteadyDialog[bool]):
    """Confirm an action that cannot be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes"),
        Binding("n,escape,q", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Make the question."""
        with Vertical(classes="dialog"):
            yield Static(escape_text(self._question), classes="question", markup=False)
            yield Static("y yes · n no", classes="hint", markup=False)
