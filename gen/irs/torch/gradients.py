"""Calls that compute gradients, as torch's backward passes have them."""

from collections.abc import Callable
from typing import Any

from opsieve.gen.irs.torch.graph import Ref, TorchCall

# The call that makes the gradient of an operand, from the gradient of the result, the call and the operand's
# shape
BACKWARD: dict[str, Callable[[Ref, TorchCall, tuple[int, ...]], tuple[Any, ...]]] = {
    "aten.sigmoid.default": lambda grad, call, shape: ("aten.sigmoid_backward.default", grad, Ref(call.key)),
    "aten.tanh.default": lambda grad, call, shape: ("aten.tanh_backward.default", grad, Ref(call.key)),
    "aten.relu.default": lambda grad, call, shape: (
        "aten.threshold_backward.default",
        grad,
        Ref(call.key),
        0,
    ),
    "aten.neg.default": lambda grad, call, shape: ("aten.neg.default", grad),
    "aten.add.Tensor": lambda grad, call, shape: ("aten.expand.default", grad, shape),
    "aten.mul.Tensor": lambda grad, call, shape: ("aten.mul.Tensor", grad, call.args[1]),
    "aten.transpose.int": lambda grad, call, shape: ("aten.transpose.int", grad, *call.args[1:]),
    "aten.select.int": lambda grad, call, shape: (
        "aten.select_backward.default",
        grad,
        shape,
        *call.args[1:],
    ),
    "aten.slice.Tensor": lambda grad, call, shape: (
        "aten.slice_backward.default",
        grad,
        shape,
        *call.args[1:],
    ),
    "aten.diagonal.default": lambda grad, call, shape: (
        "aten.diagonal_backward.default",
        *(grad, shape, *call.args[1:]),
    ),
    "aten.reshape.default": lambda grad, call, shape: ("aten.reshape.default", grad, shape),
    "aten.unsqueeze.default": lambda grad, call, shape: ("aten.squeeze.dim", grad, call.args[1]),
    "aten.flip.default": lambda grad, call, shape: ("aten.flip.default", grad, call.args[1]),
}
# The shape of the operand may differ from that of the result by broadcasting.
BROADCASTING = ("aten.add.Tensor", "aten.mul.Tensor")
