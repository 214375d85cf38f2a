"""Commits between two releases ranked without a build, on made histories whose guilty commit is known."""

import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from histories import History
from hypothesis import given, strategies as st

from opsieve.bisect.blame.ranking import WEIGHTS, Clue, rank_by_evidence
from opsieve.bisect.blame.release_commit import ReleaseEnd, find_release_commit
from opsieve.bisect.blame.wording import Clues, extract_constant_texts
from opsieve.bisect.sessions.answers import HistoryRanking
from opsieve.bisect.sessions.history import rank_commits
from opsieve.bisect.sources.release_source import is_pure
from opsieve.gen.errors import BadInput

FUSION = """bool PadFusion::Apply(Graph& graph) {
  if (!SatisfiesPadding(graph)) return false;
  if (pads == nullptr) return false;
  return Fuse(graph);
}
const char* name = "Pad_Fusion";
"""
KERNEL = (
    'Status Resize::Compute(Context* c) {\n  return Status("input must have at least one element in'
    ' it");\n}\n'
)
FILES = {
    "core/pad_fusion.cc": FUSION,
    "core/resize.cc": KERNEL,
    "test/pad_fusion_test.cc": "TEST(Pad) {}\n",
    "README.md": "x\n",
}


def history(folder: Path, changes: Sequence[tuple[str, Mapping[str, str]]]) -> History:
    """A row of commits, each of which changes some files of the one before."""
    made, files = History(folder), dict(FILES)
    made.commit([], "x", files=files, subject="start")
    for number, (subject, changed) in enumerate(changes):
        files |= changed
        made.commit([number], "x", files=files, subject=subject, plain=True)
    return made.write()


def noise(count: int) -> list[tuple[str, dict[str, str]]]:
    return [
        (f"Improve part {place} (#{100 + place})", {f"core/part{place}.cc": f"int part{place};\n"})
        for place in range(count)
    ]


GUARD = FUSION.replace("  if (pads == nullptr) return false;\n", "  Prepare(graph);\n")
REWORDED = KERNEL.replace("at least one element in it", "one element or more in it")
GUILTY = ("Allow missing attributes (#777)", {"core/pad_fusion.cc": GUARD})


def ranked(made: History, clues: Clues, old: int = 0, new: int = -1) -> HistoryRanking:
    for name, number in (("v1.0", old), ("v2.0", new)):
        subprocess.run(
            ["git", "-C", str(made.folder), "tag", "-f", name, made.shas[number]],
            check=True,
            capture_output=True,
        )
    return rank_commits(made.folder, (ReleaseEnd("1.0", "1.0"), ReleaseEnd("2.0", "2.0")), clues)


def test_the_lines_of_the_pass_that_differ_name_the_commit(tmp_path: Path) -> None:
    """The pull request neither names the pass nor an operator, and another one touches the file before the
    older release.
    """
    early = ("Pad fusion: comments", {"core/pad_fusion.cc": "// comment\n" + FUSION})
    made = history(
        tmp_path / "r",
        [
            early,
            *noise(20),
            ("Allow missing attributes (#31) (#777)", {"core/pad_fusion.cc": "// comment\n" + GUARD}),
            *noise(25)[20:],
        ],
    )
    before = subprocess.run(
        ["git", "-C", str(made.folder), "status", "--porcelain"], capture_output=True, check=True
    ).stdout
    found = ranked(made, Clues(passes=("Pad_Fusion",)), old=1)
    assert found.ranked[0].sha == made.shas[22]
    assert found.ranked[0].pull_request == "777"
    assert found.ranked[0].probability > 0.9
    assert found.commits == 26
    assert (
        subprocess.run(
            ["git", "-C", str(made.folder), "status", "--porcelain"], capture_output=True, check=True
        ).stdout
        == before
    )


def test_the_text_of_the_message_names_the_commit(tmp_path: Path) -> None:
    made = history(
        tmp_path / "r", [*noise(10), ("Clean up (#9)", {"core/resize.cc": REWORDED}), *noise(14)[10:]]
    )
    said = "Non-zero status code 1 while running 'r': input must have one element or more in it: {0,3}"
    found = ranked(made, Clues(operators=("Relu",), message=said))
    assert found.ranked[0].sha == made.shas[11]
    assert any("one element or more" in reason for reason in found.ranked[0].reasons)


