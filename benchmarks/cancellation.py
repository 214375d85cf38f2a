"""What the judge says where the true value is 0: the difference of two ways to compute the same thing, on
onnxruntime.

    python benchmarks/cancellation.py [--programs 300] [--seed 0]

Each is judged as it is, which is a pass, and with an optimised build that is off by a hundredth (float16: a
quarter) in one row of what is subtracted from, which is a failure. Half of the programs end in what jumps at
0 (Sign, Ceil, a comparison): there the reference itself is left with one side or the other, so they are
judged as they are alone. Everything runs in this process.
"""

import argparse
from collections import Counter
from typing import Any

import numpy as np
import onnx.parser
from false_alarms import DTYPES, Lab
from onnx import ModelProto, NodeProto, helper, numpy_helper

from opsieve.backends.compilers import ort
from opsieve.backends.judge.judge import judge
from opsieve.backends.observation import Observation
from opsieve.backends.reference import reference
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.irs.onnx.program import OnnxProgram

# Each makes `a` and `b`, which are equal, of `x`, `z` and constants.
WAYS = {
    "product": (
        "a = MatMul(x, w) x1, x2 = Split<axis = 1, num_outputs = 2>(x) w1, w2 = Split<axis = 0, num_outputs ="
        " 2>(w) p = MatMul(x1, w1) q = MatMul(x2, w2) b = Add(p, q)"
    ),
    "mean": "a = ReduceMean(x, axes) s = ReduceSum(x, axes) b = Div(s, eight)",
    "softmax": "a = Softmax(x) e = Exp(x) s = ReduceSum(e, axes) b = Div(e, s)",
    "logsoftmax": "a = LogSoftmax(x) s = Softmax(x) b = Log(s)",
    "sigmoid": "a = Sigmoid(x) n = Neg(x) e = Exp(n) s = Add(one, e) b = Div(one, s)",
    "tanh": "a = Tanh(x) m = Add(x, x) s = Sigmoid(m) t = Add(s, s) b = Sub(t, one)",
    "distribution": "s = Add(x, z) a = Mul(s, v) p = Mul(x, v) q = Mul(z, v) b = Add(p, q)",
    "root": "s = Mul(x, x) a = Sqrt(s) b = Abs(x)",
    "exponents": "s = Add(x, z) a = Exp(s) p = Exp(x) q = Exp(z) b = Mul(p, q)",
    "normalization": (
        "a = LayerNormalization<axis = 1>(x, v) m = ReduceMean(x, axes) c = Sub(x, m) s = Mul(c, c)"
        " r = ReduceMean(s, axes) t = Add(r, epsilon) u = Sqrt(t) g = Div(c, u) b = Mul(g, v)"
    ),
}
ENDS = ("y = Identity(d)",) * 3 + (
    "y = Sign(d)",
    "y = Ceil(d)",
    "k = Greater(d, zero) y = Where(k, one, zero)",
)
LEVELS = tuple(map(resolve, ("onnxruntime", "onnxruntime:basic")))
FLOAT_NAMES = {"float32": "float", "float64": "double", "float16": "float16"}


class Faulty(Lab):
    """A lab whose optimised onnxruntime, once it has a `fault`, multiplies `a` by it."""

    fault: "np.ndarray[Any, Any] | None" = None

    def observe(
        self, target: ResolvedTarget, program: OnnxProgram, inputs: dict[str, Any], *, fresh: bool = False
    ) -> Observation:
        """As the other lab does."""
        if self.fault is not None and target in LEVELS:
            program = altered(program, self.fault)
        return super().observe(target, program, inputs, fresh=fresh)


def altered(program: OnnxProgram, fault: "np.ndarray[Any, Any]") -> OnnxProgram:
    """The program with `a` multiplied by `fault`."""
    model = ModelProto.FromString(program.model)
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    place = next((at for at, node in enumerate(nodes) if "a" in node.output), None)
    if place is None:
        return program
    nodes[place].output[:] = ["a_right"]
    nodes.insert(place + 1, helper.make_node("Mul", ["a_right", "fault"], ["a"]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(numpy_helper.from_array(fault, "fault"))
    return OnnxProgram(model.SerializeToString(), program.name)


def drawn(seed: int, number: int) -> tuple[OnnxProgram, dict[str, Any], "np.ndarray[Any, Any]"]:
    """A program, its inputs, and a fault that fits."""
    draw = np.random.default_rng([seed, number])
    way, dtype = str(draw.choice(list(WAYS))), str(draw.choice(["float32", "float32", "float16", "float64"]))
    kind, size, end = DTYPES[dtype], float(10.0 ** draw.integers(-2, 2)), str(draw.choice(ENDS))
    size = min(size, 1.0) if way in ("exponents", "softmax", "logsoftmax", "sigmoid", "tanh") else size
    name = FLOAT_NAMES[dtype]
    head = f'<ir_version: 10, opset_import: ["" : 21]> g ({name}[6,8] x, {name}[6,8] z) => ({name}[6,N] y) '
    model = onnx.parser.parse_model(f"{head}{{ {WAYS[way]} d = Sub(a, b) {end} }}")
    constants = {
        "w": draw.normal(size=(8, 8)),
        "v": draw.normal(size=8),
        "one": 1.0,
        "zero": 0.0,
        "eight": 8.0,
    }
    tensors = {key: np.asarray(value, kind) for key, value in {**constants, "epsilon": 1e-5}.items()}
    tensors["axes"] = np.array([1])
    read = {key for node in model.graph.node for key in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(value, key) for key, value in tensors.items() if key in read
    )
    fault = np.ones((6, 1), kind)
    fault[draw.integers(6)] = 1.25 if dtype == "float16" else 1.01
    inputs = {key: (size * draw.normal(size=(6, 8))).astype(kind) for key in ("x", "z")}
    return OnnxProgram(model.SerializeToString(), f"{way} {dtype} {end} {number}"), inputs, fault


def main() -> None:
    """Judge and count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    ort.BACKEND.load()
    reference.BACKEND.load()
    counts: dict[str, Counter[str]] = {"as it is": Counter(), "with a fault": Counter()}
    for number in range(asked.programs):
        program, inputs, fault = drawn(asked.seed, number)
        for target in LEVELS:
            for name, wanted, planted in (("as it is", "pass", None), ("with a fault", "fail", fault)):
                if planted is not None and "Identity" not in program.name:
                    continue
                lab = Faulty()
                lab.fault = planted
                verdict = judge(program, inputs, target, lab).verdict
                counts[name][verdict.verdict] += 1
                counts[name].update(verdict.rules)
                if verdict.verdict != wanted:
                    print(f"{program.name}, {target}, {name}: {verdict.verdict}: {verdict.reason[:300]}")
    for name, found in counts.items():
        print(f"{name}: " + ", ".join(f"{count} {word}" for word, count in found.most_common()))


if __name__ == "__main__":
    main()
