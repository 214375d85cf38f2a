"""Validity of generated programs, as docs/benchmarks/generator.md has it.

    python benchmarks/generator.py [--models 10000] [--nodes 5-60] [--seed 0] [--strategies NAME,...]

onnxruntime is probed first, and programs keep to what it has and what the probe of a single operator does not
show as broken. `inferred` is the share of models of which no declared type contradicts what ONNX's inference
finds once all declarations but those of inputs are taken away, `found` the share of tensors that it finds the
whole type of. `runs` are models that onnxruntime runs unoptimised, `finite` those that give no NaN and no
Inf.
"""

import argparse
import sys
from collections import Counter

import numpy as np
import onnx

from opsieve.backends.probing.operator_support import share_support
from opsieve.backends.probing.prober import probe_targets
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.programs import infer_types
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.generation import request as gen_request
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.strategies import registry as strategies

LEFT_OUT = ("disruptive", "mix")
GROUP = 250
ORT = resolve("onnxruntime:disable_all")


def own() -> list[str]:
    """Every strategy that makes valid programs."""
    return [name for name in strategies.list_names() if name not in LEFT_OUT]


def bare(program: OnnxProgram) -> OnnxProgram:
    """The program without the declared types of what its nodes give."""
    model = onnx.load_model_from_string(program.model)
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.ClearField("type")
    return OnnxProgram(model.SerializeToString(), program.name)


def types(model: onnx.ModelProto) -> dict[str, tuple[int, tuple[int, ...] | None]]:
    """Element type and shape of every tensor that has a type, -1 for sizes that have no number."""
    found = {}
    for info in (*model.graph.value_info, *model.graph.output):
        if info.type.HasField("tensor_type"):
            tensor = info.type.tensor_type
            shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
            found[info.name] = (tensor.elem_type, shape if tensor.HasField("shape") else None)
    return found


def compared(declared: onnx.ModelProto, inferred: onnx.ModelProto) -> tuple[int, int, str]:
    """How many tensors are declared, for how many inference finds an element type and as many sizes, the
    first contradiction.
    """
    told, found, wrong = types(inferred), 0, ""
    wanted = types(declared)
    for name, (dtype, shape) in wanted.items():
        its_dtype, its_shape = told.get(name, (0, None))
        if its_dtype not in (0, dtype) or (
            None not in (shape, its_shape) and not agree(shape or (), its_shape or ())
        ):
            wrong = wrong or f"{name} is declared {dtype}{shape} and inferred {its_dtype}{its_shape}"
        found += (
            its_dtype == dtype and its_shape is not None and its_shape.count(-1) <= (shape or ()).count(-1)
        )
    return len(wanted), found, wrong


def agree(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return len(first) == len(second) and all(
        -1 in (p, q) or p == q for p, q in zip(first, second, strict=True)
    )


def validity(models: int, nodes: str, names: list[str], seed: int) -> None:
    low, high = gen_request.parse_nodes(nodes)
    print(
        f"{'strategy':<18}{'models':>8}{'nodes':>8}{'checker':>9}{'inferred':>10}{'runs':>9}{'finite':>9}{'found':>9}"
    )
    totals: Counter[str] = Counter()
    with Workers() as workers:
        supports = probe_targets(workers, [ORT])
        request = GenRequest(
            nodes=low,
            between=(low, high),
            types=True,
            supports=share_support([support.without_broken() for support in supports]),
        )
        for name in names:
            told, reasons = one_strategy(workers, name, request, range(seed, seed + models // len(names)))
            totals.update(told)
            row(name, told)
            for reason, count in reasons.most_common(12):
                print(f"    {count} x {reason}", file=sys.stderr)
    row("all", totals)


def one_strategy(
    workers: Workers, name: str, request: GenRequest, seeds: range
) -> tuple[Counter[str], Counter[str]]:
    told: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for begin in range(0, len(seeds), GROUP):
        cases = [strategies.generate(name, seed, request) for seed in seeds[begin : begin + GROUP]]
        told["models"] += len(cases)
        told["nodes"] += sum(len(item.program.proto.graph.node) for item in cases)
        tests = [Test(item.program, item.inputs) for item in cases]
        for item, answer in zip(cases, workers.observe_many(resolve("checker"), tests), strict=True):
            told["checker"] += answer.outcome == "ok"
            if answer.outcome != "ok":
                reasons[f"checker, {item.program.name}: {answer.message[:160]}"] += 1
        for item, (inferred, problem) in zip(
            cases, infer_types(workers, [bare(item.program) for item in cases]), strict=True
        ):
            tensors, found, wrong = compared(item.program.proto, inferred)
            problem = problem or wrong
            told["tensors"] += tensors
            told["found"] += found
            told["inferred"] += not problem
            if problem:
                reasons[f"types, {item.program.name}: {problem[:160]}"] += 1
        for item, answer in zip(cases, workers.observe_many(ORT, tests), strict=True):
            told["runs"] += answer.outcome == "ok"
            wild = sorted(name for name, value in (answer.outputs or {}).items() if not finite(value))
            told["finite"] += answer.outcome == "ok" and not wild
            if wild:
                reasons[f"not finite, {item.program.name}: {', '.join(wild)[:160]}"] += 1
            if answer.outcome != "ok":
                reasons[f"{answer.outcome}, {item.program.name}: {answer.message[-160:]}"] += 1
    return told, reasons


def finite(value: object) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fV":
        return True
    return bool(np.isfinite(value.astype(np.float64)).all())


def row(name: str, told: Counter[str]) -> None:
    count = max(1, told["models"])
    shares = "".join(
        f"{told[key] / count:>{width}.2%}"
        for key, width in (("checker", 9), ("inferred", 10), ("runs", 9), ("finite", 9))
    )
    print(
        f"{name:<18}{told['models']:>8}{told['nodes'] / count:>8.1f}{shares}{told['found'] / max(1, told['tensors']):>9.1%}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--nodes", default="5-60")
    parser.add_argument("--strategies", default="")
    given = parser.parse_args()
    names = given.strategies.split(",") if given.strategies else []
    validity(given.models, given.nodes, names or own(), given.seed)


if __name__ == "__main__":
    main()
