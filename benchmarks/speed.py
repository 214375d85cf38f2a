"""How fast the generator is, in CPU time on one core: models a second and microseconds a node, by strategy
and size; where the time goes.

    python benchmarks/speed.py [NAME ...] [--nodes 10,30,100,300,1000] [--rounds 3] [--image FILE.svg]     #
    all figures of docs/benchmarks/generator.md: two to three minutes python benchmarks/speed.py NAME --nodes
    100 --profile python benchmarks/speed.py NAME ... --nodes 10,100 --before CHECKOUT     # beside an earlier
    opsieve: two processes that take turns program by program

A round makes programs of seeds that no other round has, from the seed to serialised bytes with values for the
inputs; of `mix` always whole batches of 256 seeds, so that every strategy has exactly its share of them at
every size (the one program of `nnsmith` in it is costly). The quickest and the slowest round are told: they
differ as much as the machine was disturbed. A node is one that was asked for; `onnx` is how many there are in
a program with plumbing, bodies and constants. Programs of many nodes have room for them: the request's budget
of elements and work is 32 and 16 times the usual one.
"""

import argparse
import cProfile
import gc
import os
import pstats
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from line_plot import draw_lines

from opsieve.gen.declarations.builder import Budget
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.registry import ONNX, ir_named
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies import registry as strategies
from opsieve.gen.strategies.mix import BATCH

ROOT = Path(__file__).resolve().parent.parent
SIZES = "10,30,100,300,1000"
ROOMY = Budget(elements=1 << 22, work=1 << 26)
WARM = 1 << 40  # seeds from here on warm caches up


@dataclass(frozen=True, slots=True)
class Row:
    """What the rounds of a strategy at a size took: CPU seconds for `models`, of the first round by
    generator, and its ONNX nodes.
    """

    models: int
    seconds: Sequence[float]
    by_generator: Counter[str]
    onnx_nodes: int


