"""TVM through Relax: values by name, types kept, what it lacks told apart from its bugs. Kernels run in
workers only.
"""

import importlib.util
import json
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from models import X, chain, program
from tvm_programs import tir_program

from opsieve.backends.compilers.tvm_relax import BACKEND
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.programs import add_script
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import ValueType

BACKEND_VERSION = "0.27.0.post1"  # gen/irs/tvm writes for this one


class Strange(TirProgram):
    """A program whose graph this process does not understand either."""

    def inputs(self) -> dict[str, ValueType]:
        return {}


needs_tvm = pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="needs the extra tvm")


def see(workers: Workers, tested: Program, inputs: dict[str, Any], options: str = "") -> Observation:
    return workers.observe(resolve(f"tvm:{options}" if options else "tvm"), tested, inputs)


def results(workers: Workers, tested: Program, inputs: dict[str, Any], options: str = "") -> dict[str, Any]:
    seen = see(workers, tested, inputs, options)
    assert seen.outputs is not None, f"{seen.outcome} in {seen.stage}: {seen.message}"
    return seen.outputs


@needs_tvm
@pytest.mark.parametrize(
    "options",
    [
        "",
        "zero",
        "target",
        "target,opt=0",
        "exec=compiled",
        "target=llvm-O0,opt=0",
        "zero,disabled=FuseOps+FuseTIR",
    ],
)
def test_every_configuration_computes(workers: Workers, options: str) -> None:
    got = results(workers, chain("Relu", "Tanh", "Exp"), X, options)
    np.testing.assert_allclose(got["y"], np.exp(np.tanh(np.maximum(X["x"], 0))), rtol=1e-5)


@needs_tvm
def test_a_disabled_pass_does_not_run(workers: Workers) -> None:
    seen = see(workers, chain("Relu"), X, "disabled=LegalizeOps")
    assert (seen.outcome, seen.stage) == ("error", "compile")
    assert "CodeGenVM cannot emit" in seen.message


@needs_tvm
def test_inputs_go_by_name(workers: Workers) -> None:
    # The importer drops inputs that have a default, and renames what is no identifier.
    tested = program(
        """g (float[2] "b.1", float[2] w, float[2] unused, float[2] a) => (float[2] y, float[2] "b.1")
        <float[2] w = {10, 20}> { t = Sub("b.1", a) y = Add(t, w) }"""
    )
    values = {"a": [1, 2], "b.1": [5, 7], "unused": [0, 0]}
    inputs = {name: np.array(value, np.float32) for name, value in values.items()}
    got = results(workers, tested, inputs)
    assert got["y"].tolist() == [14, 25]
    assert got["b.1"].tolist() == [5, 7]
    seen = see(workers, tested, {**inputs, "w": np.zeros(2, np.float32)})
    assert seen.outputs is not None
    assert seen.outputs["y"].tolist() == [4, 5]
    assert seen.notes == ("default values of inputs that are fed were left out of the model",)


@needs_tvm
def test_open_shapes_are_those_of_the_values(workers: Workers) -> None:
    tested = program("g (float[N, M] x) => (float[M, N] y, int64[2] s) { y = Transpose(x) s = Shape(x) }")
    got = results(workers, tested, {"x": np.ones((3, 2), np.float32)})
    assert got["y"].shape == (2, 3)
    assert (got["s"].dtype, got["s"].tolist()) == (np.int64, [3, 2])


@needs_tvm
@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_shapes_stay(workers: Workers, shape: tuple[int, ...]) -> None:
    dims = "float" + (f"[{', '.join(map(str, shape))}]" if shape else "")
    got = results(
        workers, program(f"g ({dims} x) => ({dims} y) {{ y = Neg(x) }}"), {"x": np.ones(shape, np.float32)}
    )
    assert got["y"].shape == shape


TYPES = {"float16": "float16", "bfloat16": "bfloat16", "double": "float64", "int8": "int8", "int64": "int64"}
TYPES |= {"bool": "bool", "uint16": "uint16", "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}


@needs_tvm
@pytest.mark.parametrize("name", TYPES)
def test_types_stay(workers: Workers, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, TYPES[name], None) or TYPES[name])
    tested = program(f"g ({name}[3] x) => ({name}[3] y) {{ y = Identity(x) }}", opset=19, ir=9)
    got = results(workers, tested, {"x": np.array([0, 1, 3]).astype(dtype)})
    assert got["y"].dtype == dtype
    assert got["y"].tolist() == np.array([0, 1, 3]).astype(dtype).tolist()


