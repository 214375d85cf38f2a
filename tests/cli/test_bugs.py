"""`opsieve bugs`: the collection listed, replayed, recorded, resumed, and written as a page."""

import json
from pathlib import Path

import pytest
from collection import FAILS, collection_of_one
from commands import opsieve
from repository import ROOT, SAMPLES

from opsieve.triage.corpus import session
from opsieve.triage.corpus.corpus_file import (
    Bug,
    CorpusEntry,
    CorpusResult,
    SeenVerdict,
    latest,
    read_bugs,
    read_corpus,
    status,
    write_corpus,
)
from opsieve.triage.corpus.found_page import found_page, list_bugs

Capture = pytest.CaptureFixture[str]
PASS, FAIL = SeenVerdict("pass"), SeenVerdict("fail", "mismatch", "run", "key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    collection_of_one(tmp_path / "bugs")
    return tmp_path / "bugs"


def test_the_page_is_that_of_the_collection() -> None:
    page = (ROOT / "docs" / "found.md").read_text()
    assert page == found_page(read_bugs(SAMPLES)), "opsieve bugs --page docs/found.md"


def test_a_bug_is_live_until_a_release_mends_it(folder: Path, capsys: Capture) -> None:
    code, out, _ = opsieve("bugs", "replay", "--folder", folder, "--update", capsys=capsys)
    assert (code, out.split()[:2]) == (1, ["live", "one"])  # it has no record, so it fails newly
    code, out, err = opsieve("bugs", "replay", "one", "--folder", folder, capsys=capsys)
    assert (code, out.split()[:2], err) == (0, ["live", "one"], "opsieve: 1 live\n")
    (entry, bug) = read_bugs(folder)["one"]
    assert (status(entry, bug), list(entry.targets), bug.fixed_in) == ("live", [FAILS], "")
    table = opsieve("bugs", "--folder", folder, capsys=capsys)[1]
    assert table.splitlines()[1].split()[:3] == ["one", "live", FAILS]
    facts = json.loads(opsieve("bugs", "--folder", folder, "--json", capsys=capsys)[1])["bugs"]
    assert [(row["name"], row["status"], row["what"]) for row in facts] == [("one", "live", "Relu is wrong.")]


def test_results_for_machines(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ("bugs", "replay", "--folder", folder, "--json", "--junit", tmp_path / "junit.xml")
    code, out, _ = opsieve(*words, capsys=capsys)
    facts = json.loads(out)
    assert (code, facts["counts"], facts["results"][0]["status"]) == (1, {"live": 1}, "live")
    assert 'name="one"' in (tmp_path / "junit.xml").read_text()


def test_what_was_not_judged_is_never_green(tmp_path: Path, capsys: Capture) -> None:
    collection_of_one(tmp_path / "bugs", "fake:unsupported")
    code, out, err = opsieve("bugs", "replay", "--folder", tmp_path / "bugs", capsys=capsys)
    assert (code, out.split()[:3]) == (2, ["not", "judged", "one"])
    assert "opsieve: not judged: one on fake:unsupported (unsupported)" in err


def test_an_interrupted_replay_goes_on(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call judges nothing that the file has, unless the case is another one by now."""
    words = (
        "bugs",
        "replay",
        "--folder",
        folder,
        "--resume",
        tmp_path / "results.jsonl",
        "--fail-on",
        "none",
    )
    first = opsieve(*words, capsys=capsys)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"digest": "0000", "resu')  # a writer that was killed

    def judge_nothing(*_: object) -> list[CorpusResult]:
        return []

    monkeypatch.setattr(session, "replay_corpus", judge_nothing)
    assert opsieve(*words, capsys=capsys)[:2] == first[:2]
    entries = read_corpus(folder)
    write_corpus(folder, {"one": CorpusEntry("1" * 64, {}, entries["one"].bug)})
    assert opsieve(*words, capsys=capsys)[:2] == (2, "")


def test_newest_is_the_last_release_of_the_index(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection_of_one(tmp_path / "bugs", "onnxruntime==1.20.1:basic")
    asked = []

    def judge(request: session.CorpusRequest, say: session.Say) -> list[CorpusResult]:
        asked.append(request.chosen)
        return []

    monkeypatch.setattr(session, "replay_corpus", judge)
    monkeypatch.setattr(session, "find_newest", lambda package, offline: f"9.{len(package)}")
    opsieve("bugs", "replay", "--folder", tmp_path / "bugs", "--newest", capsys=capsys)
    opsieve("bugs", "replay", "--folder", tmp_path / "bugs", capsys=capsys)
    assert asked == [{"one": ("onnxruntime==9.11:basic",)}, {"one": ("onnxruntime==1.20.1:basic",)}]


def result(target: str, seen: SeenVerdict) -> CorpusResult:
    return CorpusResult("one", target, "fixed", None, seen)


def test_an_update_records_the_release_that_mends_a_bug(tmp_path: Path) -> None:
    bug = Bug("onnxruntime==1.2.0", "reference", "It is wrong.", ("Relu",), ())
    write_corpus(tmp_path, {"one": CorpusEntry("0", {"onnxruntime==1.2.0": FAIL}, bug)})

    def fixed_in(*results: CorpusResult) -> tuple[str, str, str]:
        session.update_bugs(tmp_path, results)
        entry, bug = read_bugs(tmp_path)["one"]
        return status(entry, bug), latest(entry, bug)[0], bug.fixed_in

    assert fixed_in(result("onnxruntime==1.3.0", SeenVerdict("environment"))) == (
        "live", "onnxruntime==1.2.0", "",
    )  # fmt: skip
    assert fixed_in(result("onnxruntime==1.3.0", PASS)) == ("fixed", "onnxruntime==1.3.0", "1.3.0")
    assert read_bugs(tmp_path)["one"][1].fixed_on
    # a later release that passes too, an older one that passes, and a regression
    assert fixed_in(result("onnxruntime==1.10.0", PASS)) == ("fixed", "onnxruntime==1.10.0", "1.3.0")
    assert fixed_in(result("onnxruntime==1.1.0", PASS)) == ("fixed", "onnxruntime==1.10.0", "1.3.0")
    assert fixed_in(result("onnxruntime==1.11.0", FAIL)) == ("live", "onnxruntime==1.11.0", "")
    # the same compiler with other options is another target
    assert fixed_in(result("onnxruntime==1.12.0:basic", PASS)) == ("live", "onnxruntime==1.11.0", "")


def test_an_older_release_that_fails_leaves_the_fix_as_it_is(tmp_path: Path) -> None:
    bug = Bug("onnxruntime==1.2.0", "reference", "It is wrong.", ("Relu",), (), fixed_in="1.3.0")
    write_corpus(tmp_path, {"one": CorpusEntry("0", {}, bug)})
    session.update_bugs(tmp_path, [result("onnxruntime==1.2.0", FAIL)])
    assert read_bugs(tmp_path)["one"][1].fixed_in == "1.3.0"
    session.update_bugs(tmp_path, [result("onnxruntime==1.5.0", PASS)])
    assert read_bugs(tmp_path)["one"][1].fixed_in == "1.3.0"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("no-such-bug",), "there is no bug 'no-such-bug'"),
        (("--folder", "."), "is not a corpus, because it has no corpus.json"),
    ],
)
def test_bad_input_is_one_sentence(
    words: tuple[str, ...], says: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = opsieve("bugs", "replay", *words, capsys=capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert says in err


def test_hostile_text_is_no_markup_in_the_list() -> None:
    what = "<b>|[x](y) " + "- a " * 60
    bug = Bug("fake", "fake", what, ("`Relu`",), (), "a|b", upstream="javascript:alert(1)")
    _, _, item = list_bugs({"one": (CorpusEntry("0", {"fake": FAIL}, bug), bug)}).partition("- [one]")
    assert item.startswith("(../samples/one): &lt;b&gt;\\|\\[x\\]\\(y\\) \\- a")
    assert item.endswith("(a\\|b)\n")
    assert "javascript" not in item


def test_the_page_has_one_length_for_any_number_of_bugs() -> None:
    bug = Bug("fake", "fake", "Relu is wrong.", ("Relu",), ())
    pages = [
        found_page({f"bug-{number}": (CorpusEntry("0", {"fake": FAIL}, bug), bug) for number in range(count)})
        for count in (1, 200)
    ]
    assert len({len(page.split()) for page in pages}) == 1
    assert "| fake | 200 |" in pages[1]
