"""NNSmith's own fuzzing loop, run and timed in the Python where it is installed. Imports nothing of opsieve;
`benchmarks/nnsmith_rate.py` runs it.

    PYTHON benchmarks/peers/nnsmith_loop.py FOLDER --seconds S --nodes K [--seed N]

Its `FuzzingLoop` with the settings of `nnsmith.fuzz model.type=onnx backend.type=onnxruntime`: make a model,
search inputs, compute the oracle with PyTorch, export, run on onnxruntime, compare. Prints one JSON object:
`tests`, `bugs`, `failed`, CPU and wall seconds of the loop (imports, the probing of operators and two tests
to warm up are left out) and the mean number of ONNX nodes of its models.
"""

import argparse
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    told = measured(given)
    print(json.dumps(told))


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Run the loop for so many seconds of the clock."""
    import nnsmith
    import torch
    from hydra import compose, initialize_config_dir
    from nnsmith.cli.fuzz import FuzzingLoop

    # NNSmith is written for the exporter that was torch's default until 2.9.
    torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
    torch.set_num_threads(1)
    wanted = [
        "model.type=onnx",
        "backend.type=onnxruntime",
        f"mgen.max_nodes={given.nodes}",
        f"fuzz.time={given.seconds}",
        f"fuzz.seed={given.seed}",
        f"fuzz.root={given.folder}/bugs",
    ]
    with initialize_config_dir(str(Path(nnsmith.__file__).parent / "config"), version_base=None):
        loop = FuzzingLoop(compose("main", overrides=wanted))
    for seed in (1_000_001, 1_000_002):  # torch imports its exporter with the first model
        loop.validate_and_report(loop.make_testcase(seed))
    loop.status.n_bugs = 0
    nodes: list[int] = []
    make = loop.make_testcase

    def counted(seed: int) -> Any:
        case = make(seed)
        nodes.append(len(case.model.native_model.graph.node))
        return case

    loop.make_testcase = counted
    cpu, wall = time.process_time(), time.perf_counter()
    loop.run()
    status = loop.status
    return {
        "tests": status.n_testcases,
        "bugs": status.n_bugs,
        "failed": status.n_fail_make_test,
        "cpu_s": round(time.process_time() - cpu, 2),
        "wall_s": round(time.perf_counter() - wall, 2),
        "onnx_nodes": round(sum(nodes) / len(nodes), 2) if nodes else 0.0,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    main()