def test_without_evidence_it_is_none_of_these(tmp_path: Path) -> None:
    found = ranked(history(tmp_path / "r", noise(8)), Clues(operators=("Softmax",), message="boom"))
    assert found.ranked == ()
    assert found.none > 0.5


def test_the_ends_of_tags_make_a_short_range_exact(tmp_path: Path) -> None:
    fix = ("Fix folding of Softmax", {"core/x.cc": "int a;\n"})
    made = history(tmp_path / "r", [*noise(2), fix, *noise(3)[2:]])
    found = ranked(made, Clues(operators=("Softmax",), message="boom"))
    assert (found.commits, found.good.exact, found.bad.exact) == (4, True, True)
    assert found.ranked[0].probability > 0.5 > found.none


def test_a_short_exact_range_leaves_little_doubt() -> None:
    """Beside one commit that raises the version, a weak sign is enough; another end would be a guess."""
    found = {"fix": {Clue.MENDS: "fix", Clue.RARE_WORD: "folding"}}
    exact, near = (rank_by_evidence(["release", "fix"], found, is_exact) for is_exact in (True, False))
    assert exact.suspects[0].sha == "fix"
    assert exact.suspects[0].probability > 0.8
    assert near.none > 0.7
    many = rank_by_evidence([*(f"c{at}" for at in range(99)), "fix"], found, is_exact=True)
    assert many.none > 0.8
    for ranking in (exact, near, many):
        total = ranking.none + sum(suspect.probability for suspect in ranking.suspects)
        assert total == pytest.approx(1)


def test_what_was_cherry_picked_into_the_older_release_is_no_suspect(tmp_path: Path) -> None:
    made, files = History(tmp_path / "r"), dict(FILES)
    made.commit([], "x", files=files, subject="start")
    made.commit([0], "x", files=files | GUILTY[1], subject=GUILTY[0])  # main
    made.commit(
        [1], "x", files=files | GUILTY[1] | {"core/resize.cc": REWORDED}, subject="Resize: words (#8)"
    )
    # Release branch.
    made.commit([0], "x", files=files | GUILTY[1], subject="Allow missing attributes (#777)", plain=True)
    made.write()
    found = ranked(made, Clues(passes=("Pad_Fusion",), operators=("Resize",)), old=3, new=2)
    assert found.cherry_picked == 1
    assert found.branched
    assert [item.sha for item in found.ranked] == [made.shas[2]]


def test_files_that_moved_are_followed_and_documents_count_little(tmp_path: Path) -> None:
    moved = {"core/graph/pad_fusion.cc": FUSION, "core/pad_fusion.cc": "// moved\n"}
    guilty = ("Simplify (#5)", {"core/graph/pad_fusion.cc": GUARD})
    words = ("Document Pad_Fusion (#6)", {"docs/pad_fusion.md": "Pad_Fusion\n"})
    found = ranked(history(tmp_path / "r", [("Move", moved), guilty, words]), Clues(passes=("Pad_Fusion",)))
    assert found.ranked[0].subject == guilty[0]


def test_a_release_says_its_commit_itself(tmp_path: Path) -> None:
    made = history(tmp_path / "r", noise(3))
    folder = tmp_path / "wheel" / "onnxruntime" / "capi"
    folder.mkdir(parents=True)
    binary = f"\0build type=Release, git-commit-id={made.shas[2][:10]}, c++\0".encode()
    (folder / "state.cpython-311.so").write_bytes(b"\x7fELF" + bytes(5000) + binary)
    found = find_release_commit(made.folder, ReleaseEnd("", "9.9", [tmp_path / "wheel"]))
    assert (found.sha, found.source) == (made.shas[2], "state.cpython-311.so")
    (folder / "_version.py").write_text(f"commit_id = 'g{made.shas[1][:9]}'\n")
    assert find_release_commit(made.folder, ReleaseEnd("", "9.9", [tmp_path / "wheel"])).sha == made.shas[1]
    with pytest.raises(BadInput, match="no tag for release"):
        find_release_commit(made.folder, ReleaseEnd("", "9.9", []))


