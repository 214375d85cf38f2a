"""Rules on values from the operators' pages: a program that breaks one is invalid, even if a compiler accepts
it. Type constraints come from ONNX's schemas.

onnx's evaluator raises what numpy raises for some of it, and computes something for the rest.
https://onnx.ai/onnx/operators/
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto

from opsieve.gen.model.structure import bodies

Inputs = Sequence[Any]
Rule = Callable[[Any, Inputs], str]


class Forbidden(ValueError):
    """The program breaks a rule of an operator's page with these values; the text is the rule."""


def forbidden(operator: str, node: Any, inputs: Inputs) -> str:
    """Return the rule of an ONNX operator that its inputs break, "" if they break none known here.

    `node` has the attributes by name, as the nodes of onnx's evaluator do.
    """
    rule = _RULES.get(operator)
    return f"{operator}: {broken}" if rule and (broken := rule(node, inputs)) else ""


def _numbers(node: Any, inputs: Inputs, place: int, name: str) -> list[int] | None:
    """Return the integers of an input, or of the attribute that preceded it; `None` if both are absent."""
    value = inputs[place] if place < len(inputs) else None
    value = getattr(node, name, None) if value is None else value
    return None if value is None else [int(each) for each in np.ravel(value)]


def _axes(axes: Sequence[int], rank: int) -> str:
    far = next((axis for axis in axes if not -rank <= axis < rank), None)
    if far is not None:
        return f"axis {far} is out of range for {rank} dimensions"
    return "an axis is named twice" if len({axis % rank for axis in axes}) < len(axes) else ""


def _check_squeeze(node: Any, inputs: Inputs) -> str:
    shape, axes = np.shape(inputs[0]), _numbers(node, inputs, 1, "axes") or []
    broken = _axes(axes, len(shape))
    # `shape[axis]` would fail for an axis out of range.
    wide = [] if broken else [axis for axis in axes if shape[axis] != 1]
    return f"axis {wide[0]} is {shape[wide[0]]} wide, not 1" if wide else broken


def _check_unsqueeze(node: Any, inputs: Inputs) -> str:
    axes = _numbers(node, inputs, 1, "axes") or []
    return _axes(axes, np.ndim(inputs[0]) + len(axes))


def _check_slice(node: Any, inputs: Inputs) -> str:
    if 0 in (_numbers(node, inputs, 4, "steps") or []):
        return "a step is 0"
    return _axes(_numbers(node, inputs, 3, "axes") or [], np.ndim(inputs[0]))


def _split(node: Any, inputs: Inputs) -> str:
    sizes = _numbers(node, inputs, 1, "split")
    if sizes is None:
        return ""
    side = np.shape(inputs[0])[getattr(node, "axis", 0) or 0]
    if min(sizes, default=0) < 0:
        return "a part has a negative size"
    return f"its parts add up to {sum(sizes)} where the axis has {side}" if sum(sizes) != side else ""


def _top(node: Any, inputs: Inputs) -> str:
    (many,) = _numbers(node, inputs, 1, "k") or [0]
    axis = getattr(node, "axis", -1)
    # onnx's nodes have an attribute that was left out as None.
    side = np.shape(inputs[0])[-1 if axis is None else axis]
    return f"{many} of {side} are asked for" if not 0 <= many <= side else ""


def _check_pad(node: Any, inputs: Inputs) -> str:
    shape, pads = np.shape(inputs[0]), _numbers(node, inputs, 1, "pads") or []
    axes = _numbers(node, inputs, 3, "axes") or list(range(len(shape)))
    taken = [
        shape[axis] + sum(pads[at :: len(axes)])
        for at, axis in enumerate(axes)
        if -len(shape) <= axis < len(shape)
    ]
    return _axes(axes, len(shape)) or (
        "more elements are taken away than there are" if min(taken, default=0) < 0 else ""
    )


def _check_resize(node: Any, inputs: Inputs) -> str:
    scales = inputs[2] if len(inputs) > 2 else None
    return (
        "a scale is not greater than 0"
        if scales is not None and np.size(scales) and np.min(scales) <= 0
        else ""
    )


