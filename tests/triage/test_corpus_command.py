"""`opsieve corpus`: cases added, replayed on compilers that misbehave on purpose, two replays compared."""

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import opsieve
from models import X, chain

from opsieve.gen.case.case import Case, open_case, save

Capture = pytest.CaptureFixture[str]
CRASHES, ERRS = "fake:crash@Relu>Clip", "fake:error@Exp"


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the corpus lies that the first test has made: `found` and `corpus`."""
    return tmp_path_factory.mktemp("added")


@pytest.fixture
def corpus(added: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    """Two cases, one that fails on the target that it names."""
    for name in ("OPSIEVE_STORE", "OPSIEVE_PROBES"):
        monkeypatch.setenv(name, str(tmp_path / "cache" / name))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    folder, found = added / "corpus", added / "found"
    if not folder.exists():
        save(Case(chain("Relu", "Clip"), X, parameters={"target": CRASHES}), found / "clip" / "reduced")
        save(Case(chain("Exp"), X, parameters={"target": "fake"}), found / "exp")
        code, out, _ = opsieve(
            "corpus", "add", folder, found / "clip" / "reduced", found / "exp", capsys=capsys
        )
        assert (code, "fail (crash at compile)" in out) == (0, True)
    shutil.copytree(added, tmp_path, dirs_exist_ok=True)
    return tmp_path / "corpus"


def ran(folder: Path, *arguments: str | Path, capsys: Capture) -> tuple[int, dict[str, str], Any]:
    """Exit code, states by case, and the whole object."""
    code, out, err = opsieve("corpus", "run", folder, "--json", *arguments, capsys=capsys)
    assert out, err
    found = json.loads(out)
    return code, {result["case"]: result["state"] for result in found["results"]}, found


def test_cases_are_copied_with_what_was_seen(corpus: Path) -> None:
    file = json.loads((corpus / "corpus.json").read_text())
    assert sorted(file["cases"]) == ["clip-reduced", "exp"]
    (seen,) = file["cases"]["clip-reduced"]["targets"].values()
    assert (seen["verdict"], seen["kind"], seen["stage"]) == ("fail", "crash", "compile")
    assert seen["fingerprint"]
    assert open_case(corpus / "clip-reduced").program.operators() == chain("Relu", "Clip").operators()


def test_nothing_changes_on_the_recorded_targets(corpus: Path, capsys: Capture) -> None:
    states = {"clip-reduced": "still-failing", "exp": "passing"}
    assert ran(corpus, capsys=capsys)[:2] == (0, states)
    assert ran(corpus, "--fail-on", "any", capsys=capsys)[:2] == (1, states)


@pytest.mark.parametrize(
    ("target", "code", "states"),
    [
        ("fake", 0, ("fixed", "passing")),
        (ERRS, 1, ("fixed", "newly-failing")),
        ("fake:error@Clip/import", 1, ("changed", "passing")),
    ],
)
def test_another_build_of_the_compiler(
    corpus: Path, target: str, code: int, states: tuple[str, str], capsys: Capture
) -> None:
    assert ran(corpus, "-t", target, capsys=capsys)[:2] == (
        code,
        dict(zip(("clip-reduced", "exp"), states, strict=True)),
    )
    assert ran(corpus, "-t", target, "--fail-on", "none", capsys=capsys)[0] == 0


def test_a_bad_case_costs_only_itself(corpus: Path, capsys: Capture) -> None:
    (corpus / "exp" / "case.json").write_text("{")
    code, states, found = ran(corpus, capsys=capsys)
    assert (code, states) == (2, {"clip-reduced": "still-failing", "exp": "not-judged"})
    assert [result["refused"] for result in found["results"] if result["case"] == "exp"] == [True]


def test_a_recorded_target_that_is_not_there_costs_only_itself(corpus: Path, capsys: Capture) -> None:
    path = corpus / "corpus.json"
    path.write_text(path.read_text().replace('"fake": {', '"nocompiler": {'))
    code, states, found = ran(corpus, capsys=capsys)
    assert (code, states) == (2, {"clip-reduced": "still-failing", "exp": "not-judged"})
    assert ran(corpus, "--allow-unjudged", capsys=capsys)[0] == 0
    assert ran(corpus, "--fail-on", "any", capsys=capsys)[0] == 1  # a failure outweighs what was not judged
    assert "nocompiler" in next(result["reason"] for result in found["results"] if result["case"] == "exp")


def test_a_cold_cache_without_consent_is_not_green(corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    path, junit = corpus / "corpus.json", tmp_path / "junit.xml"
    path.write_text(path.read_text().replace('"fake": {', '"onnxruntime==0.0.1": {'))
    code, states, found = ran(corpus, "--junit", junit, capsys=capsys)
    assert (code, states["exp"]) == (2, "not-judged")
    assert "which is not installed here: --yes installs it" in str(found)
    suite = ElementTree.fromstring(junit.read_bytes())[0]
    assert [test.attrib["name"] for test in suite if test.find("error") is not None] == ["exp"]


def test_a_run_that_judges_nothing_is_not_green(corpus: Path, capsys: Capture) -> None:
    code, states, _ = ran(corpus, "-t", "fake:unsupported", capsys=capsys)
    assert (code, set(states.values())) == (2, {"not-judged"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "is not a description of a corpus"),
        ('{"format": 2, "cases": {}}', "newer than this opsieve's"),
        ('{"format": 0, "cases": {}}', "unknown format"),
        ('{"format": 1, "cases": {"../x": {"digest": "", "targets": {}}}}', "not a valid name"),
        ("", "is not a corpus"),
    ],
)
def test_a_bad_corpus_is_one_sentence(tmp_path: Path, text: str, sentence: str, capsys: Capture) -> None:
    if text:
        (tmp_path / "corpus.json").write_text(text)
    code, out, err = opsieve("corpus", "run", tmp_path, capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


def test_a_target_that_is_none_and_a_junit_without_folder_are_bad_input(
    corpus: Path, capsys: Capture
) -> None:
    for words in (("-t", "nocompiler"), ("--junit", corpus / "no" / "x.xml")):
        code, out, _ = opsieve("corpus", "run", corpus, *words, capsys=capsys)
        assert (code, out) == (2, "")


def test_adding_again_renews_the_record_and_another_case_gets_another_name(
    corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    other = save_as(tmp_path / "other" / "exp", chain("Exp", "Exp"))
    words = ("corpus", "add", corpus, "--json", "-t", ERRS, corpus / "exp", other, tmp_path / "absent")
    code, out, _ = opsieve(*words, capsys=capsys)
    found = json.loads(out)
    assert (code, [entry["name"] for entry in found["added"]]) == (2, ["exp", "exp-2"])
    assert len(found["refused"]) == 1
    assert sorted(json.loads((corpus / "corpus.json").read_text())["cases"]["exp"]["targets"]) == [
        "fake",
        ERRS,
    ]


def save_as(folder: Path, program: Any) -> Path:
    save(Case(program, X), folder)
    return folder


def test_junit_and_github_say_the_same(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    summary, junit = tmp_path / "summary.md", tmp_path / "junit.xml"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, _ = opsieve("corpus", "run", corpus, "-t", ERRS, "--junit", junit, "--github", capsys=capsys)
    commands = [line for line in out.splitlines() if line.startswith("::")]
    assert code == 1
    assert [line.split()[0] for line in commands] == ["::error", "::notice"]
    assert summary.read_text().startswith("before\n## opsieve")
    assert "1 newly failing, 1 fixed" in summary.read_text()
    suite = ElementTree.fromstring(junit.read_bytes())[0]
    assert [test.attrib["name"] for test in suite if test.find("failure") is not None] == ["exp"]


@pytest.mark.slow(seconds=3)
def test_two_runs_are_compared(corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for path, target in ((old, "fake"), (new, ERRS)):
        path.write_text(json.dumps(ran(corpus, "-t", target, capsys=capsys)[2]))
    code, out, _ = opsieve("corpus", "diff", old, new, "--json", capsys=capsys)
    states = {result["case"]: result["state"] for result in json.loads(out)["results"]}
    assert (code, states) == (1, {"clip-reduced": "passing", "exp": "newly-failing"})
    code, out, _ = opsieve("corpus", "diff", new, old, capsys=capsys)
    assert (code, "fixed" in out) == (0, True)
    code, _, err = opsieve("corpus", "diff", old, corpus / "corpus.json", capsys=capsys)
    assert (code, "is not an output of `corpus run --json`" in err) == (2, True)
