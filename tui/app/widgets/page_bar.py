"""A line of pages to choose from, by number, by bracket keys or by the mouse."""

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static


class PageBar(Static):
    """Pages of which one is shown."""

    current: reactive[int] = reactive(0)

    class Picked(Message):
        """Another page is to be shown."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, pages: Sequence[str], *, id: str | None = None) -> None:  # noqa: A002  Textual's name
        super().__init__(id=id)
        self.pages = tuple(pages)

    @property
    def name_of_page(self) -> str:
        """The page that is shown."""
        return self.pages[self.current]

    def validate_current(self, at: int) -> int:
        """Behind the last comes the first."""
        return at % len(self.pages)

    def watch_current(self) -> None:
        """Tell, and draw anew."""
        self.post_message(self.Picked(self.name_of_page))
        self.refresh()

    def render(self) -> Content:
        """The pages on one line, the current one reversed."""
        parts: list[Content | str | tuple[str, str]] = []
        for at, name in enumerate(self.pages):
            parts.append((f" {at + 1} {name} ", "reverse bold" if at == self.current else ""))
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        """Choose the page under the mouse."""
        begin = 0
        for at, name in enumerate(self.pages):
            end = begin + len(name) + 4
            if begin <= event.x < end:
                self.current = at
            begin = end
