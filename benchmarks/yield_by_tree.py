"""Distinct bugs that a campaign finds in equal CPU time, by this tree and by an older one: hunted, reduced,
attributed, counted.

    python benchmarks/yield_by_tree.py FOLDER [--before PYTHON] [--minutes 20] [--slice 5] [--seed 5] [-t
    TARGET]... [--budget 1800]

PYTHON is the interpreter of an environment with an older opsieve (a checkout of that revision, `pip install
-e`). Each tree hunts with its own `opsieve fuzz` and usual settings for `--minutes` of CPU of its whole
process tree, in slices, turn by turn, so that the machine's load falls on both. What both found is then
reduced (`triage --reduce`, `--budget` seconds each) and asked for its guilty pass (`attribute`) by this tree,
so both are counted by the same rules. A bug is a cluster after that; two clusters of one target with one
guilty pass and one kind count once in the second column. The last lines list every bug, for a person to
check. Goes on where it was stopped. Beside an older tree the stores' rules must agree: an index of another
schema is brought up by this tree.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaign_faults import done_in
from process_tree import cpu_seconds

TARGETS = ("onnxruntime", "onnxoptimizer", "onnxsim", "onnxscript", "onnxslim")
HERE = Path(sys.executable).parent / "opsieve"
_LOOK = 2.0  # seconds between two looks at the clock


def main() -> None:
    """Hunt, reduce, attribute, print."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", metavar="PYTHON", type=Path)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--slice", type=float, default=5)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--budget", type=int, default=1800)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("-t", "--target", action="append")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    trees = {"now": HERE, **({"before": given.before.parent / "opsieve"} if given.before else {})}
    done = 0.0
    while done < given.minutes:
        done = min(done + given.slice, given.minutes)
        for name, opsieve in trees.items():
            hunt(given.folder / name, opsieve, given, 60 * done)
    print(
        "| tree | CPU min | tests | bugs | by guilty pass | without a case that reduces"
        " |\n|---|---|---|---|---|---|"
    )
    told = {name: list(bugs(given.folder / name, given)) for name in trees}
    for name, found in told.items():
        passes = {(bug["target"], bug["kind"], bug["pass"]) if bug["pass"] else bug["id"] for bug in found}
        whole = sum(bug["nodes"] is None for bug in found)
        spent = seconds_of(given.folder / name) / 60
        print(
            f"| {name} | {spent:.1f} | {done_in(given.folder / name):,} | {len(found)} | {len(passes)} |"
            f" {whole} |"
        )
    for name, found in told.items():
        for bug in found:
            print(json.dumps({"tree": name, **bug}))


def seconds_of(store: Path) -> float:
    """CPU seconds that a hunt has had."""
    clock = store.with_suffix(".seconds")
    return float(clock.read_text()) if clock.exists() else 0.0


def hunt(store: Path, opsieve: Path, given: argparse.Namespace, upto: float) -> None:
    """Begin or resume a hunt and interrupt it when it has had so many CPU seconds in all."""
    had = seconds_of(store)
    if upto - had < _LOOK:
        return
    words = [word for target in given.target or TARGETS for word in ("-t", target)]
    begun = done_in(store) > 0
    words += [
        "--seed",
        str(given.seed),
        "-j",
        str(given.lanes),
        "--store",
        str(store),
        *(["--resume"] if begun else []),
    ]
    with store.with_suffix(".log").open("ab") as log:
        running = subprocess.Popen([opsieve, "fuzz", *words], stdout=log, stderr=log)
        most = 0.0
        while running.poll() is None and had + most < upto:
            time.sleep(_LOOK)
            most = max(most, cpu_seconds(running.pid))
        running.send_signal(signal.SIGINT)
        code = running.wait()
    if code == 2:
        sys.exit(f"{opsieve} did not go on; {store.with_suffix('.log')} has the reason")
    store.with_suffix(".seconds").write_text(str(had + most))


def bugs(store: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The clusters of a store once its cases are reduced and asked for their passes."""
    told("triage", "--reduce", "--offline", "--budget", given.budget, "-j", 2, "--store", store)
    for each in told("clusters", "--json", "-n", 1000, "--store", store)["clusters"]:
        case = store / each["representative"]
        if not each["guilty_pass"]:
            told("attribute", case, "--json", "--offline")
    told("triage", "--offline", "--store", store)
    for each in told("clusters", "--json", "-n", 1000, "--store", store)["clusters"]:
        yield {
            "id": each["id"],
            "target": ",".join(each["targets"]),
            "kind": each["kind"],
            "pass": each["guilty_pass"],
            "nodes": each["reduced"],
            "tests": each["members"],
            "operators": each["operators"][:6],
            "title": each["title"][:120],
        }


def told(*words: object) -> dict[str, Any]:
    """What a command of this tree answers; {} where it could not, or prints no JSON."""
    done = subprocess.run([HERE, *map(str, words)], capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        print(f"opsieve {' '.join(map(str, words))}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


if __name__ == "__main__":
    main()
