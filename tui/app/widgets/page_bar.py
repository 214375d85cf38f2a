"""A line of pages to choose from by number, bracket keys or mouse."""

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from opsieve.tui.app.widgets.steady_screen import SteadyScreen


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
