"""The commit of a release by the contents of its Python files, in small repositories."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from histories import History

from opsieve.bisect.blame.release_commit import ReleaseCommit, ReleaseEnd, find_release_commit
from opsieve.bisect.blame.wording import Clues
from opsieve.bisect.sessions.history import rank_commits
from opsieve.bisect.sources.git_history import check_readable
from opsieve.gen.errors import BadInput

START = {
    "pkg/__init__.py": "",
    "pkg/version.py": "V = '1.0'\n",
    "pkg/fuse.py": "fuse = 1\n",
    "pkg/fold.py": "fold = 1\n",
}


def commits(
    folder: Path, changes: Sequence[Mapping[str, str | None]]
) -> tuple[History, list[dict[str, str]]]:
    """A row of commits, and the files of each; None removes a file."""
    made, trees = History(folder), [dict(START)]
    made.commit([], "x", files=START)
    for number, change in enumerate(changes):
        files = {name: text for name, text in (trees[-1] | dict(change)).items() if text is not None}
        trees.append(files)
        made.commit([number], "x", files=files)
    return made.write(), trees


def install(folder: Path, files: Mapping[str, str]) -> ReleaseEnd:
    """A release with these files; it has a name and a number that no tag names."""
    for name, text in files.items():
        if name.startswith("pkg/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text.encode())
    (folder / "numpy").mkdir(exist_ok=True)  # another package beside it
    (folder / "numpy" / "core.py").write_text("numpy = 1\n")
    return ReleaseEnd(folder.name, "9.9", [folder])


def find(made: History, release: ReleaseEnd) -> ReleaseCommit:
    return find_release_commit(made.folder, release)


def git(made: History, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(made.folder), *arguments], check=True, capture_output=True)


def test_a_mirror_without_a_config_is_read(tmp_path: Path) -> None:
    made, trees = commits(tmp_path / "r", [{"pkg/fuse.py": "fuse = 2\n"}])
    mirror = tmp_path / "owner" / "mirror"
    shutil.copytree(made.folder / ".git", mirror, ignore=shutil.ignore_patterns("config", "index"))
    check_readable(mirror)
    assert find_release_commit(mirror, install(tmp_path / "w", trees[1])).sha == made.shas[1]


def test_an_untagged_release_is_the_newest_commit_with_its_files(tmp_path: Path) -> None:
    made, trees = commits(
        tmp_path / "r",
        [{"pkg/fuse.py": "fuse = 2\n"}, {"README.md": "words\n"}, {"pkg/fold.py": "fold = 2\n"}],
    )
    found = find(made, install(tmp_path / "w", trees[1]))
    assert (found.sha, found.exact, found.source) == (made.shas[2], True, "3 of 3 Python files agree")


def test_the_release_commit_itself_raises_the_version(tmp_path: Path) -> None:
    raises = [{"pkg/version.py": f"V = '1.{minor}'\n", "VERSION": f"1.{minor}\n"} for minor in (1, 2)]
    made, trees = commits(
        tmp_path / "r", [raises[0], {"pkg/fuse.py": "fuse = 2\n"}, {"pkg/fold.py": "fold = 2\n"}, raises[1]]
    )
    old, new = install(tmp_path / "1.1", trees[1]), install(tmp_path / "1.2", trees[4])
    assert (find(made, old).sha, find(made, new).sha) == (made.shas[1], made.shas[4])
    found = rank_commits(made.folder, (old, new), Clues(operators=("Fuse",)))
    assert (found.commits, found.good.commit) == (3, made.shas[1])


def test_a_release_branch_with_a_copied_commit_is_found_on_the_branch(tmp_path: Path) -> None:
    made = History(tmp_path / "r")
    fixed = START | {"pkg/fold.py": "fold = 2\n"}
    made.commit([], "x", files=START)
    made.commit([0], "x", files=fixed)  # on the branch, without what the default branch had before
    made.commit([0], "x", files=START | {"pkg/fuse.py": "fuse = 2\n"})
    made.commit([2], "x", files=fixed | {"pkg/fuse.py": "fuse = 2\n"})
    made.write()
    git(made, "branch", "release/9.9", made.shas[1])
    assert find(made, install(tmp_path / "w", fixed)).sha == made.shas[1]


def test_merged_work_counts_for_the_merge(tmp_path: Path) -> None:
    made = History(tmp_path / "r")
    both = START | {"pkg/fold.py": "fold = 2\n", "pkg/fuse.py": "fuse = 2\n"}
    made.commit([], "x", files=START)
    made.commit([0], "x", files=START | {"pkg/fold.py": "fold = 2\n"})
    made.commit([0], "x", files=START | {"pkg/fuse.py": "fuse = 2\n"})
    made.commit([2, 1], "x", files=both)
    made.commit([3], "x", files=both | {"pkg/fold.py": "fold = 3\n"})
    made.write()
    assert find(made, install(tmp_path / "w", both)).sha == made.shas[3]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_files_made_at_build_and_line_ends_leave_the_commit_exact(tmp_path: Path, ends: str) -> None:
    made, trees = commits(tmp_path / "r", [{"pkg/fuse.py": "a = 1\nb = 2\n"}, {"pkg/fold.py": "fold = 2\n"}])
    files = {name: text.replace("\n", ends) for name, text in trees[1].items()}
    files |= {"pkg/version.py": "V = '9.9+built'\n", "pkg/schema_pb2.py": "made = 1\n"}
    found = find(made, install(tmp_path / "w", files))
    assert (found.sha, found.exact, found.source) == (made.shas[1], True, "2 of 4 Python files agree")


def test_files_that_were_renamed_and_a_package_that_moved_are_followed(tmp_path: Path) -> None:
    moved: dict[str, str | None] = {f"src/{name}": text for name, text in START.items()}
    renamed = {"src/pkg/fuse.py": None, "src/pkg/fusing.py": START["pkg/fuse.py"]}
    made, trees = commits(
        tmp_path / "r", [moved | dict.fromkeys(START), renamed, {"src/pkg/fold.py": "fold = 2\n"}]
    )
    for number in range(4):
        files = {name.removeprefix("src/"): text for name, text in trees[number].items()}
        newest = 1 if number == 0 else number  # the move changes nothing of the release
        assert find(made, install(tmp_path / f"w{number}", files)).sha == made.shas[newest]


def test_a_clone_that_lacks_the_commit_has_one_near_it_and_no_empty_range(tmp_path: Path) -> None:
    made, trees = commits(tmp_path / "r", [{"pkg/fuse.py": "fuse = 2\n"}])
    old = install(tmp_path / "9.8", trees[1])
    new = install(tmp_path / "9.9", trees[1] | {"pkg/fold.py": "fold = 7\n"})
    found = find(made, new)
    assert (found.sha, found.exact, found.source) == (made.shas[1], False, "2 of 3 Python files agree")
    with pytest.raises(BadInput, match=r"none lies between them.*git fetch"):
        rank_commits(made.folder, (old, new), Clues())
    with pytest.raises(BadInput, match="not in order"):
        rank_commits(made.folder, (old, install(tmp_path / "9.10", START)), Clues())


def test_the_contents_decide_against_a_tag_and_a_tag_among_equals(tmp_path: Path) -> None:
    made, trees = commits(
        tmp_path / "r",
        [{"pkg/fuse.py": "fuse = 2\n"}, {"README.md": "words\n"}, {"pkg/fold.py": "fold = 2\n"}],
    )
    git(made, "tag", "v9.9", made.shas[3])
    assert find(made, install(tmp_path / "w", trees[1])).sha == made.shas[2]
    git(made, "tag", "-f", "v9.9", made.shas[1])
    assert find(made, install(tmp_path / "w", trees[1])).sha == made.shas[1]


def test_native_code_leaves_the_decision_to_the_tag(tmp_path: Path) -> None:
    made, trees = commits(tmp_path / "r", [{"core/x.cc": "1\n"}, {"pkg/fuse.py": "fuse = 2\n"}])
    release = install(tmp_path / "w", trees[1])
    (tmp_path / "w" / "pkg" / "core.so").write_bytes(b"\x7fELF")
    assert (find(made, release).sha, find(made, release).exact) == (made.shas[1], False)
    git(made, "tag", "v9.9", made.shas[0])
    assert (find(made, release).sha, find(made, release).source) == (made.shas[0], "v9.9")


def test_a_release_of_another_project_matches_nothing(tmp_path: Path) -> None:
    made, _ = commits(tmp_path / "r", [])
    with pytest.raises(BadInput, match="no commit with its files"):
        find(made, install(tmp_path / "w", dict.fromkeys(START, "other = 1\n")))
