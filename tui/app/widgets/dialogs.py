"""Small questions: choose one of a few, write a line, agree."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from opsieve.tui.app.widgets.steady_screen import SteadyDialog
from opsieve.tui.app.widgets.visible import visible


class ChoiceDialog(SteadyDialog[str | None]):
    """Choose one of a few by its first letter, the cursor or the mouse; None when nothing was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Cancel"),
        Binding("j", "down", "Down", show=False),
        Binding("k", "up", "Up", show=False),
    ]

    def __init__(self, question: str, options: Sequence[tuple[str, str]], current: str = "") -> None:
        """`options` are (answer, what to show)."""
        super().__init__()
        self._question, self._options, self._current = question, tuple(options), current

    def compose(self) -> ComposeResult:
        """The question over its answers."""
        with Vertical(classes="dialog"):
            yield Static(visible(self._question), classes="question", markup=False)
            yield OptionList(
                *(Option(visible(text), answer) for answer, text in self._options), markup=False, compact=True
            )
            yield Static("enter choose · first letter jumps · esc cancel", classes="hint", markup=False)

    def on_mount(self) -> None:
        """The cursor begins on what holds now."""
        asked = self.query_one(OptionList)
        answers = [answer for answer, _ in self._options]
        asked.highlighted = answers.index(self._current) if self._current in answers else 0
        asked.focus()

    def action_down(self) -> None:
        """The next answer."""
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        """The answer before."""
        self.query_one(OptionList).action_cursor_up()

    def key_handled(self, letter: str) -> bool:
        """Choose the answer that begins with a letter, when one alone does."""
        found = [answer for answer, text in self._options if text[:1].lower() == letter]
        if len(found) == 1:
            self.dismiss(found[0])
        return len(found) == 1

    def on_key(self, event: object) -> None:
        """First letters choose."""
        letter = getattr(event, "character", None)
        if letter and letter not in "jkq" and self.key_handled(letter.lower()):
            event.stop()  # type: ignore[attr-defined]

    @on(OptionList.OptionSelected)
    def chosen(self, event: OptionList.OptionSelected) -> None:
        """An answer was given."""
        self.dismiss(event.option.id)


class LineDialog(SteadyDialog[str | None]):
    """Write one line; None when it was left, "" is an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, question: str, text: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._text, self._hint = question, text, hint

    def compose(self) -> ComposeResult:
        """The question over an input."""
        with Vertical(classes="dialog"):
            yield Static(visible(self._question), classes="question", markup=False)
            yield Input(self._text, placeholder=self._hint, compact=True)
            yield Static("enter keep · esc cancel", classes="hint", markup=False)

    @on(Input.Submitted)
    def written(self, event: Input.Submitted) -> None:
        """The line is finished."""
        self.dismiss(event.value.strip())


class ConfirmDialog(SteadyDialog[bool]):
    """A yes or a no to what cannot be taken back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes"),
        Binding("n,escape,q", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question."""
        with Vertical(classes="dialog"):
            yield Static(visible(self._question), classes="question", markup=False)
            yield Static("y yes · n no", classes="hint", markup=False)
