"""Small models for tests, written in onnx's own text syntax."""

from typing import Any

import numpy as np
import onnx.parser

from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program


def program(text: str, opset: int = 18, ir: int = 8) -> Program:
    """The model of one graph in onnx.parser's syntax, for example `g (float[2] x) => (float[2] y) { y =
    Relu(x) }`.
    """
    model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]>\n{text}')
    return OnnxProgram(model.SerializeToString())


def chain(*operators: str) -> Program:
    """Unary operators one behind the other over `float[2, 3] x`; the result is `y`."""
    names = ["x", *(f"t{number}" for number in range(1, len(operators))), "y"]
    lines = [f"{names[i + 1]} = {operator}({names[i]})" for i, operator in enumerate(operators)]
    return program(f"g (float[2, 3] x) => (float[2, 3] y) {{ {'; '.join(lines)} }}".replace("; ", "\n"))


X: dict[str, Any] = {"x": np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)}
