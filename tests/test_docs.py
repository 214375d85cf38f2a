"""The pages: every link leads somewhere."""

from __future__ import annotations

import re
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
