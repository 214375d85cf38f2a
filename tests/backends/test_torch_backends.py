"""torch, inductor and torch's exporter: what the lowering means, what is told apart, what they break. They
run in workers only.
"""

import importlib.util
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from loaded_alone import loaded_alone
from models import X, chain, program

from opsieve.backends.compare import compare
from opsieve.backends.compilers.torch import exporter, knobs, targets as torch_targets
from opsieve.backends.observation import Observation
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

MISSING = [name for name in ("torch", "onnxscript") if importlib.util.find_spec(name) is None]
needs_torch = pytest.mark.skipif(
    bool(MISSING) or not entry_points(group="opsieve.backends", name="torch"),
    reason=(
        "needs the extra torch-exporter:"
        f" {', '.join(MISSING) or 'opsieve was installed before it had this backend'}"
    ),
)


def see(workers: Workers, target: str, tested: Program, inputs: dict[str, Any]) -> Observation:
    return workers.observe(resolve(target), tested, inputs)


def results(workers: Workers, target: str, tested: Program, inputs: dict[str, Any]) -> dict[str, Any]:
    seen = see(workers, target, tested, inputs)
    assert seen.outputs is not None, f"{seen.outcome} in {seen.stage}: {seen.message}"
    return seen.outputs


def ramp(*shape: int, dtype: Any = np.float32) -> Any:
    return (np.arange(np.prod(shape)) * 7 % 11 - 4).reshape(shape).astype(dtype)


