"""What values of generated programs reach: both branches, both answers of comparisons, ties, saturation,
empty results.

    python benchmarks/outcomes.py [NAME] [--models 200] [--nodes 20] [--seed 0] [--before CHECKOUT]
    [--searched] [--folder FOLDER]

Programs run on onnxruntime, unoptimised, with every result of their graphs as an output; what is counted are
nodes, by what their operands and results are. `--before` is a checkout of an earlier opsieve, whose programs
of the same seeds are made by its own generator and counted by this code. `--searched` are programs grown
without ranges, whose values are searched (`--values search`); CPU seconds of making a side's programs are
told, searching and its workers included.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from opsieve.backends.probing.chosen_values import apply_found, search_cases
from opsieve.backends.probing.value_search import Effort, expose_results, finite
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.strategies.registry import generate
from opsieve.gen.values.values import RANGED, SEARCH

COMPARING = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}
CHOOSING = {"Max", "Min", "ReduceMax", "ReduceMin", "MaxPool", "Hardmax", "Unique"}
RANKING = {"ArgMax", "ArgMin", "TopK"}
COUNTING = {"NonZero", "Compress", "NonMaxSuppression", "StringSplit"}
GROUP = 32


def made(name: str, models: int, nodes: int, seed: int, folder: str, values: str = RANGED) -> None:
    """Write programs with their inputs into a folder."""
    cases = [
        generate(name, number, GenRequest(nodes=nodes, values=values))
        for number in range(seed, seed + models)
    ]
    if values == SEARCH:
        with Workers() as workers:
            answers = search_cases(cases, range(seed, seed + models), workers, Effort(weights=True))
        cases = [apply_found(case, answer) for case, answer in zip(cases, answers, strict=True)]
    for number, case in enumerate(cases, seed):
        if not all(_is_plain(value) for value in case.inputs.values()):
            continue  # texts, sequences and what numpy's files do not hold
        path = Path(folder, str(number))
        path.with_suffix(".onnx").write_bytes(case.program.model)  # type: ignore[union-attr]  # strategies of ONNX models
        np.savez(path.with_suffix(".npz"), **case.inputs)


def _is_plain(value: object) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind in "fiub"
        and value.dtype.type.__module__ == "numpy"
    )


def programs(folder: Path) -> Iterator[tuple[OnnxProgram, dict[str, Any]]]:
    """What was written there."""
    for path in sorted(folder.glob("*.onnx")):
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as values:
            yield OnnxProgram(path.read_bytes(), path.stem), {name: values[name] for name in values.files}


def outcomes(model: onnx.ModelProto, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the nodes of a program met: the kind of node and the outcome."""
    for node in model.graph.node:
        ins = [value if isinstance(value := values.get(name), np.ndarray) else None for name in node.input]
        out = values.get(node.output[0])
        x = ins[0] if ins else None
        if not isinstance(out, np.ndarray):
            out = None
        if node.op_type == "If" and x is not None:
            yield "If", "then" if x.any() else "else"
        elif node.op_type == "Loop" and x is not None and x.size:
            yield "Loop", "no turn" if x.ravel()[0] <= 0 else "turns"
        elif out is None or x is None:
            continue
        else:
            yield from (
                (node.op_type if kind == "" else kind, met) for kind, met in _of_node(node, ins, x, out)
            )


def _of_node(node: onnx.NodeProto, ins: list[Any], x: Any, out: Any) -> Iterator[tuple[str, str]]:
    """Outcomes of a node without bodies; "" stands for its operator."""
    op = node.op_type
    if op in COMPARING or op == "Where":
        mask = x if op == "Where" else out
        answer = "all false" if not mask.any() else "all true" if mask.all() else "both"
        yield "selections" if op == "Where" else "comparisons", answer
    if op in COMPARING and ins[1] is not None:
        yield "operands of comparisons", "some equal" if (x == ins[1]).any() else "none equal"
    if op in RANKING and x.size > 1 and x.ndim:
        axis = next((item.i for item in node.attribute if item.name == "axis"), -1 if op == "TopK" else 0)
        rows = np.sort(np.moveaxis(x, axis, -1), -1)
        if rows.shape[-1] > 1:
            ends = rows[..., :2] if op == "ArgMin" else rows[..., -2:]
            yield "ranking operators", "a tie at the end" if (ends[..., 0] == ends[..., 1]).any() else "none"
    if op in CHOOSING and x.size > 1:
        yield "choices", "ties" if len(np.unique(x)) < x.size else "none"
    if op == "QuantizeLinear" and out.dtype.kind in "iu":
        ends = np.iinfo(out.dtype)
        low, high = (out == ends.min).any(), (out == ends.max).any()
        yield "", "both ends" if low and high else "one end" if low or high else "inside"
    if op == "Clip":
        low, high = (end is not None and (out == end).any() for end in [*ins, None, None][1:3])
        yield "", "both ends" if low and high else "one end" if low or high else "inside"
    if op == "Cast" and x.dtype.kind == "f" and out.dtype.kind in "iub":
        exact = (x == out).all()
        yield "Cast of floats to whole numbers", "loses fractions" if not exact else "exact"
    if op == "Relu":
        yield "", "both signs" if (x < 0).any() and (x > 0).any() else "one sign"
    if op == "Round":
        yield "", "halves" if (np.abs(x - np.trunc(x)) == 0.5).any() else "none"
    if op in ("Div", "Mod") and out.dtype.kind == "i" and ins[1] is not None:
        yield "whole quotients", "signs differ, a remainder" if _truncates(x, ins[1]) else "none"
    if op in COUNTING:
        yield "results of unknown size", "empty" if not out.size else "not empty"
    if len(np.unique(out)) == 1 < out.size:
        yield "all results", "one number"
    elif out.size > 1:
        yield "all results", "several numbers"


