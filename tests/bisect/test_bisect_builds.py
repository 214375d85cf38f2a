"""Builds as versions: a folder of them, at the ends of a search, between two releases; versions of other
packages in the row.
"""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import opsieve
from histories import History, row
from stores import filled
from test_bisect_case_commits import HEAD, PARTS, RAISES, RIGHT, WRONG, compiler_history, negations
from wheels import wheel

from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.releases.builds import check_allowed
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.bisect.blame.release_commit import ReleaseEnd, sort_by_history
from opsieve.bisect.blame.wording import Clues
from opsieve.bisect.search.search import TestResult
from opsieve.bisect.search.search_loop import bisect_row
from opsieve.bisect.sessions.answers import CommitAnswer, VersionAnswer
from opsieve.bisect.sessions.commits import bisect_commits
from opsieve.bisect.sessions.history import rank_commits
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sessions.sentences import make_version_answer
from opsieve.bisect.sessions.version_rows import VersionRow, assemble_row, insert_loose_builds
from opsieve.bisect.sessions.versions import bisect_releases
from opsieve.bisect.sources.commit_source import Commits
from opsieve.bisect.sources.outcome import ProbeJournal, VersionOutcome
from opsieve.bisect.sources.release_source import Version, make_release_row, open_build, sort_by_number
from opsieve.bisect.sources.version_sequence import Timeline, VersionSequence
from opsieve.gen.case.case import save
from opsieve.gen.errors import BadInput
from opsieve.triage.fingerprint.fingerprint import make_fingerprint
from opsieve.triage.store.finished_test import FinishedTest, FoundFailure

SLIM = resolve("onnxslim")


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OPSIEVE_PROBES", str(tmp_path / "probes"))
    save(negations(), tmp_path / "case")


def build(folder: Path, source: str, version: str = "") -> Path:
    """A build tree of the compiler."""
    stated = f'__version__ = "{version}"\n' if version else ""
    for name, text in {**PARTS, "onnxslim/__init__.py": stated + source}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("{}", folder.name))
    return folder


def found(tmp_path: Path, said: list[str] | None = None, package: str = "", **options: Any) -> VersionAnswer:
    request = BisectRequest(tmp_path / "case", target="onnxslim", attribute=False, **options)
    answer = bisect_releases(request, package, (said if said is not None else []).append)
    assert isinstance(answer, VersionAnswer)
    return answer


@pytest.mark.slow(seconds=3)
def test_builds_named_by_version_are_searched(tmp_path: Path) -> None:
    for name, source in (("onnxslim-1.9", RIGHT), ("v1.10", WRONG), ("1.11-debug", WRONG)):
        build(tmp_path / "builds" / name, source)
    (tmp_path / "builds" / "notes").mkdir()
    (tmp_path / "builds" / "README").write_text("mine\n")
    said: list[str] = []
    answer = found(tmp_path, said, builds=tmp_path / "builds")
    assert (answer.transitions[0].last_before, answer.first_bad) == ("onnxslim-1.9", "v1.10")
    assert answer.symptom == "value mismatch"
    assert "left out" in said[0]
    assert "no package onnxslim" in said[0]
    build(tmp_path / "builds" / "v1.10", RIGHT + "# mended\n")
    again = found(tmp_path, builds=tmp_path / "builds")
    assert again.first_bad == "1.11-debug"
    # A build that is made anew is another one; it is good now, and all its runs are new.
    assert again.recalled == 2


