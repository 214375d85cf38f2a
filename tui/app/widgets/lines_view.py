"""A text view with tones that draws only the visible lines, however many there are."""

import re
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from opsieve.tui.app.widgets.visible import Line

_WORDS = re.compile(r"\s+|\S+")
TONES = ("dim", "strong", "good", "bad", "warn", "accent")


def wrap_line(line: Line, width: int) -> list[Line]:
    """Break a line at spaces into lines of at most `width` cells, indented to the text after a short first
    part.
    """
    if sum(cell_len(text) for text, _ in line) <= width:
        return [line]
    first = cell_len(line[0][0])
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
    def __init__(self, *, follow: bool = False, wrap: bool = False, id: str | None = None) -> None:  # noqa: A002
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
