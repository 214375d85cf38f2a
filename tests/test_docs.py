"""The pages: every link leads somewhere."""

from __future__ import annotations

import itertools
import os
import re
import textwrap
import tomllib
from pathlib import Path

import opsieve

_ROOT = Path(__file__).parents[1]
_HERE = re.compile(
    r"https://(github\.com/opsieve/opsieve/blob|raw\.githubusercontent\.com/opsieve/opsieve)/main/"
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_of_a_page_leads_somewhere() -> None:
    others = {".venv", "src"}
    for page in sorted(
        page for page in _ROOT.rglob("*.md") if not others & set(page.relative_to(_ROOT).parts)
    ):
        _check_links(page)


def _check_links(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in _LINK.findall(text):
        link = _HERE.sub("/", link)  # the repository's own address: README is read on PyPI, too
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        start = _ROOT if path.startswith("/") else page.parent
        target = (start / path.lstrip("/")).resolve() if path else page
        assert target.exists(), f"{link} of {page.relative_to(_ROOT)}"
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target), f"{link} of {page.relative_to(_ROOT)}"


def test_the_site_has_every_page_and_every_public_name() -> None:
    """`make docs` builds the site; this holds what it would refuse, without mkdocs."""
    site = (_ROOT / "mkdocs.yml").read_text()
    pages = {str(page.relative_to(_ROOT / "docs")) for page in (_ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"\S+\.md$", site, re.MULTILINE)) == pages
    reference = (_ROOT / "docs" / "reference" / "python.md").read_text()
    names = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", reference, re.MULTILINE)}
    assert names == {*opsieve.__all__, "Queries"} - {"BadInput", "Store"}


def test_the_layers_of_the_architecture_are_those_of_the_contracts() -> None:
    page = _ROOT / "docs" / "explanation" / "architecture.md"
    before, _, rest = page.read_text().partition("<!-- layers -->\n")
    _, _, after = rest.partition("<!-- end of layers -->")
    text = f"{before}<!-- layers -->\n{_draw_layers()}\n<!-- end of layers -->{after}"
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(text)
    assert page.read_text() == text, "UPDATE_GOLDEN=1 pytest tests/test_docs.py writes the layers anew"


def _draw_layers() -> str:
    """Draw the folders as a mermaid graph, and list the floors of each, top to bottom."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (folders,) = (each["layers"] for each in contracts if "containers" not in each)
    floors = [layer.replace("opsieve.", "").split(" | ") for layer in folders]
    lines = ["```mermaid", "flowchart TD"]
    for above, below in itertools.pairwise(floors):
        lines += [f"    {upper} --> {lower}" for upper in above for lower in below]
    lines += ["```", "", "The floors of each folder, top to bottom:", ""]
    for each in contracts:
        if "containers" in each:
            (container,) = each["containers"]
            name = container.removeprefix("opsieve.").replace(".", "/")
            row = f"- `{name}/`: {', '.join(each['layers'])}"
            lines += textwrap.wrap(row, 136, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)