LACKS = [
    (
        "g (int4[3] x) => (float[3] y) { y = Cast<to = 1>(x) }",
        np.zeros(3, ml_dtypes.int4),
        "a tensor of int4 cannot cross",
    ),
    (
        "g (string[1] x) => (string[1] y) { y = Identity(x) }",
        np.array(["a"], object),
        "a tensor of string cannot cross",
    ),
    ("g (seq(float[2]) x) => (int64 y) { y = SequenceLength(x) }", [], "a sequence type cannot cross"),
    (
        "g (float[2, 2] x) => (float y) { y = Det(x) }",
        np.ones((2, 2), np.float32),
        "not supported for frontend ONNX: Det",
    ),
]


@needs_tvm
@pytest.mark.parametrize(("text", "value", "told"), LACKS)
def test_a_lack_is_unsupported(workers: Workers, text: str, value: Any, told: str) -> None:
    seen = see(workers, program(text, opset=21, ir=10), {"x": value})
    assert (seen.outcome, seen.stage) == ("unsupported", "import")
    assert told in seen.message


@needs_tvm
def test_a_death_in_a_kernel_is_a_crash_and_the_next_test_runs(workers: Workers) -> None:
    tested = program("g (int32[2] x, int32[2] d) => (int32[2] y) { y = Mod(x, d) }")
    x = np.array([7, 9], np.int32)
    seen = see(workers, tested, {"x": x, "d": np.zeros(2, np.int32)})
    assert (seen.outcome, seen.stage, seen.signal) == ("crash", "run", 8)
    assert results(workers, tested, {"x": x, "d": np.array([4, 5], np.int32)})["y"].tolist() == [3, 4]


# Messages of 0.27, some of them shortened, by what they mean.
MESSAGES = [
    (
        "unsupported",
        "tvm.error.OpNotImplemented",
        "The following operators are not supported for frontend ONNX: GRU",
    ),
    ("unsupported", "ValueError", "Node  cannot handle ShapeExpr inputs."),
    ("unsupported", "AssertionError", "Only constant axes currently supported"),
    ("unsupported", "AssertionError", "Only constant depth currently supported."),
    ("unsupported", "ValueError", "Only constant split supported for SplitToSequence"),
    ("unsupported", "ValueError", "Type <class 'tvm.ir.expr.Var'> for size is currently unsupported."),
    ("unsupported", "ValueError", "Dynamic Split not yet supported"),
    ("unsupported", "ValueError", "Dynamic pads are not supported yet."),
    ("unsupported", "ValueError", "TopK k must be a constant"),
    ("unsupported", "ValueError", "unknown dtype `object`"),
    ("unsupported", "ValueError", "QuantizeLinear blocked quantization is not supported yet."),
    ("unsupported", "ValueError", "GroupNormalization-18 currently only supports float32 inputs."),
    ("unsupported", "ValueError", "Unsqueeze requires a statically known axes length."),
    ("unsupported", "TypeError", "Unsupported input datatype for operation: float4"),
    (
        "unsupported",
        "TypeError",
        "zero_point param datatype should be one of ['int8'], but got T.float8_e5m2",
    ),
    ("unsupported", "NotImplementedError", "Position must be a constant."),
    ("unsupported", "tvm.error.InternalError", "Check failed: (false) is false: not implemented"),
    ("environment", "ModuleNotFoundError", "No module named 'ml_dtypes'"),
    ("environment", "ValueError", "Model IR version 2 not supported. Must be at least after 1.1.0."),
    ("out-of-memory", "MemoryError", "std::bad_alloc"),
    ("rejected", "google.protobuf.message.DecodeError", "Error parsing message with type 'onnx.ModelProto'"),
    ("error", "KeyError", "'num_heads'"),
    # What TIR functions may lack is no lack of TVM's in ONNX and Relax programs.
    ("error", "tvm.error.InternalError", "Check failed: (pb->value != 0) is false: Divide by zero"),
    ("error", "tvm.error.InternalError", "unknown intrinsic Op(tirx.erfc)"),
    ("error", "ValueError", "no value in Constant"),
    ("error", "AssertionError", ""),
    ("error", "AssertionError", "Missing outputs during conversion. Expected 2 but Got 1 in MaxPool."),
    ("error", "AttributeError", "'Var' object has no attribute 'value'"),
    (
        "error",
        "TypeError",
        "Reshape requires the input new shape to be Shape. However, the given one is relax.TensorType",
    ),
    (
        "error",
        "tvm.error.InternalError",
        "Check failed: arr_size == nbytes (13 vs. 25) : TensorCopyFromBytes: size mismatch",
    ),
    (
        "error",
        "tvm.error.InternalError",
        "Check failed: (IsFloatType(x.ty())) is false: power only applies to float",
    ),
    (
        "error",
        "tvm.error.InternalError",
        (
            "CodeGenVM cannot emit this Relax operator directly. Run the appropriate lowering pass, or route"
            " the operator to an external codegen before VM codegen.\nOffending"
            ' call:\nR.broadcast_to(metadata["ir.GenericConst"][0], lv)'
        ),
    ),
]


