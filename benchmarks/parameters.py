"""Parameters that nodes compute and symbolic sizes in generated programs: shares, and how programs with
symbolic sizes hang together.

    python benchmarks/parameters.py [NAME ...] [--models 200] [--nodes 16] [--seed 0] [--dynamic 0.5]
    [--before CHECKOUT]

NAME is a strategy (`mix` unless some are given). Parameters are the inputs of ONNX operators that hold a
shape, axes, pads, bounds, counts or positions: `computed` is the share that another node than a Constant
makes, `fed` the share that is an input of the program. `dynamic` is the share of programs with a symbolic
input size where `--dynamic` asks for that share, `pieces` and `path` those of these programs, `open` the
share of their inner tensors with a symbolic size. `--before` is a checkout of an earlier opsieve, whose
models are made by its own code and counted by this one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import onnx

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.strategies.registry import generate

PARAMETERS = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 2, 3), "Unsqueeze": (1,),
    "Squeeze": (1,), "Split": (1,), "TopK": (1,), "Clip": (1, 2), "Range": (0, 1, 2), "ConstantOfShape": (0,),
    "Resize": (2, 3), "OneHot": (1,), "CumSum": (1,), "Trilu": (1,), "CenterCropPad": (1,),
}  # fmt: skip


def write(folder: Path, name: str, models: int, nodes: int, first: int, dynamic: float) -> None:
    """Write the models of a strategy into a folder, with and without symbolic sizes."""
    request = GenRequest(nodes=nodes, types=True)
    for number in range(models):
        for share in (0.0, dynamic):
            model = generate(name, first + number, replace(request, dynamic=share)).program.model
            (folder / f"{number}-{'open' if share else 'fixed'}.onnx").write_bytes(model)


def has_names(info: onnx.ValueInfoProto) -> bool:
    """Whether a tensor has a symbolic size."""
    return any(side.dim_param for side in info.type.tensor_type.shape.dim)


def count(folder: Path) -> dict[str, float]:
    """Return the figures of the models in a folder."""
    # Not in the process that has an earlier opsieve
    from opsieve_research.summary import Metrics

    computed = fed = parameters = opened = models = named = tensors = 0
    metrics = Metrics()
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        graph = model.graph
        if path.stem.endswith("open"):
            models += 1
            if any(map(has_names, graph.input)):
                opened += 1
                metrics.add(model)
                named += sum(map(has_names, graph.value_info))
                tensors += len(graph.value_info)
            continue
        made = {out for node in graph.node if node.op_type != "Constant" for out in node.output}
        given = {info.name for info in graph.input}
        for node in graph.node:
            places = PARAMETERS.get(node.op_type, (1,) if node.op_type.startswith("Reduce") else ())
            for place in places if not node.domain else ():
                if place < len(node.input) and node.input[place]:
                    parameters += 1
                    computed += node.input[place] in made
                    fed += node.input[place] in given
    structure = metrics.report()["structure"] if opened else {}
    return {
        "parameters": parameters,
        "computed": round(computed / max(1, parameters), 3),
        "fed": round(fed / max(1, parameters), 3),
        "dynamic": round(opened / max(1, models), 3),
        "open": round(named / max(1, tensors), 3),
        "pieces": round(structure.get("components", 0.0), 2),
        "path": round(structure.get("longest_path", 0.0), 1),
    }


def main() -> None:
    """Measure and print one JSON object a strategy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["mix"])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dynamic", type=float, default=0.5)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is not None:
        write(given.folder, given.names[0], given.models, given.nodes, given.seed, given.dynamic)
        return
    options = [f"--{name}={getattr(given, name)}" for name in ("models", "nodes", "seed", "dynamic")]
    for name in given.names:
        row: dict[str, object] = {"strategy": name}
        for label, checkout in (("before", given.before), ("now", Path(__file__).parents[1])):
            if checkout is None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run(
                    [sys.executable, __file__, name, *options, "--folder", folder],
                    env={**os.environ, "PYTHONPATH": str(checkout / "src")},
                    check=True,
                )
                row[label] = count(Path(folder))
        print(json.dumps(row))


if __name__ == "__main__":
    main()