# Where ONNX and torch differ, one line each: graph, inputs; the reference says what is right.
MEANINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "integer division goes towards zero": (
        "g (int32[3] a, int32[3] b) => (int32[3] y) { y = Div(a, b) }",
        {"a": np.array([7, -7, 7], np.int32), "b": np.array([2, 2, -2], np.int32)},
    ),
    "Mod has the sign of the divisor": (
        "g (int64[3] a, int64[3] b) => (int64[3] y, int64[3] z) { y = Mod(a, b) z = Mod<fmod = 1>(a, b) }",
        {"a": np.array([7, -7, 7]), "b": np.array([3, 3, -3])},
    ),
    "unsigned integers wrap": (
        (
            "g (uint16[2] a, uint64[2] b) => (uint16[2] y, uint64[2] z, uint64[2] m) { y = Add(a, a) z ="
            " Sub(b, b) m = Max(b, z) }"
        ),
        {"a": np.array([65535, 3], np.uint16), "b": np.array([2**64 - 1, 0], np.uint64)},
    ),
    "a power has the type of its base": (
        "g (int32[2] a, float[2] b) => (int32[2] y) { y = Pow(a, b) }",
        {"a": np.array([10001, 3], np.int32), "b": np.array([2, 3], np.float32)},
    ),
    "crossed bounds": (
        "g (float[3] x) => (float[3] y) <float low = {1}, float high = {-1}> { y = Clip(x, low, high) }",
        {"x": ramp(3)},
    ),
    "sums keep their type": (
        (
            "g (int32[2, 3] x) => (int32[2] y, int32[2, 3] z) <int64[1] a = {1}, int64 b = {0}> { y ="
            " ReduceSum<keepdims = 0>(x, a) z = CumSum<exclusive = 1, reverse = 1>(x, b) }"
        ),
        {"x": ramp(2, 3, dtype=np.int32)},
    ),
    "a reduction of nothing": (
        (
            "g (float[2, 0] x) => (float[2] y, float[2] z) <int64[1] a = {1}> { y = ReduceMax<keepdims ="
            " 0>(x, a) z = ReduceProd<keepdims = 0>(x, a) }"
        ),
        {"x": np.zeros((2, 0), np.float32)},
    ),
    "negative indices": (
        (
            "g (float[3, 2] x, int64[2] i) => (float[2, 2] y, float[3, 2] z) { y = Gather(x, i) z ="
            ' ScatterElements<axis = 0, reduction = "add">(x, j, u) j = Unsqueeze(i, a) u = Gather<axis ='
            " 1>(y, k) }"
        ),
        {},
    ),
    "slices backwards": (
        (
            "g (float[4, 3] x) => (float[2, 3] y) <int64[2] s = {-1, 0}, int64[2] e = {-9, 99}, int64[2] a ="
            " {0, -1}, int64[2] p = {-2, 1}> { y = Slice(x, s, e, a, p) }"
        ),
        {"x": ramp(4, 3)},
    ),
    "padding at one end": (
        (
            "g (float[1, 2, 5, 4] x, float[3, 2, 2, 2] w) => (float[1, 3, 3, 4] y) { y = Conv<pads = [0, 1,"
            " 1, 0], strides = [2, 1]>(x, w) }"
        ),
        {"x": ramp(1, 2, 5, 4), "w": ramp(3, 2, 2, 2)},
    ),
    "transposed, with more at the end": (
        (
            "g (float[1, 2, 3] x, float[2, 1, 2] w, float[1] b) => (float[1, 1, n] y) { y ="
            " ConvTranspose<strides = [3], output_padding = [2], pads = [1, 0]>(x, w, b) }"
        ),
        {"x": ramp(1, 2, 3), "w": ramp(2, 1, 2), "b": ramp(1)},
    ),
    "taps at moved places": (
        (
            "g (double[1, 4, 3, 1] x, double[2, 2, 2, 1] w, double[1, 8, 3, 2] o, double[2] b, double[1, 4,"
            " 3, 2] m) => (double[1, 2, 3, 2] y) { y = DeformConv<group = 2, offset_group = 2, pads = [0, 0,"
            " 1, 1], dilations = [1, 2]>(x, w, o, b, m) }"
        ),
        {
            name: np.sin(np.arange(np.prod(shape))).reshape(shape) * 1.5
            for name, shape in {
                "x": (1, 4, 3, 1),
                "w": (2, 2, 2, 1),
                "o": (1, 8, 3, 2),
                "b": (2,),
                "m": (1, 4, 3, 2),
            }.items()
        },
    ),
    "what ceil_mode adds is not counted": (
        (
            "g (float[1, 1, 6] x) => (float[1, 1, n] y, float[1, 1, m] z) { y = AveragePool<kernel_shape ="
            " [3], strides = [2], ceil_mode = 1, count_include_pad = 1, pads = [1, 0]>(x) z ="
            " MaxPool<kernel_shape = [3], strides = [2], ceil_mode = 1>(x) }"
        ),
        {"x": ramp(1, 1, 6)},
    ),
    "ties": (
        (
            "g (float[6] x) => (float[3] v, int64[3] i, int64[1] a) <int64[1] k = {3}> { v, i = TopK(x, k) a"
            " = ArgMax<select_last_index = 1>(x) }"
        ),
        {"x": np.array([1, 3, 3, 0, 3, 3], np.float32)},
    ),
    "Resize": (
        (
            "g (float[1, 1, 3, 4] x) => (float[1, 1, 5, 2] y) <int64[4] s = {1, 1, 5, 2}> { y = Resize<mode ="
            ' "cubic", coordinate_transformation_mode = "align_corners">(x, , , s) }'
        ),
        {"x": ramp(1, 1, 3, 4)},
    ),
    "quantisation rounds half to even": (
        (
            "g (float[5] x) => (int8[5] y, float[5] z) <float s = {2}, int8 o = {3}> { y = QuantizeLinear(x,"
            " s, o) z = DequantizeLinear(y, s, o) }"
        ),
        {"x": np.array([1, 3, 5, -1, 999], np.float32)},
    ),
    "one element has no deviation": (
        (
            "g (float[2, 3, 1] x, float[3] s, float[3] b) => (float[2, 3, 1] y) { y ="
            " InstanceNormalization(x, s, b) }"
        ),
        {"x": ramp(2, 3, 1), "s": ramp(3), "b": ramp(3)},
    ),
    "control flow": (
        """g (float[2] x, int64 n, bool c) => (float[2] y, float[k, 2] z) {
            y, z = Loop(n, c, x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t, float[2] r) {
                on = Identity(go) t = Add(s, x) r = Neg(t) }> }""",
        {"x": ramp(2), "n": np.array(3), "c": np.array(True)},
    ),
    "a shape from a shape": (
        (
            "g (float[2, 3, 4] x) => (float[n, m] y) <int64[1] l = {-1}> { s = Shape<end = 1>(x) t ="
            " Concat<axis = 0>(s, l) y = Reshape(x, t) }"
        ),
        {"x": ramp(2, 3, 4)},
    ),
}
MEANINGS["negative indices"] = (
    (
        "g (float[3, 2] x, int64[2] i, int64[2, 2] j) => (float[2, 2] y, float[3, 2] z, float[2] w) "
        '{ y = Gather(x, i) z = ScatterElements<axis = 0, reduction = "add">(x, j, y) w = GatherND(x, j) }'
    ),
    {"x": ramp(3, 2), "i": np.array([-1, 0]), "j": np.array([[-1, 0], [-1, -1]])},
)


