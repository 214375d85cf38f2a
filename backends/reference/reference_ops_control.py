"""Control flow that onnx's evaluator gets wrong or lacks. Each docstring names the error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


class Loop(OpRun):
    """Loop with scan outputs of any rank.

    onnx 1.23 joins the values of a scan output with `vstack`, which is right for vectors only: scalars come
    out as a column, matrices one below the other, and no iteration at all is an error.
    """

    def need_context(self) -> bool:
        """Return True: the body may read values of the graph around it."""
        return True

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def]
        self, trips, keep_going, *carried, context=None, body=None, attributes=None, bindings=None
    ):
        # Set from the node's attribute
        evaluator: Any = self.body  # type: ignore[attr-defined]
        names = evaluator.input_names
        state = list(carried)
        scanned: list[list[Any]] = [[] for _ in evaluator.output_names[1 + len(state) :]]
        keep = keep_going is None or bool(np.asarray(keep_going).all())
        turn = 0
        while keep and (trips is None or turn < int(np.asarray(trips).item())):
            feeds = {**(context or {}), names[0]: np.array(turn, np.int64), names[1]: np.array(keep)}
            feeds.update(zip(names[2:], state, strict=True))
            made = evaluator.run(None, feeds, attributes=attributes)
            keep = bool(np.asarray(made[0]).all())
            state = made[1 : 1 + len(state)]
            for values, value in zip(scanned, made[1 + len(state) :], strict=True):
                values.append(value)
            turn += 1
        types = evaluator.output_types[1 + len(state) :]
        stacked = [
            np.stack(values) if values else _nothing(kind)
            for values, kind in zip(scanned, types, strict=True)
        ]
        return tuple(state + stacked)


def _nothing(declared: Any) -> Any:
    # No iteration: zero rows of the declared shape, where an unknown dimension counts as 0.
    tensor = declared.tensor_type
    return np.zeros(
        (0, *(dim.dim_value for dim in tensor.shape.dim)),
        helper.tensor_dtype_to_np_dtype(tensor.elem_type or 1),
    )


class Scan(OpRun):
    """Scan in either direction along any axis, and over empty inputs.

    onnx 1.23 takes the first axis forwards only, and raises an error for empty inputs.
    """

    def need_context(self) -> bool:
        """Return True: the body may read values of the graph around it."""
        return True

    def _run(  # type: ignore[no-untyped-def]  # as above
        self, *values, context=None, body=None, num_scan_inputs=0, scan_input_axes=None,
        scan_input_directions=None,
        scan_output_axes=None, scan_output_directions=None, attributes=None, bindings=None,
    ):  # fmt: skip
        first = len(values) - num_scan_inputs
        axes, backwards = (
            scan_input_axes or [0] * num_scan_inputs,
            scan_input_directions or [0] * num_scan_inputs,
        )
        rows = [_rows(*each) for each in zip(values[first:], axes, backwards, strict=True)]
        # Set from the node's attribute
        body = self.body  # type: ignore[attr-defined]
        state, made = run_scan(body, values[:first], rows, context or {}, attributes)
        axes = scan_output_axes or [0] * len(made)
        backwards = scan_output_directions or [0] * len(made)
        found = [
            np.moveaxis(stack[::-1] if back else stack, 0, axis)
            for stack, axis, back in zip(made, axes, backwards, strict=True)
        ]
        return (*state, *found)


class ScanOfBatches(OpRun):
    """Scan as opset 8 has it: every value has the batch as its first dimension and the sequence as its
    second.

    https://onnx.ai/onnx/operators/onnx__Scan.html#scan-8. Behind the length of a sequence its outputs are 0.
    """

    def need_context(self) -> bool:
        """Return True: the body may read values of the graph around it."""
        return True

    def _run(  # type: ignore[no-untyped-def]  # as above
        self, lengths, *values, context=None, body=None, num_scan_inputs=0, directions=None,
        attributes=None, bindings=None,
        **newer,
    ):  # fmt: skip
        first = len(values) - num_scan_inputs
        items = []
        for at in range(len(values[first])):
            length = values[first].shape[1] if lengths is None else int(lengths[at])
            backwards = directions or [0] * num_scan_inputs
            rows = [
                _rows(value[at, :length], 0, back)
                for value, back in zip(values[first:], backwards, strict=True)
            ]
            state, made = run_scan(
                self.body,  # type: ignore[attr-defined]  # as above
                [value[at] for value in values[:first]],
                rows,
                context or {},
                attributes,
            )
            missing = values[first].shape[1] - length
            items.append(
                [*state, *(np.pad(each, [(0, missing)] + [(0, 0)] * (each.ndim - 1)) for each in made)]
            )
        return tuple(np.stack(each) for each in zip(*items, strict=True))


# By which the evaluator finds it
ScanOfBatches.__name__ = "Scan"


def _rows(value: Array, axis: int, backwards: int) -> Array:
    """Return the scanned tensor with the axis first, in reading order."""
    rows = np.moveaxis(value, axis, 0)
    return rows[::-1] if backwards else rows


def run_scan(
    body: Any, state: Sequence[Any], rows: Sequence[Array], context: dict[str, Any], attributes: Any
) -> tuple[list[Any], list[Array]]:
    """Run a body for each row; returns the last state and the stacked outputs."""
    held = list(state)
    stacks: list[list[Any]] = [[] for _ in body.output_names[len(held) :]]
    for each in zip(*rows, strict=True):
        feeds = {**context, **dict(zip(body.input_names, [*held, *each], strict=True))}
        made = body.run(None, feeds, attributes=attributes)
        held = made[: len(held)]
        for stack, value in zip(stacks, made[len(held) :], strict=True):
            stack.append(value)
    types = body.output_types[len(held) :]
    return held, [
        np.stack(stack) if stack else _nothing(kind) for stack, kind in zip(stacks, types, strict=True)
    ]
