"""How many planted optimiser faults a strategy's programs reach: each needs two or three neighbours of given
operators, and a condition on them.

    python benchmarks/planted_chains.py [NAME] [--faults 60] [--sets 1] [--seconds 20] [--nodes 20] [--seed 0]
    [--before CHECKOUT]

A fault is a chain of two or three operators that read one another's results, drawn from those that optimisers
rewrite, with one of these conditions: none; the first result has another reader; all of the chain is float16;
the last node reads two results. It is found when a program has such a chain, which an optimiser with this
fault would have rewritten. `--seconds` is CPU time of making programs on each side; `--before` is a checkout
of an earlier opsieve. No compiler is asked: this measures what programs offer, not what a judge sees.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import onnx

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.strategies.registry import generate
from opsieve_research.graph import Operation, operations
from opsieve_research.structure import without_constants

OPERATORS = [
    "Add",
    "Mul",
    "Sub",
    "Div",
    "MatMul",
    "Gemm",
    "Conv",
    "ConvTranspose",
    "BatchNormalization",
    "LayerNormalization",
    "InstanceNormalization",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Clip",
    "LeakyRelu",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Concat",
    "Split",
    "Slice",
    "Gather",
    "Pad",
    "Cast",
    "Expand",
    "Where",
    "ReduceMean",
    "ReduceSum",
    "Softmax",
    "MaxPool",
    "QuantizeLinear",
    "DequantizeLinear",
    "Identity",
    "Dropout",
    "Erf",
    "Pow",
    "Sqrt",
]
CONDITIONS = ("", "", "shared", "half", "merges")


@dataclass(frozen=True, slots=True)
class Fault:
    """Operators one after the other, and what must hold of them."""

    chain: tuple[str, ...]
    condition: str


def drawn(count: int, seed: int) -> list[Fault]:
    """Different faults, a third of them of two operators."""
    rng, found = random.Random(seed), dict[Fault, None]()
    while len(found) < count:
        length = 2 if len(found) < count // 3 else 3
        found[Fault(tuple(rng.choice(OPERATORS) for _ in range(length)), rng.choice(CONDITIONS))] = None
    return list(found)


def met(fault: Fault, nodes: list[Operation]) -> bool:
    """Whether a program has the chain."""
    made: dict[int, int] = {}
    for node in nodes:
        for reader in set(node.consumers):
            made[reader] = made.get(reader, 0) + 1

    def goes_on(place: int, left: tuple[str, ...]) -> bool:
        node = nodes[place]
        if node.operator != left[0] or (
            fault.condition == "half" and "float16" not in {t for t, _ in node.outputs}
        ):
            return False
        if len(left) == 1:
            return fault.condition != "merges" or made.get(place, 0) > 1
        shared = fault.condition != "shared" or len(left) < len(fault.chain) or len(set(node.consumers)) > 1
        return shared and any(goes_on(reader, left[1:]) for reader in set(node.consumers) if reader > place)

    return any(goes_on(place, fault.chain) for place in range(len(nodes)))


def reached(
    name: str, sets: list[list[Fault]], seconds: float, nodes: int, start: int
) -> tuple[list[int], int]:
    """How many faults of each set are found in so much CPU time, and by how many programs from a seed on."""
    request = GenRequest(nodes=nodes, types=True)
    generate(name, 1 << 20, request)
    left, spent, seed = {fault for faults in sets for fault in faults}, 0.0, start
    while spent < seconds:
        begun = time.process_time()
        model = generate(name, seed, request).program.model
        spent += time.process_time() - begun
        seed += 1
        program = without_constants(operations(onnx.load_model_from_string(model)))
        there = {node.operator for node in program}
        left -= {fault for fault in left if there.issuperset(fault.chain) and met(fault, program)}
    return [sum(fault not in left for fault in faults) for faults in sets], seed - start


def told(name: str, found: list[int], faults: int, programs: int) -> str:
    """Mean over the sets with its interval at 95 % (normal)."""
    mean, spread = statistics.mean(found), statistics.stdev(found) if len(found) > 1 else 0.0
    near = 1.96 * spread / math.sqrt(len(found))
    return (
        f"{name}: {mean:.1f} +- {near:.1f} of {faults} faults ({len(found)} sets: {found}), {programs}"
        " programs"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", default="mix")
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--sets", type=int, default=1, help="of faults, all looked for in the same programs")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sets = [drawn(given.faults, given.seed + number) for number in range(given.sets)]
    found, programs = reached(given.name, sets, given.seconds, given.nodes, given.seed << 12)
    if given.json:
        print(json.dumps([found, programs]))
        return
    print(told(given.name, found, given.faults, programs), f"load {os.getloadavg()[0]:.1f}")
    if given.before:
        command = [sys.executable, __file__, given.name, "--json"]
        command += [
            f"--{key}={getattr(given, key)}" for key in ("faults", "sets", "seconds", "nodes", "seed")
        ]
        environment = {**os.environ, "PYTHONPATH": str(given.before.resolve() / "src")}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found, programs = json.loads(done.stdout)
        print(told(f"{given.name} before", found, given.faults, programs))


if __name__ == "__main__":
    main()