def _truncates(x: Any, y: Any) -> bool:
    x, y = np.broadcast_arrays(x, y)
    whole = y != 0
    return bool(((x[whole] < 0) != (y[whole] < 0))[np.fmod(x[whole], y[whole]) != 0].any())


def counted(folder: Path, workers: Workers) -> Counter[tuple[str, str]]:
    """What all programs of a folder met."""
    found = Counter[tuple[str, str]]()
    target = resolve("onnxruntime:disable_all")
    chosen = list(programs(folder))
    for start in range(0, len(chosen), GROUP):
        batch = chosen[start : start + GROUP]
        tests = [Test(expose_results(program), inputs) for program, inputs in batch]
        for (program, inputs), answer in zip(batch, workers.observe_many(target, tests), strict=True):
            if answer.outputs is not None:
                weights = {each.name: numpy_helper.to_array(each) for each in program.proto.graph.initializer}
                found["programs", "run with all results shown"] += 1
                found[
                    "programs that run",
                    "all finite" if all(map(finite, answer.outputs.values())) else "not all finite",
                ] += 1
                found.update(outcomes(program.proto, {**weights, **inputs, **answer.outputs}))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", default="mix")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--before", type=Path)
    parser.add_argument(
        "--folder", type=Path, help="keeps the programs and their inputs; without it they are removed"
    )
    parser.add_argument("--searched", action="store_true")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        values = SEARCH if options.searched else RANGED
        made(options.name, options.models, options.nodes, options.seed, options.make, values)
        return
    here = Path(__file__).parent.parent
    sides = {"after": here} | ({"before": options.before.resolve()} if options.before else {})
    sides |= {"searched": here} if options.searched else {}
    rows: dict[str, Counter[tuple[str, str]]] = {}
    with Workers() as workers, tempfile.TemporaryDirectory(prefix="outcomes-") as scratch:
        for side, checkout in sides.items():
            folder = (options.folder or Path(scratch)) / side
            folder.mkdir(parents=True, exist_ok=True)
            given = [
                "--models",
                options.models,
                "--nodes",
                options.nodes,
                "--seed",
                options.seed,
                "--make",
                folder.resolve(),
            ]
            environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
            command = [sys.executable, str(Path(__file__).resolve()), options.name, *map(str, given)]
            command += ["--searched"] if side == "searched" else []
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env=environment, check=True)
            spent = resource.getrusage(resource.RUSAGE_CHILDREN)
            print(f"{side}: {spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime:.1f} s CPU")
            rows[side] = counted(folder, workers)
    print(
        json.dumps(
            {
                "nodes": options.nodes,
                "models": options.models,
                "seed": options.seed,
                "load": os.getloadavg()[0],
            }
        )
    )
    print(f"| | | {' | '.join(rows)} |\n|---|---|{'---|' * len(rows)}")
    for kind, outcome in sorted(set().union(*rows.values())):
        cells = [_share(row, kind, outcome) for row in rows.values()]
        print(f"| {kind} | {outcome} | {' | '.join(cells)} |")


def _share(row: Counter[tuple[str, str]], kind: str, outcome: str) -> str:
    whole = sum(count for (name, _), count in row.items() if name == kind)
    return f"{row[kind, outcome]:,} of {whole:,} ({100 * row[kind, outcome] / max(whole, 1):.0f} %)"


if __name__ == "__main__":
    main()
