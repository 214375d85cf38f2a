"""Generators side by side at equal model count and size: models per CPU second, validity, diversity.

    python benchmarks/gen.py [NAME ...] [--models N] [--nodes K] [--nnsmith PYTHON] [--folder NAME=DIR]
    [--tail WORDS] [--isra] [--json]

NAME is a strategy of opsieve (the baselines `declarative`, `randoop`, `pad-slice` are some); without any, all
that are there. `--nnsmith` names a Python that has NNSmith and torch (this one is tried without it;
`PYTHONPATH` reaches a checkout); `--folder` measures models that another tool left, without a rate, and
`--tail` leaves out nodes that it only adds to join all ends (Isra's: `flatten_node,concat_outputs`). The time
is that of one process from the seed to serialised bytes with values for the inputs. `checker` and
`onnxruntime` are the shares that onnx.checker with full shape inference accepts and that onnxruntime runs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.programs import infer_types
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.strategies import registry as strategies
from opsieve_research.summary import Metrics

Generate = Callable[[int, int], Case]
WARM_UP = 20
PEER = Path(__file__).parent / "peers" / "nnsmith_models.py"


def generators() -> dict[str, Generate]:
    """Every strategy by name."""

    def of_core(name: str) -> Generate:
        return lambda seed, nodes: strategies.generate(name, seed, GenRequest(nodes=nodes))

    return {name: of_core(name) for name in strategies.list_names()}


def measure(make: Generate, models: int, nodes: int) -> tuple[list[Case], float]:
    """Cases of the first seeds, and CPU seconds for them."""
    for seed in range(WARM_UP):
        make(10**9 + seed, nodes)
    start = time.process_time()
    cases = [make(seed, nodes) for seed in range(models)]
    return cases, time.process_time() - start


def nnsmith(python: str, models: int, nodes: int) -> tuple[list[Case], float] | None:
    """Cases of NNSmith's and their CPU seconds; None, and the reason on stderr, where it is not there."""
    with tempfile.TemporaryDirectory() as out:
        command = [python, "-W", "ignore", str(PEER), out, "--models", str(models), "--nodes", str(nodes)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            print(
                f"NNSmith is not measured: {reason} (name a Python that has it with --nnsmith)",
                file=sys.stderr,
            )
            return None
        told = json.loads(done.stdout.splitlines()[-1])
        return from_folder(Path(out)), told["seconds_cpu"]


def from_folder(folder: Path) -> list[Case]:
    """The models in a folder, with seeded inputs; one that cannot be read is told and left out."""
    cases = []
    for path in sorted(folder.rglob("*.onnx")):
        try:
            program = load_program(path)
            cases.append(Case(program, seeded_inputs(program.proto, 0)))
        except BadInput as error:
            print(f"left out: {error}", file=sys.stderr)
    return cases


def without(model: onnx.ModelProto, words: list[str]) -> onnx.ModelProto:
    """The model without the nodes whose names hold one of the words."""
    kept = onnx.ModelProto()
    kept.CopyFrom(model)
    nodes = [node for node in model.graph.node if not any(word in node.name for word in words)]
    del kept.graph.node[:]
    kept.graph.node.extend(nodes)
    return kept


def figures(workers: Workers, cases: list[Case], seconds: float | None, tail: list[str]) -> dict[str, Any]:
    """One row of the table, with all metrics under `metrics`; nodes whose names hold a word of `tail` are not
    in them.
    """
    tests = [Test(case.program, case.inputs) for case in cases]

    def share(target: str) -> float:
        answers = list(workers.observe_many(resolve(target), tests))
        reasons = Counter(
            f"{answer.outcome}: {answer.message[:110]}" for answer in answers if answer.outcome != "ok"
        )
        for reason, times in reasons.most_common(3):
            print(f"{target}: {times} x {reason}", file=sys.stderr)
        return sum(answer.outcome == "ok" for answer in answers) / max(1, len(answers))

    metrics = Metrics()
    for model, _ in infer_types(workers, [case.program for case in cases]):
        metrics.add(without(model, tail) if tail else model)
    told = metrics.report()
    return {
        "models": len(cases),
        "nodes": told["nodes"] / max(1, len(cases)),
        "models_per_cpu_second": len(cases) / seconds if seconds else None,
        "checker": share("checker"),
        "onnxruntime": share("onnxruntime"),
        **{name: told[name] for name in ("operators", "instances", "edges", "edges_without_glue")},
        "metrics": told,
    }


def table(rows: dict[str, dict[str, Any]]) -> None:
    columns = {
        "models": 8,
        "nodes": 7,
        "models/s": 10,
        "checker": 9,
        "onnxrt": 8,
        "operators": 11,
        "instances": 11,
    }
    print(
        f"{'generator':<16}"
        + "".join(f"{name:>{width}}" for name, width in columns.items())
        + "  edges (no glue)"
    )
    for name, row in rows.items():
        rate = row["models_per_cpu_second"]
        print(
            f"{name:<16}{row['models']:>8}{row['nodes']:>7.1f}{'-' if rate is None else f'{rate:.1f}':>10}"
            f"{row['checker']:>9.1%}{row['onnxruntime']:>8.1%}{row['operators']:>11}{row['instances']:>11}"
            f"  {row['edges']} ({row['edges_without_glue']})"
        )


def isra_table(rows: dict[str, dict[str, Any]]) -> None:
    for corpus, title in (("isra", "Isra's metrics, its 65 operators"), ("isra_all", "all of ai.onnx")):
        names = list(next(iter(rows.values()))["metrics"][corpus])
        print(f"\n{title:<32}" + "".join(f"{name:>9}" for name in names))
        for generator, row in rows.items():
            print(f"{generator:<32}" + "".join(f"{row['metrics'][corpus][name]:>9.4g}" for name in names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--nnsmith", metavar="PYTHON")
    parser.add_argument("--folder", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument(
        "--tail", default="", metavar="WORD,...", help="nodes of --folder named so do not count"
    )
    parser.add_argument("--isra", action="store_true", help="Isra's metrics in two more tables")
    parser.add_argument("--json", action="store_true", help="all metrics as one object, no table")
    given = parser.parse_args()
    there = generators()
    unknown = [name for name in given.names if name not in there]
    if unknown:
        parser.error(f"there is no generator {unknown[0]!r}; there are {', '.join(there)}")
    tail = [word for word in given.tail.split(",") if word]
    rows = {}
    with Workers() as workers:
        for name in given.names or there:
            rows[name] = figures(workers, *measure(there[name], given.models, given.nodes), [])
        peer = nnsmith(given.nnsmith or sys.executable, given.models, given.nodes)
        if peer is not None:
            rows["nnsmith"] = figures(workers, *peer, [])
        for entry in given.folder:
            name, _, folder = entry.partition("=")
            rows[name] = figures(workers, from_folder(Path(folder)), None, tail)
    if given.json:
        print(json.dumps(rows))
        return
    table(rows)
    if given.isra:
        isra_table(rows)


if __name__ == "__main__":
    main()
