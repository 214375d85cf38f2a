"""`opsieve report`: one page that stands alone, whatever a store holds."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import opsieve
from stores import done, filled, finding

EVIL = '</pre><script>alert(1)</script><img src=x onerror=alert(1)>" autofocus onfocus="alert(1)'
VOID = frozenset(["meta", "input"])


class Reader(HTMLParser):
    """The elements of a page with their attributes and texts; every one that is opened is closed."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.open[-1] if self.open else ""
        self.texts[where] = self.texts.get(where, "") + data


def test_a_page_holds_every_cluster_and_nothing_of_a_compiler_is_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = [
        finding(EVIL, frames=["rule"]),
        finding("other", kind="mismatch", operators=("Relu",)),
        finding("x", signal=11, kind="crash"),
    ]
    store = filled(tmp_path / "a<b>", [done(number, each) for number, each in enumerate(failures)])
    (case,) = store.glob("cases/fake-error-*/1")
    (case / "repro.py").write_text(f"print('''{EVIL}''')")
    code, out, _ = opsieve("report", store, "-o", tmp_path / "page.html", "--json", capsys=capsys)
    facts = json.loads(out)
    assert (code, facts["clusters"], facts["total"]) == (0, 3, 3)
    text = (tmp_path / "page.html").read_text()
    page = Reader(text)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert not {"img", "a", "link", "iframe", "object", "form"} & set(tags)
    assert not any(
        name.startswith("on") or name in ("src", "href", "style")
        for _, each in page.elements
        for name in each
    )
    clusters = [each for tag, each in page.elements if tag == "details" and each.get("class") == "cluster"]
    assert sorted(each["id"] for each in clusters) == ["c1", "c2", "c3"]
    assert {each["data-kind"] for each in clusters} == {"error", "mismatch", "crash"}
    assert "Relu" in page.texts["pre"]  # the graph
    assert f"print('''{EVIL}''')" in page.texts["pre"]  # the script, as it is
    policy = next(
        each["content"] for tag, each in page.elements if each.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(page.texts["script"].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert not re.search(r"https?://", text)


def test_a_filter_a_limit_and_a_bad_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(
        tmp_path / "store", [done(0, finding("one", frames=["a"])), done(1, finding("x", kind="mismatch"))]
    )
    said = opsieve("report", store, "-o", tmp_path / "x.html", "--filter", "kind:mismatch", capsys=capsys)
    assert said[1].startswith(f"{tmp_path / 'x.html'}  1 cluster, ")
    assert opsieve("report", store, "-o", tmp_path / "x.html", "-n", "1", "--json", capsys=capsys)[1].count(
        '"total": 2'
    )
    assert opsieve("report", store, "-o", tmp_path / "no" / "x.html", capsys=capsys)[0] == 2
    assert opsieve("report", tmp_path / "none", "-o", tmp_path / "y.html", capsys=capsys)[0] == 2
    assert not (tmp_path / "y.html").exists()
