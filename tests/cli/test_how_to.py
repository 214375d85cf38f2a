"""The commands that the pages of docs/how-to and docs/reference show: each is one that there is, with options
that it has.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from repository import ROOT

from opsieve.tui.cli import SETTINGS, opsieve

PAGES = [
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
_SHOWN = re.compile(r"^(?:    )?(?:\$ )?opsieve (?P<words>[a-z].*)$", re.MULTILINE)


def shown(page: Path) -> Iterator[str]:
    """What follows `opsieve` on the lines of a page that are commands: indented, after a prompt, or in a
    block.
    """
    blocks = re.findall(
        r"```(?:console|sh|bash)?\n(.*?)```|((?:^    [^\n]*\n)+)", page.read_text(), re.DOTALL | re.MULTILINE
    )
    for text in ("".join(block) for block in blocks):
        for found in _SHOWN.finditer(text):
            yield re.split(r"\s+#|\s+\|\s|\[", found["words"])[0].strip().removesuffix("\\")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_pages_have_the_options_that_they_are_given(page: Path) -> None:
    wrong, context = [], click.Context(opsieve, **SETTINGS)
    for command in shown(page):
        name, *words = shlex.split(command)
        found = opsieve.get_command(context, name)
        if found is None:
            wrong.append(f"{command}: there is no such command")
            continue
        try:
            found.make_parser(click.Context(found, parent=context, info_name=name)).parse_args(list(words))
        except click.UsageError as error:
            wrong.append(f"{command}: {error.message}")
    assert not wrong


def test_pages_show_many_commands() -> None:
    assert sum(1 for page in PAGES for _ in shown(page)) >= 40
