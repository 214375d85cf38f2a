"""Every declared operator, many instances: what the declaration says against ONNX's checker, its inference
and a real run.

    python tests/support/operator_soak.py [-n 20] [--opsets 13,18,26] [PATTERN ...]

runs it by hand over the operators whose names match (Conv*, com.microsoft::*), and prints what disagrees.
"""

import argparse
import collections
import fnmatch
import re
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from opsieve.gen.declarations.catalogue import NEWEST, OLDEST, OpChoice, first_dtypes, form, operators
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.tensor import ANY, Tensor
from opsieve.gen.generation.random_graph import SUPPORTED, build_single_node
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.writing import serialize
from opsieve.gen.model.lowering import lower_ir
from opsieve.gen.model.tensors import NUMBERS, TensorType, read_type

_NOT_THERE = re.compile(
    r"NOT_IMPLEMENTED|Could not find an implementation|is not a registered function|No corresponding"
    r" Numpy|invalid model. Type Error: Type 'tensor\(|Unsupported|not supported|does not support|is"
    r" currently not"
)

_UNFED = frozenset(name for name in NUMBERS if name not in ("string", "object") and not hasattr(np, name))
# Operators of which onnxruntime runs instances that break a rule (and the checker says nothing), and why the
# rule stands.
LENIENT = {
    "CenterCropPad": "onnxruntime takes a negative size",
    "Einsum": "onnxruntime and numpy stretch a size of 1, of which ONNX says nothing",
    "LpPool": "a window larger than the image gives an output without elements",
    "MaxPool": "the same",
    "MeanVarianceNormalization": "onnxruntime looks at the number of axes only",
    "NegativeLogLikelihoodLoss": "onnxruntime reads only the weights that labels ask for",
    "PRelu": "onnxruntime broadcasts the slope in both directions",
    "SoftmaxCrossEntropyLoss": "the same",
}


def forms(operator: Operator, newest: int = SUPPORTED) -> list[int]:
    """One opset for each form of an operator from 13 to the newest: the last that has it."""
    if operator.domain:
        return [newest]
    last: dict[int, int] = {}
    for opset in range(OLDEST, newest + 1):
        had = form(operator.name, opset)
        if had is not None and opset >= operator.since:
            last[had.since] = opset
    return list(last.values()) if last or newest == NEWEST else forms(operator, NEWEST)


def instances(
    operator: Operator, dtype: str, opset: int, count: int
) -> Iterator[tuple[int, GraphBuilder | None]]:
    """Builders of `count` single instances whose first input has the dtype; None at the end when twice as
    many draws gave too few.
    """
    choice = OpChoice(
        operator, frozenset((dtype,)), (dtype,), *operator.ranks, operator.safe[0] if operator.safe else ANY
    )
    made = 0
    for seed in range(2 * count):
        if made == count:
            return
        builder = build_single_node(choice, opset, seed)
        if builder is not None:
            made += 1
            yield seed, builder
    if made < count:
        yield 2 * count, None


