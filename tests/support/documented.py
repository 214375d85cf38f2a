"""Commands as README.md and the tutorial show them, with what they print: ```console blocks of `$ command`
and its output.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(<!-- needs the network -->\n)?```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL
)


_WIDTH = 136


@dataclass(frozen=True)
class Shown:
    """A command and what it prints on stdout; `network`: it installs releases."""

    command: str
    output: str
    network: bool


def shown_in(page: Path) -> list[Shown]:
    """The commands of a page, in order."""
    return [Shown(m["command"], m["output"], bool(m[1])) for m in _BLOCK.finditer(page.read_text())]


def rewrite(page: Path, outputs: dict[str, str]) -> None:
    """Put what commands print now into a page."""

    def block(found: "re.Match[str]") -> str:
        output = _wrap(outputs[found["command"]]) if found["command"] in outputs else found["output"]
        return f"{found[1] or ''}```console\n$ {found['command']}\n{output}```"

    page.write_text(_BLOCK.sub(block, page.read_text()))


def _wrap(output: str) -> str:
    """Wrap the long lines of an output; the rest of a line is indented by four spaces."""
    lines = [
        textwrap.wrap(line, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        if len(line) > _WIDTH
        else [line]
        for line in output.splitlines()
    ]
    return "".join(f"{part}\n" for parts in lines for part in parts)


def comparable(text: str) -> str:
    """Join the wrapped lines of a page, drop seconds and versions, and cut long numbers to three digits, in
    which machines differ.
    """
    text = re.sub(r"(?m)(?<=.{100})\n    (?=\S)", " ", text)
    text = re.sub(r"\b\d+\.\d+ s\b", "N s", text)
    text = re.sub(r"\b(numpy|onnx|Python) [\d.]+", r"\1 N", text)
    return re.sub(r"(\d\.\d\d)\d{3,}", r"\1", text).strip()