@needs_torch
@pytest.mark.parametrize("name", MEANINGS)
def test_the_lowering_means_what_onnx_means(workers: Workers, name: str) -> None:
    text, inputs = MEANINGS[name]
    tested = program(text, opset=21, ir=10)
    right = results(workers, "reference", tested, inputs)
    # `inductor:off` runs the module with all that was asked kept and what only served that left out.
    for target in ("torch", "inductor:off"):
        got = results(workers, target, tested, inputs)
        assert {key: value.dtype for key, value in got.items()} == {
            key: value.dtype for key, value in right.items()
        }
        found = compare(got, right, {key: str(value.dtype) for key, value in right.items()})
        assert found.agrees, f"{target}: {found.mismatches}"


@needs_torch
@given(st.integers(1, 6), st.integers(0, 9), st.integers(0, 9), st.sampled_from(["edge", "wrap", "reflect"]))
def test_padding_is_numpys(size: int, before: int, after: int, mode: Any) -> None:
    from opsieve.backends.compilers.torch.shapes import around

    assert around(size, before, after, mode) == np.pad(np.arange(size), (before, after), mode=mode).tolist()


@needs_torch
def test_dynamo_traces_what_pads(workers: Workers) -> None:
    tested = program(
        'g (float[2, 3] x) => (float[4, 5] y) <int64[4] p = {1, 1, 1, 1}> { y = Pad<mode = "reflect">(x, p) }'
    )
    got = results(workers, "inductor:eager", tested, X)
    np.testing.assert_array_equal(got["y"], np.pad(X["x"], 1, mode="reflect"))


@needs_torch
def test_float64_is_an_oracle_of_its_own(workers: Workers) -> None:
    tested = chain("Exp", "Sin", "Tanh")
    got, right = (
        results(workers, target, tested, X)["y"] for target in ("torch:float64", "reference:float64")
    )
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, right, rtol=1e-13)


@needs_torch
@pytest.mark.parametrize(
    "target", ["inductor:eager", "inductor:aot_eager", "torch-exporter", "torch-exporter:torchscript"]
)
def test_compilers_compute(workers: Workers, target: str) -> None:
    # The shape comes from an input: the tests of one program have one shape, and a note tells what was done.
    tested = program("g (float[2, 3] x, int64[2] s) => (float[n, m] y) { t = Relu(x) y = Reshape(t, s) }")
    seen = see(workers, target, tested, X | {"s": np.array([3, -1])})
    assert seen.outputs is not None, seen.message
    np.testing.assert_array_equal(seen.outputs["y"], np.maximum(X["x"], 0).reshape(3, 2))
    assert seen.notes == (
        "values that the inputs decide were compiled in as constants: those that Reshape asked",
    )


@needs_torch
@pytest.mark.slow  # starting inductor compiles a header for most of a minute
def test_inductor_compiles() -> None:
    tested = chain("Exp", "Tanh", "Neg")
    with Workers() as workers:
        for target in (
            "inductor",
            "inductor:disabled=vectorisation+fusion",
            "inductor:shapes=dynamic,freezing=on",
        ):
            seen = see(workers, target, tested, X)
            assert seen.outputs is not None, seen.message
            np.testing.assert_allclose(seen.outputs["y"], -np.tanh(np.exp(X["x"])), rtol=1e-5)
            assert {"import", "compile", "run"} <= set(seen.seconds)


@needs_torch
def test_values_go_by_name(workers: Workers) -> None:
    tested = program(
        """g (float[2] "b.1", float[2] w, float[2] unused, float[2] a) => (float[2] y, float[2] z)
        <float[2] w = {10, 20}> { t = Sub("b.1", a) y = Add(t, w) z = Identity(a) }"""
    )
    values = {"a": [1, 2], "b.1": [5, 7], "unused": [0, 0]}
    inputs = {key: np.array(value, np.float32) for key, value in values.items()}
    for target in ("torch", "inductor:aot_eager", "torch-exporter"):
        got = results(workers, target, tested, inputs)
        assert {key: value.tolist() for key, value in got.items()} == {"y": [14, 25], "z": [1, 2]}, target
    got = results(workers, "torch", tested, inputs | {"w": np.zeros(2, np.float32)})
    assert got["y"].tolist() == [4, 5]