def models_at(name: str, nodes: int) -> int:
    """How many programs a round makes: enough for a steady mean, and few of a strategy that takes
    milliseconds a node.
    """
    if name == "mix":
        return BATCH
    return max(2, 1000 // nodes) if name == "nnsmith" else max(32, 5000 // nodes)


def measured(name: str, nodes: int, rounds: int) -> Row:
    """Time some rounds."""
    request, models = GenRequest(nodes=nodes, budget=ROOMY), models_at(name, nodes)
    for seed in range(BATCH if name == "mix" else 16):  # reads schemas
        strategies.generate(name, WARM + seed, GenRequest(nodes=5))
    seconds, by_generator, onnx_nodes = [], Counter[str](), 0
    for number in range(rounds):
        gc.collect()
        start = BATCH * 1000 * number
        began = last = time.process_time()
        for seed in range(start, start + models):
            made = strategies.generate(name, seed, request)
            if not number:
                now = time.process_time()
                by_generator[made.origin.generator] += round((now - last) * 1e9)
                onnx_nodes += sum(1 for _ in all_nodes(made.program.proto.graph.node))
                began += time.process_time() - now
                last = time.process_time()
        seconds.append(time.process_time() - began)
    return Row(models, seconds, by_generator, onnx_nodes)


def told(name: str, nodes: int, row: Row) -> None:
    """One line."""
    best, worst = min(row.seconds), max(row.seconds)
    each = 1e6 / row.models / nodes
    whole = sum(row.by_generator.values())
    shares = ", ".join(f"{key} {spent / whole:.0%}" for key, spent in row.by_generator.most_common())
    print(
        f"{name:<18}{nodes:>6}{row.models / best:>10.1f}{row.models / worst:>10.1f}{best * each:>9.1f}{worst * each:>9.1f}{row.onnx_nodes / row.models:>9.1f}"
        f"  {shares if len(row.by_generator) > 1 else ''}",
        flush=True,
    )


def profiled(name: str, nodes: int) -> None:
    """Where the time goes, by functions that do not count what they call."""
    request, models = GenRequest(nodes=nodes, budget=ROOMY), 4 * models_at(name, nodes)
    for seed in range(models):
        strategies.generate(name, WARM + seed, request)
    meter = cProfile.Profile()
    meter.enable()
    for seed in range(models):
        strategies.generate(name, seed, request)
    meter.disable()
    pstats.Stats(meter).sort_stats("tottime").print_stats(24)


def answer(name: str, nodes: int) -> None:
    """Print the CPU seconds of each program whose seed is a line of the standard input, once warm."""
    for seed in range(BATCH):
        strategies.generate(name, WARM + seed, GenRequest(nodes=8))
    for line in sys.stdin:
        began = time.process_time()
        made = strategies.generate(name, int(line), GenRequest(nodes=nodes, budget=ROOMY))
        print(time.process_time() - began, made.origin.generator, flush=True)


def beside(name: str, nodes: int, rounds: int, before: Path, after: Path = ROOT) -> None:
    """A line for what two checkouts take for programs of equal seeds, the least of all rounds each; one for
    each generator of a mix.
    """
    command = [sys.executable, __file__, name, "--nodes", str(nodes), "--answer"]
    trees = [{**os.environ, "PYTHONPATH": str(tree / "src")} for tree in (before.resolve(), after)]
    least: list[dict[int, float]] = [{}, {}]
    generators: dict[int, str] = {}
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                subprocess.Popen(command, env=env, stdin=PIPE, stdout=PIPE, text=True, bufsize=1)
            )
            for env in trees
        ]
        for _ in range(rounds):
            for seed in range(models_at(name, nodes)):
                for side, found in zip(sides, least, strict=True):
                    assert side.stdin is not None
                    assert side.stdout is not None
                    side.stdin.write(f"{seed}\n")
                    seconds, generators[seed] = side.stdout.readline().split()
                    found[seed] = min(found.get(seed, float(seconds)), float(seconds))
        for side in sides:
            side.communicate()
    for generator in (None, *sorted(set(generators.values()))) if name == "mix" else (None,):
        seeds = [seed for seed in generators if generator in (None, generators[seed])]
        old, new = (1e6 * sum(found[seed] for seed in seeds) / len(seeds) for found in least)
        print(
            f"{generator or name:<18}{nodes:>6}{old:>10.0f}{new:>10.0f} us a program, {old / new:.2f} times",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="strategies; those of the mix, and the mix, unless given")
    parser.add_argument("--nodes", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--image", type=Path, help="a plot of microseconds a node by nodes, a line for each strategy"
    )
    parser.add_argument("--profile", action="store_true", help="of the first strategy at the first size")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="an earlier opsieve to measure beside this one"
    )
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names, sizes = (
        given.names or ["mix", *(name for name, weight in ir_named(ONNX).strategies.items() if weight)],
        [int(size) for size in given.nodes.split(",")],
    )
    if given.profile:
        profiled(names[0], sizes[0])
        return
    if given.answer:
        answer(names[0], sizes[0])
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if given.before:
        for name in names:
            for nodes in sizes:
                beside(name, nodes, given.rounds, given.before)
        return
    print(
        f"{'':<24}{'models/s':>10}{'slowest':>10}{'us/node':>9}{'slowest':>9}{'onnx':>9}  shares of the time"
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        for nodes in sizes:
            row = measured(name, nodes, given.rounds)
            told(name, nodes, row)
            lines.setdefault(name, []).append((nodes, 1e6 * min(row.seconds) / row.models / nodes))
    if given.image:
        slow = lines.pop("nnsmith", [])  # forty times the others: they would be one line
        plot = draw_lines("cost of a node", "nodes", "microseconds", lines)
        given.image.write_text(plot, encoding="utf-8")
        print(f"not in the plot: nnsmith {slow}" if slow else "")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
