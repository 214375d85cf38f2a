"""What each strategy finds in equal CPU time: `opsieve fuzz` of one seed on released compilers, strategy by
strategy.

    python benchmarks/yields.py run FOLDER NAME... --minutes 30 [--slice 15] [--seed 5] [-t TARGET]...
    python benchmarks/yields.py table FOLDER [--image FILE.svg]

`run` gives every strategy `--minutes` of CPU time of its whole process tree, in slices, so that equal load
falls on all of them; a campaign is interrupted at the end of a slice and resumed in the next, and `run` goes
on where it was stopped. Probing comes first and counts for nobody. CPU time, not the wall's: machines are
shared. `table` reads the stores. Fingerprints are compared between strategies, so "only it" are those that no
other strategy found. Wrong results and broken models of large programs have nearly as many fingerprints as
programs until they are reduced (`opsieve triage --reduce`): they are counted apart, and columns of targets
leave them out.
"""

import argparse
import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from line_plot import draw_lines
from process_tree import cpu_seconds

TARGETS = ("onnxruntime", "tvm", "onnxoptimizer", "onnxsim", "onnxslim", "onnxscript")
APART = ("broken", "mismatch")  # kinds that need a reduced graph to be told apart
_LOOK = 3.0  # seconds between two looks at the clock


@dataclass(frozen=True)
class Yield:
    """What one campaign found: `seen` has, for each fingerprint, the number of the first test, kind and
    target.
    """

    strategy: str
    minutes: float
    tests: int
    failures: int
    seen: dict[str, tuple[int, str, str]]


def campaign(folder: Path, name: str, seed: int, targets: Sequence[str], seconds: float) -> None:
    """Begin or resume the campaign of a strategy and interrupt it after so many CPU seconds."""
    clock = folder / f"{name}.seconds"
    had = float(clock.read_text()) if clock.exists() else 0.0
    begun = (folder / name / "index.sqlite").exists()
    words = [word for target in targets for word in ("-t", target)]
    words += [
        "--seed",
        str(seed),
        "--store",
        str(folder / name),
        *(["--resume"] if begun else ["--strategy", name]),
    ]
    with (folder / f"{name}.log").open("ab") as log:
        running = subprocess.Popen(
            [Path(sys.executable).parent / "opsieve", "fuzz", *words], stdout=log, stderr=log
        )
        most = 0.0
        while running.poll() is None and most < seconds:
            time.sleep(_LOOK)
            most = max(most, cpu_seconds(running.pid))
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
        code = running.wait()
    if code == 2:
        sys.exit(f"yields: {name} did not begin; {folder / name}.log has the reason")
    clock.write_text(str(had + most))
    print(f"{name}: {(had + most) / 60:.1f} CPU minutes, exit code {code}", file=sys.stderr)


def run(folder: Path, names: Sequence[str], given: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    targets = given.target or TARGETS
    words = [word for target in targets for word in ("-t", target)]
    subprocess.run(
        [Path(sys.executable).parent / "opsieve", "gen", "-n", "1", *words],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    done = 0.0
    while done < given.minutes:
        done = min(done + given.slice, given.minutes)
        for name in names:
            clock = folder / f"{name}.seconds"
            left = 60 * done - (float(clock.read_text()) if clock.exists() else 0.0)
            if left > _LOOK:
                campaign(folder, name, given.seed, targets, left)


def read(folder: Path) -> Iterator[Yield]:
    for clock in sorted(folder.glob("*.seconds")):
        index = sqlite3.connect(f"file:{clock.with_suffix('') / 'index.sqlite'}?mode=ro", uri=True)
        try:
            (tests,) = index.execute("SELECT count(*) FROM tests").fetchone()
            rows = index.execute(
                "SELECT fingerprint, test, iif(title LIKE 'broken%model%', 'broken', f.kind), target FROM"
                " failures AS f JOIN fingerprints ON key = fingerprint WHERE verdict = 'fail' ORDER BY test"
            ).fetchall()
        finally:
            index.close()
        seen: dict[str, tuple[int, str, str]] = {}
        for key, test, kind, target in rows:
            seen.setdefault(key, (test, kind, target))
        yield Yield(clock.stem, float(clock.read_text()) / 60, tests, len(rows), seen)


def table(found: Sequence[Yield]) -> Iterator[str]:
    """Rows of Markdown, most fingerprints first."""
    targets = sorted({target for one in found for _, _, target in one.seen.values()})
    everyone = Counter(key for one in found for key in one.seen)
    heads = [
        "strategy",
        "CPU min",
        "tests",
        "failures",
        "errors, crashes",
        "only it",
        *targets,
        "broken models",
        "wrong results",
    ]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for one in sorted(found, key=lambda one: -len(one.seen)):
        told = [key for key, (_, kind, _) in one.seen.items() if kind not in APART]
        by = Counter(target for _, kind, target in one.seen.values() if kind not in APART)
        kinds = Counter(kind for _, kind, _ in one.seen.values())
        cells = [
            f"`{one.strategy}`",
            f"{one.minutes:.0f}",
            f"{one.tests:,}",
            f"{one.failures:,}",
            str(len(told)),
        ]
        cells += [str(sum(everyone[key] == 1 for key in told)), *(str(by[target]) for target in targets)]
        yield "| " + " | ".join([*cells, *(str(kinds[kind]) for kind in APART)]) + " |"


def main() -> None:
    # A shell's background job ignores it, and so would campaigns.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("strategies", nargs="*", default=["isra", "pattern"])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--slice", type=float, default=15)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("-t", "--target", action="append")
    parser.add_argument("--image", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="yields-"))
    if given.what == "run":
        run(folder, given.strategies, given)
    found = list(read(folder))
    print("\n".join(table(found)))
    print(json.dumps({one.strategy: len(one.seen) for one in found}), file=sys.stderr)
    if given.image:
        lines = {
            one.strategy: [
                (float(test), at + 1.0)
                for at, test in enumerate(sorted(test for test, _, _ in one.seen.values()))
            ]
            for one in found
        }
        given.image.write_text(
            draw_lines("Fingerprints by strategy", "tests", "fingerprints", lines), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
