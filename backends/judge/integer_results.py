"""Results computed from integers alone: they are exact, so rounding errors excuse no difference."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from opsieve.backends.compare import identical
from opsieve.backends.judge.discontinuity_points import Ask, Values, sever
from opsieve.backends.judge.pieces import get_constants
from opsieve.gen.irs.onnx.edits import tap_model
from opsieve.gen.irs.onnx.view import list_captured
from opsieve.gen.model.structure import bodies
from opsieve.gen.model.tensors import read_tensor


def find_wrong_by_integers(
    model: ModelProto, inputs: Values, got: Mapping[str, Any], names: Sequence[str], ask: Ask
) -> set[str]:
    """Return the outputs among `names` that integer arithmetic alone makes wrong.

    Integers are exact, so rounding errors cannot excuse results computed from them. The candidate's own
    integers at the start of such a computation determine a single right value.
    """
    made = [name for node in model.graph.node for name in node.output if name]
    native = ask("native", tap_model(model, made), inputs).outputs
    if native is None:
        return set()
    integers = {name for name, value in {**inputs, **native}.items() if _is_integer(value)}
    integers.update(name for name, tensor in get_constants(model).items() if _is_integer(read_tensor(tensor)))
    wrong = set()
    for name in names:
        begin = sorted(_find_integers_behind(model, name, integers) & set(made))
        # Where the output begins nothing, it is a result of floats itself.
        if name in begin:
            continue
        own = ask("candidate", tap_model(model, begin), inputs).outputs
        # Reading the integers changed the output, so they are not those of the failing run.
        if own is None or not identical(own.get(name), got[name]):
            continue
        feeds = {**inputs, **{each: own[each] for each in begin}}
        right = ask("native", sever(model, begin, [name]), feeds).outputs
        if right is not None and not identical(right.get(name), got[name]):
            wrong.add(name)
    return wrong


def _find_integers_behind(model: ModelProto, output: str, integers: Collection[str]) -> set[str]:
    """Return the tensors from which integer-only nodes compute an output; the output itself if there are no
    such nodes.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    begin, left = set[str](), [output]
    while left:
        name = left.pop()
        node = makers.get(name)
        reads = list_captured(node) if node is not None else []
        has_bodies = node is not None and any(True for _ in bodies(node))
        # Bodies may compute with floats inside, which the types outside do not show.
        if has_bodies or not reads or not all(each in integers for each in (name, *reads)):
            begin.add(name)
        else:
            left += reads
    return begin


def _is_integer(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iub"
