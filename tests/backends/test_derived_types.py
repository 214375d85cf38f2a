"""Shapes and dtypes that follow from the inputs bind every implementation; what a model declares of its
results binds nobody.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from in_process import InProcessLab, TableLab
from onnx import ModelProto, TensorProto, helper, numpy_helper

from opsieve.backends.judge.derived_types import find_contradictions, read_derived
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import DERIVING, FLOAT64, NATIVE
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.verdict import Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program
from opsieve.gen.model.text import ModelText
from opsieve.gen.strategies.registry import generate
from opsieve.triage.export.export_input import ExportedFailure, find_expected
from opsieve.triage.export.script import write_script

FAKE, BASE, OTHER = resolve("fake"), resolve("fake:level=off"), resolve("openvino")
X = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)


def program(*nodes: Any, declared: Any = None, dtype: int = TensorProto.FLOAT, **weights: Any) -> OnnxProgram:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3, 3])],
        [helper.make_tensor_value_info("y", dtype, declared)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model: ModelProto = helper.make_model(graph, opset_imports=domains, ir_version=10)
    return OnnxProgram(model.SerializeToString())


TRANSPOSED = program(
    helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[3, 2], output_shape=[10, 8]),
    declared=[1, 2, 10, 8],
    w=np.ones((1, 2, 3, 3), np.float32),
)
CUSTOM = program(
    helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Own", ["r"], ["y"], domain="com.microsoft")
)


class Alike(InProcessLab):
    """Every compiler gives the same outputs; inference, and what else is told, is real."""

    def __init__(
        self, outputs: dict[str, Any], real: tuple[ResolvedTarget, ...] = (DERIVING, NATIVE, FLOAT64)
    ) -> None:
        super().__init__()
        self.outputs, self.real = outputs, real

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        if target in self.real:
            return super().observe(target, program, inputs, fresh=fresh)
        self.asked.append(str(target))
        return Observation(str(target), "1", "ok", "run", self.outputs)


def judged(program: Program, outputs: dict[str, Any], **options: Any) -> Verdict:
    return judge_program(
        program, {"x": X}, FAKE, Alike(outputs, **options), oracles=[BASE, OTHER, resolve("tract")]
    ).verdict


def test_a_shape_that_inference_contradicts_is_a_failure_though_all_compilers_agree() -> None:
    found = judged(TRANSPOSED, {"y": np.zeros((1, 2, 9, 7), np.float32)})
    assert (found.verdict, found.kind, found.blame) == ("fail", "mismatch", "compiler")
    assert found.mismatch is not None
    assert (found.mismatch.what, found.mismatch.output) == ("shape", "y")
    sentence = (
        "fake returns shape (1, 2, 9, 7) for output 'y'; shape inference derives (1, 2, 10, 8) from the"
        " inputs"
    )
    assert found.reason == sentence
    assert judged(TRANSPOSED, {"y": np.zeros((1, 2, 10, 8), np.float32)}).verdict == "pass"
    assert judged(TRANSPOSED, {"y": np.zeros((1, 2, 10, 8), np.float64)}).mismatch.what == "dtype"  # type: ignore[union-attr]


def test_the_optimiser_is_blamed_where_the_unoptimised_build_has_the_derived_type() -> None:
    right, wrong = (
        Observation("", "1", "ok", "run", {"y": np.zeros(shape, np.float32)})
        for shape in ((1, 2, 10, 8), (1, 2, 9, 7))
    )
    types = InProcessLab().observe(DERIVING, TRANSPOSED, {"x": X})
    lab = TableLab({str(FAKE): wrong, str(BASE): right, str(DERIVING): types})
    assert judge_program(TRANSPOSED, {"x": X}, FAKE, lab).verdict.blame == "optimiser"


def test_other_shapes_in_a_second_run_are_nondeterminism_and_a_shape_of_the_host_is_not_the_target_s_fault() -> (
    None
):
    def shaped(size: int) -> Observation:
        return Observation("", "1", "ok", "run", {"y": np.zeros((1, 2, size, 7), np.float32)})

    types = InProcessLab().observe(DERIVING, TRANSPOSED, {"x": X})
    lab = TableLab({str(FAKE): lambda turn: shaped(9 + 2 * turn), str(DERIVING): types})
    assert judge_program(TRANSPOSED, {"x": X}, FAKE, lab).verdict.kind == "nondeterminism"
    hosted, host = resolve("onnxsim"), resolve("onnxruntime:level=disable_all")
    lab = TableLab({str(hosted): shaped(9), str(host): shaped(9), str(DERIVING): types})
    assert judge_program(TRANSPOSED, {"x": X}, hosted, lab).verdict.verdict == "undecided"


@pytest.mark.parametrize(
    "outputs", [np.zeros((1, 1, 3, 3), np.float32), np.zeros(7, np.int32)], ids=["as", "other"]
)
def test_a_declaration_behind_a_custom_operator_is_no_evidence(outputs: Any) -> None:
    declaring = OnnxProgram(program(*CUSTOM.proto.graph.node, declared=[1, 1, 3, 3]).model)
    assert judged(declaring, {"y": outputs}).verdict == "pass"  # independent compilers agree


def test_a_wrong_declaration_of_an_exporter_is_no_evidence() -> None:
    for declared, dtype in (
        ([5, 5], TensorProto.FLOAT),
        (None, TensorProto.DOUBLE),
        ([1, 1, 3, 3], TensorProto.INT32),
    ):
        relu = program(helper.make_node("Relu", ["x"], ["y"]), declared=declared, dtype=dtype)
        assert judged(relu, {"y": X}).verdict == "pass", (declared, dtype)
        assert judged(relu, {"y": X.astype(np.float16)}).verdict == "fail", (declared, dtype)


def test_an_undeclared_dtype_is_derived() -> None:
    relu = program(helper.make_node("Relu", ["x"], ["y"]), dtype=TensorProto.UNDEFINED)
    assert judged(relu, {"y": X}).verdict == "pass"
    assert judged(relu, {"y": X.astype(np.float16)}).verdict == "fail"


def test_a_shape_that_only_values_tell_is_bound_by_the_reference() -> None:
    counted = program(
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("NonZero", ["s"], ["y"]),
        dtype=TensorProto.INT64,
    )
    found = judged(counted, {"y": np.zeros((1, 2), np.int64)})
    assert (found.verdict, found.kind) == ("fail", "mismatch")
    assert found.reason == "fake returns shape (1, 2) for output 'y'; reference:float64 produces (1, 4)"


@given(seed=st.integers(0, 10_000), place=st.integers(0, 5), other=st.sampled_from(["shape", "dtype"]))
def test_an_output_of_another_type_never_passes_whoever_agrees(seed: int, place: int, other: str) -> None:
    case = generate("mix", seed, GenRequest(nodes=6))
    right = InProcessLab().observe(NATIVE, case.program, case.inputs).outputs or {}
    name = sorted(right)[place % len(right)] if right else ""
    value = right.get(name)
    if case.program.fault or not isinstance(value, np.ndarray):
        return
    dtype = np.dtype(np.int16 if value.dtype == np.int8 else np.int8)
    changed = {**right, name: np.expand_dims(value, 0) if other == "shape" else np.zeros(value.shape, dtype)}
    for real in ((DERIVING, NATIVE, FLOAT64), (DERIVING,)):
        lab = Alike(changed, real)
        found = judge_program(case.program, case.inputs, FAKE, lab, oracles=[BASE, OTHER]).verdict
        derived = read_derived(lab.observe(DERIVING, case.program, case.inputs))
        if NATIVE in real or find_contradictions(changed, derived):
            assert found.verdict != "pass", found


def test_one_run_is_judged_by_derived_types_as_by_an_arbiter_and_a_script_asks_for_them() -> None:
    lab = InProcessLab()
    types = lab.observe(DERIVING, TRANSPOSED, {"x": X})
    wrong, right = (
        Observation(str(FAKE), "1", "ok", "run", {"y": np.zeros(shape, np.float32)})
        for shape in ((1, 2, 9, 7), (1, 2, 10, 8))
    )
    found = judge_run(TRANSPOSED, {"x": X}, FAKE, wrong, lab, right=types)
    assert (found.verdict, found.kind, found.mismatch and found.mismatch.what) == (
        "fail",
        "mismatch",
        "shape",
    )
    assert judge_run(TRANSPOSED, {"x": X}, FAKE, right, lab, right=types).verdict == "pass"
    verdict = judged(TRANSPOSED, wrong.outputs or {})
    case = Case(TRANSPOSED, {"x": X})
    expected, source = find_expected(case, verdict, wrong.outputs, lab)
    assert (expected["y"].value.shape, expected["y"].dtype, source) == (
        (1, 2, 10, 8),
        "float32",
        "shape inference",
    )
    checks: dict[str, Any] = {"np": np}
    text = write_script(
        ExportedFailure(case, resolve("onnxruntime"), verdict, wrong, expected, source), ModelText("", False)
    )
    exec(text[text.index("def check") : text.index("def one_line")], checks)  # noqa: S102  a function of the script
    told = expected["y"]
    checks["check"](np.full((1, 2, 10, 8), np.nan, np.float32), told.value, told.dtype, told.within, "y")
    for value in (np.zeros((1, 2, 9, 7), np.float32), np.zeros((1, 2, 10, 8), np.float64)):
        with pytest.raises(AssertionError):
            checks["check"](value, told.value, told.dtype, told.within, "y")
