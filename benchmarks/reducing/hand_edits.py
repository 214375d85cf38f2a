"""Hand edits of a small model, as a person makes them, that share no code with the reducer's dimensions."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opsieve.gen.model.structure import bodies
from opsieve.reducer.onnx_edit import onnx_subprocess

_CONVERTERS = ("Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Identity")
Values = dict[str, Any]
Edited = tuple[str, onnx.ModelProto, Values]


def edited(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Every hand edit of a model, those that cannot be made left out."""
    for make in (_unconverted, _frozen, _merged, _ranks, _sizes, _types, _attributes, _alone, _plain):
        with suppress(KeyError, ValueError, IndexError, TypeError):
            yield from make(model, inputs, held)


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())


def rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for body in bodies(node):
            rename(body, old, new)


def _tidied(model: onnx.ModelProto, inputs: Values) -> tuple[onnx.ModelProto, Values] | None:
    """Without nodes, initializers and inputs that nothing reads."""
    graph = model.graph
    while True:
        read = {name for node in graph.node for name in _reads(node)} | {info.name for info in graph.output}
        dead = [node for node in graph.node if not read.intersection(node.output)]
        if not dead:
            break
        for node in dead:
            graph.node.remove(node)
    made = {name for node in graph.node for name in node.output}
    for kind in (graph.initializer, graph.input):
        kept = [item for item in kind if item.name in read]  # type: ignore[attr-defined]
        del kind[:]
        kind.extend(kept)  # type: ignore[attr-defined]
    stored = {tensor.name for tensor in graph.initializer}
    outputs = [info for info in graph.output if info.name in made]
    if not outputs:
        return None
    del graph.output[:]
    graph.output.extend(outputs)
    del graph.value_info[:]
    return model, {info.name: inputs[info.name] for info in graph.input if info.name not in stored}


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for body in bodies(node):
        for inner in body.node:
            yield from _reads(inner)
        yield from (info.name for info in body.output)


def given(label: str, model: onnx.ModelProto, inputs: Values) -> Iterator[Edited]:
    tidy = _tidied(model, inputs)
    # onnx's checker asks for the rank of an output; where the branches of an If differ in it, inference tells
    # none. A tensor without elements is no plainer one: it hides what is computed, and reductions keep away
    # from it.
    if tidy is not None and not any(
        _has_no_rank(info.type) or _is_empty(info.type) for info in tidy[0].graph.output
    ):
        yield (label, *tidy)


def _has_no_rank(type_: onnx.TypeProto) -> bool:
    return type_.HasField("tensor_type") and not type_.tensor_type.HasField("shape")


def _is_empty(type_: onnx.TypeProto) -> bool:
    return any(dim.HasField("dim_value") and not dim.dim_value for dim in type_.tensor_type.shape.dim)


def _fed(
    model: onnx.ModelProto, inputs: Values, name: str, value: Any, new: str
) -> tuple[onnx.ModelProto, Values]:
    """A value that is an input from now on; every reader of `name` reads it."""
    changed = copy_of(model)
    array = np.asarray(value)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    changed.graph.input.append(helper.make_tensor_value_info(new, kind, array.shape))
    rename(changed.graph, name, new)
    return changed, {**inputs, new: array}


