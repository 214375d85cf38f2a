"""A torch module as an ONNX model, by torch's own exporters. See targets.py."""

from __future__ import annotations

import io
from typing import Any, Mapping

from opsieve.backends.compilers.worker_common import BrokenModel


class UnknownOpset(Exception):
    """Raised for an opset that is not a number."""


def export(module: Any, values: list[Any], options: Mapping[str, str]) -> tuple[bytes, list[str], list[str]]:
    """Export a model; return it with the names of its remaining inputs (by position) and of its outputs."""
    import onnx
    import torch

    if options["opset"] and not options["opset"].isdigit():
        raise UnknownOpset("an opset is a number, not %s" % ascii(options["opset"][:80]))
    dynamo, on = options["exporter"] == "dynamo", options["optimise"] == "on"
    chosen: dict[str, Any] = {"optimize": on} if dynamo else {"do_constant_folding": on}
    if options["opset"]:
        chosen["opset_version"] = int(options["opset"])
    inputs = ["in_%d" % at for at in range(len(values))]
    outputs = ["out_%d" % at for at in range(len(module.outputs))]
    chosen.update(input_names=inputs, output_names=outputs, verbose=False, dynamo=dynamo)
    with torch.no_grad():
        if dynamo:
            program = torch.onnx.export(module.eval(), tuple(values), **chosen)
            data = program.model_proto.SerializeToString()
        else:
            buffer = io.BytesIO()
            torch.onnx.export(module.eval(), tuple(values), buffer, **chosen)
            data = buffer.getvalue()
    graph = onnx.load_model_from_string(data).graph
    # By position: the exporters rename outputs.
    if len(graph.output) != len(outputs):
        raise BrokenModel("the exported model has %d outputs for %d" % (len(graph.output), len(outputs)))
    given = {tensor.name for tensor in graph.initializer}
    kept = [item.name for item in graph.input if item.name not in given]
    return data, kept, [item.name for item in graph.output]
