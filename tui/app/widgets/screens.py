"""Base classes of screens and dialogs: they survive errors in their handlers, and ignore events while their
widgets are being removed; the line of keys, the line of pages, small dialogs, and notices.
"""

from collections.abc import Sequence
from time import time
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.css.query import NoMatches
from textual.message import Message
from textual.message_pump import MessagePump
from textual.notifications import Notification
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from opsieve.tui.app.widgets.visible import escape_text, to_one_line


class _SteadyPump(MessagePump):
    """A message pump that survives errors: Textual would end the screen's loop, and the screen would take no
    more keys.
    """

    # Of DOMNode: its widgets are being taken away, so that some are gone already
    _pruning: bool

    async def _dispatch_message(self, message: Message) -> None:
        """Dispatch as Textual does, but show an error and continue."""
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001
            # Whatever a handler or an action stumbles over
            leaving = self._pruning or self._closing or self._closed
            if not (leaving and isinstance(error, NoMatches)):
                self.app._handle_exception(error)


class SteadyScreen(_SteadyPump, Screen[ScreenResultType]):
    """A screen that survives its errors. It may have a line `#figures`."""

    def show_problem(self, sentence: str) -> None:
        """Show a problem on the line of figures."""
        line = self.query_one("#figures", Static)
        line.add_class("problem")
        line.update(to_one_line(sentence))


class SteadyDialog(_SteadyPump, ModalScreen[ScreenResultType]):
    """A dialog that ends once: with Textual's own, a second key would end the screen beneath."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """End with a result, unless it has ended before."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


class KeyFooter(Footer):
    """Textual's footer, rebuilt only if its keys change.

    A screen announces changed keys whenever the focus moves or data arrives, mostly without a real change,
    and a footer is a dozen widgets.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._drawn: list[tuple[object, ...]] = []

    async def recompose(self) -> None:
        """Show the current keys of the screen, unless the screen has been left."""
        if not self.is_attached:
            return
        now: list[tuple[object, ...]] = [
            (active.binding, active.enabled, active.tooltip)
            for active in self.screen.active_bindings.values()
            if active.binding.show
        ]
        if now != self._drawn:
            self._drawn = now
            await super().recompose()


class PageBar(Static):
    """A row of page names, one of them current."""

    current: reactive[int] = reactive(0)

    class Picked(Message):
        """Another page was chosen."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    # Textual's name
    def __init__(self, pages: Sequence[str], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.pages = tuple(pages)

    @property
    def page_name(self) -> str:
        """The name of the current page."""
        return self.pages[self.current]

    def validate_current(self, at: int) -> int:
        """Wrap around at both ends."""
        return at % len(self.pages)

    def watch_current(self) -> None:
        """Post the change and redraw."""
        self.post_message(self.Picked(self.page_name))
        self.refresh()

    def render(self) -> Content:
        """Render the pages on one line, the current one reversed."""
        parts: list[Content | str | tuple[str, str]] = []
        for at, name in enumerate(self.pages):
            parts.append((f" {at + 1} {name}", "reverse bold" if at == self.current else ""))
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        """Choose the page under the mouse."""
        begin = 0
        for at, name in enumerate(self.pages):
            end = begin + len(name) + 3
            if begin <= event.x < end:
                self.current = at
            begin = end


class PagedScreen(SteadyScreen[None]):
    """A screen with a PageBar, whose keys choose a page."""

    def action_page(self, at: int) -> None:
        """Show a page."""
        self.query_one(PageBar).current = at

    def action_turn(self, by: int) -> None:
        """Show the next page, or the previous one."""
        self.query_one(PageBar).current += by


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


# Seconds
_SHORTEST = 0.05


class Notice(Notification):
    """A notification with a positive remaining time: Textual hangs on a timer of a negative one."""

    @property
    def time_left(self) -> float:
        """The remaining seconds, more than 0."""
        return max(_SHORTEST, self.raised_at + self.timeout - time())

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self.raised_at + self.timeout <= time()
