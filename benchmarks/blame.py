"""Commits behind changes between releases: where the true one stands in the ranking of `opsieve bisect
--history`.

    python benchmarks/blame.py --onnxruntime CLONE [--onnxscript CLONE] [--tvm CLONE] [--set all] [--plot
    FILE] [--cases FOLDER] [--json FILE]

Each change in `blaming/known_commits.toml` names the case, the two releases, the guilty pass where
attribution finds one, the pull request and how it was established by reading the change. The releases are
installed on demand; nothing is built. Prints the rank and the probability of the true commit, the commits in
the range, seconds of the wall and of the CPU with git's, and how the stated probabilities compare with what
was found. A fork will do as a clone where it carries the commits; a change whose commits it lacks is named.
Those of the sets `held-out` and `held-out-2` are in files of these names; the weights were not fitted to
them: what is known of each failure is what its public thread says, and nothing is run. `--plot` draws stated
against true, of the sets asked for.
"""

import argparse
import itertools
import json
import os
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from calibration_plot import calibration_svg

from opsieve.backends.registry import resolve
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.blame.release_commit import ReleaseEnd
from opsieve.bisect.blame.wording import Clues
from opsieve.bisect.sessions.history import rank_commits
from opsieve.bisect.sources.outcome import evaluate
from opsieve.gen.case.case import open_case
from opsieve.gen.errors import BadInput

ROOT = Path(__file__).resolve().parent
KNOWN = ROOT / "blaming" / "known_commits.toml"
HELD_OUT = ROOT / "blaming" / "held_out.toml"
HELD_OUT_2 = ROOT / "blaming" / "held_out_2.toml"
PACKAGES = ("onnxruntime", "onnxscript", "onnxoptimizer", "tvm")
SHARED = ROOT.parent.parent / "shared" / "cases" / "releases"
BINS = (0.0, 0.1, 0.5, 0.9, 1.01)


@dataclass(frozen=True, slots=True)
class Known:
    """A change between two releases whose commit is known; `pull` is its pull request, or the start of its
    hash.

    One with a `symptom` is not run: operators, message and passes are those of its public thread.
    """

    case: str
    package: str
    old: str
    new: str
    pull: str
    kind: str = "fix"  # or regression
    how: str = ""
    passes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    message: str = ""
    symptom: str = ""
    thread: str = ""

    @property
    def bad(self) -> str:
        return self.old if self.kind == "fix" else self.new


@dataclass(frozen=True, slots=True)
class Result:
    """Where the true commit stands: `rank` 0 means nowhere; `first` is the probability given to the first."""

    change: Known
    rank: int
    probability: float
    first: float
    commits: int
    exact: bool
    wall: float
    cpu: float
    problem: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--onnxruntime", type=Path)
    parser.add_argument("--onnxscript", type=Path)
    parser.add_argument("--onnxoptimizer", type=Path)
    parser.add_argument("--cases", type=Path, default=SHARED)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tvm", type=Path)
    parser.add_argument(
        "--set", choices=("fitted", "held-out", "held-out-2", "all"), default="fitted", help="which changes"
    )
    parser.add_argument("--plot", type=Path, help="an SVG of stated against true")
    given = parser.parse_args()
    clones = {name: getattr(given, name) for name in PACKAGES if getattr(given, name)}
    files = {"fitted": KNOWN, "held-out": HELD_OUT, "held-out-2": HELD_OUT_2}
    sets = {name: changes(file) for name, file in files.items() if given.set in (name, "all")}
    found: dict[str, list[Result]] = {}
    with Workers() as workers:
        lab = ObservationCache(workers)
        for name, known in sets.items():
            print(
                f"\n{name}\n{'case':<54}{'change':<20}{'rank':>5}{'share':>8}{'of':>6}{'wall s':>8}{'CPU s':>7}"
                "  true commit"
            )
            found[name] = []
            for change in known:
                if change.package not in clones:
                    print(
                        f"{change.case:<54}{change.old}..{change.new}: left out, no clone of {change.package}"
                        " given"
                    )
                    continue
                found[name].append(measure(change, clones[change.package], given.cases, lab))
                show(found[name][-1])
            summary(found[name])
    if given.plot:
        points = {
            name: [(result.first, result.rank == 1) for result in results if not result.problem]
            for name, results in found.items()
        }
        given.plot.write_text(calibration_svg(points))
    if given.json:
        text = json.dumps(
            {name: [asdict(result) for result in results] for name, results in found.items()}, indent=1
        )
        given.json.write_text(text + "\n")


