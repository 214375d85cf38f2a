"""A machine of ONNX operators: it computes each with the reference evaluator, and records it as a node.

The computation of a Relax module on its inputs is then a model without control flow, which every compiler of
ONNX can run, and which the reference evaluates again in float64. `PortableTrace` writes only operators that
onnxruntime has kernels for on a CPU.
"""

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opsieve.backends.reference.forbidden import Forbidden, forbidden
from opsieve.backends.reference.reference_ops import OPERATORS
from opsieve.gen.irs.relax.spellings.spelling import Onnx, cast_to, to_constant
from opsieve.gen.irs.view import list_reachable

OPSET, IR_VERSION = 21, 10


class OnnxTrace:
    """The nodes of one run.

    Attributes:
        label: The operator of Relax that the next nodes spell.
    """

    def __init__(self) -> None:
        self.label = ""
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._constants: dict[str, Any] = {}
        # Arrays are known by their identity. They are held so that no identity is used twice.
        self._values: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def add_input(self, name: str, value: Any) -> Any:
        """Record an input of the model, and return its value."""
        self._inputs.append(_value_info(name, value))
        # A copy: two inputs may be one array, and names go by identity.
        return self._record(name, value.copy())

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Compute the only output of an operator."""
        return self.outputs(operator, 1, *inputs, **attributes)[0]

    def outputs(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        """Compute the first outputs of an operator."""
        if broken := forbidden(operator, SimpleNamespace(**attributes), inputs):
            raise Forbidden(broken)
        number = len(self._nodes)
        names = [f"v{number}_{place}" for place in range(count)]
        node = helper.make_node(
            operator, list(map(self._name, inputs)), names, name=f"{self.label}_{number}",
            **{name: value for name, value in attributes.items() if value is not None},
        )  # fmt: skip
        feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
        self._nodes.append(node)
        return tuple(
            self._record(name, np.array(value))
            for name, value in zip(names, _compute(node, feeds), strict=True)
        )

    def rests_on_floats(self, value: Any) -> bool:
        """Return whether a value depends on a float, so that rounding may decide it."""
        makers = {output: node for node in self._nodes for output in node.output}
        names = list_reachable([self._name(value)], lambda name: makers[name].input if name in makers else ())
        # "" is the name of an absent input.
        return any(self._values[name].dtype.kind in "fV" for name in names if name)

    def build_model(self, outputs: Mapping[str, Any]) -> ModelProto:
        """Return the model that computes these outputs of the inputs."""
        results = [
            helper.make_node("Identity", [self._name(value)], [name]) for name, value in outputs.items()
        ]
        graph = helper.make_graph(
            [*self._nodes, *results], "trace", self._inputs,
            [_value_info(name, value) for name, value in outputs.items()],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _name(self, value: Any) -> str:
        """Return the name of a value; one that no operator computed becomes a constant of the model."""
        if value is None:
            return ""
        if id(value) not in self._names:
            name = f"c{len(self._constants)}"
            self._constants[name] = self._record(name, value)
        return self._names[id(value)]

    def _record(self, name: str, value: Any) -> Any:
        """Bind a name to an array, and return the array."""
        self._values[name] = value
        self._names[id(value)] = name
        return value


def _value_info(name: str, value: Any) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _compute(node: NodeProto, feeds: Mapping[str, Any]) -> Any:
    """Return the outputs of one node."""
    inputs = [_value_info(name, value) for name, value in feeds.items()]
    graph = helper.make_graph([node], "call", inputs, [ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return ReferenceEvaluator(model, new_ops=list(OPERATORS)).run(None, dict(feeds))


# A trace of the operators that onnxruntime has kernels for on a CPU: others are written with those.


# The integers and booleans that an operator lacks -> those that it has and that hold them.
_WIDER: Mapping[str, Mapping[str, str]] = {
    "Max": {"int16": "int64", "uint16": "int64"},
    "Min": {"int16": "int64", "uint16": "int64"},
    "Trilu": {"int8": "int64", "int16": "int64", "uint8": "int64", "uint16": "int64"},
    "Where": dict.fromkeys(("int8", "int16", "uint16", "uint32", "uint64"), "int64") | {"bool": "uint8"},
    "BitShift": {"uint16": "uint64"},
}


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
    # 1e-300 for 0: an infinite quotient would become NaN in the remainder of the angle.
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
    "Sinh": lambda onnx, x: onnx(
        "Mul", onnx("Sub", onnx("Exp", x), onnx("Exp", onnx("Neg", x))), to_constant(x, 0.5)
    ),
    "Cosh": lambda onnx, x: onnx(
        "Mul", onnx("Add", onnx("Exp", x), onnx("Exp", onnx("Neg", x))), to_constant(x, 0.5)
    ),
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
        # Exact both ways, since the wider type holds every value.
        same = (cast_to(self, each, wider) if each.dtype.name == dtype else each for each in data)
        [value] = super().outputs(operator, 1, *inputs[: len(inputs) - len(data)], *same, **attributes)
        return (cast_to(self, value, dtype),)