LACKS = [
    ("g (string[1] x) => (string[1] y) { y = Identity(x) }", {"x": np.array(["a"], object)}, "element type"),
    ("g (float[2] x) => (float[2] y) { y = RandomNormalLike(x) }", X, "no rule"),
    ("g (float[2] x) => (int4[2] y) { y = Cast<to = 22>(x) }", {"x": ramp(2)}, "int4"),
    ("g (float[2] x) => (float[2] y) { y = other.Op(x) }", {"x": ramp(2)}, "other.Op"),
    ("g (uint64[2] x) => (uint64[2] y) { y = Div(x, x) }", {"x": np.ones(2, np.uint64)}, "not implemented"),
]


@needs_torch
@pytest.mark.parametrize(("text", "inputs", "told"), LACKS)
def test_a_lack_is_told(workers: Workers, text: str, inputs: dict[str, Any], told: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "other" : 1]> {text}')
    for target in ("torch", "inductor:eager", "torch-exporter"):
        seen = see(workers, target, OnnxProgram(model.SerializeToString()), inputs)
        assert (seen.outcome, told in seen.message) == ("unsupported", True), (
            target,
            seen.outcome,
            seen.message,
        )


@needs_torch
def test_what_torch_does_not_run_is_not_the_compilers_fault(workers: Workers) -> None:
    tested = program("g (int32[2] a, int32[2] b) => (int32[2] y) { y = Div(a, b) }")
    inputs = {"a": np.array([1, 2], np.int32), "b": np.array([1, 0], np.int32)}
    assert see(workers, "torch", tested, inputs).outcome == "error"
    for target in ("inductor", "inductor:off"):
        assert see(workers, target, tested, inputs).outcome == "environment"


@needs_torch
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("inductor:disabled=no_such_part", "its parts are pre_grad_passes"),
        ("torch-exporter:opset=new", "an opset is a number"),
    ],
)
def test_a_misspelt_option_is_told(workers: Workers, target: str, told: str) -> None:
    seen = see(workers, target, chain("Relu"), X)
    assert (seen.outcome, told in seen.message) == ("environment", True), seen.message


@needs_torch
def test_every_part_is_a_setting_of_this_release(workers: Workers) -> None:
    parts = "+".join(knobs.PARTS)
    results(workers, f"inductor:level=eager,disabled={parts}", chain("Relu"), X)


@needs_torch
@pytest.mark.slow(seconds=10)
def test_a_pass_is_skipped_by_its_whole_name() -> None:
    from torch.fx import symbolic_trace
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    module = symbolic_trace(lambda x: x)
    ran: list[str] = []
    with knobs.wrap_passes("fuse_conv_bn_again+stable_sort", False):
        # The first name is a part of one that is skipped.
        for name in ("fuse_conv_bn", "stable_sort", "remove_noop_ops"):
            GraphTransformObserver(module, name).apply_graph_pass(lambda graph, name=name: ran.append(name))
    assert ran == ["fuse_conv_bn", "remove_noop_ops"]


def test_the_table_is_large() -> None:
    # The files are read, not imported: they import torch.
    folder = Path(torch_targets.__file__).resolve().parent
    named = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if not schema.domain
        for file in folder.glob("*.py")
        if f'"{schema.name}"' in file.read_text()
    }
    assert len(named) >= 150, len(named)


