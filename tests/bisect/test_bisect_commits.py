"""Real git histories: the exact first bad commit, within the logarithm."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import opsieve
from histories import BAD, BROKEN, GOOD, History, row
from waiting import wait_until

from opsieve.bisect.search.search_loop import SURE
from opsieve.bisect.sources.build_sandbox import CheckLimits
from opsieve.bisect.sources.commit_source import CommitResult, Commits
from opsieve.bisect.sources.git_history import describe_commit, find_tag, open_repository, resolve_commit
from opsieve.gen.errors import BadInput

# Runs of the good end and of the good commit beside the answer, with which a check that never varied is
# doubted.
CONFIRMATIONS = 10


def search(history: History, good: str, bad: str, **options: Any) -> CommitResult:
    scripts = history.folder.parent
    jobs = options.pop("jobs", 1)
    options = {"check": scripts / "check.sh", "build": scripts / "build.sh", **options}
    with Commits(
        history.folder, good, bad, root=scripts / "probes", say=lambda sentence: None, **options
    ) as source:
        return source.search_commits(jobs=jobs)


def state(folder: Path) -> str:
    """All that git knows of a repository and its checkout."""
    git = ["git", "-C", str(folder)]
    parts = [
        ["status", "--porcelain"],
        ["worktree", "list"],
        ["for-each-ref"],
        ["rev-parse", "HEAD"],
        ["stash", "list"],
    ]
    return "".join(
        subprocess.run([*git, *part], capture_output=True, text=True, check=True).stdout for part in parts
    )


def test_a_row_of_commits(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 120 + "b" * 80)
    before = state(history.folder)
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[120]]
    assert found.probed <= math.ceil(math.log2(199)) + SURE + CONFIRMATIONS
    assert state(history.folder) == before
    commit = found.culprits[0]
    assert commit.files == ("fold.sh",)
    assert "1 file changed" in commit.diffstat
    assert commit.date.startswith("2021-01-11")
    parent = found.seen[commit.parents[0]]
    assert (parent.state, found.seen[commit.sha].state) == ("good", "bad")
    assert found.seen[commit.sha].text == "2*3+4 = 11"
    assert list((tmp_path / "probes").glob("*/logs/*-check.log"))


def merges(count: int, rng: random.Random) -> list[list[int]]:
    """Parents of about `count` commits: a main line, up to four topic branches beside it, each merged when it
    is done.
    """
    parents: list[list[int]] = [[]]
    main, topics = 0, list[int]()
    while len(parents) < count or topics:
        choice = rng.random()
        if choice < 0.15 and len(topics) < 4 and len(parents) < count:
            topics.append(main)
        elif topics and (choice < 0.3 or len(parents) >= count):
            parents.append([main, topics.pop(rng.randrange(len(topics)))])
            main = len(parents) - 1
        elif topics and choice < 0.7:
            place = rng.randrange(len(topics))
            parents.append([topics[place]])
            topics[place] = len(parents) - 1
        else:
            parents.append([main])
            main = len(parents) - 1
    parents.append([main])
    return [sorted(set(above), key=above.index) for above in parents]


def merged(folder: Path, count: int, seed: int) -> tuple[History, int]:
    """A history with merges in which one commit brings the bug to all of its descendants; and which."""
    rng = random.Random(seed)
    parents = merges(count, rng)
    reach: list[set[int]] = []
    for number, above in enumerate(parents):
        reach.append({number}.union(*(reach[parent] for parent in above)))
    culprit = rng.randrange(1, len(parents))
    history = History(folder)
    for number, above in enumerate(parents):
        history.commit(above, BAD if culprit in reach[number] else GOOD)
    return history.write(), culprit


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_merges(tmp_path: Path, seed: int) -> None:
    history, culprit = merged(tmp_path / "repository", 150, seed)
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[culprit]]
    assert found.probed + found.recalled <= math.ceil(math.log2(history.count - 1)) + SURE + CONFIRMATIONS


def test_first_parents_blame_the_merge(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    base = history.commit([], GOOD)
    main = history.commit([base], GOOD)
    side = history.commit([base], BAD, "fold: add one (#77)")
    merge = history.commit([main, side], BAD, "Merge the side")
    history.commit([merge], BAD)
    history.write()
    exact = search(history, history.shas[base], "main")
    assert [(commit.sha, commit.pull_request) for commit in exact.culprits] == [(history.shas[side], "77")]
    coarse = search(history, history.shas[base], "main", first_parent=True)
    assert [commit.sha for commit in coarse.culprits] == [history.shas[merge]]


def test_an_unbuildable_stretch_hides_the_commit_in_a_set(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "gggggggggg---bbbbbbb")
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == history.shas[10:14]
    assert all(sighting.state != "bad" for sha, sighting in found.seen.items() if sha in history.shas[10:13])


def test_an_unbuildable_stretch_elsewhere_does_not(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "gggg" + "-" * 12 + "ggggbbbbbbbbbbbb")
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[20]]


def test_a_build_file_that_moved(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 10 + "r" * 15 + "R" * 10)
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[25]]


def test_a_good_end_that_is_bad_is_named_and_no_older_commit_is_blamed(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 8 + "b" * 22)
    found = search(history, history.shas[15], "main")
    assert found.wrong_ends == ((history.shas[15], "bad"),)
    assert (found.trouble, found.culprits) == ("always", ())
    assert set(found.seen) <= set(history.shas[15:])


def test_a_bad_end_that_is_good_is_named_and_no_newer_commit_is_blamed(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 20 + "b" * 10)
    found = search(history, history.shas[0], history.shas[12])
    assert found.wrong_ends == ((history.shas[12], "good"),)
    assert (found.trouble, found.culprits) == ("never", ())
    assert set(found.seen) <= set(history.shas[:13])


def test_a_flaky_check_never_blames_a_commit_outside_the_range(tmp_path: Path) -> None:
    """The bad end is not HEAD; it fails in five runs and then passes once, and stays bad."""
    history = row(tmp_path / "repository", "g" * 6 + "b" * 24)
    runs = tmp_path / "runs"
    check = (tmp_path / "check.sh").read_text()
    flaky = f"echo x >> {runs}\n[ $(wc -l < {runs}) -gt 5 ] && [ $(($(wc -l < {runs}) % 3)) = 0 ] && exit 0\n"
    (tmp_path / "check.sh").write_text(check.replace("got=", flaky + "got=", 1))
    found = search(history, history.shas[2], history.shas[15])
    assert found.wrong_ends == ()
    assert [commit.sha for commit in found.culprits] == [history.shas[6]]
    assert found.confidence < 1
    assert set(found.seen) <= set(history.shas[2:16])


def test_always_bad_blames_nobody(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "b" * 12)
    found = search(history, history.shas[5], "main")
    assert (found.trouble, found.culprits) == ("always", ())


def test_the_fix_is_found_when_the_good_end_is_newer(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "b" * 9 + "g" * 14)
    found = search(history, "main", history.shas[0])
    assert found.direction.value == "fix"
    assert [commit.sha for commit in found.culprits] == [history.shas[9]]


def test_a_revert_has_the_files_of_before_and_costs_no_probe(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    last = history.commit([], GOOD, plain=True)
    for _ in range(6):
        last = history.commit([history.commit([last], GOOD)], GOOD, "Revert", plain=True)
    culprit = last = history.commit([last], BAD)
    for _ in range(5):
        last = history.commit([last], BAD)
    history.write()
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[culprit]]
    again = search(history, history.shas[0], "main")
    assert (again.probed, again.culprits) == (0, found.culprits)


def test_ends_on_two_branches_meet_at_their_merge_base(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    base = history.commit([history.commit([], GOOD)], GOOD)
    release = history.commit([base], GOOD)
    side = [history.commit([base], GOOD)]
    culprit = history.commit(side, BAD)
    history.commit([culprit], BAD)
    history.write()
    found = search(history, history.shas[release], "main")
    assert found.base == history.shas[base]
    assert [commit.sha for commit in found.culprits] == [history.shas[culprit]]


def test_paths_leave_out_what_touches_others(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 6 + "r" * 6 + "R" * 6)
    assert [commit.sha for commit in search(history, history.shas[7], "main", paths=("src",)).culprits] == [
        history.shas[12]
    ]
    elsewhere = search(history, history.shas[7], "main", paths=("fold.sh",))
    assert (elsewhere.trouble, elsewhere.culprits) == ("elsewhere", ())


def test_several_at_once(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 30 + "b" * 30)
    found = search(history, history.shas[0], "main", jobs=3)
    assert [commit.sha for commit in found.culprits] == [history.shas[30]]


def test_a_check_that_is_killed_ends_the_search(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "gb")
    (tmp_path / "check.sh").write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(BadInput, match="have a meaning"):
        search(history, history.shas[0], "main")


def test_a_check_that_cannot_tell_is_untestable(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "ggggggbbbbbb")
    check = (
        (tmp_path / "check.sh")
        .read_text()
        .replace("got=", "case $OPSIEVE_COMMIT in WHICH) exit 125;; esac\ngot=")
    )
    (tmp_path / "check.sh").write_text(check.replace("WHICH", "|".join(history.shas[5:7])))
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == history.shas[5:8]


def test_names_of_commits(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "ggg")
    subprocess.run(["git", "-C", str(history.folder), "tag", "v1.20.0", history.shas[1]], check=True)
    with open_repository(history.folder) as repository:
        assert resolve_commit(repository, "v1.20.0") == history.shas[1]
        assert resolve_commit(repository, "2020-09-14 12:27") == history.shas[1]
        assert find_tag(history.folder, "1.20.0") == "v1.20.0"
        for name in ("nonsense", "--all", "v9", ""):
            with pytest.raises(BadInput, match="no commit"):
                resolve_commit(repository, name)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = row(tmp_path / "repository", "gggggbbb")
    monkeypatch.setenv("OPSIEVE_PROBES", str(tmp_path / "probes"))
    arguments = ["--commits", str(history.folder), "--good", history.shas[0], "--bad", "main", "--json"]
    scripts = ["--build", str(tmp_path / "build.sh"), "--check", str(tmp_path / "check.sh")]
    code, out, _ = opsieve("bisect", *arguments, *scripts, capsys=capsys)
    assert code == 0
    answer = json.loads(out)
    assert answer["culprit_commit"] == answer["first_bad"] == history.shas[5]
    assert answer["ends_verified"]
    assert {"probes", "seconds", "transitions", "confidence", "answer", "package", "first_good"} <= set(
        answer
    )


def test_a_clone_that_git_cannot_read_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = row(tmp_path / "repository", "gb")
    with (history.folder / ".git" / "config").open("a") as file:
        file.write("[core\n")
    ends = ["--good", history.shas[0], "--bad", "main", "--check", str(tmp_path / "check.sh")]
    code, _, err = opsieve("bisect", "--commits", history.folder, *ends, capsys=capsys)
    assert code == 2
    assert "git cannot read" in err
    assert "bad config line" in err


def test_an_interrupted_search_ends_its_scripts_and_keeps_its_probes(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "gggggbbb")
    check = (tmp_path / "check.sh").read_text()
    flag = tmp_path / "waiting"
    slow = (
        f"test $OPSIEVE_COMMIT = {history.shas[4]} && {{ echo $$ > {flag}; exec tail -f /dev/null; }}\ngot="
    )
    (tmp_path / "check.sh").write_text(check.replace("got=", slow, 1))
    names = ["--commits", str(history.folder), "--good", history.shas[0], "--bad", "main"]
    scripts = ["--build", str(tmp_path / "build.sh"), "--check", str(tmp_path / "check.sh")]
    process = subprocess.Popen(
        [sys.executable, "-m", "opsieve", "bisect", *names, *scripts],
        env={**os.environ, "OPSIEVE_PROBES": str(tmp_path / "probes"), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    wait_until(lambda: flag.exists() and flag.read_text(), process)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stderr.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(flag.read_text()), 0)
    assert not list(tmp_path.glob("opsieve-bisect-*"))
    (journal,) = (tmp_path / "probes").glob("*/probes.jsonl")
    assert len(journal.read_text().splitlines()) >= 2


def test_an_unbuildable_good_end_moves_on(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    last = history.commit([], GOOD)
    for source in (GOOD, BROKEN, BROKEN, GOOD, BAD, BAD):
        last = history.commit([last], source)
    history.write()
    found = search(history, history.shas[3], "main")
    assert found.wrong_ends == ((history.shas[3], "skip"),)
    assert [commit.sha for commit in found.culprits] == [history.shas[5]]


def test_a_flaky_check_is_found_out(tmp_path: Path) -> None:
    """It says good of a bad commit every third time: plain bisection would blame a later one."""
    history = row(tmp_path / "repository", "g" * 20 + "b" * 20)
    counter = tmp_path / "runs"
    check = (tmp_path / "check.sh").read_text()
    flaky = f"echo x >> {counter}\n[ $(($(wc -l < {counter}) % 3)) = 0 ] && exit 0\n"
    (tmp_path / "check.sh").write_text(check.replace("got=", flaky + "got=", 1))
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[20]]


def test_a_changed_helper_is_seen_with_fresh(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 5 + "b" * 5)
    (tmp_path / "check.sh").write_text(f"#!/bin/sh\n. {tmp_path}/helper\n")
    (tmp_path / "helper").write_text("exit 1\n")
    assert search(history, history.shas[0], "main").trouble == "always"
    (tmp_path / "helper").write_text('test "$("$OPSIEVE_BUILD/compiler" "2*3+4")" = 10\n')
    assert search(history, history.shas[0], "main").trouble == "always"  # recalled: its own text is the same
    found = search(history, history.shas[0], "main", fresh=True)
    assert [commit.sha for commit in found.culprits] == [history.shas[5]]
    assert found.recalled == 0


def test_a_build_that_failed_in_an_earlier_call_is_tried_again(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 5 + "b" * 5)
    build = (tmp_path / "build.sh").read_text()
    (tmp_path / "build.sh").write_text(build.replace("set -e", f"set -e\ntest -e {tmp_path}/network"))
    assert search(history, history.shas[0], "main").trouble == "untestable"
    (tmp_path / "network").touch()
    found = search(history, history.shas[0], "main")
    assert [commit.sha for commit in found.culprits] == [history.shas[5]]


def test_a_hang_is_bad_where_that_is_said(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "g" * 5 + "b" * 5)
    check = (tmp_path / "check.sh").read_text().replace('test "$got" = 10', 'test "$got" = 10 || sleep 600')
    (tmp_path / "check.sh").write_text(check)
    found = search(history, history.shas[0], "main", limits=CheckLimits(0.5, hang_is_bad=True))
    assert [commit.sha for commit in found.culprits] == [history.shas[5]]


def test_paths_that_no_commit_touches_are_mistyped(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "ggbb")
    with pytest.raises(BadInput, match="touches 'fold\\.shh'"):
        search(history, history.shas[0], "main", paths=("fold.shh",))


def test_a_shallow_clone_is_said(tmp_path: Path) -> None:
    history = row(tmp_path / "repository", "ggggbbbb")
    clone = ["git", "clone", "--quiet", "--depth", "4", f"file://{history.folder}", str(tmp_path / "clone")]
    subprocess.run(clone, check=True)
    said: list[str] = []
    scripts = {"check": tmp_path / "check.sh", "build": tmp_path / "build.sh", "root": tmp_path / "probes"}
    Commits(tmp_path / "clone", history.shas[5], "main", say=said.append, **scripts).__exit__(
        None, None, None
    )
    assert any("shallow" in sentence for sentence in said)
    with pytest.raises(BadInput, match="the clone is shallow: git fetch --unshallow"):
        Commits(tmp_path / "clone", history.shas[0], "main", say=said.append, **scripts)


def test_what_a_merge_brought_is_listed_once(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    base = history.commit([], GOOD)
    left, right = (
        history.commit([base], GOOD, files={"a": "1"}),
        history.commit([base], GOOD, files={"b": "1"}),
    )
    history.commit([left, right], GOOD, files={"a": "1", "b": "1"})
    with open_repository(history.write().folder) as repository:
        commit = describe_commit(repository, history.shas[3])
    assert commit.files == ("b", "fold.sh")
    assert commit.diffstat.count("changed") == 1
