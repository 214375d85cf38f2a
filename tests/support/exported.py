"""Exported failures made by hand: no compiler has to fail for a test of what is written about a failure."""

import numpy as np
import onnx
from onnx import helper

from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.verdict import Kind, Mismatch, Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.triage.export.export_input import ExpectedOutput, ExportedFailure

X = np.array([-1.5, 2.0], np.float32)


def model(
    source: str = "x", result: str = "y", node: str = "", graph: str = "g", op: str = "Relu"
) -> onnx.ModelProto:
    """y = op(x) over two floats, under these names."""
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in (source, result)]
    made = helper.make_graph([helper.make_node(op, [source], [result], node)], graph, info[:1], info[1:])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def exported(
    target: str = "onnxruntime",
    kind: Kind = "mismatch",
    proto: onnx.ModelProto | None = None,
    right: tuple[float, ...] = (0.0, 2.0),
    text: str = "it is wrong",
    seconds: float = 60.0,
    runs: int = 1,
    shows: tuple[int, int] | None = None,
) -> ExportedFailure:
    """A failure of Relu on `target`; `right` are the values that its script asks for, `text` whatever a
    compiler said.
    """
    proto = model() if proto is None else proto
    source, result = proto.graph.input[0].name, proto.graph.output[0].name
    worst = (
        Mismatch(result, "value", fraction=0.5, index=(0,), got=text, expected=text)
        if kind == "mismatch"
        else None
    )
    verdict = Verdict("fail", text, kind, "run", text, mismatch=worst, blame="optimiser")
    seen = Observation(
        target, "1.2.3", "ok" if worst else "error", exception="E", message=text, traceback=text, log=text
    )
    case = Case(OnnxProgram(proto.SerializeToString()), {source: X})
    wanted = {result: ExpectedOutput(np.array(right), "float32", 1e-4)} if right else {}
    return ExportedFailure(
        case, resolve(target), verdict, seen, wanted, "reference:float64", shows, runs, seconds
    )
