"""How often the judge raises an alarm on random models, and how large honest errors are.

    python benchmarks/false_alarms.py [--models 200] [--nodes 8,20] [--dtypes
    float32,float16,bfloat16,float64] [--sums]

Every model is judged on onnxruntime at every level, in this process. Prints quantiles of the scaled error
against the float64 reference by dtype and size, and every verdict that is not a pass. `--sums` measures how
the error grows with the length of a sum.
"""

import argparse
import collections
import math
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from opsieve.backends.compare import error
from opsieve.backends.compilers import ort
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import FLOAT64, NATIVE
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.protocol import Request
from opsieve.backends.reference import reference
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.irs.onnx.program import OnnxProgram

LEVELS = ("all", "layout", "extended", "basic", "disable_all")
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}
UNARY = [
    "Relu",
    "Sigmoid",
    "Tanh",
    "Neg",
    "Abs",
    "Erf",
    "LeakyRelu",
    "Softplus",
    "Sin",
    "Cos",
    "Exp",
    "Floor",
    "Round",
    "Elu",
]
BINARY = ["Add", "Sub", "Mul", "Max", "Min", "Div"]
STRUCTURED = [
    "MatMul",
    "Softmax",
    "LayerNormalization",
    "ReduceMean",
    "Transpose",
    "Concat",
    "Sqrt",
    "Where",
    "ArgMax",
    "Conv",
]


