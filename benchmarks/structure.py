"""Generators beside each other at equal ONNX nodes: how programs hang together, how diverse they are, and
what a node costs.

    python benchmarks/structure.py [NAME ...] [--models 200] [--sizes 10,20] [--nnsmith PYTHON]
    [--isra CHECKOUT] [--rounds 2]

NAME is a strategy (`mix` unless some are given). `--nnsmith` is a Python that has
NNSmith and torch (`PYTHONPATH` reaches a checkout of it), `--isra` a checkout of Isra's source. Their models
have more operations than they are asked for, so what opsieve is asked for is found by trial until its models
have as many: below its row stand its figures over the peer's.

`NAME:isra` is a strategy that has Isra's operators and float32 only, as its metrics (ODC) are of these.

Counts are of operations, of which a Constant is none. `us` is of the CPU time of making models, in
microseconds an operation: the quickest of `--rounds` rounds, each in a process of its own and warm, those of
a peer before and after those of opsieve. The load of the machine is told before and after.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.model.structure import lacks_types, with_types
from opsieve.gen.strategies.mix import BATCH
from opsieve.gen.strategies.registry import generate
from opsieve_research.corpus import ISRA_CORPUS
from opsieve_research.summary import Metrics

PEERS = Path(__file__).parent / "peers"
COLUMNS = {  # heading: width, digits
    "nodes": (7, 1),
    "pieces": (8, 2),
    "largest": (9, 2),
    "path": (7, 1),
    "fan-out": (9, 2),
    "3-chains": (10, 0),
    "4-chains": (10, 0),
    "instances": (11, 0),
    "edges": (8, 0),
    "ODC": (7, 2),
    "us": (8, 1),
}
OF_ISRA = ":isra"  # behind a strategy's name: of Isra's operators and dtype only
WARM = 1 << 40  # seeds from here on warm up: no round has them
TRIAL = 128  # models by which it is found what to ask for


@dataclass(frozen=True, slots=True)
class Maker:
    """A generator in a process of its own: a command to which a folder, the models, the nodes and the first
    seed are added.
    """

    name: str
    command: tuple[str, ...]
    seed: int
    path: str | None = None

    def run(self, folder: Path, models: int, nodes: int) -> float:
        """Have it write models into a folder; the CPU seconds that it says."""
        environment = dict(os.environ)
        if self.path is not None:
            environment["PYTHONPATH"] = self.path
        command = [
            *self.command,
            str(folder),
            "--models",
            str(models),
            "--nodes",
            str(nodes),
            "--seed",
            str(self.seed),
        ]
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return float(json.loads(ran.stdout.splitlines()[-1])["seconds_cpu"])


def write(name: str, models: int, nodes: int, folder: Path, first: int) -> float:
    """Make the models of a strategy; the CPU seconds that took, after a batch of small ones to warm up."""
    name, narrowed, _ = name.partition(OF_ISRA)
    request = GenRequest(nodes=nodes, types=True)
    if narrowed:
        request = replace(request, only=frozenset(ISRA_CORPUS), dtypes=frozenset(("float32",)))
    for seed in range(WARM, WARM + BATCH):  # reads schemas, makes what later programs look up
        generate(name, seed, replace(request, nodes=8))
    begun = time.process_time()
    cases = [generate(name, first + number, request) for number in range(models)]
    seconds = time.process_time() - begun
    for number, case in enumerate(cases):
        (folder / f"{number}.onnx").write_bytes(case.program.model)
    return seconds


def read(folder: Path) -> Iterable[onnx.ModelProto]:
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        yield with_types(model, onnx.shape_inference.infer_shapes(model)) if lacks_types(model) else model


def figures(folder: Path, seconds: float) -> dict[str, float]:
    """A row: what the models in a folder are like, and what an operation cost."""
    metrics = Metrics()
    for model in read(folder):
        metrics.add(model)
    report = metrics.report()
    found, models = report["structure"], max(1, report["models"])
    operations = report["nodes"] - report["frequencies"].get("Constant", 0)
    told = (
        operations / models,
        *(found[key] for key in ("components", "largest_component", "longest_path", "fan_out")),
        *(found[key] for key in ("chains_of_3", "chains_of_4")),
        *(report["instances"], report["edges"], report["isra"]["ODC"], 1e6 * seconds / max(1, operations)),
    )
    return dict(zip(COLUMNS, told, strict=True))


def tell(name: str, row: dict[str, float]) -> None:
    cells = "".join(f"{row[heading]:>{width}.{digits}f}" for heading, (width, digits) in COLUMNS.items())
    print(f"{name:<26}{cells}", flush=True)


def tell_ratios(ours: dict[str, float], theirs: dict[str, float]) -> None:
    cells = "".join(
        f"{(theirs[heading] / ours[heading] if heading == 'us' else ours[heading] / theirs[heading]):>{width}.2f}"
        for heading, (width, _) in COLUMNS.items()
    )
    print(f"{'    over the peer':<26}{cells}", flush=True)


def strategy(name: str, seed: int) -> Maker:
    return Maker(name, (sys.executable, __file__, name, "--write"), seed)


def measured(
    makers: Sequence[tuple[Maker, int]], models: int, rounds: int, scratch: Path
) -> list[dict[str, float]]:
    """The rows of generators and the nodes that each is asked for, which take turns."""
    folders = [Path(tempfile.mkdtemp(dir=scratch)) for _ in makers]
    seconds = [float("inf")] * len(makers)
    for _ in range(rounds):
        for place, (maker, nodes) in enumerate(makers):
            seconds[place] = min(seconds[place], maker.run(folders[place], models, nodes))
    return [figures(folder, spent) for folder, spent in zip(folders, seconds, strict=True)]


def asked_for(maker: Maker, operations: float, scratch: Path) -> int:
    """How many nodes to ask a strategy for, so that its models have about so many operations."""
    asked, tried = round(operations), dict[int, float]()
    for _ in range(3):
        folder = Path(tempfile.mkdtemp(dir=scratch))
        maker.run(folder, TRIAL, asked)
        tried[asked] = figures(folder, 0.0)["nodes"]
        asked = max(1, asked + round(operations - tried[asked]))
    return min(tried, key=lambda nodes: abs(tried[nodes] - operations))


def compare_with(
    peer: Maker, nodes: int, names: Sequence[str], given: argparse.Namespace, scratch: Path
) -> None:
    """Print the rows of a peer at a size, and of strategies at as many operations."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    first = peer.run(folder, given.models, nodes)  # which is its first round, too
    operations = figures(folder, 0.0)["nodes"]
    makers = [strategy(name, given.seed) for name in names]
    asked = [asked_for(maker, operations, scratch) for maker in makers]
    ours = measured([*zip(makers, asked, strict=True)], given.models, given.rounds, scratch)
    later = [peer.run(folder, given.models, nodes) for _ in range(given.rounds - 1)]
    theirs = figures(folder, min(first, *later) if later else first)
    tell(f'{peer.name} "{nodes}"', theirs)
    for name, nodes_asked, row in zip(names, asked, ours, strict=True):
        tell(f"{name} {nodes_asked}", row)
        tell_ratios(row, theirs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=["mix"])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0, help="the first seed, of peers as well")
    parser.add_argument("--nnsmith", metavar="PYTHON")
    parser.add_argument("--isra", type=Path, metavar="CHECKOUT")
    parser.add_argument("--sizes", default="10,20", help="nodes that the peers are asked for")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        print(
            json.dumps(
                {"seconds_cpu": write(given.names[0], given.models, given.nodes, given.write, given.seed)}
            )
        )
        return
    peers = []
    if given.nnsmith:
        peers.append(
            Maker("NNSmith", (given.nnsmith, "-W", "ignore", str(PEERS / "nnsmith_models.py")), given.seed)
        )
    if given.isra:
        command = (sys.executable, str(PEERS / "isra_models.py"))
        peers.append(Maker("Isra", command, given.seed, str(given.isra.resolve())))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'set':<26}" + "".join(f"{heading:>{width}}" for heading, (width, _) in COLUMNS.items()))
    with tempfile.TemporaryDirectory() as text:
        scratch = Path(text)
        sizes = [int(size) for size in given.sizes.split(",")]
        for peer in peers:
            for nodes in sizes:
                compare_with(peer, nodes, given.names, given, scratch)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
