"""Models of Isra, made and timed by its own code. Imports nothing of opsieve; `benchmarks/structure.py` runs
it.

    PYTHON benchmarks/peers/isra_models.py OUT --models N --nodes K --seed S      # PYTHONPATH reaches a
    checkout of israProj/isra

Writes OUT/0.onnx, 1.onnx, ... and prints one JSON object: `models`, `failed`, `seconds_cpu`. Isra's models
name no operator set; they are of 13, the newest whose operators are all as it writes them. As it comes it
makes models without inputs; here leaves are inputs, at its own picking rate. The time is that of generation
and serialisation; twenty models to warm up are left out.
"""

import argparse
import json
import sys
import time
import types
from pathlib import Path

import onnx

OPSET = 13
WARM = 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    sys.argv = [
        "g.py",
        "--minnode",
        str(given.nodes),
        "--maxnode",
        str(given.nodes),
        "--seed",
        str(given.seed + 1),
    ]
    sys.modules.setdefault("netron", types.ModuleType("netron"))  # it opens windows, and is not used
    import g

    g.NO_INPUT = False
    for _ in range(WARM):
        g.work()
    failed, seconds = 0, 0.0
    for number in range(given.models):
        start = time.process_time()
        try:
            model, _, _ = g.work()
        except Exception as error:  # noqa: BLE001 a peer may fail in any way; its failures are counted
            print(f"{number}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            failed += 1
            continue
        finally:
            seconds += time.process_time() - start
        del model.opset_import[:]
        model.opset_import.extend([onnx.helper.make_opsetid("", OPSET)])
        start = time.process_time()
        data = model.SerializeToString()
        seconds += time.process_time() - start
        (given.out / f"{number}.onnx").write_bytes(data)
    print(json.dumps({"models": given.models - failed, "failed": failed, "seconds_cpu": seconds}))


if __name__ == "__main__":
    main()
