"""The ablation of Tzer's figure 6 on TVM as installed: what of TVM's own code is reached in equal CPU time.

    python benchmarks/tzer_ablation.py [--seconds 120] [--repeats 3] [--kind blocks] [--variants 1,2,5,a]
    [--out FOLDER] [--report]

The figure adds one component after another, (1) to (5); (a), (b) and (d) take one away from (5), and (3) is
(5) without mutation of passes. One compiler process serves all runs, its probes forgotten between them, so
that every run begins alike, and variants take turns, so that what changes on the machine meets all of them.
Time is CPU time of this process and of everything under it, so that other load does not count. Functions are
lowered and not compiled. Each run is kept when it ends (`tzer_ablation.jsonl`): what was interrupted goes on
where it was, and `--report` only draws what there is.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from line_plot import draw_lines

from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.coverage.elf import Library
from opsieve.backends.coverage.points import own_functions
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.irs.tir.arguments import arguments, basic, program
from opsieve.gen.irs.tir.fuzzing import SeedPool, Settings

TARGET = resolve("tvm:stop=lower")
VARIANTS = {
    "1": ("(1) general mutators alone", Settings(coverage=False, domain=False, joint="none")),
    "2": ("(2) = (1) + coverage feedback", Settings(domain=False, joint="none")),
    "3": ("(3) = (2) + domain mutators", Settings(joint="none")),
    "4": ("(4) = (3) + random joint mutation", Settings(joint="random")),
    "5": ("(5) = (3) + evolving joint mutation, Algorithm 1", Settings(joint="evolving")),
    "6": ("(6) = (5) + what pays more, the loop as it is used", Settings()),
    "a": ("(a) = (5) - coverage feedback", Settings(joint="evolving", coverage=False)),
    "b": ("(b) = (5) - domain mutators", Settings(joint="evolving", domain=False)),
    "d": ("(d) = (5) - program mutation", Settings(joint="evolving", programs=False)),
}
BATCH = 16
DRAWN = 6  # curves in one plot, at most


def processes() -> Iterator[tuple[int, float]]:
    """Pid and CPU seconds of this process and of all that descend from it."""
    rows: dict[int, tuple[int, float]] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        rows[int(entry)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / tick)
    mine = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in rows.items() if parent in mine} - mine
        mine |= more
        grown = bool(more)
    return ((pid, rows[pid][1]) for pid in mine if pid in rows)


class Clock:
    """CPU seconds since it was made, also of processes that have ended since it was last read."""

    def __init__(self) -> None:
        self._begun = dict(processes())
        self._most = dict(self._begun)

    def read(self) -> float:
        """Seconds."""
        for pid, seconds in processes():
            self._most[pid] = max(seconds, self._most.get(pid, 0.0))
        return sum(self._most.values()) - sum(self._begun.values())


def run(
    workers: Workers, probes: Probes, name: str, settings: Settings, repeat: int, seconds: float
) -> dict[str, Any]:
    """One variant for that much CPU time."""
    probes.forget()
    workers.end_workers()
    loop = SeedPool([item for item in basic() if arguments(item) is not None], f"{repeat}", settings)
    clock, tests, valid, now = Clock(), 0, 0, 0.0
    growth = [(0.0, 0, 0)]
    while now < seconds:
        tried = [loop.next() for _ in range(BATCH)]
        asked = [Test(program(item.function, item.sequence), {}) for item in tried]
        for item, answer in zip(tried, workers.observe_many(TARGET, asked), strict=True):
            failed = answer.outcome != "ok"
            loop.learn(item, failed, bool(answer.reached))
            tests, valid = tests + 1, valid + (not failed)
        now = clock.read()
        growth.append((round(now, 2), tests, probes.count))
    facts = {"variant": name, "repeat": repeat, "seconds": seconds, "tests": tests, "valid": valid}
    facts |= {"valuable": loop.valuable, "pool": len(loop.pool), "reached": probes.count}
    return {**facts, "functions": functions(probes), "load": round(os.getloadavg()[0], 1), "growth": growth}


def functions(probes: Probes) -> int:
    """How many functions were entered, where the probes are blocks."""
    root = next(iter(TARGET.facts.native_sources.values()), "")
    return sum(
        len(np.intersect1d(own_functions(Library(item.library), root)[0], item.addresses))
        for item in probes.reached()
    )


def measured(given: argparse.Namespace, kept: Path) -> None:
    """Run what is not kept yet."""
    done = {(row["variant"], row["repeat"]) for row in rows_of(kept)}
    coverage = Coverage(given.kind, [TARGET.name])
    with Workers(Limits(seconds=10.0), coverage=coverage) as workers:
        version = workers.version(TARGET)
        probes = next(item for item in coverage.maps().values() if isinstance(item, Probes))
        for repeat in range(given.repeats):
            for name in given.variants.split(","):
                if (name, repeat) in done:
                    continue
                row = run(workers, probes, name, VARIANTS[name][1], repeat, given.seconds)
                row |= {"tvm": version, "kind": given.kind, "date": time.strftime("%F")}
                print({key: value for key, value in row.items() if key != "growth"}, flush=True)
                with kept.open("a") as out:
                    out.write(json.dumps(row) + "\n")


def rows_of(kept: Path) -> list[dict[str, Any]]:
    """The runs that are kept."""
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def report(rows: list[dict[str, Any]], out: Path) -> None:
    """The table of medians, and the plot of the run in the middle of each variant."""
    lines = {}
    there = {row["variant"] for row in rows}
    few = len(there) <= DRAWN
    print("| | blocks reached, each run | median | functions | valuable tests | valid / tests |")
    print("|---|---|---|---|---|---|")
    for name, (words, _) in VARIANTS.items():
        mine = sorted((row for row in rows if row["variant"] == name), key=lambda row: row["reached"])
        if not mine:
            continue
        if few or name.isdigit():  # else the figure's own curves
            lines[words] = [(float(x), float(y)) for x, _, y in mine[len(mine) // 2]["growth"]]
        every = ", ".join(f"{row['reached']:,}" for row in mine)
        middle = {
            key: statistics.median(row[key] for row in mine)
            for key in mine[0]
            if isinstance(mine[0][key], int)
        }
        print(
            f"| {words} | {every} | {middle['reached']:,.0f} | {middle['functions']:,.0f} |"
            f" {middle['valuable']:,.0f} | {middle['valid']:,.0f} / {middle['tests']:,.0f} |"
        )
    svg = draw_lines(
        f"TVM {rows[0]['tvm']}: {rows[0]['kind']} reached", "CPU seconds", rows[0]["kind"], lines
    )
    (out / "tzer_ablation.svg").write_text(svg)


def main() -> None:
    """Run what is missing, then report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kind", default="blocks")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "tzer_ablation.jsonl"
    if not given.report:
        measured(given, kept)
    report(rows_of(kept), given.out)


if __name__ == "__main__":
    main()
