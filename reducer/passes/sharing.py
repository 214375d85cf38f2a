"""Share inputs and stored tensors: readers of one read another one instead, so that the first can go.

An edit of its own drops a node and gives every reader a tensor of its own again, since a failure may need two
tensors of which another node held one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import onnx

from opsieve.gen.irs.onnx.edits import drop_unused, put_array, reread
from opsieve.gen.irs.onnx.view import Array, Graph, Subject
from opsieve.gen.irs.view import Operation
from opsieve.gen.model.structure import copied
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.edits import EDITS
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import changing, only_simpler
from opsieve.reducer.problem.order import OnnxEdit

# The most inputs and stored tensors of a model that are shared; a model with more is not small yet.
_MOST = 32
# The most of them, and the most nodes, for which tensors of other types and values are tried too.
_FEW = 6
# The number of tensors of one type that are tried in the place of each.
_OTHERS = 2


def share_tensors(subject: Subject) -> Iterator[OnnxEdit]:
    """Read one input or stored tensor for another, the last ones first: others of its type, then of another,
    then others that take its value.
    """
    graph = Graph(subject)
    if 1 < len(graph.nodes) <= _FEW:
        for operation in EDITS.view(subject).operations():
            change = partial(_drop_unshared, operation=operation)
            what = f"drop {operation.label} and share nothing"
            yield OnnxEdit(what, operation.touches, change, frozenset())
    values = {name: graph.value(name) for name in dict.fromkeys((*graph.inputs, *graph.initializers))}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    if len(arrays) > _MOST:
        return
    few = len(arrays) <= _FEW
    for name, array in reversed(arrays.items()):
        if name in graph.outputs:
            continue
        others = {other: value for other, value in arrays.items() if other != name}
        alike = [other for other, value in others.items() if _type(value) == _type(array)]
        unlike = [other for other in others if other not in alike] if few else []
        for other in (*alike[:_OTHERS], *unlike[:_OTHERS]):
            yield _edit(name, other, {}, "")
        for other in (*alike[:_OTHERS], *unlike[:_OTHERS]) if few else ():
            if _type(others[other]) != _type(array) or others[other].tobytes() != array.tobytes():
                yield _edit(name, other, {other: array}, ", with the value of the latter")
            if array.dtype != others[other].dtype and {array.dtype.kind, others[other].dtype.kind} <= set(
                "iuf"
            ):
                for old, new in ((array.dtype, others[other].dtype), (others[other].dtype, array.dtype)):
                    turned = {each: value.astype(new) for each, value in arrays.items() if value.dtype == old}
                    turned.pop(name, None)
                    yield _edit(name, other, turned, f", {old} as {new} everywhere")


def _drop_unshared(subject: Subject, operation: Operation) -> Subject | None:
    """Drop a node and give each place that reads a tensor one of its own; None where none is read twice."""
    left = EDITS.remove(subject, operation)
    if left is None:
        return None
    model, inputs, turns = copied(left.model), dict(left.inputs), Counter[str]()
    declared = {info.name: info for info in model.graph.input}
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name not in declared and name not in stored:
                continue
            turns[name] += 1
            if turns[name] > 1:
                node.input[place] = own = f"{name}_{turns[name]}"
                if name in inputs:
                    model.graph.input.add(name=own, type=declared[name].type)
                    inputs[own] = inputs[name]
                else:
                    model.graph.initializer.add().CopyFrom(stored[name])
                    model.graph.initializer[-1].name = own
    return None if turns.total() == len(turns) else settle(left, model, inputs)


def _type(array: Array) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    return array.dtype, array.shape


def _edit(name: str, other: str, values: Mapping[str, Array], how: str) -> OnnxEdit:
    """Make an edit after which every reader of `name` reads `other`, with new values for some of the
    remaining tensors.
    """

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        stored = {tensor.name for tensor in model.graph.initializer}
        if any(each not in inputs and each not in stored for each in (name, other, *values)):
            return None
        reread(model.graph.node, {name: other})
        for each, value in values.items():
            put_array(model, inputs, (), each, value)
        return drop_unused(model, inputs)

    return only_simpler(
        changing(f"read {other[:40]!r} for {name[:40]!r}{how}", {name, other, *values}, change, {name})
    )


PASS = ListedPass("sharing", share_tensors)
