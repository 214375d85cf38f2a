"""Make a subject of a changed model: infer its types, and keep every declaration that still holds."""

from collections.abc import Mapping

import numpy as np
import onnx

from opsieve.gen.analysis.validity import check_model
from opsieve.gen.declarations.tensor import Typed
from opsieve.gen.irs.onnx.view import Path, Subject, graphs
from opsieve.gen.model import structure, tensors
from opsieve.reducer.onnx_edit.inference import (
    INFERRED,
    agrees,
    infer,
    infer_by_elements,
    infer_types,
    types_of,
    with_states,
    without_types,
)

Types = Mapping[str, onnx.TypeProto]


def settle(
    subject: Subject,
    model: onnx.ModelProto,
    inputs: dict[str, tensors.Value] | None = None,
    anew: bool = False,
    every: bool = True,
) -> Subject | None:
    """Make a subject of a changed model; returns `None` if inference refuses it.

    Declarations stay as they are unless inference contradicts them. Where the change gave some value another
    type, a declaration that inference cannot confirm may be false: it loses its sizes.

    Args:
        subject: What the model was before the change.
        model: A changed copy that is the caller's own; it is taken over.
        inputs: The values of its inputs, those of `subject` by default.
        anew: Whether types are declared anew, as if the change gave some value another type.
        every: Whether `anew` declares those too that inference confirms, such as open sizes of an output.
    """
    inputs, every = subject.inputs if inputs is None else inputs, anew and every
    static = without_types(model, inputs)
    # The declarations of operators are checked first, since inference takes longer.
    ruled = check_model(static, {})
    if ruled.fault and not check_model(subject.model, subject.inputs).fault:
        return None
    inferred = infer(static, strict=True) or infer_by_elements(model, inputs)
    if inferred is None:
        return None
    types = types_of(inferred.graph)
    # An edit that empties a tensor often keeps a failure for another reason, and results without elements
    # compare equal.
    if _has_empty(types) and not _is_empty(subject):
        return None
    untold = any(name and name not in ruled.types for node in static.graph.node for name in node.output)
    if untold and _faulty(subject, static, types):
        return None
    # Types of the subject are cached, so that only those of the changed model cost an inference.
    before = {} if anew else _by_graph(infer_types(subject))
    known = with_states(model, inputs, inferred, anew)
    after = _by_graph(known)
    # A value that was there before has another type now.
    if not anew and any(
        after.get(path, {}).get(name, type_) != type_
        for path, types in before.items()
        for name, type_ in types.items()
    ):
        anew, known = True, with_states(model, inputs, inferred, True)
        after = _by_graph(known)
    main = after[()]
    kept = {
        name: value for name, value in subject.values.items() if name in main and _fits(value, main[name])
    }
    declared = after
    # The types above hold for the fed sizes. A model with open inputs declares what holds for every size.
    if any(
        info.type.HasField("tensor_type") and not structure.is_static(info.type) for info in model.graph.input
    ):
        open_ = infer(without_types(model, {}), strict=True)
        if open_ is None:
            return None
        declared = _by_graph(with_states(model, {}, open_, anew))
        shaped = {name: type_ for name, type_ in declared[()].items() if structure.is_shaped(type_)}
        declared[()] = {name: open_sizes(type_) for name, type_ in main.items()} | shaped
    for path, graph in graphs(model.graph):
        # The values whose types are known: those that are the same as before, and those that have all sizes.
        old, new = before.get(path, {}), after.get(path, {})
        sure = {
            name: type_
            for name, type_ in new.items()
            if structure.is_shaped(type_)
            and (old.get(name) == type_ or (structure.is_static(type_) and not every))
        }
        _declare(graph, declared.get(path, {}), sure if anew else None, main=not path)
    settled = Subject(model, inputs, kept, redeclared=anew)
    # The next edit of this subject needs the same types.
    INFERRED[settled] = known
    return settled


def _by_graph(model: onnx.ModelProto) -> dict[Path, Types]:
    return {path: types_of(graph) for path, graph in graphs(model.graph)}


