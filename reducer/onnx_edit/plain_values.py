"""Plain values for tensors that no compiler at hand can compute: the results of a user's operator, and what
depends on them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from onnx import helper

from opsieve.gen.analysis.validity import check_node, leaves
from opsieve.gen.declarations.tensor import Typed
from opsieve.gen.irs.onnx.view import Array, Graph, Subject, opset_of
from opsieve.gen.model.tensors import DTYPES, NUMBERS, TensorType, Value, read_type
from opsieve.reducer.onnx_edit.typed_view import view

# The largest value, in elements: a larger one would make the model larger than what it replaces.
_MOST = 1 << 20


def plain_tensor(dtype: int, shape: tuple[int, ...]) -> Array:
    """Small whole numbers from -1 to 3; `dtype` is ONNX's number."""
    flat = (np.arange(int(np.prod(shape, dtype=np.int64))) % 5) - 1
    if DTYPES.get(dtype) == "string":
        return flat.astype(str).astype(object).reshape(shape)
    return flat.astype(helper.tensor_dtype_to_np_dtype(dtype)).reshape(shape)


def plain_values(subject: Subject) -> Callable[[str], Value | None]:
    """Make a function that returns a plain value for a tensor that a node of the main graph computes; `None`
    if its type is unknown.

    Types come from ONNX's inference, otherwise from the declaration of the operator, otherwise from the
    model's own declarations. If all three are silent, the result is assumed to have the type of the
    operator's first input: the test decides whether that holds.
    """
    types = _types(subject)

    def make(name: str) -> Value | None:
        dtype, shape = types.get(name, ("", ()))
        small = dtype and 0 <= np.prod(shape, dtype=np.float64) <= _MOST
        return plain_tensor(NUMBERS[dtype], shape) if small else None

    return make


def _types(subject: Subject) -> Mapping[str, Typed]:
    model, graph = subject.model, Graph(subject)
    opset = opset_of(model)
    declared_types: dict[str, Typed] = {}
    for name, type_ in graph.declared.items():
        declared = read_type(type_)
        if (
            isinstance(declared, TensorType)
            and declared.shape is not None
            and all(type(n) is int for n in declared.shape)
        ):
            declared_types[name] = declared.dtype, tuple(n for n in declared.shape if isinstance(n, int))
    inferred = {
        tensor.name: (DTYPES[tensor.dtype], tensor.shape)
        for tensor in view(replace(subject, values={})).tensors
        if not tensor.path and tensor.shape is not None and tensor.dtype in DTYPES
    }
    scope, found = leaves(model.graph, subject.inputs), {}
    for node in graph.nodes:
        check = check_node(node, [scope.get(name) for name in node.input], opset)
        first = next((scope[name][:2] for name in node.input if name in scope), None)
        for place, name in enumerate(node.output):
            ruled = check.types[place] if place < len(check.types) else None
            typed = inferred.get(name) or ruled or declared_types.get(name) or first
            if name and typed is not None:
                found[name], scope[name] = typed, (*typed, None)
    return found
