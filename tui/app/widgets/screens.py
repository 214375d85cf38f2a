"""Base classes of screens and dialogs: they survive errors in their handlers, and ignore events while their
widgets are being removed; the line of keys, the line of pages, small dialogs, notices, and a view of lines.
"""

import re
from collections.abc import Sequence
from time import time
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.css.query import NoMatches
from textual.geometry import Size
from textual.message import Message
from textual.message_pump import MessagePump
from textual.notifications import Notification
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets._footer import FooterKey
from textual.widgets.option_list import Option

from opsieve.tui.app.widgets.visible import Line, escape_text, to_one_line


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
            # Messages still arrive while the widgets of a closed screen go one by one.
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
        # Textual recomposes later: the screen may be gone by then.
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
            # A narrow terminal has no room for every key, and this one leads to the others.
            for key in self.query(FooterKey):
                key.set_class(key.key == "question_mark", "-command-palette")


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
        """Return the name of the current page."""
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
        # These three are keys of the dialog.
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


_WORDS = re.compile(r"\s+|\S+")
TONES = ("dim", "strong", "good", "bad", "warn", "accent")


def wrap_line(line: Line, width: int) -> list[Line]:
    """Break a line at spaces into lines of at most `width` cells, indented to the text after a short first
    part.
    """
    if sum(cell_len(text) for text, _ in line) <= width:
        return [line]
    first = cell_len(line[0][0])
    # A long first part would leave no room for the text.
    hang = first if len(line) > 1 and first <= min(16, width // 2) else 2
    found: list[Line] = []
    current: list[tuple[str, str]] = []
    room = width
    for text, tone in line:
        for word in _WORDS.findall(text):
            rest = word
            while cell_len(rest) > room:
                if rest.isspace():
                    rest = ""
                elif cell_len(rest) > width - hang and room > 0:
                    # A wide character may not fit even into an empty line: it is taken nevertheless, or this
                    # would not end.
                    piece = set_cell_size(rest, room).rstrip() or rest[0] * (room == width - hang)
                    current.append((piece, tone))
                    rest = rest[len(piece) :]
                found.append(tuple(current))
                current, room = [(" " * hang, "")], width - hang
            if rest:
                current.append((rest, tone))
                room -= cell_len(rest)
    return [*found, tuple(current)]


class LinesView(ScrollView, can_focus=True):
    """Lines that scroll both ways; `follow` keeps the last one in sight."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines-view--{tone}" for tone in TONES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll_down", "Down", show=False),
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("right,l", "sideways(8)", "Right", show=False),
        Binding("left,h", "sideways(-8)", "Left", show=False),
        Binding("pagedown,ctrl+d", "page_down", "Page down", show=False),
        Binding("pageup,ctrl+u", "page_up", "Page up", show=False),
        Binding("home,g", "scroll_home", "First", show=False),
        Binding("end,G", "scroll_end", "Last", show=False),
    ]

    # Textual's name
    def __init__(
        self,
        *,
        follow: bool = False,
        wrap: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self.lines: tuple[Line, ...] = ()
        self._follow, self._wrap = follow, wrap
        # The lines as they are broken to the width of the view
        self._drawn: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        """The shown text."""
        return "\n".join("".join(text for text, _ in line) for line in self.lines)

    def show_lines(self, lines: Sequence[Line], *, keep: bool = False, wrap: bool | None = None) -> None:
        """Show these lines (printable text) from the first; with `keep` the scroll position stays."""
        self._wrap = self._wrap if wrap is None else wrap
        self.lines = tuple(lines)
        self._break_lines()
        if self._follow:
            self.scroll_end(animate=False)
        elif not keep:
            self.scroll_to(0, 0, animate=False)
        self.refresh()

    def _break_lines(self) -> None:
        # The bar may need a cell
        width = self.size.width - 1
        if self._wrap and width > 0:
            self._drawn = tuple(piece for line in self.lines for piece in wrap_line(line, width))
            self.virtual_size = Size(0, len(self._drawn))
            return
        self._drawn = self.lines
        longest = max((sum(cell_len(text) for text, _ in line) for line in self.lines), default=0)
        self.virtual_size = Size(longest, len(self.lines))

    def on_resize(self) -> None:
        """Break the lines again."""
        self._break_lines()
        self.refresh()

    def action_sideways(self, by: int) -> None:
        """Scroll sideways."""
        self.scroll_relative(x=by, animate=False)

    def render_line(self, y: int) -> Strip:
        """Render one line of the widget."""
        across, down = self.scroll_offset
        width = self.scrollable_content_region.width
        base = self.rich_style
        at = down + y
        if at >= len(self._drawn):
            return Strip.blank(width, base)
        parts = [
            Segment(text, base + self.get_component_rich_style(f"lines-view--{tone}") if tone else base)
            for text, tone in self._drawn[at]
        ]
        return Strip(parts).crop_extend(across, across + width, base)