@pytest.mark.parametrize(("meaning", "exception", "message"), MESSAGES)
def test_a_stated_lack_is_told_from_a_bug(meaning: str, exception: str, message: str) -> None:
    assert BACKEND.classify("import", exception, message) == meaning


def test_each_release_has_its_own_ffi() -> None:
    assert BACKEND.companions("0.25.0") == ("apache-tvm-ffi==0.1.12",)
    assert BACKEND.companions("0.27.0.post1") == ("apache-tvm-ffi==0.1.14.post1",)
    assert BACKEND.base((3, 11))[0].startswith("numpy==")


@pytest.mark.slow(seconds=6)
@needs_tvm
def test_a_script_skips_what_the_backend_skips() -> None:
    skipped = ("LegalizeOps", "LegalizeOps@1", "LegalizeOps@9+FuseOps")
    sources = [BACKEND.script(resolve(f"tvm:disabled={each}").options, ["float32"]) for each in skipped]
    start = f"""
import numpy, onnx
for source in {sources!r}:
    space = {{"np": numpy, "onnx": onnx}}
    exec(source, space)
    try:
        space["run"]({chain("Relu").model!r}, {{"x": numpy.zeros((2, 3), numpy.float32)}})
        print("ran")
    except Exception:
        print("failed")
"""
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["failed", "failed", "ran"]


@needs_tvm
def test_a_tir_function_runs_with_and_without_its_passes(workers: Workers) -> None:
    tested = tir_program("tirx.StmtSimplify", "tirx.NarrowDataType:32")
    inputs = {"A": np.arange(8, dtype=np.float32), "B": np.zeros(8, np.float32)}
    for options in ("", "opt=0", "target=llvm-O0"):
        assert results(workers, tested, inputs, options)["B"].tolist() == list(range(0, 16, 2))
    assert see(workers, tested, inputs, "stop=lower").outputs == {}
    assert see(workers, tir_program("tirx.NoSuchPass"), inputs).outcome == "environment"
    for asked, given, lack in (
        (chain("Relu"), X, "this build has no runtime for it"),
        (tested, inputs, "that IR"),
    ):
        seen = see(workers, asked, given, "cuda")
        if seen.outcome != "ok":  # a machine with a device
            assert seen.outcome == "environment"
            assert "tvm cannot compute on cuda: " in seen.message
            assert lack in seen.message


@needs_tvm
def test_a_module_of_another_release_is_no_failure_and_one_of_its_own_is(workers: Workers) -> None:
    graph = json.loads(tir_program().module)
    graph["nodes"].insert(0, {"type": "tirx.NodeOfTomorrow", "data": {}})
    for release, outcome in (("9.9", "environment"), (BACKEND_VERSION, "error")):
        graph["metadata"]["tvm_version"] = release
        strange = Strange(json.dumps(graph).encode())
        seen = see(workers, strange, {})
        assert (seen.outcome, seen.stage) == (outcome, "import")
        assert "NodeOfTomorrow" in seen.message


@needs_tvm
def test_what_could_be_code_is_printed_and_not_read_back(workers: Workers) -> None:
    case = Case(tir_program(), {})
    exact = add_script(case, workers).program
    named = type(exact)(exact.data.replace(b'"i"', b'"i(0)"'))
    odd = add_script(Case(named, {}), workers).program
    assert isinstance(exact, TirProgram)
    assert isinstance(odd, TirProgram)
    assert exact.script_is_exact
    assert "T.prim_func" in exact.script
    assert odd.script
    assert not odd.script_is_exact


def test_a_backend_says_which_forms_it_does_not_take(workers: Workers) -> None:
    seen = workers.observe(resolve("onnxruntime"), tir_program(), {})
    assert (seen.outcome, seen.message) == ("unsupported", "onnxruntime does not take TIR functions")
