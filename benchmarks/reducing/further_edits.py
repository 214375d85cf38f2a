"""Hand edits that no dimension of the reducer makes: a second set for `attacked.py`, written against results
rather than from the passes.

One value read for another of any type and shape, a node left out whatever its result's shape, tensors merged
under either value, axes flattened into one another, one axis taken from everything, lists and texts cut, an
operator replaced by a plainer one, bodies' results swapped, numbers set to 0 or 1 two at a time, attributes
of two nodes dropped together.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from benchmarks.reducing.hand_edits import Edited, Values, copy_of, given, open_outputs, rename
from onnx import helper, numpy_helper

_PLAIN = {1: ("Identity", "Neg", "Relu", "Abs"), 2: ("Add", "Mul"), 3: ("Sum",)}
_ONES = 8  # places of numbers of which every two are tried


def further_edits(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Every edit of this set, those that cannot be made left out."""
    for make in (
        _either,
        _left_out,
        _reread,
        _flattened,
        _axis_less,
        _lists,
        _plainer,
        _numbers,
        _bare,
        _typed_all,
    ):
        with suppress(KeyError, ValueError, IndexError, TypeError, AttributeError):
            yield from make(model, inputs, held)


def _sources(model: onnx.ModelProto, inputs: Values) -> Values:
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {name: value for name, value in {**inputs, **stored}.items() if isinstance(value, np.ndarray)}


def _set(model: onnx.ModelProto, inputs: Values, name: str, array: Any) -> Values:
    """Give a source of a copy another value; the values that are fed."""
    array = np.asarray(array)
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(array, name))
    for info in model.graph.input:
        if info.name == name:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            info.CopyFrom(helper.make_tensor_value_info(name, kind, array.shape))
    return {**inputs, name: array} if name in inputs else inputs


