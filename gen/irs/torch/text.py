"""A PyTorch program as readable Python: the function `program`, for people and for exported scripts."""

import base64
import math
from collections.abc import Iterator

import numpy as np

from opsieve.gen.irs.torch.graph import Argument, Branch, Ref, TorchCall, TorchGraph, Word
from opsieve.gen.irs.view import Array

# Elements of a constant that are written one by one
_FEW = 64


def program_text(graph: TorchGraph) -> str:
    """Return the source of `program`; what it makes is what the graph makes."""
    # Outside of the function: torch.compile then takes them as inputs, as it takes parameters of a module.
    held = [f"{name} = {_tensor_text(array)}" for name, array in graph.constants.items()]
    lines = [*held, *[""] * bool(held), "", *_function_lines("program", graph)]
    head = ["import torch", ""]
    if graph.strides:
        head += [f"# Strides of inputs that are not contiguous\nSTRIDES = {dict(graph.strides)}", ""]
    if any("base64" in line for line in lines):
        head.insert(0, "import base64")
    return "\n".join([*head, *lines]) + "\n"


def _function_lines(name: str, graph: TorchGraph) -> Iterator[str]:
    yield f"def {name}({', '.join(graph.inputs)}):"
    yield from (f"    {line}" for call in graph.calls for line in _call_lines(call))
    ends = "".join(f"{name}, " for name in graph.outputs)
    yield f"    return ({ends.rstrip() if len(graph.outputs) < 2 else ends.rstrip(', ')})"


def _call_lines(call: TorchCall) -> Iterator[str]:
    branches = [leaf for leaf in call.leaves() if isinstance(leaf, Branch)]
    for place, branch in enumerate(branches):
        yield from _function_lines(f"{call.key}_branch_{place}", branch.graph)

    def name_branch(item: Argument) -> Argument:
        return Ref(f"{call.key}_branch_{branches.index(item)}") if isinstance(item, Branch) else item

    given = [_argument_text(item) for item in call.change(name_branch).args]
    given += [f"{name}={_argument_text(item)}" for name, item in call.kwargs]
    source = f"torch.ops.{call.operator}({', '.join(given)})"
    if not call.key:
        yield source
    elif not call.many:
        yield f"{call.key} = {source}"
    elif len(call.results) == 1:
        yield f"({call.key},) = {source}"
    else:
        yield f"{', '.join(name or '_' for name in call.results)} = {source}"


def _argument_text(item: Argument) -> str:
    if isinstance(item, tuple):
        return f"[{', '.join(map(_argument_text, item))}]"
    if isinstance(item, Ref):
        return item.name
    if isinstance(item, Word):
        return ascii(item.text) if item.kind == "device" else f"torch.{item.text}"
    if isinstance(item, float) and not math.isfinite(item):
        return f'float("{item}")'
    return ascii(item)


def _tensor_text(array: Array) -> str:
    dtype, shape = f"torch.{array.dtype.name}", list(array.shape)
    kind = array.dtype.kind
    # As bytes, since 0 equals -0 and NaN does not equal itself.
    if array.size and kind in "biuf" and array.tobytes() == array.ravel()[:1].tobytes() * array.size:
        return f"torch.full({shape}, {_argument_text(array.ravel()[0].item())}, dtype={dtype})"
    if array.size and array.size <= _FEW and kind in "biuf" and np.isfinite(array).all():
        return f"torch.tensor({array.tolist()}, dtype={dtype})"
    if not array.size:
        return f"torch.empty({shape}, dtype={dtype})"
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return f'torch.frombuffer(bytearray(base64.b64decode("{data}")), dtype={dtype}).reshape({shape})'
