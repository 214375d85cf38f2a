"""Checks that a transformed model keeps the interface of the original and that onnx's checker accepts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsieve.backends.compilers.transformers import pass_options
from opsieve.backends.compilers.worker_common import BrokenModel

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request


def check_result(before: Any, after: Any, request: "Request", checked: bool = True) -> None:
    """Raise BrokenModel for a result with another interface than the original, or that onnx's checker
    refuses; adds a note about lost declarations.
    """
    after_inputs = {item.name: item for item in after.graph.input}
    after_outputs = {item.name: item for item in after.graph.output}
    constants = {tensor.name for tensor in after.graph.initializer}
    new = set(after_inputs) - {item.name for item in before.graph.input} - constants
    if new:
        raise BrokenModel(
            "the transformed model wants inputs that the original has not: %s" % pass_options.list_names(new)
        )
    lost = {item.name for item in before.graph.output} - set(after_outputs)
    if lost:
        raise BrokenModel("the transformed model has lost the outputs %s" % pass_options.list_names(lost))
    gone = {(one.domain, one.name) for one in before.functions} - {
        (one.domain, one.name) for one in after.functions
    }
    called = sorted("%s:%s" % each for each in gone & list_calls(after.graph)) if gone else []
    if called:
        raise BrokenModel(
            "the transformed model calls functions that it has lost: %s" % pass_options.list_names(called)
        )
    # The original is checked only if the result is refused, since checking takes time.
    problem = checker_message(after) if checked else ""
    if problem:
        if not checker_message(before):
            raise BrokenModel(
                "onnx.checker accepts the original and refuses the transformed model: %s" % problem
            )
        request.notes.append("onnx.checker refuses the original and the transformed model")
    for item in before.graph.output:
        kinds = [kind(each.type) for each in (after_outputs[item.name], item)]
        # A missing declaration is incomplete, not wrong.
        if all(kinds) and kinds[0] != kinds[1]:
            raise BrokenModel(
                "the transformed model declares %s as %s where the original has %s"
                % (pass_options.list_names([item.name]), *kinds)
            )
        was, now = dimensions(item), dimensions(after_outputs[item.name])
        if was is None:
            continue
        # To declare less is no bug, but people want to know it.
        if now is None or (len(now) == len(was) and any(a and not b for a, b in zip(was, now))):
            request.notes.append(
                "the transformed model no longer declares the whole shape of %s"
                % pass_options.list_names([item.name])
            )
        elif len(now) != len(was) or any(a and b and a != b for a, b in zip(was, now)):
            shapes = "%s where the original has %s" % (listed_shape(now), listed_shape(was))
            raise BrokenModel(
                "the transformed model declares %s as %s" % (pass_options.list_names([item.name]), shapes)
            )


def list_calls(graph: Any) -> set[tuple[str, str]]:
    """List the domain and type of every node of a GraphProto and of the graphs within its nodes."""
    found, waiting = set(), [graph]
    while waiting:
        for node in waiting.pop().node:
            found.add((node.domain, node.op_type))
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return found


def checker_message(model: Any) -> str:
    """Return the objection of onnx's checker and its strict shape inference to a model, or ""."""
    import onnx

    try:
        onnx.checker.check_model(model)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception as error:  # noqa: BLE001
        # The checker raises classes of its own, of its C++ parts and of protobuf
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def kind(declared: Any) -> str:
    """Return the type in a TypeProto without its shape, as `seq(float)`; "" if it is incomplete."""
    from onnx import TensorProto

    what = declared.WhichOneof("value")
    if what in ("sequence_type", "optional_type"):
        inner = kind(getattr(declared, what).elem_type)
        return inner and "%s(%s)" % ("seq" if what == "sequence_type" else "optional", inner)
    number = declared.tensor_type.elem_type if what == "tensor_type" else 0
    return str(TensorProto.DataType.Name(number)).lower() if number else ""


def dimensions(info: Any) -> list[int] | None:
    """Return the dimensions that a ValueInfoProto declares for a tensor, 0 for an open one; `None` without a
    shape.
    """
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return None
    return [dim.dim_value for dim in tensor.shape.dim]


def listed_shape(shape: list[int]) -> str:
    """Format a shape for people."""
    return "[%s]" % ", ".join(str(dim or "?") for dim in shape)