def _either(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Two sources of one type are one, under the value and shape of either."""
    every = _sources(model, inputs)
    for one, other in itertools.permutations(every, 2):
        if every[one].dtype == every[other].dtype:
            for value in (every[one], every[other]):
                changed = copy_of(model)
                rename(changed.graph, one, other)
                fed = _set(changed, inputs, other, value)
                yield from given(f"{other} for {one}, {np.shape(value)}", open_outputs(changed), fed)


def _left_out(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """A node left out, its first result being one of its inputs, whatever the types."""
    for place, node in enumerate(model.graph.node):
        for name in dict.fromkeys(filter(None, node.input)):
            changed = copy_of(model)
            del changed.graph.node[place]
            rename(changed.graph, node.output[0], name)
            made = {item for each in changed.graph.node for item in each.output}
            for info in changed.graph.output:
                info.name = name if info.name == node.output[0] and name in made else info.name
            if len({info.name for info in changed.graph.output}) == len(changed.graph.output):
                yield from given(f"{name} for {node.op_type}", open_outputs(changed), inputs)


def _reread(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """One input of one node reads any other value that is there before it."""
    before = [*inputs, *(tensor.name for tensor in model.graph.initializer)]
    for place, node in enumerate(model.graph.node):
        for at, name in itertools.product(range(len(node.input)), before):
            if node.input[at] != name:
                changed = copy_of(model)
                changed.graph.node[place].input[at] = name
                yield from given(f"{node.op_type} reads {name} at {at}", open_outputs(changed), inputs)
        before += filter(None, node.output)


def _flattened(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Two neighbouring axes of one source, or of all of one rank, made one; a source made a vector."""
    every = _sources(model, inputs)
    groups = [[name] for name in every]
    groups += [[name for name in every if every[name].ndim == rank] for rank in range(2, 6)]
    for group, axis in itertools.product([group for group in groups if group], range(4)):
        if all(every[name].ndim > axis + 1 for name in group):
            changed, fed = copy_of(model), inputs
            for name in group:
                shape = every[name].shape
                merged = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
                fed = _set(changed, fed, name, every[name].reshape(merged))
            yield from given(
                f"axes {axis} and {axis + 1} of {' '.join(group)} one", open_outputs(changed), fed
            )


def _axis_less(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """The first, or last, element along one axis of every source of a rank, without that axis; windows lose
    theirs.
    """
    every = _sources(model, inputs)
    for rank, axis, at in itertools.product(range(1, 6), range(5), (0, -1)):
        group = [name for name in every if every[name].ndim == rank and axis < rank]
        for some in (group, *([name] for name in group if len(group) > 1)):
            if not some:
                continue
            changed, fed = copy_of(model), inputs
            for name in some:
                fed = _set(changed, fed, name, np.take(every[name], at, axis))
            yield from given(f"axis {axis} of {' '.join(some)} gone, {at}", open_outputs(changed), fed)
            for node in changed.graph.node:
                for item in node.attribute:
                    if item.name in ("kernel_shape", "strides", "dilations") and axis >= rank - len(
                        item.ints
                    ):
                        del item.ints[axis - rank + len(item.ints)]
                    elif item.name == "pads" and axis >= rank - len(item.ints) // 2:
                        half = len(item.ints) // 2
                        del item.ints[half + axis - rank + half], item.ints[axis - rank + half]
            yield from given(
                f"axis {axis} of {' '.join(some)} and windows gone, {at}", open_outputs(changed), fed
            )


def _lists(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Sequences with fewer and smaller elements, texts shorter."""
    for name, value in inputs.items():
        if isinstance(value, list) and value:
            for what, some in (("first", value[:1]), ("last", value[-1:]), ("none", [])):
                yield from given(f"{what} of {name}", copy_of(model), {**inputs, name: some})
            if all(isinstance(item, np.ndarray) for item in value):
                yield from given(
                    f"zeros in {name}", copy_of(model), {**inputs, name: [np.zeros_like(i) for i in value]}
                )
                ones = [np.ascontiguousarray(item[tuple(slice(1) for _ in item.shape)]) for item in value]
                yield from given(f"small {name}", copy_of(model), {**inputs, name: ones})
                flat = [item.ravel()[:1].reshape(()) for item in value]
                yield from given(f"flat {name}", copy_of(model), {**inputs, name: flat})
        elif isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
            yield from given(f"empty {name}", copy_of(model), {**inputs, name: np.full_like(value, "")})


def _plainer(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """An operator replaced by a plain one of as many inputs, or fewer, without attributes."""
    for place, node in enumerate(model.graph.node):
        for count in range(min(3, len(node.input)), 0, -1):
            for plain in _PLAIN[count]:
                changed = copy_of(model)
                one = helper.make_node(plain, list(node.input[:count]), [node.output[0]])
                changed.graph.node[place].CopyFrom(one)
                yield from given(f"{plain} for {node.op_type}", open_outputs(changed), inputs)


def _places(model: onnx.ModelProto, inputs: Values) -> list[tuple[str, int, Any]]:
    every = _sources(model, inputs)
    found = [
        (name, at, number)
        for name, array in every.items()
        if array.dtype.kind in "biuf" and array.size <= 4
        for at in range(array.size)
        for number in (0, 1)
        if array.ravel()[at] != number
    ]
    for place, node in enumerate(model.graph.node):
        for item in node.attribute:
            if item.type == onnx.AttributeProto.INT:
                found += [(f"{place}@{item.name}", -1, number) for number in (0, 1) if item.i != number]
            if item.type == onnx.AttributeProto.INTS:
                at = range(len(item.ints))
                found += [
                    (f"{place}@{item.name}", each, n) for each in at for n in (0, 1) if item.ints[each] != n
                ]
    return found


def _numbers(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """A number of an attribute or a small tensor to 0 or 1, and every two of the first few."""
    found = _places(model, inputs)
    for group in (*([one] for one in found), *itertools.combinations(found[:_ONES], 2)):
        changed, fed = copy_of(model), inputs
        every = _sources(model, inputs)
        for name, at, number in group:
            if "@" in name:
                place, key = name.split("@", 1)
                item = next(each for each in changed.graph.node[int(place)].attribute if each.name == key)
                if at < 0:
                    item.i = number
                else:
                    item.ints[at] = number
            else:
                every[name] = every[name].copy()
                every[name].reshape(-1)[at] = number
                fed = _set(changed, fed, name, every[name])
        yield from given(
            "; ".join(f"{name}[{at}] = {number}" for name, at, number in group), open_outputs(changed), fed
        )


def _bare(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Every attribute of every node dropped, and one of each of two nodes."""
    named = [(place, item.name) for place, node in enumerate(model.graph.node) for item in node.attribute]
    for group in (named, *itertools.combinations(named, 2)):
        changed = copy_of(model)
        for place, node in enumerate(changed.graph.node):
            kept = [item for item in node.attribute if (place, item.name) not in group]
            del node.attribute[:]
            node.attribute.extend(kept)
        yield from given(f"without {group}", open_outputs(changed), inputs)


def _typed_all(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """One element type for all sources, and for what a node says it gives."""
    for wanted in ("float32", "int32", "int64", "bool", "float64"):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(wanted))
        for whole in (True, False):
            changed, fed = copy_of(model), inputs
            for name, array in _sources(model, inputs).items():
                if array.dtype.kind in "biuf" and (whole or array.dtype.kind == np.dtype(wanted).kind):
                    fed = _set(changed, fed, name, array.astype(wanted))
            for node in changed.graph.node:
                for item in node.attribute:
                    if item.name in ("to", "dtype"):
                        item.i = kind
            yield from given(
                f"{wanted} everywhere{'' if whole else ', of its kind'}", open_outputs(changed), fed
            )
