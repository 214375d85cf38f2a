"""openvino, tract and tinygrad: values by name, types kept, what they lack told apart from their bugs. They
run in workers only.
"""

import importlib.util
import shutil
import signal
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from loaded_alone import loaded_alone
from models import X, chain, program

from opsieve.backends.compilers import tinygrad_onnx
from opsieve.backends.observation import Observation
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program


def needing(name: str, *values: Any) -> Any:
    """A parameter set that is skipped where the package is not installed."""
    missing = importlib.util.find_spec(name) is None
    return pytest.param(name, *values, marks=pytest.mark.skipif(missing, reason=f"needs the extra {name}"))


ALL = [needing("openvino"), needing("tract"), needing("tinygrad")]
needs_tinygrad = pytest.mark.skipif(
    importlib.util.find_spec("tinygrad") is None, reason="needs the extra tinygrad"
)


def see(workers: Workers, target: str, tested: Program, inputs: dict[str, Any]) -> Observation:
    return workers.observe(resolve(target), tested, inputs)


def results(workers: Workers, target: str, tested: Program, inputs: dict[str, Any]) -> dict[str, Any]:
    seen = see(workers, target, tested, inputs)
    assert seen.outputs is not None, f"{seen.outcome} in {seen.stage}: {seen.message}"
    return seen.outputs


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(needing("openvino", options) for options in ("", ":off", ":low_precision=off")),
        needing("tract", ""),
        *(needing("tinygrad", options) for options in ("", ":python,optimise=off")),
    ],
)
def test_every_configuration_computes(workers: Workers, name: str, options: str) -> None:
    got = results(workers, name + options, chain("Relu", "Tanh", "Exp"), X)
    np.testing.assert_allclose(got["y"], np.exp(np.tanh(np.maximum(X["x"], 0))), rtol=1e-5)


@needs_tinygrad
@pytest.mark.parametrize("device", ["clang", "llvm", "x86"])
def test_machine_code_of_tinygrad_needs_clang(workers: Workers, device: str) -> None:
    seen = see(workers, f"tinygrad:{device}", chain("Relu"), X)
    if shutil.which("clang"):
        assert seen.outputs is not None, seen.message
        assert seen.outputs["y"].tolist() == np.maximum(X["x"], 0).tolist()
    else:
        assert (seen.outcome, seen.stage) == ("environment", "run")
        assert "clang" in seen.message


@pytest.mark.slow(seconds=3)
def test_tinygrad_runs_where_the_device_is_named_by_the_environment_alone(workers: Workers) -> None:
    """Before 0.13 there is no setting DEV; the KeyError was taken for a failure of tinygrad."""
    if "0.12.0" not in [release for release, _ in ReleaseStore().list_installed("tinygrad")]:
        pytest.skip("needs tinygrad 0.12.0 among the releases")
    got = results(workers, "tinygrad==0.12.0", chain("Relu"), X)
    assert got["y"].tolist() == np.maximum(X["x"], 0).tolist()


PASSED_THROUGH = """g (float[2] "b.1", float[2] w, float[2] unused, float[2] a) => (float[2] y, float[2] z, float[2] a)
    <float[2] w = {10, 20}> { t = Sub("b.1", a) y = Add(t, w) z = Dropout("b.1") }"""


@pytest.mark.parametrize("name", ALL)
def test_inputs_go_by_name(workers: Workers, name: str) -> None:
    # `unused` may be dropped, `w` may be taken for a constant, two inputs are outputs, one of them through a
    # node that does nothing.
    values = {"a": [1, 2], "b.1": [5, 7], "unused": [0, 0]}
    inputs = {key: np.array(value, np.float32) for key, value in values.items()}
    got = results(workers, name, program(PASSED_THROUGH), inputs)
    assert {key: value.tolist() for key, value in got.items()} == {"y": [14, 25], "z": [5, 7], "a": [1, 2]}
    seen = see(workers, name, program(PASSED_THROUGH), {**inputs, "w": np.zeros(2, np.float32)})
    assert seen.outputs is not None
    assert seen.outputs["y"].tolist() == [4, 5]
    assert seen.notes == ("default values of inputs that are fed were left out of the model",)


