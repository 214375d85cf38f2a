"""Extraction, prefixes and shape inference as targets: what they keep, and what they declare that is not
so.
"""

import numpy as np
import onnx.parser
import pytest
from loaded_alone import loaded_alone
from models import X, chain

from opsieve.backends.compilers.transformers import shape_inference
from opsieve.backends.compilers.worker_common import BrokenModel
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers

NAMES = ("onnx-extractor", "onnx-compose", "onnx-shape-inference", "onnxruntime-symbolic-shapes")


@pytest.mark.parametrize(
    "target", [*NAMES, "onnx-compose:edges", "onnx-shape-inference:on", "onnxruntime-symbolic-shapes:on"]
)
def test_every_configuration_computes(workers: Workers, target: str) -> None:
    seen = workers.observe(resolve(target), chain("Relu", "Identity", "Tanh"), X)
    assert seen.outputs is not None, seen.message
    assert list(seen.outputs) == ["y"]
    np.testing.assert_allclose(seen.outputs["y"], np.tanh(np.maximum(X["x"], 0)), rtol=1e-6)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("float[2, 3]", ""),
        ("float[?, N]", ""),
        ("int64[2, 3]", "is declared int64 and is float32"),
        ("float[2, 4]", r"declared with the shape \[2, 4\] and has \[2, 3\]"),
        ("float[2]", r"declared with the shape \[2\] and has \[2, 3\]"),
        ("float[N, N]", r"declared with the shape \['N', 'N'\] and has \[2, 3\]"),
    ],
)
def test_a_declaration_is_held_against_the_value(declared: str, said: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3] x) => ({declared} y) {{ y = Relu(x) }}'
    model, values = onnx.parser.parse_model(text), {"y": np.zeros((2, 3), np.float32)}
    if not said:
        shape_inference.examine(model, values)
        return
    with pytest.raises(BrokenModel, match=said):
        shape_inference.examine(model, values)


def test_the_files_load_alone() -> None:
    folder = "opsieve.backends.compilers.transformers"
    missing = ["onnx", "onnxruntime"]
    shown = loaded_alone(
        f"{folder}.onnx_utilities", missing, "(module.EXTRACTOR.name, module.COMPOSE.package)"
    )
    assert shown == "('onnx-extractor', 'onnx')\n"
    shown = loaded_alone(
        f"{folder}.shape_inference", missing, "(module.ONNX.package, module.SYMBOLIC.package)"
    )
    assert shown == "('onnx', 'onnxruntime')\n"


def test_they_have_no_unoptimised_build() -> None:
    assert all(resolve(name).baseline is None for name in NAMES)