def problem(builder: GraphBuilder, run: bool = True) -> str:
    """What is wrong with a builder: `checker: ...`, `types: ...`, `run: ...`, `values: ...`, `unsupported:
    ...`; "" when nothing is.

    `onnxruntime: ...` is what it alone gets wrong: ONNX's reference evaluator, or its inference, gives what
    is declared.
    """
    outputs = [tensor for node in builder.nodes for tensor in node.outs if tensor.name]
    model, inputs = serialize(builder, outputs, "soak")
    proto = onnx.load_model_from_string(model)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except Exception as error:  # noqa: BLE001 - whatever the checker says is the finding
        return f"checker: {error}"
    # ONNX has no inference for these: a run tells their types
    own = any(node.domain for node in proto.graph.node)
    bare = onnx.load_model_from_string(model)
    for info in bare.graph.output:
        info.type.Clear()
    try:
        inferred = proto if own else onnx.shape_inference.infer_shapes(bare, strict_mode=True, data_prop=True)
    except Exception as error:  # noqa: BLE001 - the same
        return f"types: {error}"
    for declared, found in zip(proto.graph.output, inferred.graph.output, strict=True):
        a, b = read_type(declared.type), read_type(found.type)
        if not _agree(a, b):
            return f"types: declared {a}, inferred {b}"
    if not run:
        return ""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if any(getattr(value, "dtype", np.dtype(bool)).name in _UNFED for value in inputs.values()):
        return "unsupported: onnxruntime's Python binding takes no numpy array of this type"
    try:
        session = onnxruntime.InferenceSession(lower_ir(model), options, providers=["CPUExecutionProvider"])
        found = session.run(None, inputs)
    except Exception as error:  # noqa: BLE001 - the same
        text = str(error).splitlines()[0][:300]
        if _NOT_THERE.search(text):
            return f"unsupported: {text}"
        return f"{'onnxruntime' if _evaluates(proto, inputs, outputs) else 'run'}: {text}"
    for tensor, value in zip(outputs, found, strict=True):
        if not isinstance(value, np.ndarray):
            continue
        if tuple(value.shape) != tuple(tensor.shape) and "?" not in tensor.shape:
            told = read_type(inferred.graph.output[outputs.index(tensor)].type)
            sure = not own and isinstance(told, TensorType) and told.shape == tuple(tensor.shape)
            who = "onnxruntime" if sure or _evaluates(proto, inputs, outputs) else "run"
            return f"{who}: declared {tensor}, got {value.shape}"
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return f"values: not finite, {tensor}"
        if value.dtype.kind in "fiub" and value.size and tensor.dtype == value.dtype.name:
            slack = (
                1e-2 * max(1.0, tensor.size) if value.dtype == np.float16 else 1e-4 * max(1.0, tensor.size)
            )
            if float(value.min()) < tensor.low - slack or float(value.max()) > tensor.high + slack:
                return f"values: {value.min()}..{value.max()} outside {tensor}"
    return ""


def _evaluates(proto: onnx.ModelProto, inputs: dict[str, np.ndarray], outputs: list[Tensor]) -> bool:
    """Whether ONNX's reference evaluator gives what is declared."""
    try:
        found = ReferenceEvaluator(proto).run(None, inputs)
    except Exception:  # noqa: BLE001 - it says nothing then
        return False
    return all(np.shape(value) == tuple(tensor.shape) for tensor, value in zip(outputs, found, strict=True))


def _agree(declared: object, inferred: object) -> bool:
    """Equal, but for what inference leaves open."""
    if isinstance(declared, TensorType) and isinstance(inferred, TensorType):
        if declared.dtype != inferred.dtype:
            return False
        if declared.shape is None or inferred.shape is None:
            return True
        return len(declared.shape) == len(inferred.shape) and all(
            a == b or not isinstance(a, int) or not isinstance(b, int)
            for a, b in zip(declared.shape, inferred.shape, strict=True)
        )
    if type(declared) is type(inferred):  # two sequences, or two optionals
        return _agree(declared.element, inferred.element)  # type: ignore[attr-defined]
    return "untyped" in str(inferred)


def soaked(operator: Operator, count: int, opsets: list[int] | None = None) -> collections.Counter[str]:
    """How often each problem shows, over all dtypes and forms; under "" the sound ones, under `none: ...`
    where no instance was made.
    """
    seen: collections.Counter[str] = collections.Counter()
    for opset in opsets or forms(operator):
        for dtype in sorted(first_dtypes(operator, opset)):
            for _, builder in instances(operator, dtype, opset, count):
                found = "none: no instance" if builder is None else problem(builder)
                name = f"{found} [{dtype}, opset {opset}]" if found else ""
                seen[re.sub(r"\b[vxcn]\d+\b", "_", name)[:260]] += 1
    return seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--opsets", default="")
    parser.add_argument("--all", action="store_true", help="tell what onnxruntime has no kernel for, too")
    asked = parser.parse_args()
    opsets = [int(opset) for opset in asked.opsets.split(",") if opset] or None
    total: collections.Counter[str] = collections.Counter()
    for name, operator in operators().items():
        if not any(fnmatch.fnmatch(name, pattern) for pattern in asked.patterns):
            continue
        seen = soaked(operator, asked.n, opsets)
        for text, times in seen.most_common():
            total[text.partition(":")[0]] += times
            if text and (asked.all or not text.startswith("unsupported")):
                print(f"{name}: {times} x {text}")
    print(dict(total), "operators declared:", len(operators()))


if __name__ == "__main__":
    main()
