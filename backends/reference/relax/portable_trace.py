"""A trace of the operators that onnxruntime has kernels for on a CPU: others are written with those.

Seen with onnxruntime 1.31: it has no trigonometric functions of float64, and few operators of narrow
integers.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from opsieve.backends.reference.relax.onnx_trace import OnnxTrace
from opsieve.gen.irs.relax.spellings.spelling import Onnx, cast_to, to_constant

# The integers and booleans that an operator lacks -> those that it has and that hold them.
_WIDER: Mapping[str, Mapping[str, str]] = {
    "Max": {"int16": "int64", "uint16": "int64"},
    "Min": {"int16": "int64", "uint16": "int64"},
    "Trilu": {"int8": "int64", "int16": "int64", "uint8": "int64", "uint16": "int64"},
    "Where": dict.fromkeys(("int8", "int16", "uint16", "uint32", "uint64"), "int64") | {"bool": "uint8"},
    "BitShift": {"uint16": "uint64"},
}


def _sinh(onnx: Onnx, x: Any) -> Any:
    return onnx("Mul", onnx("Sub", onnx("Exp", x), onnx("Exp", onnx("Neg", x))), to_constant(x, 0.5))


def _cosh(onnx: Onnx, x: Any) -> Any:
    return onnx("Mul", onnx("Add", onnx("Exp", x), onnx("Exp", onnx("Neg", x))), to_constant(x, 0.5))


def _tan(onnx: Onnx, x: Any) -> Any:
    return onnx("Div", onnx("Sin", x), onnx("Cos", x))


def _atan(onnx: Onnx, x: Any) -> Any:
    """Compute the angle in float32, and add the remainder, which is so small that it equals its tangent."""
    rough = cast_to(onnx, onnx("Atan", cast_to(onnx, x, "float32")), "float64")
    tangent = _tan(onnx, rough)
    rest = onnx("Div", onnx("Sub", x, tangent), onnx("Add", onnx("Mul", x, tangent), to_constant(x, 1)))
    return onnx("Add", rough, rest)


def _asin(onnx: Onnx, x: Any) -> Any:
    side = onnx("Mul", onnx("Sub", to_constant(x, 1), x), onnx("Add", to_constant(x, 1), x))
    return _atan(onnx, onnx("Div", x, onnx("Sqrt", onnx("Max", side, to_constant(x, 1e-300)))))


def _atanh(onnx: Onnx, x: Any) -> Any:
    share = onnx("Div", onnx("Add", to_constant(x, 1), x), onnx("Sub", to_constant(x, 1), x))
    return onnx("Mul", onnx("Log", share), to_constant(x, 0.5))


def _asinh(onnx: Onnx, x: Any) -> Any:
    size = onnx("Abs", x)
    root = onnx("Sqrt", onnx("Add", onnx("Mul", x, x), to_constant(x, 1)))
    return onnx("Mul", onnx("Sign", x), onnx("Log", onnx("Add", size, root)))


def _acosh(onnx: Onnx, x: Any) -> Any:
    root = onnx("Sqrt", onnx("Sub", onnx("Mul", x, x), to_constant(x, 1)))
    return onnx("Log", onnx("Add", x, root))


_OF_FLOAT64: Mapping[str, Callable[[Onnx, Any], Any]] = {
    "Sinh": _sinh,
    "Cosh": _cosh,
    "Tan": _tan,
    "Atan": _atan,
    "Asin": _asin,
    "Acos": lambda onnx, x: onnx("Sub", to_constant(x, math.pi / 2), _asin(onnx, x)),
    "Atanh": _atanh,
    "Asinh": _asinh,
    "Acosh": _acosh,
    "Softplus": lambda onnx, x: onnx("Log", onnx("Add", onnx("Exp", x), to_constant(x, 1))),
}


class PortableTrace(OnnxTrace):
    """Records the operators that onnxruntime has."""

    def outputs(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        """Compute the outputs, by way of other operators or of a wider type where the operator is missing."""
        data = inputs[1:] if operator == "Where" else inputs
        dtype = data[0].dtype.name
        if dtype == "float64" and operator in _OF_FLOAT64:
            return (_OF_FLOAT64[operator](self, data[0]),)
        wider = _WIDER.get(operator, {}).get(dtype)
        if wider is None:
            return super().outputs(operator, count, *inputs, **attributes)
        same = (cast_to(self, each, wider) if each.dtype.name == dtype else each for each in data)
        [value] = super().outputs(operator, 1, *inputs[: len(inputs) - len(data)], *same, **attributes)
        return (cast_to(self, value, dtype),)