@pytest.mark.parametrize("name", ALL)
def test_open_shapes_are_those_of_the_values(workers: Workers, name: str) -> None:
    tested = program("g (float[N, M] x) => (float[M, N] y, int64[2] s) { y = Transpose(x) s = Shape(x) }")
    got = results(workers, name, tested, {"x": np.ones((3, 2), np.float32)})
    assert got["y"].shape == (2, 3)
    assert (got["s"].dtype, got["s"].tolist()) == (np.int64, [3, 2])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_shapes_stay(workers: Workers, name: str, shape: tuple[int, ...]) -> None:
    dims = "float" + (f"[{', '.join(map(str, shape))}]" if shape else "")
    tested = program(f"g ({dims} x) => ({dims} y) {{ y = Neg(x) }}")
    assert results(workers, name, tested, {"x": np.ones(shape, np.float32)})["y"].shape == shape


KINDS = {"float16": "float16", "bfloat16": "bfloat16", "double": "float64", "int8": "int8", "int64": "int64"}
KINDS |= {
    "bool": "bool",
    "uint16": "uint16",
    "float8e4m3fn": "float8_e4m3fn",
    "int4": "int4",
    "string": "object",
}
REFUSED = {
    "openvino": {"double", "int4"},
    "tract": {"bfloat16", "float8e4m3fn", "int4", "string"},
    "tinygrad": {"float8e4m3fn", "int4", "string"},
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", KINDS)
def test_types_stay_or_are_refused(workers: Workers, name: str, kind: str) -> None:
    tested = program(
        f"g ({kind}[3] x) => ({kind}[3] y) {{ t = Identity(x) y = Identity(t) }}", opset=21, ir=10
    )
    if (name, kind) == ("openvino", "string"):
        pytest.skip("openvino 2026.4.1 frees what it did not allocate when strings pass through a model")
    dtype = np.dtype(getattr(ml_dtypes, KINDS[kind], None) or KINDS[kind])
    x = np.array(["a", "", "bc"], dtype) if kind == "string" else np.array([0, 1, 3]).astype(dtype)
    seen = see(workers, name, tested, {"x": x})
    if kind in REFUSED[name]:
        assert (seen.outcome, seen.stage) == ("unsupported", "import")
        return
    assert seen.outputs is not None, seen.message
    assert (seen.outputs["y"].dtype, seen.outputs["y"].tolist()) == (dtype, x.tolist())


@pytest.mark.parametrize(("name", "value"), [needing("openvino", 1 << 31), needing("openvino", -(1 << 40))])
def test_what_openvino_narrows_by_design_is_not_asked(workers: Workers, name: str, value: int) -> None:
    tested = program("g (int64[1] x) => (int64[1] y) { y = Neg(x) }")
    seen = see(workers, name, tested, {"x": np.array([value])})
    assert (seen.outcome, seen.stage) == ("unsupported", "import")
    assert results(workers, name, tested, {"x": np.array([-(1 << 31) + 1])})["y"].tolist() == [(1 << 31) - 1]


LACKS = [
    ("float[2, 2]", "y = Det(x)", "float", np.ones((2, 2), np.float32)),
    ("seq(float[2])", "y = SequenceLength(x)", "int64", []),
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("taken", "node", "given", "value"), LACKS)
def test_a_lack_is_unsupported(
    workers: Workers, name: str, taken: str, node: str, given: str, value: Any
) -> None:
    if name == "tinygrad" and "seq" in taken:
        pytest.skip("tinygrad takes sequences")
    seen = see(workers, name, program(f"g ({taken} x) => ({given} y) {{ {node} }}"), {"x": value})
    assert seen.outcome == "unsupported", seen.message


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_operator_is_unsupported(workers: Workers, name: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18, "other" : 1]> g (float[2] x) => (float[2] y) { y ='
        " other.Op(x) }"
    )
    tested = OnnxProgram(onnx.parser.parse_model(text).SerializeToString())
    assert see(workers, name, tested, {"x": np.zeros(2, np.float32)}).outcome == "unsupported"


@pytest.mark.parametrize("name", ALL)
def test_a_constant_is_a_result(workers: Workers, name: str) -> None:
    tested = program(
        "g (float x) => (float y, float[2] z) { y = Constant<value_float = 2.5>() z = Constant<value_floats ="
        " [1.0, 2.0]>() }"
    )
    got = results(workers, name, tested, {"x": np.array(1, np.float32)})
    assert (got["y"].tolist(), got["z"].tolist()) == (2.5, [1, 2])


@needs_tinygrad
def test_tinygrad_keeps_bfloat16_apart_from_float32(workers: Workers) -> None:
    tested = program("g (bfloat16[2] x) => (bfloat16[2] y) { y = Add(x, x) }", opset=14)
    got = results(workers, "tinygrad", tested, {"x": np.array([1.0078125, 3], ml_dtypes.bfloat16)})
    assert got["y"].tolist() == [2.015625, 6]


def spin() -> None:
    while True:
        pass


def test_tinygrads_interpreter_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tinygrad_onnx, "PATIENCE", 0.01)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(NotImplementedError, match="take clang"), tinygrad_onnx.patience(interpreted=True):
        spin()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_baselines() -> None:
    assert str(resolve("tinygrad:clang").baseline) == "tinygrad:device=clang,optimise=off"
    assert resolve("openvino").baseline is None
    assert resolve("tract").baseline is None