@pytest.mark.slow(seconds=9)
def test_expected_outputs_that_the_reference_contradicts_define_good_and_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user's outputs are those of the newer builds, which are wrong: only bisect takes them for more than
    a claim.
    """
    case = negations()
    assert case.expected is not None
    np.savez(tmp_path / "wrong.npz", y=np.exp(case.inputs["x"]))  # without both Neg
    for name, source in (("onnxslim-1.9", RIGHT), ("v1.10", WRONG), ("1.11-debug", WRONG)):
        build(tmp_path / "builds" / name, source)
    words = ("--expected", tmp_path / "wrong.npz")
    answer = found(tmp_path, builds=tmp_path / "builds", expected=tmp_path / "wrong.npz")
    assert (answer.first_good, answer.transitions[0].last_before) == ("v1.10", "onnxslim-1.9")
    assert answer.answer.count("the expected outputs decide, although the reference") == 1
    newest, oldest = (f"onnxslim@{tmp_path / 'builds' / name}" for name in ("v1.10", "onnxslim-1.9"))
    assert opsieve("run", tmp_path / "case", "-t", newest, *words, capsys=capsys)[0] == 0
    for command in ("run", "reduce", "export"):
        code, out, err = opsieve(command, tmp_path / "case", "-t", oldest, *words, capsys=capsys)
        assert (code, "from the expected outputs and agrees with" in out + err) == (2, True), command
        assert "not judged: " in err


def test_each_reason_why_versions_cannot_be_tested_is_told_with_its_number(tmp_path: Path) -> None:
    versions = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5")
    wheels = [
        VersionOutcome("skip", symptom="environment", text=f"thing=={name} has no wheel")
        for name in versions[:3]
    ]
    lack = VersionOutcome("skip", symptom="unsupported", text="no kernel")
    for last, opening in (
        (lack, "no release could be tested"),
        (VersionOutcome("good"), "it does not fail in any"),
    ):
        seen = Timeline(versions, (*wheels, lack, lack, last), None, None, 6, 0)
        answer = make_version_answer(seen, "thing").answer
        assert answer.startswith(opening)
        assert f"{5 + (last is lack)} of 6 could not be tested" in answer
        assert "3 (1.0 to 1.2): thing==... has no wheel" in answer
        assert f"{2 + (last is lack)} (1.3 to {'1.5' if last is lack else '1.4'}): no kernel" in answer


def test_another_failure_in_old_versions_may_hide_the_failure() -> None:
    here, other = VersionOutcome("bad", trait="error x"), VersionOutcome("bad", trait="error y")
    seen = Timeline(("1", "2", "3", "4"), (other, other, here, here), here, None, 4, 0)
    assert make_version_answer(seen, "thing").answer == (
        "it fails in every testable release; another failure may hide it in 1, 2"
    )
    seen = Timeline(("1", "2", "3", "4"), (VersionOutcome("good"), other, here, here), here, None, 4, 0)
    assert make_version_answer(seen, "thing").answer == (
        "between the releases with and without it, each fails in another way or cannot be tested; another"
        " failure may hide it in 2"
    )


@pytest.mark.parametrize(
    ("states", "opening"),
    [
        # A release that was stepped over on the way from an untestable end may be good.
        (
            "-bbb---b",
            "it fails in 1 and in 7; --good names a release without it, --sweep tests the 4 between",
        ),
        (
            "gggg---",
            "it does not fail in 0 or in 3; --bad names a release with it, --sweep tests the 3 between",
        ),
        (
            "-hhhbbb",
            "it fails in 4 and in 6; --good names a release without it, --sweep tests the 3 between;"
            " another failure may hide it in 3; 1 of 7",
        ),
        ("---h-h-", "it fails in 3; --good names"),
    ],
)
def test_releases_that_a_search_steps_over_are_not_said_to_fail(
    tmp_path: Path, states: str, opening: str
) -> None:
    outcomes = {
        "g": VersionOutcome("good"),
        "-": VersionOutcome("skip"),
        "b": VersionOutcome("bad", trait="error x"),
        "h": VersionOutcome("bad", trait="error y"),
    }
    sequence = VersionSequence(
        lambda name: outcomes[states[int(name)]], ProbeJournal(tmp_path, {}), "fake", lambda _: None
    )
    found = make_version_answer(
        sequence.search_versions([str(place) for place in range(len(states))], None, None), "thing"
    )
    assert found.answer.startswith(opening)
    assert (found.first_bad, found.confidence) == ("", 0.0)
    # The named good end fails: a change that the search did not look into is no answer.
    sequence = VersionSequence(
        lambda name: outcomes["g--bb-"[int(name)]],
        ProbeJournal(tmp_path / "other", {}),
        "fake",
        lambda _: None,
    )
    found = make_version_answer(sequence.search_versions([*"012345"], 3, None), "thing")
    assert (found.first_bad, found.wrong_ends, len(found.transitions)) == ("", ("3",), 1)


MAPPING = HEAD + "    import onnx\n    return onnx.mapping.NP_TYPE_TO_TENSOR_TYPE\n"


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("order", [(MAPPING, RIGHT, WRONG), (WRONG, RIGHT, MAPPING), (MAPPING, WRONG, WRONG)])
def test_a_build_whose_dependency_lacks_what_it_needs_cannot_be_tested(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    for number, source in enumerate(order):
        build(tmp_path / "builds" / f"1.{number}", source)
    answer = found(tmp_path, builds=tmp_path / "builds")
    broken = f"1.{order.index(MAPPING)}"
    assert [each.state for each in answer.versions if each.version == broken] == ["skip"]
    assert (answer.first_bad, answer.first_good) == {
        (MAPPING, RIGHT, WRONG): ("1.2", ""),
        (WRONG, RIGHT, MAPPING): ("", "1.1"),
        (MAPPING, WRONG, WRONG): ("", ""),
    }[order]
    named = found(tmp_path, builds=tmp_path / "builds", bad=broken)
    assert (named.first_bad, named.first_good) in (("", ""), (answer.first_bad, answer.first_good))


@pytest.mark.slow(seconds=3)
def test_the_failure_that_a_store_keeps_of_the_case_is_followed(tmp_path: Path) -> None:
    """The oldest build fails, too, in another way: that is not the failure of the case, nor did it end."""
    for number, source in enumerate((RAISES, RIGHT, WRONG)):
        build(tmp_path / "builds" / f"1.{number}", source)
    mismatch = Mismatch("y", "value")
    verdict = Verdict("fail", "", "mismatch", "run", mismatch=mismatch)
    seen = Observation("onnxslim", "1", "ok", outputs={"y": np.zeros(2, np.float32)})
    key = make_fingerprint(verdict, seen, ["Neg"])
    kept = FoundFailure("onnxslim", verdict, key, (seen,))
    store = filled(
        tmp_path / "kept", [FinishedTest(0, negations(), {"onnxslim": ("fail", 0.1)}, (kept,), ())]
    )
    case = next(store.glob("cases/*/1"))
    request = BisectRequest(
        case, target="onnxslim", attribute=False, builds=tmp_path / "builds", bad="1.0", good="1.1"
    )
    answer = bisect_releases(request, "", lambda told: None)
    assert isinstance(answer, VersionAnswer)
    assert (answer.first_bad, answer.first_good) == ("", "")
    whole = bisect_releases(replace(request, bad=None, good=None), "", lambda told: None)
    assert isinstance(whole, VersionAnswer)
    assert (whole.first_bad, whole.first_good) == ("1.2", "")
    swept = bisect_releases(replace(request, bad=None, good=None, sweep=True), "", lambda told: None)
    assert isinstance(swept, VersionAnswer)
    assert (swept.first_bad, swept.first_good) == ("1.2", "")


def test_a_history_that_cannot_be_read_is_told_before_anything_is_tried(tmp_path: Path) -> None:
    build(tmp_path / "builds" / "1.9", RIGHT)
    empty = tmp_path / "empty"
    subprocess.run(["git", "init", "-q", str(empty)], check=True)
    made = row(tmp_path / "r", "gb")
    for file in [*made.folder.glob(".git/objects/??/*"), *made.folder.glob(".git/objects/pack/*.pack")]:
        file.chmod(0o644)
        file.write_bytes(b"broken")
    for history, why in ((empty, "has no commits"), (made.folder, "git cannot read")):
        with pytest.raises(BadInput, match=why):
            found(tmp_path, builds=tmp_path / "builds", history=history)
    assert not list((tmp_path / "probes").glob("*/probes.jsonl"))


def commit_builds(tmp_path: Path, history: History, sources: list[str], places: list[int]) -> None:
    """Builds of some commits, in a folder."""
    for place in places:
        name = ("build-" if place % 2 else "") + history.shas[place][: 9 + place]
        build(tmp_path / "builds" / name, sources[place])


@pytest.mark.slow  # in make test: builds named by version, and as ends of a search, in this file
def test_builds_named_by_commit_narrow_what_is_ranked(tmp_path: Path) -> None:
    sources = [RIGHT] * 4 + [WRONG] * 4
    history = compiler_history(tmp_path / "repository", sources)
    commit_builds(tmp_path, history, sources, [7, 0, 5, 2])
    answer = found(tmp_path, builds=tmp_path / "builds", history=history.folder)
    assert answer.first_bad == history.shas[5][:14].join(["build-", ""])
    assert answer.history is not None
    assert (answer.history.good.commit, answer.history.bad.commit) == (history.shas[2], history.shas[5])
    assert answer.history.commits == 3
    with pytest.raises(BadInput, match="has no version in its name: name --history"):
        found(tmp_path, builds=tmp_path / "builds")


@pytest.mark.slow(seconds=3)
def test_two_builds_are_the_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = build(tmp_path / "fine", RIGHT)
    bad = build(tmp_path / "broken", WRONG)
    ends = [
        "--good",
        f"onnxslim@{good}",
        "--bad",
        f"onnxslim@{bad}",
        "--target",
        "onnxslim",
        "--no-attribute",
    ]
    code, out, _ = opsieve("bisect", tmp_path / "case", *ends, "--json", capsys=capsys)
    answer = json.loads(out)
    assert (code, answer["first_bad"], len(answer["versions"])) == (0, f"onnxslim@{bad}", 2)
    code, out, err = opsieve("bisect", tmp_path / "case", *ends[:2], "--target", "onnxslim", capsys=capsys)
    assert code == 2
    assert "name exactly one of" in err


def test_a_build_takes_its_place_among_others(tmp_path: Path) -> None:
    """By the version that it states, else where it was named."""
    for name in ("1.0", "1.2", "1.4"):
        build(tmp_path / "builds" / name, RIGHT)
    stating = build(tmp_path / "mine", WRONG, "1.3.0")
    silent = build(tmp_path / "other", WRONG)

    def names(**options: Any) -> list[str]:
        request = BisectRequest(tmp_path / "case", builds=tmp_path / "builds", **options)
        return [name.rpartition("/")[2] for name in assemble_row(request, "", SLIM, [].append).names]

    assert names(bad=f"onnxslim@{stating}") == ["1.0", "1.2", "mine", "1.4"]
    assert names(bad=f"onnxslim@{silent}") == ["1.0", "1.2", "1.4", "other"]
    assert names(good=f"onnxslim@{silent}") == ["other", "1.0", "1.2", "1.4"]
    assert names(good=f"onnxslim@{silent}", fixed=True) == ["1.0", "1.2", "1.4", "other"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bad": "onnxslim@{}:inference=off"}, "they belong to --target"),
        ({"bad": "onnxslim@{}/nowhere"}, "nothing is there"),
        ({"bad": "onnxruntime@{}"}, "is not among the 1 versions"),
        ({"bad": "1.7"}, "is not among the 1 versions"),
        ({"packages": ("onnxslim-gpu",)}, "need --releases PACKAGE"),
    ],
)
def test_what_is_no_end_is_a_sentence(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    tree = build(tmp_path / "builds" / "1.0", RIGHT)
    given = {key: value.format(tree) if isinstance(value, str) else value for key, value in options.items()}
    with pytest.raises(BadInput, match=sentence):
        found(tmp_path, builds=tmp_path / "builds", **given)


def test_a_folder_without_builds_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read: No such file"):
        found(tmp_path, builds=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no build of onnxslim lies in"):
        found(tmp_path, builds=tmp_path / "empty")


def test_names_of_builds(tmp_path: Path) -> None:
    conda = build(
        tmp_path / "onnxslim-1.2.3-py311h1a2b3c4_0" / "lib" / "python3.11" / "site-packages", RIGHT
    ).parents[2]
    described = build(tmp_path / "v1.2-14-gdeadbeef12", RIGHT)
    dated = build(tmp_path / "2026-03-04", RIGHT)
    stated = build(tmp_path / "tree", RIGHT, "0.9.1")
    named = [open_build(path, SLIM, path.name) for path in (conda, described, dated, stated)]
    assert [(one.number, one.commit) for one in named] == [
        ("1.2.3", ""),
        ("", "deadbeef12"),
        ("20260304", ""),
        ("0.9.1", ""),
    ]
    files = {"onnxslim/__init__.py": RIGHT, **PARTS}
    other = wheel(tmp_path, "onnxslim-nightly", "1.3.dev20260301+gdeadbeef", files=files)
    nightly = open_build(other, SLIM, other.name)
    assert (nightly.number, nightly.commit) == ("1.3.dev20260301+gdeadbeef", "deadbeef")
    with pytest.raises(BadInput, match="is a wheel of left_pad, not of onnxslim"):
        open_build(wheel(tmp_path, "left-pad", "1.0"), SLIM, "x")


def test_other_packages_fill_the_gaps_between_releases() -> None:
    main = make_release_row("onnxslim", ["1.0", "1.1.0", "1.2"], "onnxslim")
    other = make_release_row("onnxslim-gpu", ["1.1", "1.1.1", "1.3.dev20260101"], "onnxslim")
    ordered = sort_by_number([*main, *other])
    assert [version.name for version in ordered] == [
        "1.0",
        "1.1.0",
        "onnxslim-gpu==1.1.1",
        "1.2",
        "onnxslim-gpu==1.3.dev20260101",
    ]
    assert [str(version.apply_to(SLIM)) for version in ordered[1:3]] == [
        "onnxslim==1.1.0",
        "onnxslim==onnxslim-gpu-1.1.1",
    ]


def test_builds_between_two_releases(tmp_path: Path) -> None:
    """Those of commits that the newer release has and the older one has not, in the order of the history;
    what was seen around them stays.
    """
    history = compiler_history(tmp_path / "repository", [RIGHT] * 8)
    for tag, place in (("v1.0", 1), ("v2.0", 6)):
        subprocess.run(["git", "-C", str(history.folder), "tag", tag, history.shas[place]], check=True)
    loose = tuple(Version(f"build{place}", commit=history.shas[place]) for place in (5, 0, 3, 7, 6, 2))
    ends = tuple(Version(number, number) for number in ("1.0", "2.0"))
    searched = VersionRow((Version("0.9", "0.9"), *ends), None, None, loose)
    inner = insert_loose_builds(history.folder, searched, "1.0", "2.0", SLIM)
    assert inner.names == ["1.0", "build2", "build3", "build5", "2.0"]
    good, bad = VersionOutcome("good"), VersionOutcome("bad")
    steps = bisect_row(5, 0, 4)
    places, _ = next(steps)
    try:
        while True:
            places, _ = steps.send([TestResult.BAD if place > 1 else TestResult.GOOD for place in places])
    except StopIteration as stop:
        outcome = stop.value
    around = Timeline(tuple(searched.names), (good, good, bad), bad, None, 3, 0)
    joined = Timeline(tuple(inner.names), (good, good, bad, None, bad), bad, outcome, 5, 2).insert_into(
        around
    )
    assert joined.versions == ("0.9", "1.0", "build2", "build3", "build5", "2.0")
    answer = make_version_answer(joined, "onnxslim")
    assert (answer.first_bad, answer.transitions[0].last_before, answer.candidates) == (
        "build3",
        "build2",
        ("build3",),
    )


@pytest.mark.slow(seconds=3)
def test_builds_are_the_ends_of_a_search_through_commits(tmp_path: Path) -> None:
    """One says its commit by its name, the other by a file; one that says none is refused, and a revision may
    have the sign @.
    """
    history = compiler_history(tmp_path / "repository", [RIGHT] * 3 + [WRONG] * 3)
    old = build(tmp_path / f"old-{history.shas[0][:9]}", RIGHT)
    new, bare = build(tmp_path / "new", WRONG), build(tmp_path / "bare", WRONG)
    (new / "onnxslim" / "_version.py").write_text(f'__git_version__ = "{history.shas[5]}"\n')
    request = BisectRequest(tmp_path / "case", f"onnxslim@{old}", f"onnxslim@{new}", target="onnxslim")
    answer = bisect_commits(request, history.folder, lambda said: None)
    assert isinstance(answer, CommitAnswer)
    assert (answer.culprit_commit, answer.commits) == (history.shas[3], 5)
    check_allowed(resolve(f"onnxslim@{new}"))
    with pytest.raises(BadInput, match="states no commit"):
        bisect_commits(replace(request, bad=f"onnxslim@{bare}"), history.folder, lambda said: None)
    again = bisect_commits(replace(request, bad="main@{0}"), history.folder, lambda said: None)
    assert isinstance(again, CommitAnswer)
    assert again.culprit_commit == history.shas[3]


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder, git's own among them, with its time of change."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_the_repository_stays_byte_for_byte_as_it_was(tmp_path: Path) -> None:
    """What is ranked, put in order, built and checked in it: nothing is written there, not even by git for
    itself.
    """
    history = row(tmp_path / "repository", "gggbbb")
    (history.folder / "fold.sh").write_text("what the user is at\n")
    before = contents(history.folder)
    with Commits(
        history.folder,
        history.shas[0],
        "main",
        tmp_path / "check.sh",
        tmp_path / "build.sh",
        root=tmp_path / "probes",
        say=lambda told: None,
    ) as source:
        assert [commit.sha for commit in source.search_commits().culprits] == [history.shas[3]]
    ends = (ReleaseEnd("a", commit=history.shas[0]), ReleaseEnd("b", commit=history.shas[5]))
    assert (
        rank_commits(
            history.folder, ends, Clues(passes=("fold",), message="2*3+4 was folded to another value")
        ).commits
        == 5
    )
    assert sort_by_history(history.folder, history.shas[::-1]) == [5, 4, 3, 2, 1, 0]
    assert contents(history.folder) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--releases", "onnxslim", "--source", "x"], "name exactly one of"),
        (["--releases", "onnxslim", "--build", "b.sh"], "--build goes with --commits"),
        (["--releases", "onnxslim", "--check-seconds", "5"], "--check-seconds goes with --commits"),
        (["--commits", ".", "--pre"], "--pre goes with --releases"),
        (["--commits", ".", "--history", "."], "--history goes with --releases or --builds"),
        (["--builds", ".", "--index", "x"], "--index goes with --releases"),
        (["--source", "x", "--builds", "."], "go with --releases, not with --source"),
        (["--builds", "."], "name --target"),
        (["--releases", "onnxslim", "--rtol", "nan"], "nan is not a number from 0 on"),
    ],
)
def test_options_of_another_search_are_refused(
    tmp_path: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = opsieve("bisect", tmp_path / "case", *arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
