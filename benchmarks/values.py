"""How often a program has values without NaN or infinity anywhere inside, by how they are looked for: NNSmith's figure 11.

    python benchmarks/values.py [--models N] [--nodes 20,50] [--iterations 200] [--methods drawn,sampling,...] [--json]

Programs are isra's with float32 leaves, grown without regard to ranges, so that many operators stand outside their domain; beside
them isra's as they are by default, of all dtypes. Every inner tensor is looked at in a run of onnxruntime, unoptimised; models that it
does not run (no kernel) are replaced by the next seed. `drawn` are the values that the program came with. The torch methods begin with
those, as the paper's do; `sampling` draws anew as often as the others iterate. `repair` needs no torch. Seconds are those of one
search, on the models that need one, runs that check included.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from opsieve.backends.target import Target
from opsieve.backends.value_search import Found, broken, by_gradient, candidates, exposed, first_broken
from opsieve.backends.workers import Workers
from opsieve.gen.growth import Wish, begun, case, grown
from opsieve.gen.program import Program
from opsieve.gen.strategies import isra

ORT = Target.parse("onnxruntime:disable_all")
FLOATS = frozenset(("float32",))
Search = Callable[[Program, dict[str, Any], int], Found | None]


def programs(nodes: int, ranged: bool, workers: Workers) -> Iterator[tuple[Program, dict[str, Any], str]]:
    """Programs that onnxruntime runs, with their values, and the first operator whose result is not finite under them."""
    wish = Wish(nodes=nodes, types=True, dtypes=None if ranged else FLOATS)
    seed = 0
    while True:
        if ranged:
            made = isra(wish, seed)
        else:
            sketch = begun(wish, seed, "isra", ranged=False)
            grown(sketch, wish)
            made = case(sketch, wish, "isra", seed)
        seed += 1
        answer = workers.observe(ORT, exposed(made.program), dict(made.inputs))
        if answer.outputs is not None:
            yield made.program, dict(made.inputs), broken(made.program.proto.graph.node, answer.outputs)


def searches(workers: Workers, iterations: int) -> Mapping[str, Search]:
    """The methods by name."""

    def gradient(more: str) -> Search:
        return lambda program, inputs, seed: by_gradient(program, inputs, seed, workers, True, iterations, more)

    def all_of(*kinds: str) -> Search:
        def search(program: Program, inputs: dict[str, Any], seed: int) -> Found | None:
            for found in candidates(program, inputs, seed, workers, True, iterations, "gradient" in kinds):
                if found.how in kinds and first_broken(found.program, found.inputs, workers) == "":
                    return found
            return None

        return search

    return {
        "sampling": gradient(",method=sampling"),
        "gradient": gradient(",proxy=off"),
        "gradient+proxy": gradient(""),
        "repair": all_of("repaired", "guessed"),
        "all": all_of("repaired", "gradient", "guessed"),
    }


def measured(nodes: int, options: argparse.Namespace, workers: Workers) -> list[dict[str, Any]]:
    """A row for each method."""
    chosen = list(islice(programs(nodes, False, workers), options.models))
    bad = [(program, inputs) for program, inputs, broke in chosen if broke]
    sound = len(chosen) - len(bad)
    rows: list[dict[str, Any]] = [{"method": "drawn", "nodes": nodes, "models": len(chosen), "sound": sound, "ms": 0.0}]
    solved: dict[str, set[int]] = {}
    for name, search in searches(workers, options.iterations).items():
        if name not in options.methods.split(","):
            continue
        search(*chosen[0][:2], 0)  # torch is loaded once
        start, solved[name] = time.monotonic(), set()
        for number, (program, inputs) in enumerate(bad):
            found = search(program, inputs, number)
            if found is not None and first_broken(found.program, found.inputs, workers) == "":
                solved[name].add(number)
        spent = (time.monotonic() - start) / max(len(bad), 1)
        rows.append(
            {
                "method": name,
                "nodes": nodes,
                "models": len(chosen),
                "sound": sound + len(solved[name]),
                "ms": round(spent * 1e3, 1),
            }
        )
    feasible = sound + len(set().union(*solved.values()))
    default = list(islice(programs(nodes, True, workers), options.models))
    good = sum(not broke for _, _, broke in default)
    rows.append({"method": "default (ranged)", "nodes": nodes, "models": len(default), "sound": good, "ms": 0.0})
    for row in rows:
        row["share"] = round(row["sound"] / row["models"], 4)
        if row["method"] != "default (ranged)":
            row["share_of_feasible"] = round(row["sound"] / max(feasible, 1), 4)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--nodes", default="20,50")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--methods", default="sampling,gradient,gradient+proxy,repair,all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with Workers() as workers:
        for nodes in map(int, options.nodes.split(",")):
            rows += measured(nodes, options, workers)
            if not options.json:
                for row in rows[-7:]:
                    print(row, file=sys.stderr)
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    print("| nodes | method | sound | of those that some method solves | ms a search |\n|---|---|---|---|---|")
    for row in rows:
        feasible = f"{row['share_of_feasible']:.1%}" if "share_of_feasible" in row else ""
        print(f"| {row['nodes']} | {row['method']} | {row['share']:.1%} | {feasible} | {row['ms']:g} |")


if __name__ == "__main__":
    main()
