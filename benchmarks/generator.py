"""What docs/benchmarks/generator.md says of the generator, measured: validity, picking rate, guidance, the
balance of operators.

    python benchmarks/generator.py validity [--models 10000] [--nodes 5-60] [--seed 0] [--strategies NAME,...]
    [--corpus FOLDER] python benchmarks/generator.py picking | bins
    python benchmarks/generator.py guided [--models 1000] [--images DIR]
    python benchmarks/generator.py balance [--models 4000]

`validity` probes onnxruntime first, and keeps to what it has and what the probe of a single operator does not
show as broken. `inferred` is the share of models of which no declared type contradicts what ONNX's inference
finds once all declarations but those of inputs are taken away, `found` the share of tensors that it finds the
whole type of. `runs` are models that onnxruntime runs unoptimised, `finite` those that give no NaN and no
Inf.
"""

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from opsieve.backends.probing.generation import load_corpus
from opsieve.backends.probing.operator_support import share_support
from opsieve.backends.probing.prober import probe_targets
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.programs import infer_types
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.generation import request as gen_request
from opsieve.gen.generation.random_graph import GenRequest, fill, finish, start
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies import registry as strategies
from opsieve.triage.campaign.line_plot import draw_lines
from opsieve_research.summary import Metrics

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


def validity(models: int, nodes: str, names: list[str], seed: int, folder: Path | None) -> None:
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
        if folder is not None:
            found, refused = load_corpus(folder, workers)
            print(f"{len(found)} models of the corpus, {len(refused)} refused")
            request = replace(request, corpus=found)
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


def grown_at(pick: float, bins: int, seed: int, nodes: int) -> Case:
    """isra's program with another picking rate or number of bins."""
    request = GenRequest(nodes=nodes, bins=bins, types=True)
    builder = start(request, seed, "isra", pick)
    fill(builder, request)
    return finish(builder, request, "isra", seed)


def picking() -> None:
    """Isra, Table II: its metrics over all operators by picking rate, 200 programs of 10 nodes."""
    names: list[str] = []
    for rate in (0.5, 0.8, 0.9, 0.95, 0.97, 0.99):
        metrics = Metrics()
        for seed in range(200):
            metrics.add(grown_at(rate, 7, seed, 10).program.proto)
        told = metrics.report()
        if not names:
            names = list(told["isra_all"])
            print(f"{'rate':>6}" + "".join(f"{name:>9}" for name in names) + f"{'instances':>11}{'edges':>7}")
        print(
            f"{rate:>6}"
            + "".join(f"{told['isra_all'][name]:>9.4g}" for name in names)
            + f"{told['instances']:>11}{told['edges']:>7}"
        )


def guided(images: Path, models: int) -> None:
    """HirFuzz, Figure 6: its three coverages by number of programs of 10 nodes, guided and not."""
    kinds = ("operator-dtype", "operator-shape", "operator-edge")
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {kind: {} for kind in kinds}
    for name in ("hirfuzz", "isra"):
        metrics = Metrics()
        for seed in range(models):
            metrics.add(strategies.generate(name, seed, GenRequest(types=True)).program.proto)
            if seed % 10 == 9:
                for kind in kinds:
                    told = metrics.coverage.hirfuzz[kind]
                    label = "guided (hirfuzz)" if name == "hirfuzz" else "not guided (isra)"
                    lines[kind].setdefault(label, [(0, 0)]).append((seed + 1, told))
        print(name, {kind: metrics.coverage.hirfuzz[kind] for kind in kinds})
    for kind in kinds:
        path = images / f"guided-{kind}.svg"
        path.write_text(
            draw_lines(f"{kind} coverage", "programs of 10 nodes", "pairs", lines[kind]), encoding="utf-8"
        )


def bins() -> None:
    """NNSmith's binning: distinct instances of 200 programs of 10 nodes with sizes drawn from k bins, and
    without; of isra, whose sizes are drawn, and of nnsmith, whose sizes are solved for.
    """
    for name, counts in (("isra", (0, 3, 5, 7)), ("nnsmith", (0, 7))):
        for count in counts:
            metrics = Metrics()
            for seed in range(200):
                request = GenRequest(nodes=10, bins=count, types=True)
                made = (
                    strategies.generate(name, seed, request)
                    if name == "nnsmith"
                    else grown_at(0.95, count, seed, 10)
                )
                metrics.add(made.program.proto)
            told = metrics.report()
            print(
                f"{name}, k = {count or 'none'}: {told['instances']} instances, {told['edges']} edges,"
                f" {told['hirfuzz']['operator-shape']} operator-shape pairs"
            )


def balance(models: int, name: str) -> None:
    """How often each operator is met under a strategy."""
    met: Counter[str] = Counter()
    for seed in range(models):
        model = strategies.generate(name, seed, GenRequest(nodes=5, between=(5, 30))).program.proto
        met.update(
            f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            for node in all_nodes(model.graph.node)
        )
    there = {key: met[key] for key in operators() if "::" not in key}
    order = sorted(there, key=lambda key: there[key])
    families: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for key, count in there.items():
        family = operators()[key].family
        families[family] += count
        sizes[family] += 1
    print("least:", ", ".join(f"{key} {there[key]}" for key in order[:15]))
    print("most:", ", ".join(f"{key} {there[key]}" for key in order[-15:]), "and Constant", met["Constant"])
    for family, count in sorted(families.items(), key=lambda item: item[1] / sizes[item[0]]):
        print(f"{family:<16}{sizes[family]:>4} operators{count / sizes[family]:>9.0f} nodes each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("validity", "picking", "guided", "bins", "balance"))
    parser.add_argument("--models", type=int, help="10,000 to validate, 1,000 guided, 4,000 to balance")
    parser.add_argument("--seed", type=int, default=0, help="the first seed to validate")
    parser.add_argument("--nodes", default="5-60")
    parser.add_argument("--strategies", default="")
    parser.add_argument("--corpus", type=Path, help="a folder of models for mutate or documented")
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    names = given.strategies.split(",") if given.strategies else []
    match given.what:
        case "validity":
            validity(given.models or 10_000, given.nodes, names or own(), given.seed, given.corpus)
        case "picking":
            picking()
        case "guided":
            guided(given.images, given.models or 1000)
        case "bins":
            bins()
        case "balance":
            balance(given.models or 4000, names[0] if names else "mix")


if __name__ == "__main__":
    main()
