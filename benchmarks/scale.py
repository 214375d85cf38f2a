"""Where a campaign saturates when lanes are many: the writer, the store or the scheduler of a cluster.

    python benchmarks/scale.py [--tests N] [--producers P] [--rate R] [--tasks T]

A real lane does 256 tests of two levels of onnxruntime. What it sent is then replayed by processes that do
nothing else, with numbers, digests and, for failures, new fingerprints as they become rarer (as the square
root of the tests), to `campaign.run_campaign` on a real store, schedule
included: CPU of the main process a test, bytes of the store a test, and memory, at 10^3, 10^4, ... tests.
With Dask installed, the same frames are asked of workers as tasks: CPU of the scheduler and of the main
process a task. From these, for lanes of R tests a second each, the number of lanes at which each of them has
a core to itself. `--tests 1000000` replays four powers of ten; the cost of a test is then fitted as a + b
log10(tests), as trees of an index grow: `fit` says a, b, the largest residue and what follows for 10^9 tests,
and what the index weighs then if each further test adds what those of the last power of ten added.
"""

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from campaign_rate import LEVELS, tables

from opsieve.backends.registry import resolve
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.campaign.lane_messages import (
    Begin,
    Finished,
    NumberRange,
    decode_message,
    encode_message,
    receive_message,
    send_message,
)
from opsieve.triage.campaign.lane_spawn import LaneClient, ProcessLane, spawn_lane
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.campaign.schedule.costs import read_stated
from opsieve.triage.distributed.cluster import Cluster
from opsieve.triage.distributed.remote_lane import describe_installed
from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.store import Store

SAMPLE = 256  # tests that a real lane does
PIECE = 32


