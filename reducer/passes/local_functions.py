"""Inside of a local function that must stay: its body is a model of its own, reduced by the dimensions that
reduce any other.

The inner model has the types and values of a call in the main graph. What an edit does to it is carried back:
an input that goes leaves the function and its calls, a value that was made an input becomes a constant of the
function.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import helper

from opsieve.gen.irs.onnx.edits import SMALL, drop_unused, encode_array
from opsieve.gen.irs.onnx.view import Graph, Subject, declared_type, uses
from opsieve.gen.model.structure import all_nodes, copied
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit import onnx_subprocess
from opsieve.reducer.onnx_edit.settle import settle
from opsieve.reducer.onnx_edit.typed_view import changing
from opsieve.reducer.passes import attributes, bodies, initializers
from opsieve.reducer.passes.onnx import OUTPUTS
from opsieve.reducer.problem.order import OnnxEdit, OnnxPass

_INNER: tuple[OnnxPass, ...] = (bodies.PASS, OUTPUTS, attributes.PASS, initializers.PASS)
# The most functions of a model whose insides are reduced; a model with more is not small yet.
_MOST = 8
# Domain, name and overload: together they identify a function.
_Key = tuple[str, str, str]


def reduce_functions(subject: Subject) -> Iterator[OnnxEdit]:
    """Drop unread values, and reduce each function that the main graph calls."""
    functions = subject.model.functions
    for function in functions if len(functions) <= _MOST else ():
        key = _key(function)
        yield from _drop_parameters(function)
        if function.attribute or function.attribute_proto:
            place = {f"function:{key[0]}:{key[1]}"}
            what = f"fix the attributes of the function {key[1][:40]!r}"
            yield changing(what, place, partial(_fix_attributes, key), place)
        inner = _inside(subject, key)
        if inner is not None:
            yield from (_edit(key, edit) for dimension in _INNER for edit in dimension.edits(inner))


def _key(function: onnx.FunctionProto) -> _Key:
    return function.domain, function.name, function.overload


def _edit(key: _Key, edit: OnnxEdit) -> OnnxEdit:
    def apply(subject: Subject) -> Subject | None:
        inner = _inside(subject, key)
        changed = None if inner is None else edit.apply(inner)
        return None if changed is None else _outside(subject, key, changed)

    place = f"function:{key[0]}:{key[1]}"
    touches = frozenset(f"{place}/{touch}" for touch in edit.touches)
    parts = frozenset(f"{place}/{part}" for part in edit.simplifies)
    return OnnxEdit(f"{edit.label} in the function {key[1][:40]!r}", touches, apply, parts)


def _drop_parameters(function: onnx.FunctionProto) -> Iterator[OnnxEdit]:
    """Drop the inputs that a function does not read, and what its calls pass for them."""
    key, read = _key(function), uses(onnx.GraphProto(node=function.node)) | {*function.output}

    def change(model: onnx.ModelProto, inputs: dict[str, Value], name: str) -> dict[str, Value] | None:
        owner = next((each for each in model.functions if _key(each) == key), None)
        if owner is None or name not in owner.input or name in uses(onnx.GraphProto(node=owner.node)):
            return None
        place = list(owner.input).index(name)
        del owner.input[place]
        for call in _all_calls(model, key):
            del call.input[place : place + 1]
        return drop_unused(model, inputs)

    for name in (each for each in function.input if each not in read):
        touches = {f"function:{key[0]}:{key[1]}/{name}"}
        what = f"drop parameter {name[:40]!r} of the function {key[1][:40]!r}"
        yield changing(what, touches, partial(change, name=name))


def _fix_attributes(key: _Key, model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
    """Give the nodes of a function the attributes of its first call, in the place of its parameters."""
    owner = next((each for each in model.functions if _key(each) == key), None)
    calls = list(_all_calls(model, key))
    if owner is None or not calls:
        return None
    given = {each.name: each for each in (*owner.attribute_proto, *calls[0].attribute)}
    for node in all_nodes(owner.node):
        held = list(node.attribute)
        del node.attribute[:]
        for each in held:
            # An attribute that neither the call nor the function gives has its default.
            value = given.get(each.ref_attr_name) if each.ref_attr_name else each
            if value is not None:
                node.attribute.add().CopyFrom(value)
                node.attribute[-1].name = each.name
    del owner.attribute[:], owner.attribute_proto[:]
    for call in calls:
        del call.attribute[:]
    return inputs


def _all_calls(model: onnx.ModelProto, key: _Key) -> Iterator[onnx.NodeProto]:
    """Yield the calls of a function, in the main graph and in functions."""
    for nodes in (model.graph.node, *(each.node for each in model.functions)):
        yield from _calls(nodes, key)


def _calls(nodes: Sequence[onnx.NodeProto], key: _Key) -> list[onnx.NodeProto]:
    return [node for node in all_nodes(nodes) if (node.domain, node.op_type, node.overload) == key]


def _inside(subject: Subject, key: _Key) -> Subject | None:
    """Return the body of a function as its first call in the main graph sees it; `None` if it takes
    attributes, or a value is unknown.
    """
    model = subject.model
    function = next((each for each in model.functions if _key(each) == key), None)
    call = next(iter(_calls(model.graph.node, key)), None)
    # An attribute parameter has a value in each call only, so that the body alone is no model.
    if function is None or call is None or function.attribute or function.attribute_proto:
        return None
    value_of = Graph(subject).value
    given = dict(zip(function.input, map(value_of, call.input), strict=False))
    if len(given) < len(function.input) or not all(isinstance(value, np.ndarray) for value in given.values()):
        return None
    inner = onnx.ModelProto(ir_version=model.ir_version, opset_import=function.opset_import)
    inner.functions.extend(each for each in model.functions if _key(each) != key)
    inner.graph.name = "g"
    inner.graph.node.extend(function.node)
    for name, value in given.items():
        inner.graph.input.append(onnx.ValueInfoProto(name=name, type=declared_type(np.asarray(value))))
    inner.graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
    typed = onnx_subprocess.infer_types(inner, strict=False)
    if typed is None or any(info.type.WhichOneof("value") is None for info in typed.graph.output):
        return None
    del inner.graph.output[:]
    inner.graph.output.extend(typed.graph.output)
    return Subject(inner, given, {})


def _outside(subject: Subject, key: _Key, inner: Subject) -> Subject | None:
    """Return the subject with a function whose body was changed; `None` if a call reads a missing result, or
    a new value is large.
    """
    model = copied(subject.model)
    function = next(each for each in model.functions if _key(each) == key)
    graph = inner.model.graph
    outputs = [info.name for info in graph.output]
    fresh = {info.name for info in graph.input} - set(function.input)
    arrays = {name: value for name, value in inner.inputs.items() if name in fresh}
    if not all(isinstance(value, np.ndarray) and value.nbytes <= SMALL for value in arrays.values()):
        return None
    if not set(outputs) <= set(function.output):
        return None
    stored = [*graph.initializer, *(encode_array(np.asarray(value), name) for name, value in arrays.items())]
    # A FunctionProto has no initializers, so stored tensors become Constant nodes.
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in stored]
    taken = [
        place for place, name in enumerate(function.input) if any(info.name == name for info in graph.input)
    ]
    given = [place for place, name in enumerate(function.output) if name in outputs]
    if outputs != [function.output[place] for place in given]:
        return None
    for call in _all_calls(model, key):
        gone = [name for place, name in enumerate(call.output) if place not in given]
        if uses(model.graph).intersection(filter(None, gone)):
            return None
        call.input[:] = [call.input[place] for place in taken if place < len(call.input)]
        call.output[:] = [call.output[place] for place in given if place < len(call.output)]
    function.input[:] = [function.input[place] for place in taken]
    function.output[:] = outputs
    del function.node[:], function.value_info[:]
    function.node.extend([*constants, *graph.node])
    inputs = drop_unused(model, dict(subject.inputs))
    return settle(subject, model, inputs)


PASS = ListedPass("functions", reduce_functions)
