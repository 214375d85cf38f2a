"""A long campaign on every target: does memory stay flat, is anything left over, does the rate hold?

    python benchmarks/soak.py [--minutes 60] [--jobs 2] [-t TARGET]... [--seed 1] [--images FOLDER] [--json
    FILE]

`opsieve fuzz` with a store and a temporary folder of its own. Some 400 times during the run /proc is asked
about everything that it started: proportional memory (what processes share is counted once) of the main
process, of the lanes and of each compiler's processes, CPU seconds, descriptors, processes, files in the
temporary folder, segments in /dev/shm, and the tests that are recorded.

Told as one JSON object, by tenth of the run (means) and by quarter. Rates are told by the clock and by CPU.
Since a test of a slow compiler takes eighty times one of a quick one, and quarters hold different tests, the
rate that is compared is the work done in a CPU
second: the milliseconds that backends state for the tests that were done. A second of CPU is worth less on a
busy machine, so a fixed loop is run at each look; `yardstick_ms` is its CPU time, by which
`work_a_yardstick_second` is corrected.

When the run has ended: processes, files and segments that are left (of whoever made them: keep the machine to
itself). `--images` gets soak-memory.svg and soak-rate.svg. Interrupt it (Ctrl-C) and it tells of what it has
seen.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from campaign_faults import done_in
from line_plot import draw_lines
from process_tree import ProcessSample, below, samples

from opsieve.backends.registry import resolve
from opsieve.gen.strategies.registry import ir_made_by
from opsieve.triage.campaign.schedule.cost_table import USUAL

TARGETS = ("onnxruntime", "tvm", "onnxoptimizer", "onnxsim", "onnxscript", "onnxslim")
LOOKS = 400
ENDING = 120.0  # seconds that a run may take to end after its time
YARDSTICK = 100_000  # rounds of a loop


@dataclass(frozen=True)
class Look:
    """What was there after some seconds: memory in MB and processes by who they are, and counts of the
    whole.
    """

    seconds: float
    tests: int
    work: float  # stated seconds of the tests
    cpu: float
    yardstick: float  # CPU seconds of a fixed loop
    memory: Mapping[str, float]
    processes: Mapping[str, int]
    descriptors: int
    files: int
    segments: int


def main() -> None:
    """Run, print one JSON object, write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-t", "--target", action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--json", type=Path, help="also write the object there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        seen, left = watched(Path(folder), given)
    if len(seen) < 10:
        sys.exit(f"soak: only {len(seen)} looks; give it more --minutes")
    said = json.dumps({"targets": given.target or TARGETS, "jobs": given.jobs, **facts(seen), "left": left})
    print(said)
    if given.json:
        given.json.write_text(said + "\n", encoding="utf-8")
    if given.images:
        draw(seen, given.images)


def watched(folder: Path, given: argparse.Namespace) -> tuple[list[Look], dict[str, Any]]:
    """Run the campaign and look; what was seen, and what is left of it."""
    scratch, store = folder / "tmp", folder / "store"
    scratch.mkdir()
    names = given.target or TARGETS
    words = [word for target in names for word in ("-t", target)]
    words += [
        "--minutes",
        str(given.minutes),
        "-j",
        str(given.jobs),
        "--seed",
        str(given.seed),
        "--store",
        str(store),
    ]
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
                # Lanes that are ended take what they had used with them.
                if time.monotonic() - begun < 60 * given.minutes:
                    seen.append(look(time.monotonic() - begun, now, store, names, (scratch, before)))
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


def look(
    seconds: float,
    now: Sequence[ProcessSample],
    store: Path,
    names: Sequence[str],
    others: tuple[Path, set[str]],
) -> Look:
    """Sum up; `others` are the temporary folder and the segments that were there before."""
    scratch, before = others
    memory: Counter[str] = Counter()
    for sample in now:
        memory[who(sample)] += sample.memory  # type: ignore[assignment]  # a Counter of floats adds as well
    return Look(
        seconds=seconds,
        tests=done_in(store),
        work=work_of(store, names),
        cpu=sum(sample.cpu for sample in now),
        yardstick=yardstick(),
        memory=memory,
        processes=Counter(map(who, now)),
        descriptors=sum(sample.descriptors for sample in now),
        files=sum(len(files) for _, _, files in os.walk(scratch)),
        segments=len(set(os.listdir("/dev/shm")) - before),
    )


def who(sample: ProcessSample) -> str:
    """What a process is there for."""
    return sample.compiler or {"main": "main process", "lane": "lanes", "worker": "others"}[sample.role]


