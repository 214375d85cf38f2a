"""Models of NNSmith, made and timed in the Python where it is installed. Imports nothing of opsieve;
`benchmarks/structure.py` runs it.

    PYTHON benchmarks/peers/nnsmith_models.py OUT --models N --nodes K --seed S

Writes OUT/0.onnx, 1.onnx, ... with seeds S, S + 1, ..., and prints one JSON object: `models`, `failed`,
`seconds_cpu`, `version`. The time is that of generation, input search and export as in NNSmith's own
`model_gen` with its default settings and onnxruntime's operators; imports, the probing of operators and two
models to warm up are left out.
"""

import argparse
import functools
import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

RANDOM_ELEMENTS = 65536  # NNSmith's defaults (its config/main.yaml)
TIMEOUT_MS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    make = maker(given.nodes)
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in (1_000_001, 1_000_002):
        attempt(make, seed)
    failed = 0
    seconds = 0.0
    for number in range(given.models):
        start = time.process_time()
        model = attempt(make, given.seed + number)
        seconds += time.process_time() - start
        if model is None:
            failed += 1
        else:
            (given.out / f"{number}.onnx").write_bytes(model)
    told = {"models": given.models - failed, "failed": failed, "seconds_cpu": seconds, "version": version()}
    print(json.dumps(told))


def maker(nodes: int) -> Any:
    """A function of a seed that gives the bytes of a model of NNSmith's."""
    import torch
    from nnsmith.abstract.extension import activate_ext
    from nnsmith.backends.factory import BackendFactory
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model
    from nnsmith.narrow_spec import auto_opset

    # NNSmith is written for the exporter that was torch's default until 2.9.
    torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
    kind = Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    factory = BackendFactory.init("onnxruntime", target="cpu", optmax=True, parse_name=True)
    opset = auto_opset(kind, factory)
    activate_ext(opset=opset, factory=factory)

    def make(seed: int) -> bytes:
        drawn = model_gen(
            opset=opset,
            method="symbolic-cinit",
            seed=seed,
            max_elem_per_tensor=RANDOM_ELEMENTS,
            max_nodes=nodes,
            timeout_ms=TIMEOUT_MS,
        )
        model = kind.from_gir(drawn.make_concrete())
        model.refine_weights()
        model.make_oracle()
        data: bytes = model.native_model.SerializeToString()
        return data

    return make


def attempt(make: Any, seed: int) -> bytes | None:
    try:
        data: bytes = make(seed)
    except Exception as error:  # noqa: BLE001 a peer may fail in any way; its failures are counted
        print(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return None
    return data


def version() -> str:
    try:
        return importlib.metadata.version("nnsmith")
    except importlib.metadata.PackageNotFoundError:
        return "from source"


if __name__ == "__main__":
    main()
