"""Every single simplification of an ONNX model, made without the reducer's code: one node less, half an axis,
zeros, no attribute, no text.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

Inputs = dict[str, np.ndarray]
Types = dict[str, onnx.TypeProto]
Candidate = tuple[str, onnx.ModelProto, Inputs]


def smaller_models(model: onnx.ModelProto, inputs: Inputs) -> Iterator[Candidate]:
    """Candidates with what was done; each passes ONNX's checker, strict inference, and runs. A tensor without
    elements hides failures, so an edit that makes one is left out, as the reducer does.
    """
    for what, made, fed in _candidates(model, inputs):
        read = {name for graph in _graphs(made.graph) for node in graph.node for name in node.input}
        read |= {info.name for graph in _graphs(made.graph) for info in graph.output}
        for field in (made.graph.input, made.graph.initializer):
            for place in reversed(range(len(field))):
                if field[place].name not in read:
                    del field[place]
        names = {info.name for info in made.graph.input} - {tensor.name for tensor in made.graph.initializer}
        del made.graph.value_info[:]
        try:
            onnx.checker.check_model(made, full_check=True)
            values = {name: value for name, value in fed.items() if name in names}
            results = ReferenceEvaluator(made).run(None, values)
            typed = shape_inference.infer_shapes(made, data_prop=True).graph
        except Exception:  # noqa: BLE001  whatever they raise, they refuse the model
            continue
        sizes = (dim for info in typed.value_info for dim in info.type.tensor_type.shape.dim)
        full = all(len(result) if isinstance(result, list) else np.size(result) for result in results)
        if (
            values.keys() == names
            and full
            and not any(dim.HasField("dim_value") and not dim.dim_value for dim in sizes)
        ):
            yield what, made, values


def _candidates(model: onnx.ModelProto, inputs: Inputs) -> Iterator[Candidate]:
    yield from _fewer_nodes(model, inputs)
    yield from _smaller_tensors(model, inputs)
    for at, graph in enumerate(_graphs(model.graph)):
        for place, node in enumerate(graph.node):
            for attribute in node.attribute:
                if attribute.type != onnx.AttributeProto.GRAPH:
                    made = _copy(model)
                    left = [each for each in node.attribute if each.name != attribute.name]
                    owner = list(_graphs(made.graph))[at].node[place]
                    del owner.attribute[:]
                    owner.attribute.extend(left)
                    yield f"no {attribute.name} of {node.op_type}", made, inputs
    for field, _ in model.ListFields():
        if field.name not in ("graph", "opset_import", "ir_version", "functions"):
            made = _copy(model)
            made.ClearField(field.name)
            yield f"no {field.name}", made, inputs
    for place in range(len(model.graph.output) if len(model.graph.output) > 1 else 0):
        made = _copy(model)
        del made.graph.output[place]
        yield f"without output {place}", made, inputs


def _fewer_nodes(model: onnx.ModelProto, inputs: Inputs) -> Iterator[Candidate]:
    inferred = shape_inference.infer_shapes(model)
    types = [
        {info.name: info.type for info in (*graph.value_info, *graph.output, *graph.input)}
        for graph in _graphs(inferred.graph)
    ]
    for at, graph in enumerate(_graphs(model.graph)):
        for place, node in enumerate(graph.node):
            gone = [name for name in node.output if name]
            before = [name for each in list(graph.node)[:place] for name in each.output if name]
            others = [info.name for info in graph.input] + [each.name for each in graph.initializer]
            for name in dict.fromkeys([*filter(None, node.input), *before, *others]):
                made = _copy(model)
                _take_out(list(_graphs(made.graph))[at], place, gone, name, types[at], is_main=not at)
                yield f"{name} for node {place} ({node.op_type})", made, inputs
            if all(_is_static(types[at].get(name)) for name in gone):
                made, fed = _copy(model), dict(inputs)
                inner = list(_graphs(made.graph))[at]
                for name in gone:
                    tensor = types[at][name].tensor_type
                    shape = [dim.dim_value for dim in tensor.shape.dim]
                    fed[name] = np.ones(shape).astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
                    made.graph.input.append(onnx.ValueInfoProto(name=name, type=types[at][name]))
                del inner.node[place]
                _drop_outputs(inner, gone, types[at], is_main=not at)
                yield f"inputs for node {place} ({node.op_type})", made, fed


def _take_out(
    graph: onnx.GraphProto, place: int, gone: list[str], name: str, types: Types, is_main: bool
) -> None:
    del graph.node[place]
    for inner in _graphs(graph):
        for node in inner.node:
            node.input[:] = [name if each in gone else each for each in node.input]
    if not _drop_outputs(graph, gone, types, is_main):
        for info in graph.output:
            if info.name in gone:
                info.name = name


def _drop_outputs(graph: onnx.GraphProto, gone: list[str], types: Types, is_main: bool) -> bool:
    """Drop the outputs that are gone, or show what nothing reads in their place; False where there is nothing
    to show.
    """
    left = [info for info in graph.output if info.name not in gone]
    last = (
        next((name for name in graph.node[-1].output if name in types), "") if is_main and graph.node else ""
    )
    if not left and last:
        left = [onnx.ValueInfoProto(name=last, type=types[last])]
    if not is_main or not left:
        return False
    kept = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in left]
    del graph.output[:]
    graph.output.extend(kept)
    return True


def _smaller_tensors(model: onnx.ModelProto, inputs: Inputs) -> Iterator[Candidate]:
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for name, array in {**inputs, **stored}.items():
        if not isinstance(array, np.ndarray) or not array.size:
            continue
        changes = [
            (f"half of axis {axis} of {name}", array.take(range(size // 2), axis))
            for axis, size in enumerate(array.shape)
            if size > 1
        ]
        changes += (
            [(f"zeros for {name}", np.zeros_like(array))]
            if array.dtype.kind in "biuf" and array.any()
            else []
        )
        for what, new in changes:
            made, fed = _copy(model), dict(inputs)
            if name in inputs:
                fed[name] = new
            for tensor in made.graph.initializer:
                if tensor.name == name:
                    tensor.CopyFrom(numpy_helper.from_array(new, name))
            for info in made.graph.input:
                if info.name == name:
                    info.type.CopyFrom(
                        onnx.helper.make_tensor_type_proto(info.type.tensor_type.elem_type, new.shape)
                    )
            for info in made.graph.output:
                for dim in info.type.tensor_type.shape.dim:
                    dim.Clear()
            yield what, made, fed


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def _is_static(type_: onnx.TypeProto | None) -> bool:
    if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") for dim in type_.tensor_type.shape.dim)