@given(
    st.lists(st.dictionaries(st.sampled_from(list(Clue)), st.just("x"), max_size=4), min_size=1, max_size=30)
)
def test_probabilities_are_a_distribution_and_more_evidence_is_never_less_likely(
    found: list[dict[Clue, str]],
) -> None:
    commits = [f"c{place}" for place in range(len(found))]
    evidence = dict(zip(commits, found, strict=True))
    ranking = rank_by_evidence(commits, evidence)
    assert 0 < ranking.none <= 1
    assert sum(suspect.probability for suspect in ranking.suspects) + ranking.none <= 1 + 1e-9
    scores = {sha: sum(WEIGHTS[kind] for kind in evidence[sha]) for sha in commits}
    order = [scores[suspect.sha] for suspect in ranking.suspects]
    assert order == sorted(order, reverse=True)
    assert all(math.isfinite(suspect.probability) for suspect in ranking.suspects)


def test_a_message_is_searched_by_what_a_source_can_hold() -> None:
    said = (
        "[ShapeInferenceError] (op_type:Resize, node name: r): Either `sizes` or `scales` must be provided,"
        " but not both of them at /a/b.cc:123"
    )
    assert any("must be provided, but not both of them" in text for text in extract_constant_texts(said))
    assert extract_constant_texts("x = 1") == []


def squashed(folder: Path) -> History:
    """A default branch whose changes are squashed into one commit of the branch of the newer release, with no
    number in the message.
    """
    made, files = History(folder), dict(FILES)
    made.commit([], "x", files=files, subject="start")
    one = files | GUILTY[1]
    made.commit([0], "x", files=one, subject=GUILTY[0], plain=True)
    two = one | {"core/resize.cc": REWORDED}
    made.commit([1], "x", files=two, subject="Resize: words (#8)", plain=True)
    three = two | {"core/other.cc": "int other;\n"}
    made.commit([2], "x", files=three, subject="Not in the release (#9)", plain=True)
    made.commit([0], "x", files=two, subject="Round 1", plain=True)  # the branch
    made.commit([3], "x", files=three | {"core/last.cc": "int last;\n"}, subject="Later (#10)", plain=True)
    return made.write()


def test_a_squash_on_the_release_branch_is_opened(tmp_path: Path) -> None:
    made = squashed(tmp_path / "r")
    found = ranked(made, Clues(passes=("Pad_Fusion",), operators=("Resize",)), old=0, new=4)
    shas = [item.sha for item in found.ranked]
    assert shas == [made.shas[1], made.shas[2]]
    assert found.ranked[0].pull_request == "777"


def test_what_a_squash_of_the_older_release_carries_is_no_suspect(tmp_path: Path) -> None:
    made = squashed(tmp_path / "r")
    found = ranked(made, Clues(passes=("Pad_Fusion",), operators=("Resize",)), old=4, new=5)
    assert found.cherry_picked == 2
    assert found.ranked == ()


def test_the_source_of_the_header_that_names_the_pass_counts(tmp_path: Path) -> None:
    header = {"core/pad_fusion.h": 'struct PadFusion { const char* name = "Pad_Fusion"; };\n'}
    source = {"core/pad_fusion.cc": FUSION.replace("Pad_Fusion", "x")}
    changed = {"core/pad_fusion.cc": GUARD.replace("Pad_Fusion", "x")}
    table = {"core/all_passes.cc": 'const char* all[] = {"Pad_Fusion"};\n'}
    longer = {"core/all_passes.cc": 'const char* all[] = {"Pad_Fusion", "Other"};\n'}
    changes = [("Split", header | source | table), ("Register (#4)", longer), ("Simplify (#5)", changed)]
    found = ranked(history(tmp_path / "r", changes), Clues(passes=("Pad_Fusion",)), old=1)
    assert found.ranked[0].subject == "Simplify (#5)"


def test_of_two_changes_of_a_pass_the_one_that_names_the_operator_leads(tmp_path: Path) -> None:
    cast = {"core/pad_fusion.cc": FUSION.replace("Fuse(graph)", 'Fuse(graph, "Cast")')}
    pool = {
        "core/pad_fusion.cc": (
            cast["core/pad_fusion.cc"].replace("SatisfiesPadding", 'Is(graph, "AveragePool") && S')
        )
    }
    changes = [("Look through more nodes (#4)", pool), ("Clean up (#5)", cast | pool), *noise(3)]
    found = ranked(
        history(tmp_path / "r", changes), Clues(passes=("Pad_Fusion",), operators=("Pad", "AveragePool"))
    )
    assert found.ranked[0].subject == "Look through more nodes (#4)"
    assert "those lines name the operator AveragePool" in found.ranked[0].reasons


