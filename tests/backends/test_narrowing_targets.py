"""Tools that give up precision, and further rewriters, as targets: what they may alter and what they may
not.
"""

import importlib.util

import numpy as np
import onnx
import onnx.parser
import pytest
from loaded_alone import loaded_alone
from models import X, chain, program

from opsieve.backends.compilers.transformers import float16, narrowing, quantisation
from opsieve.backends.compilers.worker_common import BrokenModel
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.workers.sandbox.policy import may_share_memory
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

PACKAGES = {
    "onnx-graphsurgeon": "onnx_graphsurgeon",
    "onnxconverter-float16": "onnxconverter_common",
    "iree": "iree.compiler",
    "onnxscript-version-converter": "onnxscript",
}
PRODUCT = """g (float[2, 3] x) => (float[2, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 60}, float[2] b = {1, -2}> {
    t = MatMul(x, w) y = Add(t, b) }"""


def here(target: str) -> str:
    """The target, where its package is installed."""
    package = PACKAGES.get(target.partition(":")[0], "onnx").partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}, which CI does not install")
    return target


@pytest.mark.parametrize(
    "target",
    [
        "onnx-ir",
        "onnx-ir:IdentityElimination+TopologicalSort",
        "onnx-ir:skip=IdentityElimination,trace=on",
        "onnx-graphsurgeon",
        "onnx-graphsurgeon:off,clean=off",
        "onnxconverter-float16",
        "onnxruntime-float16",
        "onnxruntime-float16:all",
        "onnxruntime-quantization",
        "onnxruntime-quantization:dynamic,channels=each",
        "onnxscript-version-converter:24",
        "iree:O0",
    ],
)
def test_every_configuration_computes(workers: Workers, target: str) -> None:
    """Tools that narrow are held to the values of the original, since what is run has its precision back."""
    for asked, values in ((chain("Relu", "Identity", "Tanh"), X), (program(PRODUCT), X)):
        seen = workers.observe(resolve(here(target)), asked, values)
        right = workers.observe(resolve("reference"), asked, values).outputs
        assert seen.outputs is not None, seen.message
        assert right is not None
        np.testing.assert_allclose(seen.outputs["y"], right["y"], rtol=1e-5)


def test_iree_may_write_memory_files_in_the_sandbox() -> None:
    """The compiler of IREE 3.13 writes its result to one; without leave every program failed."""
    assert may_share_memory(plugin("iree").backend)
    assert not may_share_memory(plugin("reference").backend)


def model(text: str, narrow: bool = False) -> onnx.ModelProto:
    read = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text)
    return float16.convert_by_onnxruntime(read, {"initializers": "used"}) if narrow else read


def test_a_constant_may_lie_half_a_step_of_float16_away_and_no_further() -> None:
    before, after = model(PRODUCT), model(PRODUCT, narrow=True)
    assert after.graph.initializer[0].data_type == onnx.TensorProto.FLOAT16
    restored = float16.widen(65504.0, before, after)
    assert {tensor.data_type for tensor in restored.graph.initializer} == {onnx.TensorProto.FLOAT}
    for name, away in (("b", 0.01), ("w", 1.0)):
        wrong = onnx.ModelProto()
        wrong.CopyFrom(after)
        (tensor,) = [each for each in wrong.graph.initializer if each.name == name]
        moved = onnx.numpy_helper.to_array(tensor) + np.float16(away)
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved, name))
        with pytest.raises(BrokenModel, match=rf"the constant '{name}' at .* beyond a step of its format"):
            float16.widen(65504.0, before, wrong)


def test_a_quantised_constant_may_lie_half_a_step_of_its_scale_away_and_no_further() -> None:
    before = model(PRODUCT)
    for mode in ("static", "dynamic"):
        after = quantisation.quantise(model(PRODUCT), {"mode": mode, "channels": "all"}, X)
        assert any(tensor.data_type == onnx.TensorProto.INT8 for tensor in after.graph.initializer)
        restored = quantisation.restore(before, after)
        assert not {node.op_type for node in restored.graph.node} & quantisation._OWN
        for tensor in after.graph.initializer:
            if tensor.name == "w_quantized":
                moved = onnx.numpy_helper.to_array(tensor)
                tensor.CopyFrom(
                    onnx.numpy_helper.from_array(np.where(moved > 0, moved - 1, moved), tensor.name)
                )
        with pytest.raises(BrokenModel, match=r"the constant 'w' at .* beyond a step of its format"):
            quantisation.restore(before, after)


def test_what_is_run_of_both_must_have_one_type() -> None:
    values = {"y": np.zeros(2, np.float32)}
    assert narrowing.run_both(lambda _: values, lambda _: values)({}) is values
    for other in (np.zeros(2, np.float16), np.zeros(3, np.float32)):
        with pytest.raises(BrokenModel, match="the narrowed model gives 'y' as"):
            narrowing.run_both(lambda _, other=other: {"y": other}, lambda _: values)({})
    ragged = {"y": [np.zeros((1, 2), np.float32), np.zeros((3, 2), np.float32)]}
    assert narrowing.run_both(lambda _: ragged, lambda _: ragged)({}) is ragged


