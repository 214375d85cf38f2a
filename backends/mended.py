"""Operators that the reference evaluator of onnx gets wrong, done right. Each tells what is wrong there.

Found over ONNX's own node tests and Loop's specification; an entry goes when onnx no longer needs it.
"""

from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun


class Loop(OpRun):
    """Loop with scan outputs of any rank.

    onnx 1.23 joins the values of a scan output with `vstack`, which is right for vectors only: scalars come out as a column,
    matrices one below the other, and no iteration at all is an error.
    """

    op_domain = ""

    def need_context(self) -> bool:
        """The body may read values of the graph around it."""
        return True

    def _run(  # type: ignore[no-untyped-def]  # the evaluator calls it by inputs and attribute names
        self, trips, keep_going, *carried, context=None, body=None, attributes=None, bindings=None
    ):
        evaluator: Any = self.body  # type: ignore[attr-defined]  # set from the node's attribute
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
        stacked = [np.stack(values) if values else _nothing(kind) for values, kind in zip(scanned, types, strict=True)]
        return tuple(state + stacked)


def _nothing(declared: Any) -> Any:
    # No iteration: zero rows of the declared shape, where an unknown dimension counts as 0.
    tensor = declared.tensor_type
    return np.zeros(
        (0, *(dim.dim_value for dim in tensor.shape.dim)), helper.tensor_dtype_to_np_dtype(tensor.elem_type or 1)
    )


class Mean(OpRun):
    """Mean of inputs that broadcast.

    onnx 1.23 adds the others into a copy of the first input, which fails when that one has to grow.
    """

    op_domain = ""

    def _run(self, *values):  # type: ignore[no-untyped-def]  # as above
        total = values[0]
        for value in values[1:]:
            total = total + value
        return ((total / len(values)).astype(values[0].dtype),)


MENDED = (Loop, Mean)