MESSAGES = [
    ("torch", "run", "NotImplementedError", "\"gt_cpu\" not implemented for 'UInt64'", "unsupported"),
    ("torch", "run", "RuntimeError", "Float8 is not supported", "unsupported"),
    ("torch", "run", "TypeError", "'<' not supported between instances of 'list' and 'int'", "error"),
    (
        "torch",
        "run",
        "RuntimeError",
        "DefaultCPUAllocator: can't allocate memory: you tried",
        "out-of-memory",
    ),
    ("torch", "run", "RuntimeError", "ZeroDivisionError", "error"),
    ("torch", "import", "ModuleNotFoundError", "No module named 'torch'", "environment"),
    (
        "inductor",
        "import",
        "opsieve_backend.NotRun",
        'NotImplementedError: "x" not implemented',
        "unsupported",
    ),
    ("inductor", "import", "opsieve_backend.NotRun", "RuntimeError: ZeroDivisionError", "environment"),
    ("inductor", "compile", "torch._dynamo.exc.Unsupported", "graph break", "unsupported"),
    ("inductor", "compile", "torch._inductor.exc.InductorError", "NotImplementedError: View", "error"),
    ("inductor", "compile", "torch._inductor.exc.CppCompileError", "C++ compile error", "error"),
    ("inductor", "compile", "x.InductorError", "InvalidCxxCompiler: No working C++ compiler", "environment"),
    (
        "torch-exporter",
        "compile",
        "x.ConversionError",
        "No ONNX function found for <OpOverload",
        "unsupported",
    ),
    ("torch-exporter", "compile", "x.TorchExportError", "Failed to export", "error"),
    ("torch-exporter", "compile", "opsieve.BrokenModel", "NOT_IMPLEMENTED : Could not find", "unsupported"),
    ("torch-exporter", "compile", "opsieve.BrokenModel", "INVALID_GRAPH : type error", "error"),
]


@pytest.mark.parametrize(("name", "stage", "exception", "message", "meaning"), MESSAGES)
def test_a_lack_is_told_from_a_bug(name: str, stage: str, exception: str, message: str, meaning: str) -> None:
    backends = {item.name: item for item in (torch_targets.TORCH, torch_targets.INDUCTOR, exporter.EXPORTER)}
    assert backends[name].classify(stage, exception, message) == meaning


@needs_torch
def test_all_options_have_one_baseline() -> None:
    for text in ("inductor", "inductor:aot_eager,disabled=fusion", "inductor:shapes=dynamic,freezing=on"):
        assert str(resolve(text).baseline) == "inductor:level=off"
    assert (
        str(resolve("torch-exporter:torchscript,opset=18,optimise=off").baseline)
        == "torch-exporter:exporter=off"
    )
    assert plugin("inductor").facts.extra == "torch"


def test_the_file_loads_alone() -> None:
    # As the main process loads it, without torch, and as a worker of another release does, without opsieve.
    said = (
        '(module.TORCH.package, module.INDUCTOR.name, module.TORCH.classify("run", "NotImplementedError",'
        ' ""))'
    )
    module = "opsieve.backends.compilers.torch.targets"
    assert (
        loaded_alone(module, ["onnx", "onnxruntime", "torch"], said)
        == "('torch', 'inductor', 'unsupported')\n"
    )


@needs_torch
def test_tests_share_a_worker(workers: Workers) -> None:
    tests = [
        Test(chain("Neg"), X),
        Test(program("g (float[2] x) => (float[2] y) { y = other.Op(x) }"), {}),
        Test(chain("Abs"), X),
    ]
    outcomes = [seen.outcome for seen in workers.observe_many(resolve("torch"), tests)]
    assert (outcomes[0], outcomes[2]) == ("ok", "ok")
    assert outcomes[1] != "ok"


@needs_torch
@pytest.mark.parametrize("target", ["torch:cuda", "inductor:cuda"])
def test_another_device_computes_the_same_or_is_said_to_be_absent(workers: Workers, target: str) -> None:
    seen = see(workers, target, chain("Relu", "Exp"), X)
    if seen.outcome == "ok":  # a machine with a device
        assert seen.outputs is not None
        for name, value in results(workers, "torch", chain("Relu", "Exp"), X).items():
            np.testing.assert_allclose(seen.outputs[name], value, rtol=1e-6)
    else:
        assert seen.outcome == "environment"
        assert "torch cannot compute on cuda: " in seen.message
    # The same worker goes on with the processor.
    assert results(workers, target.replace("cuda", "cpu"), chain("Relu"), X)


def test_a_device_is_judged_by_the_processor_and_a_compiler_by_its_own_device() -> None:
    pytest.importorskip("onnx")
    assert resolve("torch:cuda").baseline == resolve("torch")
    assert resolve("inductor:cuda").baseline == resolve("inductor:cuda,level=off")
    assert resolve("torch").baseline is None