def test_code_that_is_not_in_the_release_does_not_count(tmp_path: Path) -> None:
    """The binary names the source files it was built of; a kernel in another folder is for another
    machine.
    """
    files = [f"core/cpu/k{place}.cc" for place in range(60)]
    start = dict.fromkeys(files, "int k;\n") | {"core/cpu/resize.cc": KERNEL, "core/gpu/resize.cc": KERNEL}
    here = ("Rewrite (#1)", {"core/cpu/resize.cc": REWORDED})
    there = ("Rewrite too (#2)", {"core/gpu/resize.cc": REWORDED})
    made = history(tmp_path / "r", [("more", start), here, there])
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    names = b"\0".join(f"/build/src/{file}".encode() for file in files)
    (wheel / "lib.so").write_bytes(b"\x7fELF" + bytes(100) + names + b"\0" + b"a/" * 500_000)
    for name, number in (("v1.0", 1), ("v2.0", -1)):
        subprocess.run(["git", "-C", str(made.folder), "tag", name, made.shas[number]], check=True)
    found = rank_commits(
        made.folder,
        (ReleaseEnd("1.0", "1.0"), ReleaseEnd("2.0", "2.0", (wheel,))),
        Clues(operators=("Resize",)),
    )
    assert [item.subject for item in found.ranked] == [here[0]]


def test_words_of_the_failure_that_few_commits_have_count(tmp_path: Path) -> None:
    """No file is named after the operator, and the message stands in no source: the words of subject and
    description are left.
    """
    change = (
        "Guard the division (#7)\n\nA pooling of nothing fell over a divide-by-zero.",
        {"core/area.cc": "int a;\n"},
    )
    found = ranked(
        history(tmp_path / "r", [*noise(20), change, *noise(40)[20:]]),
        Clues(operators=("AveragePool",), message="Check failed: Divide by zero", fixed=True),
    )
    assert found.ranked[0].subject == "Guard the division (#7)"
    assert "divide and pool" in " ".join(found.ranked[0].reasons)


def test_changed_lines_and_tests_that_name_an_operator_or_a_function_count(tmp_path: Path) -> None:
    code = {"core/area.cc": "Status Pool2DTask::operator()(int x) {\n  return AveragePoolArea(x);\n}\n"}
    test = {"test/area_test.cc": "TEST(Pools, average_pool_of_nothing) {}\n"}
    made = history(tmp_path / "r", [*noise(9), ("Rewrite (#4)", code | test), *noise(19)[9:]])
    found = ranked(made, Clues(operators=("AveragePool",), message="in Pool2DTask::operator"))
    assert found.ranked[0].subject == "Rewrite (#4)"
    reasons = " ".join(reason for item in found.ranked for reason in item.reasons)
    assert "changes the function Pool2DTask::operator" in reasons
    assert "changes code that names the operator AveragePool" in reasons
    assert "changes a test of AveragePool" in reasons


def test_files_beside_the_one_that_registers_an_operator_count(tmp_path: Path) -> None:
    pool = {"core/pool.cc": "KERNEL(\n    AveragePool,\n    11)\n", "core/pool_attributes.h": "int size;\n"}
    changes = [("Pools", pool), *noise(9), ("Clean up (#4)", {"core/pool_attributes.h": "int size = 1;\n"})]
    found = ranked(history(tmp_path / "r", changes), Clues(operators=("AveragePool",)), old=1)
    assert found.ranked[0].subject == "Clean up (#4)"
    assert "is registered" in found.ranked[0].reasons[0]


@pytest.mark.parametrize(
    ("operators", "message", "telling"),
    [
        (("Relu", "Conv"), "", ("Relu", "Conv")),
        (tuple("ABCDEFG"), "", ()),
        (tuple("ABCDEFG"), "Node (n) Op (C) is wrong", ("C",)),
        (("Relu",), "Non-zero status code returned while running FusedConv node", ("FusedConv", "Relu")),
    ],
)
def test_of_many_operators_those_of_the_message_tell(
    operators: tuple[str, ...], message: str, telling: tuple[str, ...]
) -> None:
    assert Clues(operators=operators, message=message).distinctive_operators == telling


