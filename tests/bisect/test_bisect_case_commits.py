"""Commits judged by a case: the compiler of each commit is imported from its work tree. Submodules and sparse
checkouts.

The compiler is a real one in a few lines of Python, under the name of one that a backend knows: it removes
pairs of Neg.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import opsieve
from histories import BAD, BUILD, CHECK, GOOD, History, row

from opsieve.backends.registry import resolve
from opsieve.bisect.sessions.answers import keep_culprit, read_culprit
from opsieve.bisect.sources.commit_source import CaseCheck, CommitResult, Commits
from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram

HEAD = "# revision {}\ndef slim(model, **options):\n"
RIGHT = (
    HEAD
    + """\
    made = {node.output[0]: node for node in model.graph.node if node.op_type == "Neg"}
    for node in model.graph.node:
        inner = made.get(node.input[0])
        if node.op_type == "Neg" and inner is not None:
            node.op_type, node.input[0] = "Identity", inner.input[0]
    return model
"""
)
# any Neg is removed
WRONG = RIGHT.replace("and inner is not None", "").replace("inner.input[0]", "node.input[0]")
RAISES = HEAD + "    raise RuntimeError('cannot slim this graph')\n"
UNBUILDABLE = "this is no Python {}\n"
PACKAGE = "onnxslim/__init__.py"
PARTS = {"onnxslim/core.py": "", "onnxslim/utils.py": ""}


def compiler_history(folder: Path, sources: list[str], top: str = "") -> History:
    """A row of commits, one for each source of the compiler, which lies in the folder `top`."""
    history = History(folder)
    for number, source in enumerate(sources):
        parts = {top + name: text for name, text in PARTS.items()}
        history.commit([number - 1] if number else [], source, path=top + PACKAGE, files=parts)
    return history.write()


def negations() -> Case:
    from onnx import parser

    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Neg(x) b = Exp(a) y ='
        " Neg(b) }"
    )
    inputs = {"x": np.array([0.5, -1.0], np.float32)}
    return Case(OnnxProgram(model.SerializeToString()), inputs, {"y": -np.exp(-inputs["x"])})


def search(history: History, good: str, bad: str, **options: Any) -> CommitResult:
    jobs = options.pop("jobs", 1)
    with (
        CaseCheck(negations(), resolve("onnxslim")) as check,
        Commits(
            history.folder,
            good,
            bad,
            check,
            root=history.folder.parent / "probes",
            say=lambda told: None,
            **options,
        ) as source,
    ):
        return source.search_commits(jobs=jobs)


def test_the_case_finds_the_commit(tmp_path: Path) -> None:
    history = compiler_history(tmp_path / "repository", [RIGHT] * 9 + [WRONG] * 6)
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[9]]
    # That the newest good commit is good rests on runs, as with a script.
    assert 0.99 <= found.confidence < 1
    assert found.probed <= 9
    assert {item.symptom for item in found.seen.values()} == {"ok", "value mismatch"}
    again = search(history, history.shas[0], "main")
    assert (again.probed, again.culprits) == (0, found.culprits)


@pytest.mark.slow  # in make test: trees in test_bisect_commits.py
def test_the_source_may_lie_in_a_folder_and_trees_may_be_many(tmp_path: Path) -> None:
    history = compiler_history(tmp_path / "repository", [RIGHT] * 5 + [WRONG] * 7, top="src/")
    found = search(history, history.shas[0], "main", jobs=2)
    assert [commit.sha for commit in found.culprits] == [history.shas[5]]


@pytest.mark.slow  # in make test: the same of scripts in test_bisect_commits.py
def test_another_failure_is_not_blamed(tmp_path: Path) -> None:
    """The wrong result is followed; a stretch that raises before anything could be wrong tells nothing of
    it.
    """
    history = compiler_history(tmp_path / "repository", [RIGHT] * 4 + [RAISES] * 3 + [WRONG] * 5)
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == history.shas[4:8]


@pytest.mark.slow  # in make test: untestable commits in test_bisect_commits.py
def test_a_commit_that_cannot_be_imported_is_untestable(tmp_path: Path) -> None:
    history = compiler_history(
        tmp_path / "repository", [RIGHT] * 4 + [UNBUILDABLE] * 2 + [RIGHT] * 4 + [WRONG] * 3
    )
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[10]]


@pytest.mark.slow(seconds=3)
def test_what_the_build_leaves_is_imported_first(tmp_path: Path) -> None:
    history = compiler_history(
        tmp_path / "repository", [UNBUILDABLE + "#" + "g" * n for n in range(3)] + [UNBUILDABLE]
    )
    build = tmp_path / "make.sh"
    right, wrong = (repr(text.replace("{}", "0")) for text in (RIGHT, WRONG))
    build.write_text(
        f"#!{sys.executable}\n"
        "import os, pathlib, shutil\n"
        "made = pathlib.Path(os.environ['OPSIEVE_BUILD'])\n"
        "shutil.copytree('onnxslim', made / 'onnxslim')\n"
        f"text = {right} if os.environ['OPSIEVE_COMMIT'] in {history.shas[:2]} else {wrong}\n"
        "(made / 'onnxslim' / '__init__.py').write_text(text)\n"
    )
    build.chmod(0o755)
    found = search(history, history.shas[0], "main", build=build)
    assert [commit.sha for commit in found.culprits] == [history.shas[2]]


@pytest.mark.slow(seconds=3)
def test_the_command_takes_a_case_and_keeps_the_answer_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = compiler_history(tmp_path / "repository", [RIGHT] * 3 + [WRONG] * 3)
    save(negations(), tmp_path / "case")
    monkeypatch.setenv("OPSIEVE_PROBES", str(tmp_path / "probes"))
    arguments = [
        str(tmp_path / "case"),
        "--commits",
        str(history.folder),
        "--good",
        history.shas[0],
        "--bad",
        "main",
    ]
    code, _, err = opsieve("bisect", *arguments, capsys=capsys)
    assert code == 2
    assert "name --target" in err
    code, out, _ = opsieve("bisect", *arguments, "--target", "onnxslim", "--json", capsys=capsys)
    assert code == 0
    answer = json.loads(out)
    assert answer["culprit_commit"] == history.shas[3]
    assert answer["symptom"] == "value mismatch"
    assert read_culprit(tmp_path / "case") == {"commits": answer}


def test_an_answer_that_cannot_be_kept_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text("{}")
    (tmp_path / "culprit.json").mkdir()
    said: list[str] = []
    keep_culprit(tmp_path, "passes", {"answer": "pass"}, said.append)
    assert len(said) == 1
    assert said[0].startswith("the answer is not kept beside the case: ")


def test_culprits_are_kept_by_kind_and_damage_counts_as_none(tmp_path: Path) -> None:
    keep_culprit(tmp_path, "passes", {"answer": "pass"})
    assert read_culprit(tmp_path) == {}  # no case lies there
    (tmp_path / "case.json").write_text("{}")
    keep_culprit(tmp_path, "passes", {"answer": "pass"})
    keep_culprit(tmp_path, "releases", {"first_bad": "1.0"})
    keep_culprit(tmp_path, "passes", {"answer": "set"})
    assert read_culprit(tmp_path) == {"passes": {"answer": "set"}, "releases": {"first_bad": "1.0"}}
    for text in ("[1]", "{", "[" * 100_000, "\udcff"):
        (tmp_path / "culprit.json").write_text(text, errors="surrogateescape")
        assert read_culprit(tmp_path) == {}
    assert {path.name for path in tmp_path.iterdir()} == {"case.json", "culprit.json"}


def test_a_sparse_checkout_holds_the_folders_asked_for(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    for number, source in enumerate([GOOD] * 5 + [BAD] * 3):
        history.commit(
            [number - 1] if number else [], source, path="src/fold.sh", files={"models/big.bin": "x"}
        )
    history.write()
    build = tmp_path / "build.sh"
    build.write_text(BUILD.replace("set -e\n", "set -e\ntest ! -e models\n"))
    scripts = {"check": tmp_path / "check.sh", "build": build}
    with Commits(
        history.folder,
        history.shas[0],
        "main",
        **scripts,
        sparse=("src",),
        root=tmp_path / "probes",
        say=lambda t: None,
    ) as source:
        assert [commit.sha for commit in source.search_commits().culprits] == [history.shas[5]]


@pytest.mark.slow(seconds=3)
def test_submodules_are_there_without_a_network(tmp_path: Path) -> None:
    """The compiler is a submodule, of which the repository has a copy; where it once came from is gone."""
    inner = row(tmp_path / "inner", "gggbb")
    outer = tmp_path / "outer"
    outer.mkdir()

    def git(*arguments: str) -> str:
        names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
        done = subprocess.run(
            ["git", *names, *arguments], cwd=outer, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    git("submodule", "--quiet", "add", str(inner.folder), "parts/fold")
    shas = []
    for sha in inner.shas:
        git("-C", "parts/fold", "checkout", "--quiet", sha)
        git("add", ".")
        git("commit", "--quiet", "--allow-empty", "-m", f"fold: {sha[:7]}")
        shas.append(git("rev-parse", "HEAD"))
    inner.folder.rename(tmp_path / "gone")
    for name, text in (
        ("build.sh", BUILD.replace("source=fold.sh", "cd parts/fold; source=fold.sh")),
        ("check.sh", CHECK),
    ):
        (tmp_path / name).write_text(text)
    with Commits(
        outer,
        shas[0],
        "main",
        tmp_path / "check.sh",
        tmp_path / "build.sh",
        root=tmp_path / "probes",
        say=lambda t: None,
    ) as source:
        found = source.search_commits()
    assert [commit.sha for commit in found.culprits] == [shas[3]]
    assert git("status", "--porcelain") == ""
    (outer / ".git" / "modules" / "parts").rename(tmp_path / "lost")
    with Commits(
        outer,
        shas[0],
        "main",
        tmp_path / "check.sh",
        tmp_path / "build.sh",
        root=tmp_path / "again",
        say=lambda t: None,
    ) as source:
        lost = source.search_commits()
    assert (lost.trouble, lost.culprits) == ("untestable", ())
    assert {item.symptom for item in lost.seen.values()} == {"no submodules"}
    git("config", "submodule.parts/fold.update", "none")  # the user does without it
    with Commits(
        outer, shas[0], "main", tmp_path / "check.sh", root=tmp_path / "without", say=lambda t: None
    ) as source:
        without = source.search_commits()
    assert {item.symptom for item in without.seen.values()} == {"bad"}  # the check finds nothing built


def test_an_entry_of_a_submodule_that_is_gone_means_nothing(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    history.commit([], GOOD)
    history.commit([0], BAD, files={".gitmodules": '[submodule "lost"]\n\tpath = lost\n\turl = ./nowhere\n'})
    history.write()
    scripts = {"check": tmp_path / "check.sh", "build": tmp_path / "build.sh"}
    with Commits(
        history.folder, history.shas[0], "main", **scripts, root=tmp_path / "probes", say=lambda t: None
    ) as source:
        assert [commit.sha for commit in source.search_commits().culprits] == [history.shas[1]]


def test_a_case_needs_a_backend_that_exists() -> None:
    with pytest.raises(BadInput, match="there is no backend"):
        CaseCheck(negations(), resolve("left-pad"))


def test_a_chance_that_nobody_named_is_measured(tmp_path: Path) -> None:
    """The check of a bad commit fails in two of three runs."""
    history = row(tmp_path / "repository", "g" * 9 + "b" * 14)
    count = (
        'n=$(cat "$0.n" 2>/dev/null || echo 0); n=$((n + 1)); echo $n > "$0.n"; test $((n % 3)) = 0 &&'
        " exit 0\n"
    )
    (tmp_path / "check.sh").write_text(CHECK.replace("#!/bin/sh\n", "#!/bin/sh\n" + count))
    scripts = {"check": tmp_path / "check.sh", "build": tmp_path / "build.sh"}
    with Commits(
        history.folder, history.shas[0], "main", **scripts, root=tmp_path / "probes", say=lambda t: None
    ) as source:
        found = source.search_commits(chance="auto", confidence=0.95)
    assert [commit.sha for commit in found.culprits] == [history.shas[9]]
    assert 0.95 <= found.confidence < 1
