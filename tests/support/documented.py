"""Commands as README.md and the tutorial show them, with what they print: ```console blocks of `$ command`
and its output.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(<!-- needs the network -->\n)?```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL
)


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
        output = outputs.get(found["command"], found["output"])
        return f"{found[1] or ''}```console\n$ {found['command']}\n{output}```"

    page.write_text(_BLOCK.sub(block, page.read_text()))


def comparable(text: str) -> str:
    """Text without seconds and versions of Python, numpy and onnx, and with long numbers cut to three digits,
    in which machines differ.
    """
    text = re.sub(r"\b\d+\.\d+ s\b", "N s", text)
    text = re.sub(r"\b(numpy|onnx|Python) [\d.]+", r"\1 N", text)
    return re.sub(r"(\d\.\d\d)\d{3,}", r"\1", text).strip()
