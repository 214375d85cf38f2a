"""Tools of onnxruntime's wheel as targets: the fusions of onnxruntime.transformers, and the optimised models
that onnxruntime saves.
"""

from typing import Any

import numpy as np
import pytest
from loaded_alone import loaded_alone
from models import X, chain, program
from onnx import parser

from opsieve.backends.compilers.transformers import ort_saved
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

FOUR = {"x": np.array([-1, 0, 1, 2], np.float32)}
# x * sigmoid(a * x) becomes QuickGelu, and the sigmoid, which is an output too, is taken out.
QUICK_GELU = """g (float[4] x) => (float[4] gate, float[4] y) <float a = {1.703125}> {
    t = Mul(x, a) gate = Sigmoid(t) y = Mul(x, gate) }"""
RMS = """g (float[4, 2] x) => (float[4, 2] y) <float two = {2}, float small = {0.01}, float[2] scale = {1, 3}, int64[1] last = {-1}> {
    squared = Pow(x, two) mean = ReduceMean(squared, last) sum = Add(mean, small) root = Sqrt(sum) t = Div(x, root)
    y = Mul(t, scale) }"""


@pytest.mark.parametrize(
    "target",
    [
        "onnxruntime-transformers",
        "onnxruntime-transformers:gpt2,skip=gelu+layer_norm",
        "onnxruntime-transformers:optimise=off",
        *(f"onnxruntime-saved:{level}" for level in ort_saved.LEVELS),
        "onnxruntime-saved:disabled_optimizers=ConstantFolding",
        "onnxruntime-saved:optimise=off",
    ],
)
def test_every_configuration_computes(workers: Workers, target: str) -> None:
    seen = workers.observe(resolve(target), chain("Relu", "Identity", "Tanh"), X)
    assert seen.outputs is not None, seen.message
    np.testing.assert_allclose(seen.outputs["y"], np.tanh(np.maximum(X["x"], 0)), rtol=1e-6)


def test_a_model_without_operators_of_onnx_s_own_is_not_theirs(workers: Workers) -> None:
    text = """<ir_version: 8, opset_import: ["ai.onnx.ml" : 3]> g (float[1,2] x) => (float[1,2] y) {
        y = ai.onnx.ml.Scaler<offset=[0.5,1.0], scale=[2.0,3.0]>(x) }"""
    model = OnnxProgram(parser.parse_model(text).SerializeToString())
    for target in ("onnxruntime-transformers", "onnxruntime-symbolic-shapes"):
        seen = workers.observe(resolve(target), model, {"x": np.float32([[-1, 2]])})
        assert seen.outcome == "unsupported", seen.message


def test_what_is_lost_is_an_error(workers: Workers) -> None:
    """A bug of onnxruntime 1.31.1."""
    seen = workers.observe(resolve("onnxruntime-transformers"), program(QUICK_GELU), FOUR)
    assert (seen.outcome, seen.stage) == ("error", "compile")
    assert "Graph output (gate) does not exist in the graph" in seen.message


def test_a_fusion_can_be_left_out(workers: Workers) -> None:
    """The fusion of RMS normalisation raises TypeError where the square is a Mul, in onnxruntime 1.31.1."""
    squares = program(RMS.replace("Pow(x, two)", "Mul(x, x)"))
    x = {"x": np.ones((4, 2), np.float32)}
    seen = workers.observe(resolve("onnxruntime-transformers"), squares, x)
    assert (seen.outcome, seen.stage, seen.exception.rpartition(".")[2]) == ("error", "compile", "TypeError")
    assert workers.observe(resolve("onnxruntime-transformers:skip=layer_norm"), squares, x).outcome == "ok"


def test_an_operator_of_onnxruntimes_own_is_no_failure(workers: Workers) -> None:
    """SimplifiedLayerNormalization, which onnx's checker refuses, is what the fusion makes of it."""
    x = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    right = x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.01) * np.array([1, 3], np.float32)
    for target in ("onnxruntime-transformers", "onnxruntime-saved"):
        seen = workers.observe(resolve(target), program(RMS), {"x": x})
        assert seen.outputs is not None, seen.message
        np.testing.assert_allclose(seen.outputs["y"], right, rtol=1e-5)


@pytest.mark.parametrize(
    "target",
    [
        "onnxruntime-transformers:skip=no_such_fusion",
        "onnxruntime-saved:disabled_optimizers=no_such_optimizer",
    ],
)
def test_a_misspelt_name_is_no_pass(workers: Workers, target: str) -> None:
    assert workers.observe(resolve(target), chain("Relu"), X).outcome == "environment"


def test_a_failure_of_onnxruntime_itself_is_not_of_what_it_saves(workers: Workers) -> None:
    erf = program("g (double[4] x) => (double[4] y) { y = Erf(x) }")
    seen = workers.observe(resolve("onnxruntime-saved"), erf, {"x": FOUR["x"].astype(np.float64)})
    assert seen.outcome == "unsupported"
    backend: Any = plugin("onnxruntime-saved").backend
    assert (
        backend.classify(
            "compile", "opsieve.backends.compilers.worker_common.NotRun", "FAIL : Fatal error in a fusion"
        )
        == "environment"
    )
    assert (
        backend.classify(
            "compile", "opsieve.backends.compilers.worker_common.BrokenModel", "loads the original"
        )
        == "error"
    )


def test_the_file_loads_alone() -> None:
    module = "opsieve.backends.compilers.transformers.ort_saved"
    said = loaded_alone(module, ["onnx", "onnxruntime"], "module.BACKEND.package")
    assert said == "onnxruntime\n"
