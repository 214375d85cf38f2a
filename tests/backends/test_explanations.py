"""What names mean: one text for the page and the command."""

import os
import re
import textwrap

import pytest
from repository import ROOT

from opsieve.backends.judge.oracle_names import find_explanations, read_explanations
from opsieve.backends.verdict import Judgement, Kind

PAGE = ROOT / "docs" / "explanation" / "oracles.md"


def _draw(what: str) -> str:
    rows = [each for each in read_explanations() if each.what == what]
    lines = []
    for each in rows:
        text = f"- `{each.name}`: {each.text}"
        lines += textwrap.wrap(text, 140, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


@pytest.mark.parametrize("what", ["verdict", "kind", "rule", "hazard"])
def test_the_page_has_the_texts_of_the_command(what: str) -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(f"<!-- {what} -->\n")
    _, _, after = rest.partition(f"<!-- end of {what} -->")
    text = f"{before}<!-- {what} -->\n\n{_draw(what)}\n\n<!-- end of {what} -->{after}"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(text)
    assert page == text or os.environ.get("UPDATE_GOLDEN"), "UPDATE_GOLDEN=1 writes the page"


def test_every_verdict_and_kind_is_explained() -> None:
    for what, names in (("verdict", Judgement.__args__), ("kind", Kind.__args__)):  # type: ignore[attr-defined]
        assert {each.name for each in read_explanations() if each.what == what} == set(names)


def test_every_rule_and_hazard_of_the_code_is_explained() -> None:
    known = {each.name for each in read_explanations()}
    judge = "\n".join(path.read_text() for path in (ROOT / "backends" / "judge").glob("*.py"))
    judge += (ROOT / "backends" / "compare.py").read_text()
    rules = set(
        re.findall(
            r'rules(?:=\(|\.append\(|\.add\(| = \(|,? *\*?self\.rules, )\*?(?:self\.rules, |rules, )?"([a-z-]+)"',
            judge,
        )
    )
    rules |= set(re.findall(r'^RULE = "([a-z-]+)"', judge, re.MULTILINE))
    assert len(rules) >= 8
    assert rules <= known
    yielded = (ROOT / "gen" / "declarations" / "properties.py").read_text()
    hazards = set(re.findall(r'yield "([a-z-]+)"', yielded))
    assert len(hazards) >= 8
    assert hazards <= known


def test_a_text_for_a_terminal_has_no_links() -> None:
    for each in read_explanations():
        assert all("](" not in one.text for one in find_explanations(each.name))
    assert [each.name for each in find_explanations("accumulation:12")] == ["accumulation:K"]
    assert {each.what for each in find_explanations("memory")} == {"kind", "oracle"}
