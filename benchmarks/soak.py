"""A long campaign on every target: does memory stay flat, is anything left over, does the rate hold?

    python benchmarks/soak.py [--minutes 60] [--jobs 2] [-t TARGET]... [--seed 1] [--images FOLDER]

`opsieve fuzz` with a store and a temporary folder of its own. Some 400 times during the run /proc is asked about everything that it started:
proportional memory (what processes share is counted once) of the main process, of the lanes and of the rest, descriptors, processes,
segments in /dev/shm, and tests. Told as one JSON object: memory and descriptors of each tenth of the run (means), their growth from the
second tenth to the last, tests a second by quarter on the wall's clock and on the CPU's, and what is left when the run has ended:
processes, files in the temporary folder, segments (of whoever made them: keep the machine to itself). `--images` gets soak-memory.svg and soak-tests.svg. The files of the run lie in memory
only if the temporary folder does. Interrupt it (Ctrl-C) and it tells of what it has seen.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from campaign_faults import done_in
from process_tree import ProcessSample, below, samples

from opsieve.gen.metrics.plots import line_plot

TARGETS = ("onnxruntime", "tvm", "onnxoptimizer", "onnxsim", "onnxscript", "onnxslim")
LOOKS = 400
ENDING = 120.0  # seconds that a run may take to end after its time
ROLES = ("main", "lane", "worker")


@dataclass(frozen=True)
class Look:
    """What was there after some seconds: memory in MB by role, and counts of the whole."""

    seconds: float
    tests: int
    cpu: float
    memory: dict[str, float]
    descriptors: dict[str, int]
    processes: int
    segments: int


def main() -> None:
    """Run, print one JSON object, write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-t", "--target", action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        seen, left = watched(Path(folder), given)
    if len(seen) < 10:
        sys.exit(f"soak: only {len(seen)} looks; give it more --minutes")
    print(json.dumps({"targets": given.target or TARGETS, "jobs": given.jobs, **facts(seen), "left": left}))
    if given.images:
        draw(seen, given.images)


def watched(folder: Path, given: argparse.Namespace) -> tuple[list[Look], dict[str, Any]]:
    """Run the campaign and look; what was seen, and what is left of it."""
    scratch, store = folder / "tmp", folder / "store"
    scratch.mkdir()
    words = [word for target in given.target or TARGETS for word in ("-t", target)]
    words += ["--minutes", str(given.minutes), "-j", str(given.jobs), "--seed", str(given.seed), "--store", str(store)]
    before = set(os.listdir("/dev/shm"))
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [Path(sys.executable).parent / "opsieve", "fuzz", "--quiet", *words],
            stdout=log, stderr=log, start_new_session=True, env={**os.environ, "TMPDIR": str(scratch)},
        )  # fmt: skip
        seen: list[Look] = []
        ever: set[int] = set()
        begun, until = time.monotonic(), time.monotonic() + 60 * given.minutes + ENDING
        with suppress(KeyboardInterrupt):
            while running.poll() is None and time.monotonic() < until:
                now = list(samples(running.pid))
                ever |= {sample.pid for sample in now} - {running.pid}
                if any(sample.pid == running.pid for sample in now):
                    seen.append(look(time.monotonic() - begun, now, done_in(store), before))
                with suppress(subprocess.TimeoutExpired):
                    running.wait(60 * given.minutes / LOOKS)
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
            ever |= {pid for pid, _ in below(running.pid)} - {running.pid}
        with suppress(subprocess.TimeoutExpired):
            running.wait(60)
        time.sleep(2)
        left = {
            "exit_code": running.poll(),
            "processes": [pid for pid in ever if in_session_of(pid, ever | {running.pid})],
            "files": [str(path.relative_to(scratch)) for path in scratch.rglob("*")][:20],
            "segments": sorted(set(os.listdir("/dev/shm")) - before),
        }
    if running.poll() is None:
        running.kill()
    if left["exit_code"] not in (0, 1, 130):
        sys.exit(f"soak: the campaign ended with {left['exit_code']}: {(folder / 'log').read_text()[-1000:]}")
    return seen, left


def look(seconds: float, now: Sequence[ProcessSample], tests: int, before: set[str]) -> Look:
    """Sum up."""
    memory = {role: sum(sample.memory for sample in now if sample.role == role) for role in ROLES}
    descriptors = {role: sum(sample.descriptors for sample in now if sample.role == role) for role in ROLES}
    segments = len(set(os.listdir("/dev/shm")) - before)
    return Look(seconds, tests, sum(sample.cpu for sample in now), memory, descriptors, len(now), segments)


def in_session_of(pid: int, ours: set[int]) -> bool:
    """Whether a process is there that is in the session of one of ours: its number may have been given to another since."""
    try:
        return os.getsid(pid) in ours
    except ProcessLookupError:
        return False


def facts(seen: Sequence[Look]) -> dict[str, Any]:
    """What is told of the looks."""
    parts = [seen[len(seen) * tenth // 10 : len(seen) * (tenth + 1) // 10] for tenth in range(10)]
    memory = {role: [round(fmean(one.memory[role] for one in part)) for part in parts] for role in ROLES}
    descriptors = {role: [round(fmean(one.descriptors[role] for one in part)) for part in parts] for role in ROLES}
    quarters = [seen[len(seen) * place // 4 - (place == 4)] for place in range(5)]
    steps = list(pairwise(quarters))
    wall = [(b.tests - a.tests) / (b.seconds - a.seconds) for a, b in steps]
    return {
        "minutes": round(seen[-1].seconds / 60, 1),
        "looks": len(seen),
        "tests": seen[-1].tests,
        "memory_mb_by_tenth": memory,
        "memory_last_tenth_by_second": {
            role: round(found[9] / found[1], 3) for role, found in memory.items() if found[1]
        },
        "descriptors_by_tenth": descriptors,
        "processes_by_tenth": [round(fmean(one.processes for one in part), 1) for part in parts],
        "segments_most": max(one.segments for one in seen),
        "tests_a_second_by_quarter": [round(rate, 2) for rate in wall],
        "last_quarter_by_second": round(wall[3] / wall[1], 3) if wall[1] else None,
        "load": round(os.getloadavg()[0], 1),
    }


def draw(seen: Sequence[Look], folder: Path) -> None:
    """Two pictures by minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"main": "main process", "lane": "lanes", "worker": "compilers' processes"}
    memory = {name: [(one.seconds / 60, one.memory[role]) for one in seen] for role, name in names.items()}
    tests = {"tests": [(one.seconds / 60, float(one.tests)) for one in seen]}
    (folder / "soak-memory.svg").write_text(
        line_plot("Memory of a campaign", "minutes", "MB", memory), encoding="utf-8"
    )
    (folder / "soak-tests.svg").write_text(
        line_plot("Tests of a campaign", "minutes", "tests", tests), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
