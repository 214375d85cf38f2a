"""What values of generated programs reach: both branches, both answers of comparisons, ties, saturation, empty results.

    python benchmarks/outcomes.py [NAME] [--models 200] [--nodes 20] [--seed 0] [--before CHECKOUT]

Programs run on onnxruntime, unoptimised, with every result of their graphs as an output; what is counted are nodes, by what their operands and results are. `--before` is a checkout of an
earlier opsieve, whose programs of the same seeds are made by its own generator and counted by this code.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from opsieve.backends.probing.value_search import exposed
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.model.program import OnnxProgram
from opsieve.gen.strategies.registry import generate

COMPARING = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}
CHOOSING = {"ArgMax", "ArgMin", "TopK", "Max", "Min", "ReduceMax", "ReduceMin", "MaxPool", "Hardmax", "Unique"}
SATURATING = {"Clip", "QuantizeLinear", "Relu", "HardSigmoid", "ThresholdedRelu"}
GROUP = 32


def made(name: str, models: int, nodes: int, seed: int, folder: str) -> None:
    """Write programs with their inputs into a folder."""
    for number in range(seed, seed + models):
        case = generate(name, number, GenRequest(nodes=nodes))
        if not all(_is_plain(value) for value in case.inputs.values()):
            continue  # texts, sequences and what numpy's files do not hold
        path = Path(folder, str(number))
        path.with_suffix(".onnx").write_bytes(case.program.model)  # type: ignore[union-attr]  # strategies of ONNX models
        np.savez(path.with_suffix(".npz"), **case.inputs)


def _is_plain(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.dtype.type.__module__ == "numpy"


def programs(folder: Path) -> Iterator[tuple[OnnxProgram, dict[str, Any]]]:
    """What was written there."""
    for path in sorted(folder.glob("*.onnx")):
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as values:
            yield OnnxProgram(path.read_bytes(), path.stem), {name: values[name] for name in values.files}


def outcomes(model: onnx.ModelProto, values: Mapping[str, Any]) -> Iterator[str]:
    """What the nodes of a program met, each as a word behind its kind."""
    for node in model.graph.node:
        ins = [values.get(name) for name in node.input]
        out = values.get(node.output[0])
        if node.op_type == "If" and isinstance(ins[0], np.ndarray):
            yield f"If: {'then' if ins[0].any() else 'else'}"
        if not isinstance(out, np.ndarray) or not isinstance(ins[0] if ins else None, np.ndarray):
            continue
        if not out.size:
            yield "results: empty"
        if out.size > 1 and (node.op_type in COMPARING or node.op_type == "Where"):
            mask = ins[0] if node.op_type == "Where" else out
            answered = "both answers" if mask.any() and not mask.all() else "one answer"
            yield f"{'selections' if node.op_type == 'Where' else 'comparisons'}: {answered}"
        if node.op_type in COMPARING and isinstance(ins[1], np.ndarray):
            yield f"comparisons: {'equal operands' if (ins[0] == ins[1]).any() else 'no equal operands'}"
        if node.op_type in CHOOSING and out.dtype.kind in "fiu" and ins[0].size > 1:
            operands = [each.ravel() for each in ins[:1] if isinstance(each, np.ndarray)]
            tied = any(len(np.unique(each)) < len(each) for each in operands)
            yield f"choices: {'ties' if tied else 'no ties'}"
        if node.op_type in SATURATING and out.size > 1:
            ends = (out == out.max()).sum() > 1 or (out == out.min()).sum() > 1
            yield f"saturating: {'several at an end' if ends else 'none'}"


def counted(folder: Path, workers: Workers) -> Counter[str]:
    """What all programs of a folder met."""
    found = Counter[str]()
    target = resolve("onnxruntime:disable_all")
    chosen = list(programs(folder))
    for start in range(0, len(chosen), GROUP):
        batch = chosen[start : start + GROUP]
        tests = [Test(exposed(program), inputs) for program, inputs in batch]
        for (program, inputs), answer in zip(batch, workers.observe_many(target, tests), strict=True):
            if answer.outputs is not None:
                weights = {each.name: numpy_helper.to_array(each) for each in program.proto.graph.initializer}
                found["programs that run"] += 1
                found.update(outcomes(program.proto, {**weights, **inputs, **answer.outputs}))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="mix")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("outcomes"))
    parser.add_argument("--make", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        made(options.name, options.models, options.nodes, options.seed, options.make)
        return
    sides = {"after": Path(__file__).parent.parent} | ({"before": options.before.resolve()} if options.before else {})
    rows: dict[str, Counter[str]] = {}
    with Workers() as workers:
        for side, checkout in sides.items():
            folder = options.folder / side
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
            subprocess.run(command, env=environment, check=True)
            rows[side] = counted(folder, workers)
    kinds = sorted(set().union(*rows.values()))
    print(json.dumps({"nodes": options.nodes, "models": options.models, "seed": options.seed}))
    print(f"| | {' | '.join(rows)} |\n|---|{'---|' * len(rows)}")
    for kind in kinds:
        print(f"| {kind} | {' | '.join(str(row[kind]) for row in rows.values())} |")


if __name__ == "__main__":
    main()