def main() -> None:
    """Measure and print, a JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=100_000)
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=100.0, help="tests a second of one lane")
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--produce", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.produce:
        produce(Path(given.produce[0]), socket.socket(fileno=int(given.produce[1])))
        return
    targets = [resolve(level) for level in LEVELS]
    plan = CampaignPlan("mix", USUAL, tables(None), costs=read_stated(targets))
    campaign = make_campaign(1, targets, plan)
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample"
        sample.write_bytes(encode_message(sampled(campaign, plan)))
        steps: list[dict[str, Any]] = []
        for step in replayed(Path(folder), sample, campaign, plan, given.tests, given.producers):
            steps.append(step)
            print(json.dumps(step), flush=True)
    last = steps[-1]
    if len(steps) > 2:
        grown = (steps[-1]["index_bytes"] - steps[-2]["index_bytes"]) / (
            steps[-1]["tests"] - steps[-2]["tests"]
        )
        print(
            json.dumps(
                {"fit": fitted(steps), "bytes_a_further_test": round(grown), "index_gb_at_1e9": round(grown)}
            )
        )
    task = by_task(given.tasks)
    print(json.dumps({**task, "load": os.getloadavg()[0]}))
    lanes = {"writer": round(1000 / last["ms_of_main_a_test"] / given.rate)}
    if task:
        batch = min(256, 4 * given.rate)  # tests of a task (`lane_pool.SLICE`)
        lanes["scheduler"] = round(batch * 1000 / task["ms_of_scheduler_and_main_a_task"] / given.rate)
        lanes["writer_on_a_cluster"] = round(
            1000 / (last["ms_of_main_a_test"] + task["ms_of_scheduler_and_main_a_task"] / batch) / given.rate
        )
    day = 86_400 * given.rate * last["bytes_a_test"]
    print(
        json.dumps(
            {
                "tests_a_second_of_a_lane": given.rate,
                "lanes_at_saturation": lanes,
                "bytes_a_day_and_lane": round(day),
            }
        )
    )


def fitted(steps: list[dict[str, Any]], far: float = 1e9) -> dict[str, float]:
    """A line through the cost of a test by the logarithm of the tests, and where it is far out, in
    milliseconds.
    """
    logs, seen = (
        np.log10([step["tests"] for step in steps]),
        np.array([step["ms_of_main_a_test"] for step in steps]),
    )
    slope, start = np.polyfit(logs, seen, 1)
    off = float(np.abs(start + slope * logs - seen).max())
    values = {
        "a": float(start),
        "b": float(slope),
        "residue": off,
        f"ms_at_{far:.0e}": float(start + slope * np.log10(far)),
    }
    return {key: round(value, 3) for key, value in values.items()}


def sampled(campaign: Campaign, plan: CampaignPlan) -> Finished:
    """What a lane sends of the first tests."""
    lane = spawn_lane()
    sample = Finished([], {}, SAMPLE, 1000.0)
    try:
        lane.send_begin(Begin(campaign, plan.supports, Limits(seconds=20), True, campaign.targets))
        for message in lane.iter_answers(NumberRange(0, SAMPLE)):
            assert isinstance(message, Finished), message
            sample.tests.extend(message.tests)
            sample.cases.update(message.cases)
    finally:
        lane.end_lane()
    return sample


def produce(file: Path, connection: socket.socket) -> None:
    """A lane that replays a sample whatever it is asked for."""
    sample = decode_message(file.read_bytes())
    assert isinstance(sample, Finished)
    try:
        assert isinstance(receive_message(connection), Begin)
        while True:
            asked = receive_message(connection)
            if not isinstance(asked, NumberRange):
                continue
            for at in range(asked.start, asked.stop, PIECE):
                send_message(connection, again(sample, range(at, min(asked.stop, at + PIECE))))
    except (EOFError, OSError):
        return


def again(sample: Finished, numbers: range) -> Finished:
    """Tests of the sample under other numbers; their failures are new ones as often as the square root of the
    numbers grows.
    """
    made, count = Finished([], {}, numbers.stop, 1000.0), len(sample.tests)
    for number in numbers:
        test = sample.tests[number % count]
        findings = test.findings
        if findings and int(number**0.5) != int((number - count) ** 0.5 if number >= count else -1):
            key = f"onnxruntime-error-{number:010x}"
            findings = [replace(item, fingerprint=replace(item.fingerprint, key=key)) for item in findings]
        if test.number in sample.cases:
            made.cases[number] = sample.cases[test.number]
        made.tests.append(replace(test, number=number, program_digest=f"{number:064x}", findings=findings))
    return made


def replayed(
    folder: Path, sample: Path, campaign: Campaign, plan: CampaignPlan, tests: int, producers: int
) -> Iterator[dict[str, Any]]:
    """The writer's cost at each power of ten."""

    def start() -> LaneClient:
        ours, theirs = socket.socketpair()
        command = [sys.executable, __file__, "--produce", str(sample), str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        return ProcessLane(process, ours)

    with Store(folder / "store") as store:
        store.begin_campaign(campaign)
        wall, cpu, before, step = time.perf_counter(), time.process_time(), 0, 1000
        for done in run_campaign(store, campaign, plan, Limits(), lanes=producers, tests=tests, start=start):
            if done < step:
                continue
            now, spent = time.perf_counter(), time.process_time()
            size = sum(path.stat().st_size for path in (folder / "store").glob("index.sqlite*"))
            count = done - before
            yield {
                "tests": done,
                "tests_a_second": round(count / (now - wall)),
                "ms_of_main_a_test": round(1000 * (spent - cpu) / count, 3),
                "bytes_a_test": round(size / done),
                "index_bytes": size,
                "clusters": store.count_clusters(campaign),
                "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
                "load": round(os.getloadavg()[0], 1),
            }
            wall, cpu, before, step = time.perf_counter(), time.process_time(), done, step * 10
    shutil.rmtree(folder / "store")


def by_task(tasks: int) -> dict[str, Any]:
    """CPU of a scheduler and of this process for a task that does nothing with a frame of the usual size; {}
    without Dask.
    """
    try:
        import distributed
    except ImportError:
        return {}
    frame = os.urandom(20_000)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as local,
        Cluster(local.scheduler_address, describe_installed(()), {}, print) as cluster,
    ):
        wanted = threading.Event()
        cluster.run_task(wanted, bytes, frame)
        mine = time.process_time()  # the scheduler of a local cluster is in this process
        for _ in range(tasks):
            cluster.run_task(wanted, bytes, frame)
        both = time.process_time() - mine
    return {"tasks": tasks, "ms_of_scheduler_and_main_a_task": round(1000 * both / tasks, 2)}


if __name__ == "__main__":
    main()