# Messages of openvino 2026.4.1, tract 0.23.9 and tinygrad 0.14, some of them shortened, by what they mean.
MESSAGES = [
    (
        "openvino",
        "unsupported",
        "RuntimeError",
        "OpenVINO does not support the following ONNX operations: ai.onnx.Det",
    ),
    (
        "openvino",
        "unsupported",
        "NotImplementedError",
        "a sequence type cannot cross the border of a model in openvino",
    ),
    (
        "openvino",
        "error",
        "RuntimeError",
        "Check 'PartialShape::merge_into' failed: Argument shapes are inconsistent",
    ),
    ("openvino", "out-of-memory", "RuntimeError", "std::bad_alloc"),
    ("openvino", "environment", "ModuleNotFoundError", "No module named 'openvino'"),
    ("openvino", "rejected", "google.protobuf.message.DecodeError", "Error parsing message"),
    (
        "tract",
        "unsupported",
        "tract.bindings.TractError",
        "Translating node #2 Unimplemented(Det) ToTypedTranslator",
    ),
    ("tract", "environment", "builtins.AttributeError", "'Onnx' object has no attribute 'load'"),
    ("tract", "unsupported", "tract.bindings.TractError", "Caused by: expected axes as a constant"),
    ("tract", "unsupported", "tract.bindings.TractError", "Caused by: Expect all inputs to be constants"),
    (
        "tract",
        "unsupported",
        "tract.bindings.TractError",
        "1: StridedSlice is typable only if stride is a const",
    ),
    ("tract", "unsupported", "tract.bindings.TractError", 'Node #2 "output" Compress can not be typed'),
    (
        "tract",
        "error",
        "tract.bindings.TractError",
        "Unifying shapes 1 and 0 Impossible to unify Val(1) with Val(0).",
    ),
    ("tract", "error", "tract.bindings.TractError", "Wrong number of outputs. Op says 1, node says 3."),
    ("tinygrad", "unsupported", "NotImplementedError", "op='Scan' is not supported"),
    ("tinygrad", "unsupported", "ValueError", "17 is not a valid OnnxDataType"),
    (
        "tinygrad",
        "unsupported",
        "TypeError",
        "get_onnx_ops.<locals>.attention_onnx() got an unexpected keyword argument 'left_window_size'",
    ),
    ("tinygrad", "error", "TypeError", "pad() got an unexpected keyword argument 'mode'"),
    ("tinygrad", "error", "TypeError", "'int' object is not iterable"),
    ("tinygrad", "environment", "FileNotFoundError", "[Errno 2] No such file or directory: 'clang'"),
    ("tinygrad", "error", "FileNotFoundError", "[Errno 2] No such file or directory: 'weights'"),
]


@pytest.mark.parametrize(("name", "meaning", "exception", "message"), MESSAGES)
def test_a_lack_is_told_from_a_bug(name: str, meaning: str, exception: str, message: str) -> None:
    backend = plugin(name).backend
    assert backend.classify("compile", exception, message) == meaning
    assert backend.classify("compile", exception, "x" * 1_000_000) in ("error", meaning)


@pytest.mark.parametrize("name", ["openvino", "tract", "tinygrad"])
def test_the_file_loads_alone(name: str) -> None:
    # As a worker of an old release loads it, in an interpreter without onnx.
    missing = ["onnx", "ml_dtypes", "openvino", "tract", "tinygrad"]
    assert loaded_alone(plugin(name).location[0], missing, "module.BACKEND.package") == f"{name}\n"