def test_a_release_without_a_tag_is_near_its_branch_or_the_end_of_its_version(tmp_path: Path) -> None:
    bumps = [
        ("Begin 1.1", {"VERSION": "1.1.0\n"}),
        *noise(2),
        ("Begin 1.2", {"VERSION": "1.2.0\n"}),
        *noise(4)[2:],
    ]
    made = history(tmp_path / "r", bumps)
    found = find_release_commit(made.folder, ReleaseEnd("", "1.1.0", []))
    assert (found.sha, found.exact) == (made.shas[3], False)
    assert find_release_commit(made.folder, ReleaseEnd("", "1.2.0", [])).sha == made.shas[-1]
    subprocess.run(["git", "-C", str(made.folder), "branch", "rel-1.1.0", made.shas[2]], check=True)
    for older in ("1.1.3", "1.2"):  # neither the branch of another release nor a longer number is near it
        with pytest.raises(BadInput, match="no tag for release"):
            find_release_commit(made.folder, ReleaseEnd("", older, []))
    subprocess.run(["git", "-C", str(made.folder), "branch", "rel-1.1", made.shas[2]], check=True)
    found = find_release_commit(made.folder, ReleaseEnd("", "1.1.3", []))
    assert (found.sha, found.source) == (made.shas[2], "heads/rel-1.1")


def test_a_file_of_the_message_is_found_where_the_repository_has_it(tmp_path: Path) -> None:
    made = history(tmp_path / "r", [*noise(3), ("Tidy (#9)", {"core/resize.cc": REWORDED}), *noise(5)[3:]])
    found = ranked(made, Clues(message="/build_src/core/resize.cc:35 Status::Resize() x > 0 was false"))
    assert found.ranked[0].subject == "Tidy (#9)"


def test_an_operator_that_the_pass_names_says_nothing_more() -> None:
    assert Clues(passes=("Pad_Fusion",), operators=("Pad", "AveragePool")).distinctive_operators == (
        "AveragePool",
    )


@pytest.mark.parametrize(
    ("subject", "operator", "named"),
    [
        ("Add support for Pad", "Add", False),
        ("[CPU] Split the file", "Split", False),
        ("Fix the type of Add", "Add", True),
        ("fix averagepool with padding", "AveragePool", True),
    ],
)
def test_a_verb_at_the_head_of_a_subject_is_no_operator(
    subject: str, operator: str, named: bool, tmp_path: Path
) -> None:
    made = history(tmp_path / "r", [(subject, {"core/x.cc": "int x;\n"})])
    assert bool(ranked(made, Clues(operators=(operator,))).ranked) is named


def test_a_wheel_says_whether_its_sources_can_be_imported(tmp_path: Path) -> None:
    for name, pure in (("onnxscript-0.3.2", "true"), ("onnx_extra-1.0", "false")):
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "WHEEL").write_text(
            f"Wheel-Version: 1.0\nRoot-Is-Purelib: {pure}\n"
        )
    assert is_pure([tmp_path], "onnxscript")
    assert not is_pure([tmp_path], "onnx-extra")
    assert not is_pure([tmp_path], "onnx")


def test_a_pass_that_is_a_class_is_found_where_it_is_defined(tmp_path: Path) -> None:
    rule = {"rules/relus.py": "class FuseReluClip(Rule):\n    pass\n"}
    broken = {"rules/relus.py": "class FuseReluClip(Rule):\n    def check(self): return True\n"}
    changes = [("Rules", rule), ("Simplify (#3)", broken), *noise(2)]
    found = ranked(history(tmp_path / "r", changes), Clues(passes=("FuseReluClip",)), old=1)
    assert [item.subject for item in found.ranked] == ["Simplify (#3)"]


def test_a_repository_that_git_cannot_read_is_a_sentence(tmp_path: Path) -> None:
    made = history(tmp_path / "r", noise(3))
    for name, number in (("v1.0", 0), ("v2.0", -1)):
        subprocess.run(["git", "-C", str(made.folder), "tag", name, made.shas[number]], check=True)
    for file in [*made.folder.glob(".git/objects/??/*"), *made.folder.glob(".git/objects/pack/*.pack")]:
        file.chmod(0o644)
        file.write_bytes(b"broken")
    with pytest.raises(BadInput, match=r"git cannot read|no commit|no tag"):
        rank_commits(
            made.folder, (ReleaseEnd("1.0", "1.0"), ReleaseEnd("2.0", "2.0")), Clues(operators=("Resize",))
        )


