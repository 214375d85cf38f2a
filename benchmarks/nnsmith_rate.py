"""Tests a second of a campaign and of NNSmith's own fuzzing loop beside it, on onnxruntime, at equal numbers
of ONNX nodes.

    python benchmarks/nnsmith_rate.py --nnsmith PYTHON [--source CHECKOUT] [--nodes 10] [--seconds 60]
    [--tests 1024] [--rounds 3]

PYTHON is an interpreter with `pip install 'nnsmith[onnx,onnxruntime]'`, CHECKOUT its repository's main
branch, which goes before what is installed: 0.1.0 of PyPI finds no operator that torch 2.15 exports. The
script passes `dynamo=False` to its exporter. NNSmith runs first, with `--nodes` operators a model; the
campaign's programs then have as many nodes as its ONNX models had on the average. Both have onnxruntime as
their only target; the campaign also asks its unoptimised level, where NNSmith asks PyTorch. One lane, one
process of NNSmith, one thread for each library. Rounds alternate; the medians and their ratios are printed as
one JSON object. CPU counts everything that runs, from the 256th test on here, without imports there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaign_rate import tables
from steady import steady

from opsieve.backends.registry import resolve
from opsieve.triage.campaign.campaign import make_campaign
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.campaign.schedule.costs import read_stated

LOOP = Path(__file__).parent / "peers" / "nnsmith_loop.py"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nnsmith", metavar="PYTHON")
    parser.add_argument("--source", metavar="CHECKOUT", default="")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--tests", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.nnsmith is None:
        sys.exit("name an interpreter that has NNSmith: --nnsmith PYTHON (see --help)")
    target = resolve("onnxruntime")
    supports = tables(None)[:1]
    peers: list[dict[str, Any]] = []
    ours: list[tuple[float, float]] = []
    for round_ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            peers.append(loop(given, Path(folder), round_ + 1))
            nodes = round(peers[-1]["onnx_nodes"])
            plan = CampaignPlan(
                "mix", replace(USUAL, nodes=nodes, between=None), supports, costs=read_stated([target])
            )
            campaign = make_campaign(round_, [target], plan)
            ours.append(steady(Path(folder) / "store", campaign, plan, 1, given.tests))
    print(json.dumps(facts(peers, ours)))


def loop(given: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    """A run of NNSmith's loop."""
    command = [given.nnsmith, LOOP, folder, "--seconds", str(given.seconds), "--nodes", str(given.nodes)]
    done = subprocess.run(
        [*command, "--seed", str(seed)], capture_output=True, text=True, cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": given.source},
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"NNSmith ended with {done.returncode}: {done.stderr[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not found["tests"]:
        sys.exit(f"NNSmith made no test: {done.stdout[-500:]} {done.stderr[-500:]}")
    return found


def facts(peers: list[dict[str, Any]], ours: list[tuple[float, float]]) -> dict[str, Any]:
    """What both did."""
    theirs = statistics.median(1000 * one["cpu_s"] / one["tests"] for one in peers)
    their_rate = statistics.median(one["tests"] / one["wall_s"] for one in peers)
    own, rate = (statistics.median(one[place] for one in ours) for place in (0, 1))
    return {
        "nnsmith": {
            "ms_of_cpu_a_test": round(theirs, 1),
            "tests_per_second": round(their_rate, 2),
            "runs": peers,
        },
        "opsieve": {"ms_of_cpu_a_test": round(own, 2), "tests_per_second": round(rate, 1)},
        "nodes": round(statistics.fmean(one["onnx_nodes"] for one in peers), 1),
        "ratio_by_cpu": round(theirs / own, 1),
        "ratio_by_clock": round(rate / their_rate, 1),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
