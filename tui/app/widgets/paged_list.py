"""A list of any length that draws only the visible rows, and requests more near the end of the loaded
ones.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

# Cells that the flexible column keeps before columns that are a luxury are left out
_ROOMY = 56
# Columns that are more spare are a luxury
_PLAIN = 5
# The distance from the last loaded row at which more rows are requested.
_NEAR = 50


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its width in cells (0: the rest), its alignment, and its order of removal on narrow screens
    (0: never).
    """

    title: str
    width: int = 0
    right: bool = False
    spare: int = 0
    # Cells that it keeps, if it is flexible, before others are left out
    least: int = 36


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its key, a cell for each column (printable text), its tone, and the tones of single
    cells by column."""

    key: str
    cells: tuple[str, ...]
    tone: str = ""
    tones: Mapping[int, str] = field(default_factory=dict)


def fit_columns(
    columns: Sequence[Column], width: int, chosen: Mapping[str, bool] | None = None
) -> list[tuple[int, int]]:
    """Choose the columns that fit into `width` cells, as (index, cells), separated by spaces; the most spare
    go first. `chosen` says of a title that the user shows or hides it; only the flexible column always stays.
    """
    choice = chosen or {}
    kept = [at for at, column in enumerate(columns) if choice.get(column.title, True) or not column.width]
    # A column that the user wants stays, at the expense of the flexible one.
    spare = [0 if choice.get(column.title) else column.spare for column in columns]

    def sum_fixed() -> int:
        return sum(columns[at].width for at in kept) + len(kept) - 1

    # Fewer on narrow screens, so that 40 columns show the compiler and 50 the kind, too.
    least = next((min(column.least, max(13, width - 34)) for column in columns if not column.width), 0)
    while last := max(spare[at] for at in kept):
        if sum_fixed() + (_ROOMY if last > _PLAIN else least) <= width:
            break
        kept.remove(max(kept, key=lambda at: (spare[at], at)))
    left = max(1, width - sum_fixed())
    return [(at, columns[at].width or left) for at in kept]


class PagedList(ScrollView, can_focus=True):
    """Rows under a header, with a cursor and marks. Its owner loads the rows (`show_rows`, `extend_rows`) and
    handles `More`.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "paged-list--head", "paged-list--cursor", "paged-list--blurred", "paged-list--marked",
        "paged-list--strong", "paged-list--dim", "paged-list--good", "paged-list--bad", "paged-list--warn",
        "paged-list--accent", "paged-list--match",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "Page down", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "Page up", show=False),
        Binding("home,g", "top", "First", show=False),
        Binding("end,G", "bottom", "Last", show=False),
        Binding("enter,l", "choose", "Open", show=False),
        Binding("space", "mark", "Select", show=False),
    ]

    cursor: reactive[int] = reactive(0)

    class Highlighted(Message):
        """The cursor moved to another row; `row` is None in an empty list."""

        def __init__(self, of: "PagedList", row: Row | None) -> None:
            super().__init__()
            self.list, self.row = of, row

        @property
        def control(self) -> "PagedList":
            """The list, for `@on`."""
            return self.list

    class Chosen(Message):
        """A row was opened."""

        def __init__(self, of: "PagedList", row: Row) -> None:
            super().__init__()
            self.list, self.row = of, row

        @property
        def control(self) -> "PagedList":
            """The list, for `@on`."""
            return self.list

    class More(Message):
        """The end of the loaded rows is near, or (`far`) the user jumped to it."""

        def __init__(self, of: "PagedList", far: bool) -> None:
            super().__init__()
            self.list, self.far = of, far

        @property
        def control(self) -> "PagedList":
            """The list, for `@on`."""
            return self.list

    class Marked(Message):
        """The marks changed."""

    class HeadChosen(Message):
        """The title of a column was clicked."""

        def __init__(self, title: str) -> None:
            super().__init__()
            self.title = title

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "nothing here",
        # Textual's name
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.rows: list[Row] = []
        self.complete = True
        # keys, in the order in which they were marked
        self.marked: dict[str, None] = {}
        self.empty = empty
        # Columns that the user shows (True) or hides; and words that are highlighted
        self.chosen: dict[str, bool] = {}
        self.words: tuple[str, ...] = ()
        # Whether more rows are on their way; asking twice would append them twice.
        self._requested = False

    # -- what it shows

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def show_rows(self, rows: Sequence[Row], *, complete: bool, keep: bool = False) -> None:
        """Show these rows; with `keep` the cursor stays on its row if possible, else it goes to the first."""
        before, old = self.row, self.cursor
        self.rows = list(rows)
        self.complete, self._requested = complete, False
        at = 0
        if keep and before is not None:
            at = next(
                (n for n, row in enumerate(self.rows) if row.key == before.key),
                min(old, max(0, len(self.rows) - 1)),
            )
        self._update_size()
        # A reactive that keeps its value calls no watcher, though the row may be another one.
        if at == self.cursor:
            self._post_highlighted()
        self.cursor = at
        if not keep:
            self.scroll_to(y=0, animate=False)
        self.refresh()

    def extend_rows(self, rows: Sequence[Row], *, complete: bool) -> None:
        """Append rows."""
        was_empty = not self.rows
        self.rows += rows
        self.complete, self._requested = complete, False
        self._update_size()
        if was_empty:
            self._post_highlighted()
        self.refresh()

    def clear_marks(self) -> None:
        """Remove all marks."""
        self.marked.clear()
        self.post_message(self.Marked())
        self.refresh()

    def _update_size(self) -> None:
        # One more for the header.
        self.virtual_size = Size(0, len(self.rows) + 1)

    def _post_highlighted(self) -> None:
        self.post_message(self.Highlighted(self, self.row))

    # -- moving

    def validate_cursor(self, at: int) -> int:
        """Keep the cursor on the rows."""
        return max(0, min(at, len(self.rows) - 1))

    def watch_cursor(self, before: int, at: int) -> None:
        """Keep the cursor visible."""
        inner = max(1, self.scrollable_content_region.height - 1)
        top = int(self.scroll_offset.y)
        if at < top:
            self.scroll_to(y=at, animate=False)
        elif at >= top + inner:
            self.scroll_to(y=at - inner + 1, animate=False)
        self._post_highlighted()
        self._request_more()
        self.refresh()

    def _request_more(self) -> None:
        shown = int(self.scroll_offset.y) + self.size.height
        if not self.complete and not self._requested and max(self.cursor, shown) >= len(self.rows) - _NEAR:
            self._requested = True
            self.post_message(self.More(self, False))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Request more rows when the wheel or the bar scrolls, too."""
        super().watch_scroll_y(old_value, new_value)
        self._request_more()

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.cursor += by

    def action_page(self, by: int) -> None:
        """Move the cursor by a page."""
        self.cursor += by * max(1, self.size.height - 2)

    def action_top(self) -> None:
        """Move to the first row."""
        self.cursor = 0

    def action_bottom(self) -> None:
        """Move to the last loaded row, and request the rest."""
        self.cursor = len(self.rows) - 1
        if not self.complete:
            self.post_message(self.More(self, True))

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.row is not None:
            self.post_message(self.Chosen(self, self.row))

    def action_mark(self) -> None:
        """Toggle the mark of the row under the cursor, and move to the next row."""
        if self.row is None:
            return
        if self.row.key in self.marked:
            del self.marked[self.row.key]
        else:
            self.marked[self.row.key] = None
        self.post_message(self.Marked())
        self.cursor += 1
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor, or open the row on a second click."""
        if event.y == 0:
            # The cursor and the mark take two cells.
            left = 2
            for column, room in self.fitting:
                if left <= event.x < left + room:
                    self.post_message(self.HeadChosen(self.columns[column].title))
                left += room + 1
        at = event.y - 1 + int(self.scroll_offset.y)
        if event.y > 0 and 0 <= at < len(self.rows):
            # The second click of a double click, on the same row.
            again = at == self.cursor and event.chain > 1
            self.cursor = at
            if again:
                self.action_choose()

    # -- drawing

    def on_resize(self) -> None:
        """Adjust the flexible column."""
        self._update_size()

    def on_focus(self) -> None:
        """Redraw the cursor, whose colour shows the focus."""
        self.refresh()

    on_blur = on_focus

    def render_line(self, y: int) -> Strip:
        """Render the header or a row."""
        width = self.scrollable_content_region.width
        base = self.rich_style
        if y == 0:
            style = base + self.get_component_rich_style("paged-list--head")
            head = Row("", tuple(column.title for column in self.columns))
            return Strip([Segment("  ", style), *self._draw_cells(head, style)]).adjust_cell_length(
                width, style
            )
        at = int(self.scroll_offset.y) + y - 1
        if at >= len(self.rows):
            words = self.empty if not self.rows and y == 2 else ""
            return Strip([Segment(f"  {words}", base)]).adjust_cell_length(width, base)
        row = self.rows[at]
        style = base
        if row.tone:
            style += self.get_component_rich_style(f"paged-list--{row.tone}")
        marked = row.key in self.marked
        if marked:
            style += self.get_component_rich_style("paged-list--marked")
        if at == self.cursor:
            name = "paged-list--cursor" if self.has_focus else "paged-list--blurred"
            style = base + self.get_component_rich_style(name)
        sign = ("›" if at == self.cursor else " ") + ("●" if marked else " ")
        cells = self._draw_cells(row, style, plain=marked or at == self.cursor)
        return Strip([Segment(sign, style), *cells]).adjust_cell_length(width, style)

    @property
    def fitting(self) -> list[tuple[int, int]]:
        """The columns that are shown, as (index, cells)."""
        # The cursor and the mark take two cells.
        return fit_columns(self.columns, self.scrollable_content_region.width - 2, self.chosen)

    def _draw_cells(self, row: Row, style: Style, plain: bool = True) -> Iterator[Segment]:
        """Draw the cells of a row; unless `plain`, with their own tones."""
        # Not in the header, whose key is empty.
        words = [re.escape(word) for word in self.words if row.key]
        match = re.compile(f"({'|'.join(words)})", re.IGNORECASE) if words else None
        found = style + self.get_component_rich_style("paged-list--match")
        for at, room in self.fitting:
            text = row.cells[at]
            # In cells, since wide characters take two.
            if cell_len(text) > room:
                text = set_cell_size(text, max(0, room - 1)) + "…"
            pad = " " * (room - cell_len(text))
            text = pad + text if self.columns[at].right else text + pad
            tone = "" if plain else row.tones.get(at, "")
            own = style + self.get_component_rich_style(f"paged-list--{tone}") if tone else style
            # Splitting at a group gives the matches at odd places.
            for number, part in enumerate(match.split(text) if match else [text]):
                yield Segment(part, found if number % 2 else own)
            yield Segment(" ", style)
