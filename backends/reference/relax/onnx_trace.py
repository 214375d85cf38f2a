"""A machine of ONNX operators: it computes each with the reference evaluator, and records it as a node.

What a Relax module did with its inputs is then a model without control flow, which every compiler of ONNX can
run, and which the reference evaluates again in float64.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opsieve.backends.reference.reference_ops import OPERATORS

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
        return self._record(name, value.copy())

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Compute the only output of an operator."""
        return self.outputs(operator, 1, *inputs, **attributes)[0]

    def outputs(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        """Compute the first outputs of an operator."""
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
        pending, seen = [self._name(value)], {""}
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            if self._values[name].dtype.kind in "fV":
                return True
            pending.extend(makers[name].input if name in makers else ())
        return False

    def build_model(self, outputs: Mapping[str, Any]) -> ModelProto:
        """The model that computes these outputs of the inputs."""
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
        """The name of a value; one that no operator computed becomes a constant of the model."""
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
    """The outputs of one node."""
    inputs = [_value_info(name, value) for name, value in feeds.items()]
    graph = helper.make_graph([node], "call", inputs, [ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return ReferenceEvaluator(model, new_ops=list(OPERATORS)).run(None, dict(feeds))
