"""How often a program has values without NaN or infinity anywhere inside, by how they are looked for:
NNSmith's figure 11.

    python benchmarks/values.py [--models N] [--nodes 20,50] [--iterations 200] [--methods
    sampling,gradient,...] [--json]

Programs are isra's with float32 leaves, grown without regard to ranges, so that many operators stand outside
their domain; beside them isra's as they are by default. Every inner tensor is looked at in a run of
onnxruntime, unoptimised; models that it does not run (no kernel) are replaced by the next seed. `drawn` are
the values that the program came with. The torch methods begin with those, as the paper's do; `sampling` draws
anew as often as the others iterate. `repair` needs no torch. Time is CPU time of one search, of this process
and of all workers, on the models that need one, runs that check included.

Of what no method solves, `lost` are the programs in which one and the same element is not finite in each of
64 draws of all their leaves: as far as that tells, no values make it so (a logarithm of a constant that is
negative, a division by the zero that an exclusive CumSum begins with).
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from opsieve.backends.probing.value_search import (
    Effort,
    ValueSearchRequest,
    expose_results,
    find_broken_node,
    search_values,
)
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.analysis.input_ranges import Guesses, refill_values, with_weights
from opsieve.gen.analysis.typed_graph import read_graph
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.strategies.registry import generate

ORT = resolve("onnxruntime:disable_all")
METHODS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "sampling": (("gradient",), ",method=sampling"),
    "gradient": (("gradient",), ",proxy=off"),
    "gradient+proxy": (("gradient",), ""),
    "repair": (("repaired", "guessed"), ""),
    "all": (("repaired", "gradient", "guessed"), ""),
}
DRAWS = 64
GROUP = 32


def programs(nodes: int, values: str, workers: Workers) -> Iterator[tuple[OnnxProgram, dict[str, Any], str]]:
    """Programs that onnxruntime runs, with their values, and the first operator whose result is not finite
    under them.
    """
    request = GenRequest(nodes=nodes, types=True, dtypes=frozenset(("float32",)), values=values)
    for start in range(0, 1 << 30, GROUP):
        made = [generate("isra", seed, request) for seed in range(start, start + GROUP)]
        tests = [Test(expose_results(case.program), dict(case.inputs)) for case in made]
        for case, answer in zip(made, workers.observe_many(ORT, tests), strict=True):
            if answer.outputs is not None:
                met = find_broken_node(case.program.proto.graph.node, answer.outputs)
                yield case.program, dict(case.inputs), "" if met is None else met.op_type


def seconds() -> float:
    """CPU seconds of this process and of all that descend from it, those that have ended and were waited for
    included.
    """
    tick = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / tick
    total = 0.0
    for number in parents:
        above = number
        while above > 1 and above != os.getpid():
            above = parents.get(above, 0)
        total += spent[number] if above == os.getpid() else 0.0
    return total


def lost(program: OnnxProgram, inputs: Mapping[str, Any], workers: Workers) -> bool:
    """Whether some element of some result is not finite in each of 64 draws of all leaves that may move."""
    graph = read_graph(program.proto, inputs)
    tests = []
    guesses = Guesses(graph, 0, True)
    for number in range(DRAWS):
        values, weights = refill_values(program.proto, inputs, guesses.everywhere(), number)
        model = with_weights(program.proto, weights)
        tests.append(Test(expose_results(OnnxProgram(model.SerializeToString(), program.name)), values))
    always: dict[str, Any] = {}
    for answer in workers.observe_many(ORT, tests):
        for name, value in (answer.outputs or {}).items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                mask = ~np.isfinite(value)
                always[name] = (
                    always[name] & mask if name in always and always[name].shape == mask.shape else mask
                )
    return any(bool(mask.any()) for mask in always.values())


def measured(nodes: int, options: argparse.Namespace, workers: Workers) -> list[dict[str, Any]]:
    """A row for each method."""
    chosen = list(islice(programs(nodes, "search", workers), options.models))
    bad = [
        ValueSearchRequest(program, inputs, number)
        for number, (program, inputs, broke) in enumerate(chosen)
        if broke
    ]
    sound = len(chosen) - len(bad)
    rows: list[dict[str, Any]] = [{"method": "drawn", "nodes": nodes, "models": len(chosen), "sound": sound}]
    solved: dict[str, set[int]] = {}
    for name in options.methods.split(","):
        methods, gradient = METHODS[name]
        effort = Effort(True, options.iterations, methods, gradient)
        # torch is loaded once
        list(search_values([ValueSearchRequest(*chosen[0][:2], 0), *bad[:1]], workers, effort))
        start = seconds()
        found = list(search_values(bad, workers, effort))
        spent = seconds() - start
        solved[name] = {
            item.seed
            for item, answer in zip(bad, found, strict=True)
            if answer.how not in ("none", "unchecked")
        }
        rows.append(
            {
                "method": name,
                "nodes": nodes,
                "models": len(chosen),
                "sound": sound + len(solved[name]),
                "cpu_ms": round(spent * 1e3 / max(len(bad), 1), 1),
            }
        )
        _tell(rows[-1])
    any_ = set[int]().union(*solved.values())
    left = [item for item in bad if item.seed not in any_]
    hopeless = [item.program.name for item in left if lost(item.program, item.inputs, workers)]
    default = list(islice(programs(nodes, "ranged", workers), options.models))
    good = sum(not broke for _, _, broke in default)
    rows.append({"method": "default (ranged)", "nodes": nodes, "models": len(default), "sound": good})
    for row in rows:
        row["share"] = round(row["sound"] / row["models"], 4)
        if row["method"] != "default (ranged)":
            row["share_of_solved"] = round(row["sound"] / max(sound + len(any_), 1), 4)
    unsolved = [item.program.name for item in left if item.program.name not in hopeless]
    _tell({"nodes": nodes, "needing": len(bad), "lost": hopeless, "unsolved": unsolved})
    rows[0]["lost"], rows[0]["unsolved"] = len(hopeless), len(unsolved)
    return rows


def _tell(row: Mapping[str, Any]) -> None:
    print(row, file=sys.stderr, flush=True)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| nodes | method | sound | of those that some method solves | CPU ms a search |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        feasible = f"{row['share_of_solved']:.1%}" if "share_of_solved" in row else ""
        lines.append(
            f"| {row['nodes']} | {row['method']} | {row['share']:.1%} | {feasible} |"
            f" {row.get('cpu_ms', '')} |"
        )
        if "lost" in row:
            lines[-1] += f"  {row['models']} models; no method: {row['lost']} lost, {row['unsolved']} others"
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--nodes", default="20,50")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with Workers() as workers:
        for nodes in map(int, options.nodes.split(",")):
            rows += measured(nodes, options, workers)
    print(json.dumps({"rows": rows}) if options.json else _table(rows))


if __name__ == "__main__":
    main()