def work_of(store: Path, names: Sequence[str]) -> float:
    """Seconds that backends state for the tests that a campaign has done."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{store / 'index.sqlite'}?mode=ro", uri=True)) as index:  # fmt: skip
        done = dict(index.execute("SELECT target, SUM(count) FROM totals GROUP BY target").fetchall())
        ((kept,),) = index.execute("SELECT value FROM learnt WHERE name = 'yield'").fetchall() or (("{}",),)
        forms: Counter[str] = Counter()
        for strategy, count in json.loads(kept).get("tests", {}).items():
            forms[ir_made_by(strategy)] += count
        work = 0.0
        for name in names:
            costs = resolve(name).facts.milliseconds
            others = {form: count for form, count in forms.items() if form != "onnx" and form in costs}
            work += sum(costs[form] * count for form, count in others.items())
            work += costs.get("onnx", USUAL) * (done.get(resolve(name).display, 0) - sum(others.values()))
        return work / 1000
    return 0.0


def yardstick() -> float:
    """CPU seconds of a loop that is always the same."""
    begun, total = time.process_time(), 0
    for number in range(YARDSTICK):
        total += number * number % 7
    return time.process_time() - begun


def in_session_of(pid: int, ours: set[int]) -> bool:
    """Whether a process is there that is in the session of one of ours: its number may have been given to
    another since.
    """
    try:
        return os.getsid(pid) in ours
    except ProcessLookupError:
        return False


def facts(seen: Sequence[Look]) -> dict[str, Any]:
    """What is told of the looks."""
    parts = [seen[len(seen) * tenth // 10 : len(seen) * (tenth + 1) // 10] for tenth in range(10)]

    def by_tenth(what: Callable[[Look], float]) -> list[float]:
        return [round(fmean(map(what, part)), 1) for part in parts]

    quarters = rates(seen, 4)
    everyone = sorted({name for one in seen for name in one.memory})
    memory = by_tenth(lambda one: sum(one.memory.values()))
    return {
        "minutes": round(seen[-1].seconds / 60, 1),
        "looks": len(seen),
        "tests": seen[-1].tests,
        "cpu_s": round(seen[-1].cpu),
        "memory_mb_by_tenth": memory,
        "memory_last_tenth_by_second": round(memory[9] / memory[1], 3),
        "memory_mb_by_tenth_of": {
            name: by_tenth(lambda one, of=name: one.memory.get(of, 0)) for name in everyone
        },  # type: ignore[misc]
        "processes_by_tenth": by_tenth(lambda one: sum(one.processes.values())),
        "processes_most_of": {name: max(one.processes.get(name, 0) for one in seen) for name in everyone},
        "descriptors_by_tenth": by_tenth(lambda one: one.descriptors),
        "files_by_tenth": by_tenth(lambda one: one.files),
        "segments_most": max(one.segments for one in seen),
        "by_quarter": quarters,
        "last_quarter_by_second": {
            name: round(value / quarters[1][name], 3)
            for name, value in quarters[3].items()
            if quarters[1][name]
        },
        "load": round(os.getloadavg()[0], 1),
    }


def rates(seen: Sequence[Look], pieces: int) -> list[dict[str, float]]:
    """What was done in each of so many pieces of the run, by the clock and by CPU."""
    ends = [seen[len(seen) * place // pieces - (place == pieces)] for place in range(pieces + 1)]
    usual = median(one.yardstick for one in seen)
    found = []
    for a, b in pairwise(ends):
        took = median(one.yardstick for one in seen if a.seconds <= one.seconds <= b.seconds)
        cpu = b.cpu - a.cpu or 1e-9
        found.append({
            "tests_a_second": round((b.tests - a.tests) / (b.seconds - a.seconds), 3),
            "tests_a_cpu_second": round((b.tests - a.tests) / cpu, 3),
            "work_a_cpu_second": round((b.work - a.work) / cpu, 3),
            "work_a_yardstick_second": round((b.work - a.work) / cpu * took / usual, 3),
            "yardstick_ms": round(1000 * took, 2),
            "cpu_share": round(cpu / (b.seconds - a.seconds), 3),
        })  # fmt: skip
    return found


def draw(seen: Sequence[Look], folder: Path) -> None:
    """Two pictures by minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[tuple[float, float]]] = {
        "all": [],
        "compilers' processes": [],
        "lanes": [],
        "main process": [],
    }
    for one in seen:
        own = {name: one.memory.get(name, 0.0) for name in ("lanes", "main process")}
        whole = sum(one.memory.values())
        for name, value in {"all": whole, "compilers' processes": whole - sum(own.values()), **own}.items():
            parts[name].append((one.seconds / 60, value))
    minutes, tenths = seen[-1].seconds / 60, rates(seen, 10)
    of_tenths = {
        "tests": [((place + 0.5) * minutes / 10, max(0.0, each["tests_a_cpu_second"])) for place, each in enumerate(tenths)],
        "seconds of work, as backends state it": [((place + 0.5) * minutes / 10, max(0.0, each["work_a_cpu_second"])) for place, each in enumerate(tenths)],
    }  # fmt: skip
    plots = {
        "memory": draw_lines("Proportional memory of a campaign", "minutes", "MB", parts),
        "rate": draw_lines(
            "What a campaign does in a second of CPU", "minutes", "in a CPU second", of_tenths
        ),
    }
    for name, plot in plots.items():
        (folder / f"soak-{name}.svg").write_text(plot, encoding="utf-8")


if __name__ == "__main__":
    main()
