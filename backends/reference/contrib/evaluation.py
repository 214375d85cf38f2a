"""How operators of other domains than ONNX's own become classes of onnx's evaluator: each is a function over
arrays.

A function is given the inputs by place (None for one that is left out) and the attributes by name, and gives
one result or a tuple of them. Floats of less than 32 bits are computed in float32 and rounded at the end, as
onnxruntime's kernels on the CPU do; results that are floats have the type of the first input that is one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun, RuntimeImplementationError

from opsieve.backends.reference.reference_ops import OPERATORS

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

_SHORT = frozenset(["float16", "bfloat16"])
_FLOATS = frozenset([*_SHORT, "float32", "float64"])


def standard(operator: str, *inputs: Array | None, **attributes: Any) -> Any:
    """Return the first result of an operator of ONNX's own, by its newest version."""
    names = [f"x{place}" if value is not None else "" for place, value in enumerate(inputs)]
    given = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(operator, names, ["y"], **given)
    evaluator = ReferenceEvaluator(node, new_ops=list(OPERATORS))
    fed: dict[str, Any] = {name: value for name, value in zip(names, inputs, strict=True) if name}
    return next(iter(evaluator.run(None, fed)))


def not_computed(why: str) -> RuntimeImplementationError:
    """Make the exception for cases that a page leaves open or that are not implemented: the verdict is
    `unsupported`, never a guess.
    """
    return RuntimeImplementationError(why)


def classes(domain: str, functions: Mapping[str, Function]) -> tuple[type[OpRun], ...]:
    """Return the classes that evaluate the operators of a domain."""
    return tuple(_class(domain, name, function) for name, function in functions.items())


def _class(domain: str, name: str, function: Function) -> type[OpRun]:
    def run(self: OpRun, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        floats = [value.dtype for value in inputs if value is not None and value.dtype.name in _FLOATS]
        fed = [
            value.astype(np.float32) if value is not None and value.dtype.name in _SHORT else value
            for value in inputs
        ]
        # An attribute that was left out comes as None: the function's own default holds.
        made = function(*fed, **{key: value for key, value in attributes.items() if value is not None})
        results = made if isinstance(made, tuple) else (made,)
        own = floats[0] if floats else None
        return tuple(_cast_value(value, own) for value in results[: len(self.output)])

    # `op_schema` keeps the evaluator from taking the page of ONNX's operator of the same name.
    held = {"op_domain": domain, "op_schema": None, "_run": run, "__doc__": function.__doc__}
    return type(name, (OpRun,), held)


def _cast_value(value: Any, dtype: Any) -> Any:
    # The evaluator takes no output that is None.
    array = np.asarray(np.zeros(0) if value is None else value)
    return array.astype(dtype) if dtype is not None and array.dtype.name in _FLOATS else array
