"""`reduce` on real compiler bugs inside large models, beside Polygraphy's `debug reduce`.

    python benchmarks/reduce.py [FOLDER] [--polygraphy PYTHON] [--linear] [--only ID]

FOLDER holds manifest.json (id, model, ort, culprit_optimizer, known_min_nodes) and the models; a host of
2,005 nodes is grown around a bug of onnxruntime besides (`reducing/grow.py`). All tools are given the same
predicate: the target and its unoptimised build, compared as opsieve compares them. `cured` says that the
result is well when the culprit pass is switched off; `equal bytes` that `-j1` twice and `-j2` give the same.
Our seconds are wall time of the command, start-up included, the better of two runs; those of the others are
of one run, and behind it what the first answer of the workers takes that answer them from then on. CPU is
user and system time of all processes of ours; of Polygraphy, without those workers. Polygraphy has two
figures: `user's check` is the tool as its users run it, its command and a script of theirs, cold
(`reducing/users.py`); `polygraphy bisect` has its questions answered by our warm workers, which is faster
than its users can have it. Our command runs with the bytecode that an installed package has.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.reducing.grow import grown
from benchmarks.reducing.peers import Peer, Question, cpu_seconds, polygraphy
from benchmarks.reducing.users import as_a_user

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import open_case
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.oracle.target_test import TargetTest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "cases" / "reduce"
BIG = """<ir_version: 10, opset_import: ["" : 20]> g (float[2, 3, 4, 2] x) => (float[2, 3, 6, 5] y) <int64[8] c = {0, 0, 0, 0, 0, 0, 1, 2}>
    { p = Pad <mode: string = "constant"> (x, c)
      y = MaxPool <kernel_shape: ints = [2, 2], pads: ints = [1, 1, 1, 1], strides: ints = [1, 1]> (p) }"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=SHARED if SHARED.is_dir() else ROOT / "samples"
    )
    parser.add_argument("--polygraphy", type=Path, help="a Python that has polygraphy and onnxruntime")
    parser.add_argument("--linear", action="store_true", help="Polygraphy's linear mode too")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = json.loads((options.folder / "manifest.json").read_text())
    table = [
        "| case | tool | checks | seconds | CPU | nodes | bytes | same bug | minimal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        cases.append(big(Path(scratch)))
        for case in cases:
            if options.only in case["id"]:
                model = options.folder / case["model"]
                row, others = ours(model, case), peers(model, case, options)
                rows.append(row)
                table += lines(case, row, others)
                show(case, row, others)
    print("\n" + "\n".join(table) + "\n")
    for key in ("node_checks", "checks", "seconds", "cpu"):
        values = [row[key] for row in rows]
        print(f"{key}: median {statistics.median(values):g}, max {max(values):g}")


def big(folder: Path) -> dict[str, Any]:
    """The case of 2,005 nodes."""
    model = grown(onnx.parser.parse_model(BIG), 2004)
    onnx.save(model, folder / "host.onnx")
    with Workers() as workers:
        here = workers.version(resolve("onnxruntime"))
    return {
        "id": f"host_of_{len(model.graph.node)}",
        "model": str(folder / "host.onnx"),
        "ort": here,
        "culprit_optimizer": "Pad_Fusion",
        "signature": "WRONG",
        "known_min_nodes": 2,
    }


def target_of(case: dict[str, Any]) -> ResolvedTarget:
    with Workers() as workers:
        here = workers.version(resolve("onnxruntime"))
    same = here.rpartition(".")[0] == case["ort"].rpartition(".")[0]
    return resolve("onnxruntime" if same else f"onnxruntime=={case['ort']}")


def ours(model: Path, case: dict[str, Any]) -> dict[str, Any]:
    """The command as a user types it: cold, start-up included."""
    target = target_of(case)
    start = "from opsieve.tui.commands.examine.reduce_command import main; main()"
    with tempfile.TemporaryDirectory() as scratch:
        installed = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        installed["PYTHONPYCACHEPREFIX"] = f"{scratch}/bytecode"
        subprocess.run(
            [sys.executable, "-c", start, "--help"], capture_output=True, check=True, env=installed
        )
        results, models = [], []
        for place, extra in enumerate((["-j1"], ["-j1"], ["-j2"], ["--seed=1"], ["--seed=2"])):
            folder = Path(scratch) / str(place)
            command = [
                sys.executable,
                "-c",
                start,
                str(model),
                "-t",
                str(target),
                "-o",
                str(folder),
                "--json",
            ]
            since, busy = time.perf_counter(), cpu_seconds()
            done = subprocess.run(
                [*command, *extra], capture_output=True, text=True, check=True, env=installed
            )
            result = json.loads(done.stdout)
            results.append({**result, "seconds": time.perf_counter() - since, "cpu": cpu_seconds() - busy})
            models.append((folder / "case.reduced.onnx").read_bytes())
        row = dict(min(results[:2], key=lambda item: float(item["seconds"])))
        row["jobs_equal"] = models[0] == models[1] == models[2]
        row["seeds"] = [
            (item["nodes_after"] + item["inner_nodes_after"], item["bytes_after"])
            for item in (results[0], *results[3:])
        ]
        row["cured"] = cured(Path(scratch) / "0", target, case["culprit_optimizer"])
        return row


def cured(folder: Path, target: ResolvedTarget, culprit: str) -> bool:
    """Whether the result is well without the culprit pass, and ill with it."""
    case = open_case(folder)
    with Workers() as workers:
        premise = find(case, [target], None, workers)
        start = Subject(case.program.proto, case.inputs, {})
        for name in culprit.split("|"):  # one pass, as releases have called it
            without = target.with_options(disabled_optimizers=name)
            check = TargetTest(workers, without, premise.failure, premise.arbiter, "loose")
            answer = next(iter(check.evaluate([start])))
            # `gone` alone would also be said of a build that could not be asked.
            if answer.kind == "gone" and answer.why in ("ok", "it agrees"):
                return True
        return False


def peers(model: Path, case: dict[str, Any], options: argparse.Namespace) -> list[Peer]:
    """The other tools that were asked for, on one case."""
    found: list[Peer] = []
    if not options.polygraphy:
        return found
    target, opened = target_of(case), open_case(model)
    with Workers() as workers:
        since = time.perf_counter()
        for build in (target, target.baseline):
            if build is not None:
                workers.observe(build, opened.program, opened.inputs)
        start = time.perf_counter() - since
        question = Question(opened, target, workers)
        cold = as_a_user(question, model, options.polygraphy, case, target)
        modes = ("bisect", "linear") if options.linear else ("bisect",)
        found += [polygraphy(question, model, options.polygraphy, mode) for mode in modes]
    return [cold, *(replace(peer, start=start) for peer in found)]


def show(case: dict[str, Any], row: dict[str, Any], others: list[Peer]) -> None:
    print(
        f"{case['id']:30} {row['nodes_before']:>4} -> {row['nodes_after'] + row['inner_nodes_after']} (known"
        f" {case['known_min_nodes']}), {row['bytes_after']} B; checks {row['node_checks']} nodes,"
        f" {row['checks']} all; refused before a check {row['invalid_candidates']}; {row['seconds']:.2f} s"
        f" ({row['cpu']:.2f} of CPU); same {row['same']}, cured {row['cured']}, minimal {row['minimal']},"
        f" equal bytes {row['jobs_equal']}, nodes and bytes by seed {row['seeds']}"
    )
    for peer in others:
        print(f"    {peer}")
    sys.stdout.flush()


def lines(case: dict[str, Any], row: dict[str, Any], others: list[Peer]) -> list[str]:
    """The case's lines of the table."""
    told = [
        f"| {case['id']} (known {case['known_min_nodes']}) | opsieve | {row['node_checks']} +"
        f" {row['checks'] - row['node_checks']} | {row['seconds']:.2f} | {row['cpu']:.2f} |"
        f" {row['nodes_after'] + row['inner_nodes_after']} | {row['bytes_after']} |"
        f" {'yes' if row['same'] and row['cured'] else 'no'} | {'yes' if row['minimal'] else 'no'} |"
    ]
    for peer in others:
        end = (
            f"died: {peer.why[:50]} | | |"
            if peer.nodes is None
            else f"{peer.nodes} | {peer.size} | {peer.same} | {'yes' if peer.minimal else 'no'}"
        )
        told.append(
            f"| | {peer.name} | {peer.checks} | {peer.seconds:.2f} + {peer.start:.2f} | {peer.cpu:.2f} |"
            f" {end} |"
        )
    return told


if __name__ == "__main__":
    main()