class Lab:
    """Runs onnxruntime and the reference in this process."""

    backends = {"onnxruntime": ort.BACKEND, "reference": reference.BACKEND}  # noqa: RUF012

    def observe(
        self,
        target: ResolvedTarget,
        program: OnnxProgram,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        backend: Any = self.backends[target.name]
        stages = ["import"]
        request = Request(program.model, target.options, inputs, stages.append)
        try:
            outputs = backend.prepare(request)(inputs)
        except Exception as raised:  # noqa: BLE001  what a compiler raises is what is observed
            name = f"{type(raised).__module__}.{type(raised).__qualname__}"
            outcome: Any = backend.classify(stages[-1], name, str(raised))
            return Observation(
                str(target), "", outcome, stages[-1], None, name, str(raised), notes=tuple(request.notes)
            )  # type: ignore[arg-type]
        hazards = tuple(
            Hazard(h["rule"], h["node"], h["operator"], tuple(h["outputs"])) for h in request.hazards
        )
        return Observation(str(target), "", "ok", "run", outputs, notes=tuple(request.notes), hazards=hazards)


def random_model(seed: int, nodes: int, dtype: str) -> tuple[OnnxProgram, dict[str, Any]]:
    """A valid model of about `nodes` nodes over one float type, all ends outputs, and its inputs."""
    random = np.random.default_rng([seed, nodes])
    kind = DTYPES[dtype]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    shape = tuple(int(n) for n in random.integers(2, 7, 3))
    made: list[str] = []
    initializers, body, used = [], [], set()

    def constant(values: Any) -> str:
        name = f"c{len(initializers)}"
        initializers.append(numpy_helper.from_array(np.asarray(values, np.float64).astype(kind), name))
        return name

    def add(operator: str, inputs: list[str], **attributes: Any) -> str:
        name = f"v{len(body)}"
        body.append(helper.make_node(operator, inputs, [name], **attributes))
        used.update(inputs)
        return name

    made += ["x0", "x1"]

    def pick() -> str:
        return str(made[int(random.integers(max(0, len(made) - 4), len(made)))])

    while len(body) < nodes:
        operator = str(random.choice(UNARY + BINARY + STRUCTURED * 2))
        a = pick()
        if operator in UNARY:
            # Exp of Exp would leave the range of every type.
            made.append(
                add(operator, [add("Clip", [a, constant(-4.0), constant(4.0)]) if operator == "Exp" else a])
            )
        elif operator == "Div":
            made.append(add("Div", [a, add("Add", [add("Abs", [pick()]), constant(0.5)])]))
        elif operator in BINARY:
            made.append(add(operator, [a, pick()]))
        elif operator == "MatMul":
            made.append(
                add("MatMul", [a, constant(random.normal(size=(shape[2], shape[2])) / math.sqrt(shape[2]))])
            )
        elif operator == "Softmax":
            made.append(add("Softmax", [a], axis=int(random.integers(-3, 3))))
        elif operator == "LayerNormalization":
            scale, bias = constant(random.normal(size=shape[2])), constant(random.normal(size=shape[2]))
            made.append(add("LayerNormalization", [a, scale, bias], axis=-1))
        elif operator == "ReduceMean":
            made.append(add("Sub", [a, add("ReduceMean", [a], keepdims=1)]))
        elif operator == "Transpose":
            back = add("Transpose", [add("Sigmoid", [add("Transpose", [a], perm=[2, 0, 1])])], perm=[1, 2, 0])
            made.append(back)
        elif operator == "Concat":
            joined = add("Concat", [a, pick()], axis=2)
            made.append(
                add(
                    "MatMul",
                    [joined, constant(random.normal(size=(2 * shape[2], shape[2])) / math.sqrt(shape[2]))],
                )
            )
        elif operator == "Sqrt":
            made.append(add("Sqrt", [add("Abs", [a])]))
        elif operator == "Where":
            made.append(add("Where", [add("Greater", [a, pick()]), pick(), a]))
        elif operator == "ArgMax":
            top = add("Cast", [add("ArgMax", [a], axis=2, keepdims=1)], to=element)
            made.append(add("Add", [a, top]))
        elif operator == "Conv":
            weight = constant(random.normal(size=(shape[1], shape[1], 3)) / math.sqrt(3 * shape[1]))
            made.append(add("Conv", [a, weight], kernel_shape=[3], pads=[1, 1]))
    outputs = [name for name in made if name not in used]
    graph = helper.make_graph(
        body,
        f"random_{seed}",
        [helper.make_tensor_value_info(name, element, shape) for name in ("x0", "x1")],
        [helper.make_tensor_value_info(name, element, shape) for name in outputs],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    inputs = {name: random.normal(size=shape).astype(kind) for name in ("x0", "x1")}
    return OnnxProgram(model.SerializeToString(), f"{dtype}/{nodes}/{seed}"), inputs


def measure(dtype: str, nodes: int, models: int) -> None:
    lab = Lab()
    errors: dict[str, list[float]] = {"onnxruntime:all": [], "reference": []}
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(models):
        program, inputs = random_model(seed, nodes, dtype)
        for level in LEVELS:
            target = resolve(f"onnxruntime:{level}")
            verdict = judge_program(program, inputs, target, lab).verdict
            counts[verdict.verdict + "".join(f" {rule}" for rule in verdict.rules)] += 1
            if verdict.verdict not in ("pass", "unsupported", "environment"):
                print(f"  {program.name} {level}: {verdict.verdict}: {verdict.reason} {verdict.rules}")
        truth = lab.observe(FLOAT64, program, inputs).outputs or {}
        for name, target in (("onnxruntime:all", resolve("onnxruntime:level=all")), ("reference", NATIVE)):
            outputs = lab.observe(target, program, inputs).outputs
            if outputs is not None:
                errors[name] += [error(outputs[output], truth[output]) for output in truth]
    print(f"{dtype} {nodes} nodes, {models} models x {len(LEVELS)} levels: {dict(counts)}")
    for name, found in errors.items():
        if found:
            p50, p90, p99, most = np.quantile(found, [0.5, 0.9, 0.99, 1.0])
            print(
                f"  {name:16s} {len(found)} outputs: p50 {p50:.1e} p90 {p90:.1e} p99 {p99:.1e} max {most:.1e}"
            )


def measure_sums() -> None:
    """Scaled error of sums of 10 to 10^6 terms, of any sign and of one sign."""
    lab = Lab()
    target = resolve("onnxruntime:level=all")
    random = np.random.default_rng(0)
    for dtype in ("float32", "float16"):
        kind = DTYPES[dtype]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        for operator in ("MatMul", "Conv", "ReduceSum", "ReduceMean"):
            for length in (10, 100, 1000, 10_000, 100_000, 1_000_000):
                worst: dict[str, float] = {}
                for sign in ("any", "one"):
                    rows = 8
                    a = (
                        random.normal(size=(rows, length))
                        if sign == "any"
                        else random.uniform(size=(rows, length))
                    )
                    if dtype == "float16":
                        a = a / math.sqrt(length) if sign == "any" else a / length
                    b = random.normal(size=(length, 4)) if sign == "any" else random.uniform(size=(length, 4))
                    feeds = {"a": a.astype(kind)}
                    if operator == "Conv":
                        feeds = {"a": a.astype(kind)[:, None, :], "b": b.T.astype(kind)[:, None, :]}
                    elif operator == "MatMul":
                        feeds["b"] = b.astype(kind)
                    elif operator == "ReduceSum":
                        feeds["b"] = np.array([1])
                    node = helper.make_node(
                        operator, list(feeds), ["y"], **({"axes": [1]} if operator == "ReduceMean" else {})
                    )
                    types = [
                        helper.make_tensor_value_info(
                            name, TensorProto.INT64 if value.dtype == np.int64 else element, value.shape
                        )
                        for name, value in feeds.items()
                    ]
                    graph = helper.make_graph(
                        [node], "sum", types, [helper.make_tensor_value_info("y", element, None)]
                    )
                    model = helper.make_model(
                        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
                    )
                    program = OnnxProgram(model.SerializeToString())
                    truth = (lab.observe(FLOAT64, program, feeds).outputs or {}).get("y")
                    for name, who in (("ort", target), ("reference", NATIVE)):
                        got = lab.observe(who, program, feeds).outputs
                        worst[f"{name}/{sign}"] = error(got["y"], truth) if got else math.nan
                print(
                    f"{dtype} {operator} {length}: "
                    + ", ".join(f"{name} {value:.1e}" for name, value in worst.items())
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", default="8,20")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--sums", action="store_true")
    options = parser.parse_args()
    ort.BACKEND.load()
    reference.BACKEND.load()
    if options.sums:
        measure_sums()
        return
    for dtype in options.dtypes.split(","):
        for nodes in options.nodes.split(","):
            measure(dtype, int(nodes), options.models)


if __name__ == "__main__":
    main()
