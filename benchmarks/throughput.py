"""Tests per second on onnxruntime by how they are isolated, on the same 300 random models of ten nodes, in
one run.

    python benchmarks/throughput.py [--models N] [--rounds R]

In process is the ceiling and the unsafe way; every other row is given as a share of it. The fastest round of
each counts.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

UNARY = ["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softplus", "Elu", "HardSwish", "Exp"]
BINARY = ["Add", "Mul", "Sub", "Max"]


def random_model(seed: int, nodes: int = 10) -> Test:
    """Convolutions, pools, matrix products and elementwise operators over an image of 4 channels and 8 x
    8.
    """
    rng = np.random.default_rng(seed)
    made, weights, live, shape = [], [], ["x"], (1, 4, 8, 8)

    def weight(*dims: int) -> str:
        weights.append(
            numpy_helper.from_array(rng.standard_normal(dims).astype(np.float32) * 0.3, f"w{len(weights)}")
        )
        return str(weights[-1].name)

    while len(made) < nodes:
        kind, source, out = rng.integers(6), live[int(rng.integers(len(live)))], f"t{len(made)}"
        if kind == 0:
            node = helper.make_node("Conv", [source, weight(4, 4, 3, 3)], [out], pads=[1, 1, 1, 1])
        elif kind == 1:
            node = helper.make_node("MaxPool", [source], [out], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif kind == 2:
            node = helper.make_node("MatMul", [source, weight(8, 8)], [out])
        elif kind == 3:
            node = helper.make_node(
                str(rng.choice(BINARY)), [source, live[int(rng.integers(len(live)))]], [out]
            )
        elif kind == 4:
            node = helper.make_node("Softmax", [source], [out], axis=int(rng.integers(1, 4)))
        else:
            node = helper.make_node(str(rng.choice(UNARY)), [source], [out])
        made.append(node)
        live.append(out)
    consumed = {name for node in made for name in node.input}
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in live[1:] if n not in consumed
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(made, "random", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return Test(OnnxProgram(model.SerializeToString()), {"x": rng.standard_normal(shape).astype(np.float32)})


def in_process(tests: list[Test]) -> None:
    import onnxruntime as ort

    for test in tests:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = ort.InferenceSession(test.program.model, options, providers=["CPUExecutionProvider"])
        session.run(None, test.inputs)


def command_line(tests: list[Test], folder: Path) -> None:
    paths = []
    for number, test in enumerate(tests):
        path = folder / f"{number}" / "model.onnx"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(test.program.model)
        np.savez(path.parent / "inputs.npz", **test.inputs)
        paths.append(str(path.parent))
    command = [sys.executable, "-m", "opsieve", "run", *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr


def rate(run: Callable[[], object], tests: int, rounds: int) -> float:
    """Tests per second of the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return tests / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    tests = [random_model(seed) for seed in range(given.models)]
    few = tests[: max(10, given.models // 5)]
    target = resolve("onnxruntime")
    rates = {}
    with Workers() as workers, tempfile.TemporaryDirectory() as folder:
        in_process(tests[:20])
        list(workers.observe_many(target, tests[:20]))
        every = {
            "in process": lambda: in_process(tests),
            "worker, batched": lambda: list(workers.observe_many(target, tests)),
            "worker, one by one": lambda: [workers.observe(target, t.program, t.inputs) for t in tests],
        }
        for name in every:
            rates[name] = 0.0
        for _ in range(given.rounds):  # interleaved: what else the machine does hits all alike
            for name, run in every.items():
                rates[name] = max(rates[name], rate(run, len(tests), 1))
        rates["fork per test"] = rate(
            lambda: [workers.observe(target, t.program, t.inputs, fresh=True) for t in few], len(few), 2
        )
        rates["opsieve run, end to end"] = rate(lambda: command_line(tests, Path(folder)), len(tests), 2)
    print(f"{given.models} random models of 10 nodes, onnxruntime with all optimisations, one thread")
    print(f"{'mode':<26}{'tests/s':>10}{'of in process':>16}")
    for name, value in rates.items():
        print(f"{name:<26}{value:>10.0f}{value / rates['in process']:>15.0%}")


if __name__ == "__main__":
    main()