@pytest.mark.parametrize(
    ("meaning", "message"),
    [("environment", "Load model from augmented_model.onnx failed: Unsupported model IR version: 14, max supported IR version: 13"), ("unsupported", "NOT_IMPLEMENTED : Could not find an implementation for RandomUniformLike(22)"), ("unsupported", "Failed to find proper ai.onnx domain"), ("error", "Graph ctor should have created NodeArg for initializer. Missing: fb9f06f1"),],
)  # fmt: skip
def test_what_calibration_cannot_run_is_told_from_a_bug(meaning: str, message: str) -> None:
    assert plugin("onnxruntime-quantization").backend.classify("compile", "Fail", message) == meaning


def test_a_program_with_narrow_parts_of_its_own_is_not_asked(workers: Workers) -> None:
    half = program("g (float[2, 3] x) => (float[2, 3] y) { t = Cast<to = 10>(x) y = Cast<to = 1>(t) }")
    assert workers.observe(resolve("onnxruntime-float16"), half, X).outcome == "unsupported"
    steps = program("g (float[2, 3] x) => (uint8[2, 3] y) <float s = {1}> { y = QuantizeLinear(x, s) }")
    assert workers.observe(resolve("onnxruntime-quantization"), steps, X).outcome == "unsupported"


def test_a_kernel_that_tells_its_lack_when_it_runs_is_no_fault_of_the_tool(workers: Workers) -> None:
    # onnxruntime 1.31 loads ScatterND of float16 with a reduction and refuses to run it
    scatter = """g (float[3] x) => (float[3] y) <int64[1, 1] i = {1}, float[1] u = {5}> { y = ScatterND<reduction = "min">(x, i, u) }"""
    fed = {"x": np.ones(3, np.float32)}
    assert workers.observe(resolve("onnxruntime-float16"), program(scatter), fed).outcome == "unsupported"


def test_what_the_reference_runs_has_its_precision_back_too(workers: Workers) -> None:
    """onnxruntime 1.31.1 has no kernel for RoiAlign of opset 22, so the reference evaluates the result."""
    text = """g (float[2, 3] x) => (float[1, 1, 2, 2] y) <float[3, 3] w = {1, 0.3, 0.2, 0.7, 5, 1.1, 0.9, 0.8, 7},
        int64[2] a = {0, 1}, float[1, 4] r = {0, 0, 2, 2}, int64[1] b = {0}> {
        t = MatMul(x, w) u = Unsqueeze(t, a) y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(u, r, b) }"""
    asked = program(text, opset=22, ir=10)
    seen = workers.observe(resolve("onnxruntime-quantization:dynamic"), asked, X)
    right = workers.observe(resolve("reference"), asked, X).outputs
    assert seen.outputs is not None, seen.message
    assert right is not None
    np.testing.assert_allclose(seen.outputs["y"], right["y"], rtol=1e-5)


def test_an_output_of_another_type_is_no_result(workers: Workers) -> None:
    """A bug of onnxruntime 1.31.1: outputs that are sequences become sequences of float16 though outputs are
    to keep their types.
    """
    cut = program("g (float[2, 3] x) => (seq(float[1, 3]) y) { y = SplitToSequence(x) }", opset=17)
    seen = workers.observe(resolve("onnxruntime-float16"), cut, X)
    assert (seen.outcome, seen.stage) == ("error", "compile")
    assert "declares 'y' as seq(float16) where the original has seq(float)" in seen.message


@pytest.mark.parametrize("target", ["onnxconverter-float16", "onnxruntime-float16"])
def test_sequences_inside_a_model_have_their_precision_back(workers: Workers, target: str) -> None:
    """The declared type of a sequence stayed float16, and onnxruntime refused what opsieve had made."""
    text = """g (float[2, 3] x) => (float[1, 3] y) <int64 at = {1}> {
        s = SplitToSequence(x) y = SequenceAt(s, at) }"""
    seen = workers.observe(resolve(here(target)), program(text, opset=17), X)
    assert seen.outputs is not None, seen.message
    np.testing.assert_array_equal(seen.outputs["y"], X["x"][1:])


def test_a_misspelt_pass_is_no_pass(workers: Workers) -> None:
    assert workers.observe(resolve("onnx-ir:skip=NoSuchPass"), chain("Relu"), X).outcome == "environment"


def test_the_files_load_alone() -> None:
    folder = "opsieve.backends.compilers"
    parts = [f"transformers.{name}" for name in ("float16", "quantisation", "ir_passes", "graphsurgeon")]
    for module in (f"{folder}.{part}" for part in (*parts, "iree_cpu")):
        assert loaded_alone(module, ["onnx", "onnxruntime", "iree"], "module.__name__") == f"{module}\n"
    assert plugin("onnxconverter-float16").facts.extra == "onnxconverter-common"


@pytest.mark.parametrize(
    "target", ["onnxconverter-float16", "onnxruntime-float16", "onnxruntime-quantization"]
)
def test_the_inputs_of_a_function_are_names_without_a_type(workers: Workers, target: str) -> None:
    """A function of the model's own was read as a graph, and the tool blamed for what opsieve raised."""
    text = """<ir_version: 10, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.f(x) }
        <domain: "local", opset_import: ["" : 17]> f (a) => (b) { b = Relu(a) }"""
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.array([-1, 2], np.float32)}
    seen = workers.observe(resolve(here(target)), OnnxProgram(model.SerializeToString(), "g"), feeds)
    assert "'str' object" not in seen.message
    assert target == "onnxconverter-float16" or seen.outputs is not None, seen.message