def changes(file: Path) -> list[Known]:
    """The changes of a file, its lists as tuples."""
    listed = tomllib.loads(file.read_text())["change"]
    return [
        Known(**{key: tuple(value) if isinstance(value, list) else value for key, value in item.items()})
        for item in listed
    ]


def clues_of(change: Known, cases: Path, lab: ObservationCache) -> Clues:
    """What is known of the failure: from the thread, else from running the case on the bad release."""
    if change.symptom:
        return Clues(
            change.passes,
            tuple(sorted(change.operators)),
            change.message,
            change.symptom,
            change.kind == "fix",
        )
    folder = ROOT.parent / "samples" / change.case
    if folder.is_dir():
        case = open_case(folder, None, None, 0)
    else:
        there = cases / change.case
        case = open_case(there / "model.onnx", there / "inputs.npz", there / "expected.npz", 0)
    seen = evaluate(case, resolve(f"{change.package}=={change.bad}"), lab)
    return Clues(
        change.passes,
        tuple(sorted(set(case.program.operators()))),
        seen.message,
        seen.symptom,
        change.kind == "fix",
    )


def measure(change: Known, clone: Path, cases: Path, lab: ObservationCache) -> Result:
    """Rank the commits of one change, from what the bad release shows."""
    clues = clues_of(change, cases, lab)
    ends = [end_of(change.package, release) for release in (change.old, change.new)]
    started, before = time.perf_counter(), cpu_seconds()
    try:
        found = rank_commits(clone, (ends[0], ends[1]), clues)
    except BadInput as error:
        return Result(change, 0, 0.0, 0.0, 0, False, 0.0, 0.0, str(error))
    wall, cpu = time.perf_counter() - started, cpu_seconds() - before
    ranked = found.ranked
    place = next(
        (
            at
            for at, item in enumerate(ranked)
            if change.pull in (item.pull_request, item.sha[: len(change.pull)])
        ),
        -1,
    )
    share = ranked[place].probability if place >= 0 else 0.0
    first = ranked[0].probability if ranked else 0.0
    exact = found.good.exact and found.bad.exact
    return Result(change, place + 1, share, first, found.commits, exact, wall, cpu)


def end_of(package: str, release: str) -> ReleaseEnd:
    """A release, installed where its wheel may say its commit and its sources; those of TVM are large, and
    their tags are there.
    """
    folders = () if package == "tvm" else ReleaseStore().environment(resolve(package).backend, release).path
    return ReleaseEnd(release, release, folders)


def show(result: Result) -> None:
    change = result.change
    head = f"{change.case:<54}{change.old + '..' + change.new:<20}"
    if result.problem:
        print(f"{head} not ranked: {result.problem}")
        return
    near = "" if result.exact else " (an end is near, not exact)"
    print(
        f"{head}{result.rank or '-':>5}{result.probability:>8.1%}{result.commits:>6}{result.wall:>8.1f}{result.cpu:>7.1f}"
        f"  {change.pull}{near}",
        flush=True,
    )


def summary(results: list[Result]) -> None:
    """Shares of the first, and how often a first commit with a stated probability is the true one."""
    ranked = [result for result in results if not result.problem]
    if not ranked:
        return
    for most in (1, 5):
        count = sum(0 < result.rank <= most for result in ranked)
        print(f"among the first {most}: {count} of {len(ranked)} ({count / len(ranked):.0%})")
    print("stated for the first commit, and how often it was the true one:")
    for low, high in itertools.pairwise(BINS):
        there = [result for result in ranked if low <= result.first < high]
        if there:
            right = sum(result.rank == 1 for result in there)
            mean = sum(result.first for result in there) / len(there)
            print(
                f"  {low:.0%} to {min(high, 1.0):.0%}: {len(there)} changes, stated {mean:.0%}, true"
                f" {right / len(there):.0%}"
            )


def cpu_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    main()
