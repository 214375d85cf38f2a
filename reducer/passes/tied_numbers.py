"""Shrink numbers of a small graph together, as the operators' declarations tie them
(`opsieve.gen.analysis.shrink_numbers`).

A size, an attribute or an element of a shape goes down, and the numbers that the rules tie to it follow in
the same step: a kernel with its weight and paddings, a hidden size with the weights of all gates. It comes
after the dimensions that change one thing at a time, and proposes only changes out of their reach.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from opsieve.gen.analysis.shrink_numbers import NumberPlace, Numbers, RuledNode, System
from opsieve.gen.analysis.validity import leaves, read_attributes
from opsieve.gen.declarations.catalogue import qualified_name
from opsieve.gen.irs.onnx.edits import put_array, set_attribute
from opsieve.gen.irs.onnx.view import Array, Subject, attribute_of, first_output, held_array, node_at
from opsieve.gen.model.attributes import constant_array
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.typed_view import changing, only_simpler
from opsieve.reducer.problem.order import OnnxEdit

# The largest graph, in nodes, whose numbers are shrunk together.
_MOST = 16


def shrink_together(subject: Subject) -> Iterator[OnnxEdit]:
    """Shrink each number to the least before any to more, with all that must follow it; sizes first, then
    attributes and shapes.
    """
    if len(subject.model.graph.node) > _MOST:
        return
    system = system_of(subject)
    if not system.sound:
        return
    seen = set()
    # As many turns as `_targets` gives numbers at most.
    for turn in range(3):
        for place, number in system.numbers.items():
            targets = _targets(place, number)
            if turn < len(targets):
                found = system.together(place, targets[turn])
                # A lone attribute or element is the business of other passes.
                if (
                    found is None
                    or (len(found) == 1 and place.kind != "size")
                    or frozenset(found.items()) in seen
                ):
                    continue
                seen.add(frozenset(found.items()))
                yield _edit(system, place, found)


def system_of(subject: Subject) -> System:
    """Return the numbers of a subject's main graph; nodes with bodies or of local functions have no rules."""
    graph = subject.model.graph
    opsets = {entry.domain: entry.version for entry in subject.model.opset_import}
    local = {(function.domain, function.name) for function in subject.model.functions}
    typings = leaves(graph, subject.inputs)
    parts = []
    for node in graph.node:
        if not first_output(node):
            # Nodes are identified by their outputs.
            continue
        array = constant_array(node) if node.op_type == "Constant" and not node.domain else None
        if array is not None:
            held = onnx.GraphProto(initializer=[onnx.numpy_helper.from_array(array, first_output(node))])
            typings |= leaves(held, {})
            continue
        attrs = read_attributes(node.attribute)
        name = (
            ""
            if attrs is None or (node.domain, node.op_type) in local
            else qualified_name(node.domain, node.op_type)
        )
        parts.append(RuledNode(name, tuple(node.input), tuple(node.output), attrs or {}))
    return System(parts, typings, opsets.get("", opsets.get("ai.onnx", 0)))


def _targets(place: NumberPlace, number: int) -> list[int]:
    if number < 0:
        return []
    # Sizes of 0 are left out: tensors without elements hide the failure.
    least = [1] if place.kind == "size" else [0, 1]
    return [target for target in dict.fromkeys((*least, 2, number // 2)) if target < number][:3]


def _edit(system: System, place: NumberPlace, found: Numbers) -> OnnxEdit:
    was = {each: system.numbers[each] for each in found}
    what = {
        "size": f"axis {place.index} of",
        "value": f"element {place.index} of",
        "attribute": f"{place.name} of",
    }
    label = f"set {what[place.kind]} {place.owner[:40]!r} to {found[place]}"
    if len(found) > 1:
        label += f" and {len(found) - 1} more"

    def change(model: onnx.ModelProto, inputs: dict[str, Value]) -> dict[str, Value] | None:
        return inputs if _set(model, inputs, was, found) else None

    return only_simpler(changing(label, {f"{each.owner}[{each.name}{each.index}]" for each in found}, change))


def _set(model: onnx.ModelProto, inputs: dict[str, Value], was: Numbers, found: Numbers) -> bool:
    """Put new numbers where the old ones are; False where they are others by now."""
    for owner in dict.fromkeys(place.owner for place in found if place.kind != "attribute"):
        array = held_array(model, inputs, (), owner)
        changed = None if array is None else _change_array(array, owner, was, found)
        if changed is None or not put_array(model, inputs, (), owner, changed):
            return False
    for place, value in found.items():
        if place.kind != "attribute":
            continue
        node = node_at(model, (), place.owner)
        held = None if node is None else attribute_of(node, place.name)
        if node is None or held is None:
            return False
        if place.index < 0:
            now: object = value
            same = held.i == was[place]
        else:
            items = list(held.ints)
            same = place.index < len(items) and items[place.index] == was[place]
            now = [*items[: place.index], value, *items[place.index + 1 :]]
        if not same:
            return False
        set_attribute(node, place.name, now)
    return True


def _change_array(array: Array, owner: str, was: Mapping[NumberPlace, int], found: Numbers) -> Array | None:
    array = array.copy()
    flat = array.reshape(-1)
    ends = list(array.shape)
    for place, value in found.items():
        if place.owner != owner:
            continue
        if place.kind == "value":
            if place.index >= flat.size or flat[place.index] != was[place]:
                return None
            flat[place.index] = value
        elif place.kind == "size":
            if place.index >= len(ends) or array.shape[place.index] != was[place]:
                return None
            ends[place.index] = value
    return np.ascontiguousarray(array[tuple(slice(end) for end in ends)]).reshape(ends)


PASS = ListedPass("together", shrink_together)