def _declare(graph: onnx.GraphProto, types: Types, sure: Types | None, main: bool) -> None:
    """Replace declarations of outputs, of a body's inputs and of intermediate values by inferred types.

    Declarations that inference does not contradict stay; where `sure` types are given, those only that they
    confirm. Only outputs of the main graph must have a rank.
    """

    def holds(info: onnx.ValueInfoProto) -> bool:
        return (
            not structure.is_untyped(info.type)
            and agrees(info.type, types.get(info.name))
            and (sure is None or (info.name in sure and agrees(info.type, sure[info.name])))
        )

    for info in graph.output if main else (*graph.input, *graph.output):
        found = types.get(info.name)
        if holds(info):
            continue
        if found is not None and (
            structure.is_shaped(found) or not structure.is_shaped(info.type)
            if main
            else not structure.is_untyped(info.type)
        ):
            info.type.CopyFrom(found)
        elif info.type.HasField("tensor_type"):
            info.type.CopyFrom(open_sizes(info.type))
            # An element type without sizes is still worth declaring.
            if found is not None and found.tensor_type.elem_type:
                info.type.tensor_type.elem_type = found.tensor_type.elem_type
    made = {name for node in graph.node for name in node.output}
    # From the back, since a deletion moves everything behind it.
    for index in reversed(range(len(graph.value_info))):
        info = graph.value_info[index]
        if info.name in made and holds(info):
            continue
        if info.name in made and info.name in types:
            info.type.CopyFrom(types[info.name])
        else:
            del graph.value_info[index]


def _faulty(subject: Subject, model: onnx.ModelProto, declared: Types) -> bool:
    """Return whether a node of a changed model is invalid by its declaration, where the subject itself is
    sound in these respects.
    """
    typed = {
        name: found for name, type_ in declared.items() if (found := _read_static_type(type_)) is not None
    }
    return bool(check_model(model, {}, typed).fault) and not check_model(subject.model, subject.inputs).fault


def _read_static_type(type_: onnx.TypeProto) -> Typed | None:
    if (
        not type_.HasField("tensor_type")
        or not structure.is_static(type_)
        or type_.tensor_type.elem_type not in tensors.DTYPES
    ):
        return None
    tensor = type_.tensor_type
    return tensors.DTYPES[tensor.elem_type], tuple(dim.dim_value for dim in tensor.shape.dim)


def _has_empty(types: Types) -> bool:
    return any(
        dim.HasField("dim_value") and dim.dim_value == 0
        for type_ in types.values()
        if type_.HasField("tensor_type")
        for dim in type_.tensor_type.shape.dim
    )


def _is_empty(subject: Subject) -> bool:
    """Return whether the subject already has tensors without elements; otherwise they only hide the
    failure.
    """
    graph = subject.model.graph
    arrays = [*subject.inputs.values(), *subject.values.values()]
    return (
        any(isinstance(array, np.ndarray) and array.size == 0 for array in arrays)
        or any(0 in tensor.dims for tensor in graph.initializer)
        or _has_empty({info.name: info.type for info in (*graph.output, *graph.value_info)})
    )


def open_sizes(type_: onnx.TypeProto) -> onnx.TypeProto:
    """Return a tensor type of the same rank with unknown sizes."""
    bare = structure.copied(type_)
    for dim in bare.tensor_type.shape.dim if bare.HasField("tensor_type") else ():
        dim.Clear()
    return bare


def _fits(value: tensors.Value, type_: onnx.TypeProto) -> bool:
    # Sequences and optionals have no sizes to compare.
    if not isinstance(value, np.ndarray) or not type_.HasField("tensor_type"):
        return True
    tensor = type_.tensor_type
    if tensor.elem_type != tensors.NUMBERS.get(tensors.dtype_name(value)):
        return False
    return not tensor.HasField("shape") or [dim.dim_value for dim in tensor.shape.dim] == list(value.shape)
