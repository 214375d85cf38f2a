"""Tests per second of a campaign on two levels of onnxruntime, beside the ceiling: bare sessions of the same
programs on the same cores.

    python benchmarks/campaign_rate.py [--tests N] [--jobs J]... [--nodes A-B] [--tables FOLDER]

Half of the bare sessions run before the campaign and half after it, in one minute. CPU is read from /proc for
the main process, the lanes and the compilers, from the 256th test on: most imports are left out, but a second
witness (TVM) that a lane first asks later is not, so few tests tell little. With several `--jobs` there is a
campaign for each, and the gain of the last over the first. `--tables` names a folder of probed tables (the
user's cache unless given, so that a second run probes nothing); without any, `--no-probe` has programs of
whatever operators.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from process_tree import samples

from opsieve.backends.probing.operator_support import Support
from opsieve.backends.probing.prober import probe_targets
from opsieve.backends.registry import resolve
from opsieve.backends.workers.inside import wire
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.work_clock import read_load
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case
from opsieve.gen.generation.request import parse_nodes
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.campaign.schedule.costs import read_stated
from opsieve.triage.store.store import Store

LEVELS = ("onnxruntime", "onnxruntime:disable_all")
WARM = 256  # tests before the measurement
BARE = """
import json, socket, sys, time
import onnxruntime as ort
sys.path.insert(0, sys.argv[1])
import wire
ort.set_default_logger_severity(4)
connection = socket.socket(fileno=int(sys.argv[2]))
while True:
    header, body = wire.receive_frame(connection)
    tests, offset = [], 0
    for item in header:
        model = bytes(body[offset:offset + item["model"]])
        values, offset = wire.unpack_values(item["inputs"], body, offset + item["model"] + (-item["model"]) % wire.ALIGN)
        tests.append((model, values))
    wall, cpu, ran = time.perf_counter(), time.process_time(), 0
    for model, values in tests:
        for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
            options = ort.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
            try:
                ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, values)
                ran += 1
            except Exception:
                pass
    answered = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "ran": ran}
    connection.sendall(wire.encode_frame(answered, []))
"""


@dataclass(slots=True)
class Spent:
    """Seconds, of which `main`, `lanes` and `compilers` are CPU of the main process and of what it
    started.
    """

    tests: int = 0
    wall: float = 0.0
    main: float = 0.0
    lanes: float = 0.0
    compilers: float = 0.0
    failed: int = 0
    bare: int = 0
    bare_wall: float = 0.0
    bare_cpu: float = 0.0

    def facts(self) -> dict[str, float]:
        """The figures that are compared."""
        cpu = self.main + self.lanes + self.compilers
        return {
            "tests": self.tests,
            "tests_per_second": round(self.tests / self.wall, 1),
            "ms_of_cpu_a_test": round(1000 * cpu / self.tests, 2),
            "ms_of_main_a_test": round(1000 * self.main / self.tests, 2),
            "ms_of_lanes_a_test": round(1000 * self.lanes / self.tests, 2),
            "ms_of_compilers_a_test": round(1000 * self.compilers / self.tests, 2),
            "main_busy": round(self.main / self.wall, 3),
            "failures": self.failed,
            "bare_tests_per_second_one_core": round(self.bare / self.bare_wall, 1),
            "bare_ms_of_cpu_a_test": round(1000 * self.bare_cpu / self.bare, 2),
            "cores": round(cpu / self.wall, 2),
            "share_of_ceiling_by_cpu": round(self.bare_cpu / self.bare * self.tests / cpu, 3),
        }


def children_cpu(but: int) -> float:
    """CPU seconds of everything that this process started, one child aside."""
    loads = [read_load(pid) for pid in (os.getpid(), but)]
    every, aside = (load.cpu if load is not None else 0.0 for load in loads)
    return every - aside - time.process_time()


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=1024)
    parser.add_argument("--jobs", type=int, action="append")
    parser.add_argument("--nodes", default="5-30")
    parser.add_argument("--strategy", default="mix")
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--no-probe", action="store_true")
    # Another one where a program kills onnxruntime, which bare sessions do not outlive.
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    low, high = parse_nodes(given.nodes)
    supports = () if given.no_probe else tables(given.tables)
    costs = read_stated([resolve(level) for level in LEVELS])
    plan = CampaignPlan(given.strategy, replace(USUAL, nodes=low, between=(low, high)), supports, costs=costs)
    found = []
    for jobs in given.jobs or [2]:
        found.append(measured(plan, given.tests, jobs, given.seed).facts())
        told = {"jobs": jobs, "strategy": given.strategy, "load": round(os.getloadavg()[0], 1)}
        print(json.dumps({**told, **found[-1]}), flush=True)
    if len(found) > 1:
        print(json.dumps({"gain": round(found[-1]["tests_per_second"] / found[0]["tests_per_second"], 2)}))


def tables(folder: Path | None) -> tuple[Support, ...]:
    """What both levels have."""
    with Workers() as workers:
        return tuple(probe_targets(workers, [resolve(level) for level in LEVELS], folder=folder))


def measured(plan: CampaignPlan, tests: int, jobs: int, seed: int) -> Spent:
    """The campaign from its `WARM`-th test on, between bare sessions of one half of the same programs and of
    the other.
    """
    spent = Spent()
    bare = Bare()
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as store:
        campaign = make_campaign(seed, [resolve(level) for level in LEVELS], plan)
        cases = [plan.make_case(campaign.seed, number) for number in range(WARM, WARM + tests)]
        bare.ask(cases[:32])
        bare.spend(cases[: tests // 2], spent)
        store.begin_campaign(campaign)
        begun: tuple[float, float, float, float, int] | None = None
        for done in run_campaign(store, campaign, plan, Limits(seconds=20), lanes=jobs, tests=WARM + tests):
            if done < WARM or (begun and done < WARM + tests):
                continue
            used = {"main": 0.0, "lane": 0.0, "worker": 0.0}
            for sample in samples(os.getpid()):
                used[sample.role] += sample.cpu if sample.pid not in (os.getpid(), bare.process.pid) else 0.0
            now = (time.perf_counter(), time.process_time(), used["lane"], used["worker"], done)
            begun = begun or now
            spent.wall, spent.main, spent.lanes, spent.compilers, spent.tests = (
                b - a for a, b in zip(begun, now, strict=True)
            )
        spent.failed = sum(store.count_kinds(campaign).values())
        bare.spend(cases[tests // 2 :], spent)
    bare.close()
    return spent


class Bare:
    """A process that creates bare sessions of programs and runs them, at both levels."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", BARE, str(Path(wire.__file__).parent), str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL)
        theirs.close()

    def ask(self, cases: Sequence[Case]) -> dict[str, float]:
        """Seconds of wall and CPU for these programs."""
        chunks: list[Any] = []
        header = []
        for case in cases:
            model = case.program.data
            chunks.append(model)
            header.append({"model": len(model), "inputs": wire.pack_values(case.inputs, chunks)})
        self._ours.sendall(wire.encode_frame(header, chunks))
        answered: dict[str, float] = wire.receive_frame(self._ours)[0]
        return answered

    def spend(self, cases: Sequence[Case], spent: Spent) -> None:
        """Ask, and add up."""
        answered = self.ask(cases)
        spent.bare_wall, spent.bare_cpu = spent.bare_wall + answered["wall"], spent.bare_cpu + answered["cpu"]
        spent.bare += len(cases)

    def close(self) -> None:
        """End it."""
        self._ours.close()
        self.process.wait()


if __name__ == "__main__":
    main()
