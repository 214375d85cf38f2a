"""The ablation of Tzer's figure 6 on TVM as installed: functions of TVM's own code reached in equal CPU time.

    python -m benchmarks.tzer_ablation [--seconds 20] [--repeats 3] [--out FOLDER]

One compiler process serves all runs, its probes forgotten between them, so that every run begins alike. Time is CPU time of this process
and of everything under it, so that other load on the machine does not count. Functions are lowered and not compiled.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygote import Limits
from opsieve.gen.metrics.plots import line_plot
from opsieve.gen.tir.form import arguments, program
from opsieve.gen.tir.fuzzing import SeedPool, Settings
from opsieve.gen.tir.seeds import basic

TARGET = resolve("tvm:stop=lower")
VARIANTS = {
    "full loop": Settings(),
    "(a) no coverage feedback": Settings(coverage=False),
    "(b) no domain mutators": Settings(domain=False),
    "(c) no pass mutation": Settings(joint="none"),
    "(d) no program mutation": Settings(programs=False),
    "random joint mutation": Settings(joint="random"),
}
BATCH = 8


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
) -> dict[str, object]:
    """One variant for that much CPU time."""
    probes.forget()
    workers.end_workers()
    loop = SeedPool([item for item in basic() if arguments(item) is not None], f"{repeat}", settings)
    clock, tests, valid = Clock(), 0, 0
    growth = [(0.0, 0)]
    while (now := clock.read()) < seconds:
        tried = [loop.next() for _ in range(BATCH)]
        asked = [Test(program(item.function, item.sequence), {}) for item in tried]
        for item, answer in zip(tried, workers.observe_many(TARGET, asked), strict=True):
            failed = answer.outcome != "ok"
            loop.learn(item, failed, bool(answer.reached))
            tests, valid = tests + 1, valid + (not failed)
        growth.append((round(now, 2), probes.count))
    growth.append((round(clock.read(), 2), probes.count))
    told = {"variant": name, "repeat": repeat, "tests": tests, "valid": valid, "valuable": loop.valuable}
    return {**told, "pool": len(loop.pool), "reached": probes.count, "growth": growth}


def main() -> None:
    """Every variant, in turn, so that what changes on the machine meets all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kind", default="functions")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    rows = []
    coverage = Coverage(given.kind, [TARGET.name])
    with Workers(Limits(seconds=10.0), coverage=coverage) as workers:
        version = workers.version(TARGET)
        probes = next(item for item in coverage.maps().values() if isinstance(item, Probes))
        for repeat in range(given.repeats):
            for name, settings in VARIANTS.items():
                rows.append(run(workers, probes, name, settings, repeat, given.seconds))
                print({key: value for key, value in rows[-1].items() if key != "growth"}, flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    facts = {
        "tvm": version,
        "kind": given.kind,
        "cpu_seconds": given.seconds,
        "date": time.strftime("%F"),
        "runs": rows,
    }
    facts["load"] = os.getloadavg()[0]
    (given.out / "tzer_ablation.json").write_text(json.dumps(facts, indent=1) + "\n")
    lines = {name: _median_line(rows, name) for name in VARIANTS}
    svg = line_plot(f"TVM {version}: {given.kind} reached", "CPU seconds", given.kind, lines)
    (given.out / "tzer_ablation.svg").write_text(svg)
    for name in VARIANTS:
        mine = [row for row in rows if row["variant"] == name]
        medians = [statistics.median(row[key] for row in mine) for key in ("reached", "valuable", "valid", "tests")]
        print(f"{name:28} reached {medians[0]:g}, valuable {medians[1]:g}, valid {medians[2]:g} of {medians[3]:g}")


def _median_line(rows: list[dict[str, object]], name: str) -> list[tuple[float, float]]:
    mine = sorted((row for row in rows if row["variant"] == name), key=lambda row: row["reached"])
    return [(float(x), float(y)) for x, y in mine[len(mine) // 2]["growth"]]


if __name__ == "__main__":
    main()
