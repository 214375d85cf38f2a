"""How long `opsieve reduce` takes to its first smaller model and to its end, as a user calls it, all start-up
included.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.reducing.two_bugs import RELEASES

from opsieve.reducer.sessions.output import STORY

_LOOK = 0.005  # seconds between two looks at the folder
_MANY = 10_000  # nodes: no case has as many


@dataclass(frozen=True, slots=True)
class StartResult:
    """One call: seconds by the clock to the first smaller model on the disk and to the end, CPU seconds of
    all processes, nodes left.
    """

    name: str
    first: float
    end: float
    cpu: float
    nodes: int


def reduce_cases(folder: Path, runs: int) -> Iterator[StartResult]:
    """Every case of a folder with a manifest, the quickest of so many runs."""
    for case in json.loads((folder / "manifest.json").read_text()):
        target = RELEASES.get(case["ort"], f"onnxruntime=={case['ort']}")
        yield min((_one(folder / case["model"], target) for _ in range(runs)), key=lambda result: result.end)


def _one(path: Path, target: str) -> StartResult:
    with tempfile.TemporaryDirectory(prefix="opsieve-starts-") as scratch:
        out = Path(scratch) / "out"
        command = [
            sys.executable,
            "-m",
            "opsieve",
            "reduce",
            str(path),
            "-t",
            target,
            "--json",
            "-o",
            str(out),
        ]
        # As for a user, modules are compiled once: by the first of the runs.
        settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        before, since, first = os.times(), time.perf_counter(), 0.0
        process = subprocess.Popen(
            command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        while process.poll() is None:
            if not first and (out / STORY).exists():  # written with the first model that is smaller
                first = time.perf_counter() - since
            time.sleep(_LOOK)
        end, after = time.perf_counter() - since, os.times()
        printed = process.stdout.read() if process.stdout else ""
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        facts = json.loads(printed) if printed else {}
        return StartResult(path.stem, first or end, end, cpu, facts.get("nodes_after", _MANY))


def report(folder: Path, runs: int) -> None:
    """A line of a table for each case, and the medians."""
    print("| case | first smaller model, s | end, s | CPU, s | nodes left |")
    results = []
    for result in reduce_cases(folder, runs):
        results.append(result)
        print(
            f"| {result.name} | {result.first:.2f} | {result.end:.2f} | {result.cpu:.2f} | {result.nodes} |",
            flush=True,
        )
    first, end = median(result.first for result in results), median(result.end for result in results)
    print(f"median: {first:.2f} s to the first smaller model, {end:.2f} s to the end")