def test_a_clone_names_no_program_that_runs(tmp_path: Path) -> None:
    """A clone from a stranger has a configuration, and git starts the programs that it names."""
    made = history(tmp_path / "r", [*noise(3), ("Version (#5)", {"VERSION": "3.0\n"}), GUILTY])
    last, ran = made.shas[-1], tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\ncat "$1"\n')
    program.chmod(0o700)

    def git(*words: str, text: str = "") -> str:
        line = ["git", "-C", str(made.folder), *words]
        return subprocess.run(line, input=text, capture_output=True, text=True, check=True).stdout.strip()

    head, _, message = git("cat-file", "commit", last).partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    signed = git("hash-object", "-t", "commit", "-w", "--stdin", text=f"{head}\n{signature}\n\n{message}\n")
    git("update-ref", "HEAD", signed)
    made.shas[-1] = signed
    for key in ("diff.external", "diff.x.command", "diff.x.textconv", "core.fsmonitor", "gpg.program"):
        git("config", key, str(program))
    git("config", "log.showSignature", "true")
    (made.folder / ".git" / "info" / "attributes").write_text("* diff=x\n")
    git("tag", "v1.0", made.shas[0])
    git("tag", "v2.0", signed)
    clues = Clues(passes=("Pad_Fusion",), message="input must have at least one element in it")
    for release in ("2.0", "3.0"):  # one with a tag, one without, which is looked for in contents
        ends = (ReleaseEnd("1.0", "1.0"), ReleaseEnd(release, release))
        assert rank_commits(made.folder, ends, clues).ranked
        assert not ran.exists(), ran.read_text()


def test_a_nightly_that_says_only_its_day_is_of_any_commit_of_it(tmp_path: Path) -> None:
    made = history(tmp_path / "r", noise(1))
    for day in (5, 5, 6):
        at = f"2026-03-{day:02}T12:00:00"
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at, **os.environ}
        command = [
            "git",
            "-C",
            str(made.folder),
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "-qm",
            str(day),
        ]
        subprocess.run([*command, "--allow-empty"], check=True, env=dates)
    listed = subprocess.run(
        ["git", "-C", str(made.folder), "log", "--format=%H %s"], check=True, capture_output=True, text=True
    )
    (last, _), (second, _), _, (base, _) = (line.split(" ", 1) for line in listed.stdout.splitlines()[:4])
    nights = [ReleaseEnd("", f"1.3.dev2026030{day}") for day in (5, 6)]
    assert find_release_commit(made.folder, nights[0]).sha == second
    assert find_release_commit(made.folder, nights[0], before=True).sha == base
    assert find_release_commit(made.folder, nights[1]).sha == last
    found = rank_commits(made.folder, (nights[0], nights[1]), Clues())
    assert (found.commits, found.good.source) == (3, "the last commit before 2026-03-05")


def test_a_configuration_of_blank_lines_is_read_in_linear_time(tmp_path: Path) -> None:
    made = history(tmp_path / "r", noise(2))
    config = made.folder / ".git" / "config"
    config.write_text("\n" * 900_000 + config.read_text())
    assert ranked(made, Clues()).commits == 2


@pytest.mark.parametrize("kind", ["a device", "a FIFO", "in another"])
def test_a_clone_includes_no_file_without_end(tmp_path: Path, kind: str) -> None:
    made, odd = history(tmp_path / "r", noise(1)), tmp_path / "odd"
    if kind == "a device":
        odd.symlink_to("/dev/full")
    else:
        os.mkfifo(odd)
    config = made.folder / ".git" / "config"
    if kind == "in another":
        (tmp_path / "mine").write_text(f'[IncludeIf "gitdir:/"]path = "{odd}"\n')
    named = "../../mine" if kind == "in another" else odd
    config.write_text(f"{config.read_text()}[include]\n\tPath = {named}\n")
    with pytest.raises(BadInput, match="not a regular file"):
        rank_commits(made.folder, (ReleaseEnd("1.0", "1.0"), ReleaseEnd("2.0", "2.0")), Clues())