def open_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Outputs without a shape and with the type that inference gives them."""
    changed = copy_of(model)
    names = [info.name for info in changed.graph.output]
    del changed.graph.output[:]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    with suppress(Exception):
        typed = onnx_subprocess.inferred(changed, strict=False)
        for info, found in zip(changed.graph.output, typed.graph.output if typed else (), strict=True):
            info.CopyFrom(found)
    return changed


def _unconverted(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """A conversion dropped: what it gave is fed, or what it read goes on as it is, with the outputs' types
    inferred anew.
    """
    for node in model.graph.node:
        if node.op_type in _CONVERTERS and node.output[0] in held:
            yield from given(
                f"feed {node.op_type}", *_fed(model, inputs, node.output[0], held[node.output[0]], "fed")
            )
            changed = copy_of(model)
            changed.graph.node.remove(node)
            rename(changed.graph, node.output[0], node.input[0])
            for info in changed.graph.output:
                info.name = node.input[0] if info.name == node.output[0] else info.name
            yield from given(f"without {node.op_type}", open_outputs(changed), inputs)


def _frozen(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """A result, or an input, stored with its recorded value."""
    for name in [name for node in model.graph.node for name in node.output] + list(inputs):
        if isinstance(held.get(name), np.ndarray):
            changed = copy_of(model)
            changed.graph.initializer.append(numpy_helper.from_array(np.asarray(held[name]), "stored"))
            rename(changed.graph, name, "stored")
            yield from given(f"store {name}", changed, inputs)


def _merged(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Two inputs, or stored tensors, of one type are one."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    every = {**inputs, **stored}
    for one, other in itertools.permutations(every, 2):
        if np.shape(every[one]) == np.shape(every[other]) and every[one].dtype == every[other].dtype:
            changed = copy_of(model)
            rename(changed.graph, one, other)
            yield from given(f"{other} for {one}", changed, inputs)


def _reshaped(
    model: onnx.ModelProto, inputs: Values, label: str, change: Any, only: str = ""
) -> Iterator[Edited]:
    """Every input and float tensor (or `only` one) as `change` makes it of its array."""
    changed = copy_of(model)
    fed = {name: change(value) if only in ("", name) else value for name, value in inputs.items()}
    for info in changed.graph.input:
        if info.name in fed:
            array = np.asarray(fed[info.name])
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            info.CopyFrom(helper.make_tensor_value_info(info.name, kind, array.shape))
    for tensor in changed.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if only == tensor.name or (not only and array.dtype.kind == "f"):
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(array)), tensor.name))
    yield from given(label, open_outputs(changed), fed)


def _ranks(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """One dimension less: of everything, and of each by itself."""
    names = ["", *inputs, *(tensor.name for tensor in model.graph.initializer)]
    for only, last in itertools.product(names, (False, True)):
        with suppress(IndexError):
            place = -1 if last else 0
            yield from _reshaped(
                model,
                inputs,
                f"rank of {only or 'all'}",
                lambda array, at=place: np.take(array, 0, axis=at) if np.ndim(array) else array,
                only,
            )


def _sizes(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Every dimension of everything, or of one, cut to at most 1 or 2."""
    names = ["", *inputs, *(tensor.name for tensor in model.graph.initializer)]
    for only, most in itertools.product(names, (1, 2)):
        yield from _reshaped(
            model,
            inputs,
            f"size of {only or 'all'} {most}",
            lambda array, to=most: np.ascontiguousarray(array[tuple(slice(to) for _ in np.shape(array))]),
            only,
        )


def _types(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Another element type for every float, or for every integer."""
    for before, after in (
        ("float64", "float32"),
        ("float16", "float32"),
        ("float32", "float16"),
        ("int64", "int32"),
    ):
        yield from _reshaped(
            model,
            inputs,
            f"{after} for {before}",
            lambda array, a=before, b=after: array.astype(b) if array.dtype == a else array,
        )


def _attributes(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """All attributes of a node dropped, and every two of them."""
    for place, node in enumerate(model.graph.node):
        names = [item.name for item in node.attribute if item.type != onnx.AttributeProto.GRAPH]
        groups = [names, *([one, other] for one, other in itertools.combinations(names, 2))]
        for group in filter(None, groups):
            changed = copy_of(model)
            kept = [item for item in node.attribute if item.name not in group]
            del changed.graph.node[place].attribute[:]
            changed.graph.node[place].attribute.extend(kept)
            yield from given(f"{node.op_type} without {' '.join(group)}", open_outputs(changed), inputs)


def _alone(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Each operator by itself, with what it read, and without its last input."""
    for node, shorter in itertools.product(model.graph.node, (0, 1)):
        if len(model.graph.node) == 1 and not shorter:
            continue
        changed = copy_of(model)
        one = onnx.NodeProto.FromString(node.SerializeToString())
        one.input[:] = one.input[: len(one.input) - shorter]
        del changed.graph.node[:], changed.graph.output[:]
        changed.graph.node.append(one)
        changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in one.output if name)
        fed = dict(inputs)
        known = {info.name for info in changed.graph.input} | {
            item.name for item in changed.graph.initializer
        }
        for name in _reads(one):
            if name and name not in known:
                changed, fed = _fed(changed, fed, name, held[name], f"{name}_fed")
        yield from given(f"{node.op_type} alone", open_outputs(changed), fed)


def _plain(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Whatever stands in a model beside what it computes, left out; a newer form of it."""
    changed = copy_of(model)
    changed.producer_name = changed.producer_version = changed.doc_string = ""
    del changed.metadata_props[:]
    yield from given("bare", changed, inputs)