def _check_regions(node: Any, inputs: Inputs) -> str:
    many, images = len(inputs[0]), np.ravel(inputs[2]).tolist()
    far = next((image for image in images if not 0 <= image < many), None)
    return "" if far is None else f"a region of image {far} where there are {many}"


def _nonnegative(place: int, what: str) -> Rule:
    def rule(node: Any, inputs: Inputs) -> str:
        return f"{what} is negative" if min(np.ravel(inputs[place]).tolist(), default=0) < 0 else ""

    return rule


def _check_position(place: int, more: int) -> Rule:
    """Make the rule for a position in a sequence: before an element, or with `more` after the last."""

    def rule(node: Any, inputs: Inputs) -> str:
        if place >= len(inputs) or inputs[place] is None:
            return ""
        at, many = int(np.ravel(inputs[place])[0]), len(inputs[0])
        return f"position {at} is out of range for a size of {many}" if not -many <= at < many + more else ""

    return rule


def _check_window(node: Any, inputs: Inputs) -> str:
    """Check that the window of a Conv or a pooling operator fits into the padded input."""
    sides = np.shape(inputs[0])[2:]
    kernel = getattr(node, "kernel_shape", None) or (np.shape(inputs[1])[2:] if len(inputs) > 1 else ())
    # SAME pads so much that every window fits.
    if (getattr(node, "auto_pad", None) or "NOTSET") not in ("NOTSET", "VALID"):
        return ""
    pads, dilations = (getattr(node, name, None) or [] for name in ("pads", "dilations"))
    for axis, (side, size) in enumerate(zip(sides, kernel, strict=False)):
        room = side + sum(pads[axis :: len(sides)])
        reach = (size - 1) * (dilations[axis] if dilations else 1) + 1
        if reach > room:
            return f"a window of {reach} does not fit into a side of {room}, padding included"
    return ""


def _check_convolution(node: Any, inputs: Inputs) -> str:
    bias = inputs[2] if len(inputs) > 2 else None
    if bias is not None and np.shape(bias) != np.shape(inputs[1])[:1]:
        return f"a bias of size {np.size(bias)} where the kernel has {np.shape(inputs[1])[0]}"
    return _check_window(node, inputs)


def _check_reverse(node: Any, inputs: Inputs) -> str:
    axis = getattr(node, "time_axis", 0) or 0
    side, longest = np.shape(inputs[0])[axis], int(np.max(inputs[1], initial=0))
    return f"a sequence of length {longest} on an axis of {side}" if longest > side else ""


def _check_slope(node: Any, inputs: Inputs) -> str:
    """Check that the slope broadcasts to the first input; before opset 7 it held one number per channel."""
    shape, slope = np.shape(inputs[0]), np.shape(inputs[1])
    # The old form, one number for each channel
    if len(shape) > 1 and slope == shape[1:2]:
        return ""
    pairs = zip(reversed(slope), reversed(shape), strict=False)
    fits = len(slope) <= len(shape) and all(one in (1, other) for one, other in pairs)
    return "" if fits else f"a slope of shape {slope} for an input of shape {shape}"


def _check_crop(node: Any, inputs: Inputs) -> str:
    axes = getattr(node, "axes", None) or range(np.ndim(inputs[0]))
    return f"{np.size(inputs[1])} sizes for {len(axes)} axes" if np.size(inputs[1]) != len(axes) else ""


def _elements(node: Any, inputs: Inputs) -> str:
    """Check that indices of GatherElements and ScatterElements lie inside the data, and that there are as
    many updates as indices.
    """
    data, places = np.shape(inputs[0]), np.shape(inputs[1])
    if len(inputs) > 2 and np.shape(inputs[2]) != places:
        return f"updates of shape {np.shape(inputs[2])} for indices of shape {places}"
    if len(data) != len(places):
        return f"indices of {len(places)} dimensions for data of {len(data)}"
    axis = (getattr(node, "axis", 0) or 0) % max(len(data), 1)
    wide = any(side > had for at, (side, had) in enumerate(zip(places, data, strict=True)) if at != axis)
    return f"indices of shape {places} are wider than the data of shape {data}" if wide else ""


