"""A public report as somebody saved it, Markdown or HTML: its prose, and its blocks of code.

What it says is hostile: nothing in it is run, sizes are bounded, every expression here is linear. HTML is
read by the standard library.
"""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from opsieve.gen.model.files import read_file

_MOST_BYTES = 16 << 20
_MOST_CHARACTERS = 400_000
_MOST_BLOCKS = 200
_FENCE = re.compile(r"^[ >]{0,8}(?:```|~~~)")
_HTML = re.compile(r"<(?:!doctype|html|body|div|p|pre)\b", re.IGNORECASE)
_SILENT = {"script", "style", "head", "svg", "template", "nav"}
_BREAKS = {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "table", "blockquote"}


@dataclass(frozen=True, slots=True)
class ReportText:
    """`prose` is all text with its line ends, code included; `blocks` are the blocks of code, in order."""

    prose: str
    blocks: tuple[str, ...]


def read_report(path: Path) -> ReportText:
    """The report in a file; BadInput for no regular file, or one of more than 16 MiB."""
    return report_of(read_file(path, _MOST_BYTES).decode("utf-8", "replace"))


def report_of(text: str) -> ReportText:
    """The report in a text: HTML where it begins as such, else Markdown."""
    if _HTML.search(text[:4096]):
        page = _Page()
        page.feed(text)
        page.close()
        text = "".join(page.prose)
        return ReportText(text[:_MOST_CHARACTERS], tuple(page.blocks[:_MOST_BLOCKS]))
    text = text[:_MOST_CHARACTERS]
    return ReportText(text, tuple(_fenced(text)[:_MOST_BLOCKS]))


def _fenced(text: str) -> list[str]:
    blocks: list[str] = []
    held: list[str] | None = None
    for line in text.splitlines():
        if _FENCE.match(line):
            if held is not None:
                blocks.append("\n".join(held))
            held = [] if held is None else None
        elif held is not None:
            held.append(line)
    if held:  # a fence that is never closed
        blocks.append("\n".join(held))
    return blocks


class _Page(HTMLParser):
    """The text of a page, and what stands in its `pre` elements."""

    def __init__(self) -> None:
        super().__init__()
        self.prose: list[str] = []
        self.blocks: list[str] = []
        self._silent: list[str] = []
        self._code: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        if tag in _BREAKS:
            self._add("\n")
        if tag == "pre" and self._code is None:
            self._code = []

    def handle_endtag(self, tag: str) -> None:
        if self._silent and tag == self._silent[-1]:
            self._silent.pop()
        if tag == "pre" and self._code is not None:
            self.blocks.append("".join(self._code).strip("\n"))
            self._code = None
        if tag in _BREAKS:
            self._add("\n")

    def handle_data(self, data: str) -> None:
        self._add(data)

    def _add(self, text: str) -> None:
        if self._silent:
            return
        self.prose.append(text)
        if self._code is not None:
            self._code.append(text)
