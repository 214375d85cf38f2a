"""onnx's own tools as targets: the version converter and the inliner; what they lose is seen, what they say
they cannot do is no bug.
"""

from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from loaded_alone import loaded_alone
from models import X, chain, program

from opsieve.backends.registry import plugin, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

FUNCTION = OnnxProgram(
    onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
    g (float[2] x) => (float[2] y) { y = local.twice(x) }
    <domain: "local", opset_import: ["" : 18]> twice (a) => (b) { b = Add(a, a) }""").SerializeToString()
)
TWO = {"x": np.array([1, 2], np.float32)}
WINDOW = program("g (float[2] x) => (float[n] y) <int32 size = {4}> { y = HammingWindow(size) }")
SLOPE = program("g (float[2] x) => (float[2] y) { y = LeakyRelu(x) }")


@pytest.mark.parametrize(
    "target",
    [
        *(f"onnx-version-converter:{opset}" for opset in (16, 18, 21, 24)),
        "onnx-version-converter:optimise=off",
        "onnx-inliner",
        "onnx-inliner:convert=on",
        "onnx-inliner:schema",
    ],
)
def test_every_configuration_computes(workers: Workers, target: str) -> None:
    seen = workers.observe(resolve(target), chain("Relu", "Identity", "Softplus"), X)
    assert seen.outputs is not None, seen.message
    np.testing.assert_allclose(seen.outputs["y"], np.log1p(np.exp(np.maximum(X["x"], 0))), rtol=1e-6)


# Bugs of onnx 1.23.2.
@pytest.mark.parametrize(
    ("target", "tested", "told"),
    [
        ("onnx-version-converter:21", FUNCTION, "calls functions that it has lost: 'local:twice'"),
        ("onnx-inliner:schema", SLOPE, "Type unknown for Alpha"),
        ("onnx-inliner:schema", WINDOW, "Required attribute 'to' is missing"),
    ],
)
def test_what_they_break_is_an_error(workers: Workers, target: str, tested: OnnxProgram, told: str) -> None:
    seen = workers.observe(resolve(target), tested, TWO)
    assert (seen.outcome, seen.stage) == ("error", "compile")
    assert told in seen.message


def test_functions_are_inlined(workers: Workers) -> None:
    seen = workers.observe(resolve("onnx-inliner"), FUNCTION, TWO)
    assert seen.outputs is not None, seen.message
    assert seen.outputs["y"].tolist() == [2, 4]


def test_what_has_no_older_form_is_unsupported(workers: Workers) -> None:
    gelu = program("g (float[2] x) => (float[2] y) { y = Gelu(x) }", opset=20, ir=9)
    seen = workers.observe(resolve("onnx-version-converter:18"), gelu, TWO)
    assert (seen.outcome, seen.stage) == ("unsupported", "compile"), seen.message
    assert "No Previous Version of Gelu" in seen.message


MESSAGES = [
    ("unsupported", "RuntimeError", "no_previous_version.h:26: adapt: Assertion `false` failed: No Previous Version of CastLike exists"),
    ("unsupported", "RuntimeError", "BaseConverter.h:99: adapter_lookup: Assertion `false` failed: No Adapter To Version $13 for Pad"),
    ("unsupported", "RuntimeError", "type_restriction.h:38: isUnallowed: Assertion `std::find(...)` failed"),
    ("unsupported", "RuntimeError", "No initializer or constant input to node found"),
    ("unsupported", "RuntimeError", "convert.h:1054: operator(): Assertion `std::find(...)` failed: Mod with floating-point inputs and fmod=0 cannot be downgraded to opset 27."),
    ("environment", "RuntimeError", "assertInVersionRange: Assertion failed: Warning: invalid version (must be between 1 and 24)"),
    ("error", "RuntimeError", "ir_pb_converter.cc: Assertion `it != end` failed"),
    ("error", "IndexError", "Invalid size"),
    ("environment", "opsieve_backend.NotRun", "for the transformed model: Unsupported model IR version: 14"),
    ("unsupported", "opsieve_backend.NotRun", "for the transformed model: NOT_IMPLEMENTED : Could not find an implementation"),
]  # fmt: skip


@pytest.mark.parametrize(("meaning", "exception", "message"), MESSAGES)
def test_a_lack_is_told_from_a_bug(meaning: str, exception: str, message: str) -> None:
    assert plugin("onnx-version-converter").backend.classify("compile", exception, message) == meaning


def test_a_tool_without_an_optimiser_has_no_baseline() -> None:
    for name in ("onnx-version-converter", "onnx-inliner"):
        one: Any = resolve(name)
        assert one.baseline is None
        assert (one.backend.package, one.backend.extra) == ("onnx", "")


def test_the_file_loads_alone() -> None:
    module = "opsieve.backends.compilers.transformers.version_converter"
    assert (
        loaded_alone(module, ["onnx", "onnxruntime"], "(module.BACKEND.name, module.BACKEND.package)")
        == "('onnx-version-converter', 'onnx')\n"
    )


@pytest.mark.slow(seconds=3)
def test_what_onnxruntime_lacks_is_evaluated_by_the_reference(workers: Workers) -> None:
    """onnxruntime 1.31.1 has no Atan of bfloat16."""
    text = (
        '<ir_version: 10, opset_import: ["" : 22]> g (bfloat16[2] x) => (bfloat16[2] y) { a = Identity(x) y ='
        " Atan(a) }"
    )
    asked = OnnxProgram(onnx.parser.parse_model(text).SerializeToString())
    one = {"x": np.array([0, 1], ml_dtypes.bfloat16)}
    assert workers.observe(resolve("onnxruntime:disable_all"), asked, one).outputs is None
    for target in ("onnx-inliner", "onnxruntime-transformers"):
        seen = workers.observe(resolve(target), asked, one)
        assert seen.outputs is not None, seen.message
        assert float(seen.outputs["y"][1]) == pytest.approx(np.pi / 4, rel=1e-2)
        assert any("does not take the original" in note for note in seen.notes)