def _check_dropout(node: Any, inputs: Inputs) -> str:
    ratio = float(np.ravel(inputs[1])[0]) if len(inputs) > 1 and np.size(inputs[1]) else 0.0
    # At 1 the scale 1 / (1 - ratio) is infinite.
    return "" if 0 <= ratio < 1 else f"a ratio of {ratio:g} is not from 0 to below 1"


def _sequence_of_parts(node: Any, inputs: Inputs) -> str:
    sizes = inputs[1] if len(inputs) > 1 else None
    return _split(node, inputs) if sizes is not None and np.ndim(sizes) == 1 else ""


_RULES: Mapping[str, Rule] = {
    **{
        f"Reduce{name}": lambda node, inputs: _axes(
            _numbers(node, inputs, 1, "axes") or [], np.ndim(inputs[0])
        )
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _check_window),
    "CenterCropPad": _check_crop,
    "ConstantOfShape": _nonnegative(0, "a size"),
    "Conv": _check_convolution,
    "CumSum": lambda node, inputs: _axes([int(np.ravel(inputs[1])[0])], np.ndim(inputs[0])),
    "Dropout": _check_dropout,
    "GatherElements": _elements,
    "OneHot": lambda node, inputs: "the depth is negative" if np.ravel(inputs[1])[0] < 0 else "",
    "PRelu": _check_slope,
    "Pad": _check_pad,
    "Range": lambda node, inputs: "the delta is 0" if np.ravel(inputs[2])[0] == 0 else "",
    "Resize": _check_resize,
    "ReverseSequence": _check_reverse,
    "RoiAlign": _check_regions,
    "ScatterElements": _elements,
    "SequenceAt": _check_position(1, 0),
    "SequenceErase": _check_position(1, 0),
    "SequenceInsert": _check_position(2, 1),
    "Slice": _check_slice,
    "Split": _split,
    "SplitToSequence": _sequence_of_parts,
    "Squeeze": _check_squeeze,
    "Tile": _nonnegative(1, "a number of repeats"),
    "TopK": _top,
    "Unsqueeze": _check_unsqueeze,
}


# Whether the operators of a model take the types that they are given, by ONNX's schemas at the model's
# opset.


# Begins the note that the native reference leaves on a model that it ran all the same
ILL_TYPED = "ONNX has no such operator: "


def ill_typed(inferred: ModelProto) -> str:
    """Return the first operator of the graph or of a body that does not take an input's type, as text; "" if
    none is seen.

    Types are those that onnx.shape_inference left in the model. Functions are not looked into.
    """
    opsets = {opset.domain: opset.version for opset in inferred.opset_import}
    return next(iter(_faults(inferred.graph, opsets, {})), "")


def _faults(graph: GraphProto, opsets: Mapping[str, int], outer: Mapping[str, int]) -> Iterable[str]:
    declared = (*graph.input, *graph.value_info, *graph.output)
    # A body sees the values of the graphs around it.
    types = {**outer, **{value.name: value.type.tensor_type.elem_type for value in declared}}
    # From IR 4 on an initializer need not be an input, so that only its own type is known.
    types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    for node in graph.node:
        taken = _list_input_types(node.op_type, opsets.get(node.domain, 0), node.domain)
        for place, name in enumerate(node.input if taken else ()):
            element = types.get(name, TensorProto.UNDEFINED)
            spelt = f"tensor({TensorProto.DataType.Name(element).lower()})"
            if element != TensorProto.UNDEFINED and spelt not in taken[min(place, len(taken) - 1)]:
                yield f"{node.op_type} of opset {opsets[node.domain]} takes no {spelt} as input {place + 1}"
        for body in bodies(node):
            yield from _faults(body, opsets, types)


@functools.lru_cache(maxsize=4096)
def _list_input_types(operator: str, opset: int, domain: str) -> tuple[frozenset[str], ...]:
    """Return the types that each input of an operator accepts, the last entry for all further inputs of a
    variadic one; () for an unknown operator.
    """
    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        # An operator of another domain has no rules of ONNX to break.
        return ()
    return tuple(frozenset(given.types) for given in schema.inputs)
