"""How programs hang together, beside an earlier checkout and NNSmith: pieces, paths, fan-out, chains; instances, edges and cost with them.

    python benchmarks/structure.py [NAME ...] [--models 200] [--nodes 16] [--before CHECKOUT] [--nnsmith PYTHON [--peer-nodes 10]]

NAME is a strategy (`mix` unless some are given). `--before` is a checkout of an earlier opsieve: its models are made by its own code, in a
process of its own, and counted by this one. `--nnsmith` is a Python that has NNSmith and torch; `PYTHONPATH` reaches a checkout of it. Counts
are of operations, of which a Constant is none; so choose `--nodes` such that the columns `nodes` agree. `cpu` is of making the models, in milliseconds each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import onnx

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.metrics.graph import lacks_types, with_types
from opsieve.gen.metrics.summary import Metrics
from opsieve.gen.strategies.registry import generate

PEER = Path(__file__).parent / "peers" / "nnsmith_models.py"


def write(name: str, models: int, nodes: int, folder: Path) -> float:
    """Make the models of a strategy; the CPU seconds that took, the first excepted."""
    request = GenRequest(nodes=nodes, types=True)
    generate(name, 1 << 20, request)
    begun = time.process_time()
    cases = [generate(name, seed, request) for seed in range(models)]
    seconds = time.process_time() - begun
    for seed, case in enumerate(cases):
        (folder / f"{seed}.onnx").write_bytes(case.program.model)
    return seconds


def elsewhere(command: list[str], path: str | None = None) -> float:
    """Run what writes models, and give the CPU seconds that it says."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = path
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(ran.stdout.splitlines()[-1])["seconds_cpu"])


def read(folder: Path) -> Iterable[onnx.ModelProto]:
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        yield with_types(model, onnx.shape_inference.infer_shapes(model)) if lacks_types(model) else model


def row(name: str, folder: Path, seconds: float) -> None:
    metrics = Metrics()
    for model in read(folder):
        metrics.add(model)
    report = metrics.report()
    found, models = report["structure"], max(1, report["models"])
    nodes = (report["nodes"] - report["frequencies"].get("Constant", 0)) / models
    print(
        f"{name:<24}{nodes:>6.1f}{found['components']:>8.2f}{found['largest_component']:>8.0%}{found['longest_path']:>7.1f}"
        f"{found['fan_out']:>7.0%}{found['chains_of_3']:>8}{found['chains_of_4']:>8}{report['instances']:>10}{report['edges']:>7}"
        f"{report['isra']['ODC']:>6.2f}{1000 * seconds / models:>8.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["mix"])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--nnsmith", metavar="PYTHON")
    parser.add_argument("--peer-nodes", type=int, default=10)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        print(json.dumps({"seconds_cpu": write(given.names[0], given.models, given.nodes, given.write)}))
        return
    print(
        f"{'set':<24}{'nodes':>6}{'pieces':>8}{'largest':>8}{'path':>7}{'fan-out':>7}{'3-chains':>8}{'4-chains':>8}"
        f"{'instances':>10}{'edges':>7}{'ODC':>6}{'cpu':>8}"
    )
    asked = ["--models", str(given.models), "--nodes"]
    with tempfile.TemporaryDirectory() as scratch:
        if given.nnsmith:
            folder = Path(scratch, "peer")
            folder.mkdir()
            row("NNSmith", folder, elsewhere([given.nnsmith, str(PEER), str(folder), *asked, str(given.peer_nodes)]))
        for name in given.names:
            for label, path in (("before", given.before and str(given.before / "src")), ("now", None)):
                if label == "before" and path is None:
                    continue
                folder = Path(scratch, f"{name} {label}")
                folder.mkdir()
                command = [sys.executable, __file__, name, "--write", str(folder), *asked, str(given.nodes)]
                row(folder.name, folder, elsewhere(command, path))


if __name__ == "__main__":
    main()
