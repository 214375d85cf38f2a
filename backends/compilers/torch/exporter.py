"""`torch-exporter`: a module is exported with `torch.onnx.export`, and the resulting model runs on
onnxruntime with its optimiser off.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Mapping

from opsieve.backends.compilers.torch.targets import MEMORY, VARIABLES, Compiled, Torch
from opsieve.backends.compilers.transformers import hosts
from opsieve.backends.compilers.worker_common import BrokenModel, meaning_of

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run


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
            data = torch.onnx.export(module.eval(), tuple(values), **chosen).model_proto.SerializeToString()
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


class Exporter(Compiled):
    """The backend `torch-exporter`."""

    name = "torch-exporter"
    irs = ("onnx",)
    extra = "torch-exporter"
    options: Mapping[str, tuple[str, ...]] = {
        "exporter": ("dynamo", "torchscript", "off"),
        "optimise": ("on", "off"),
        "opset": (),
    }
    main_option = "exporter"
    variables = VARIABLES
    baseline: Mapping[str, str] = {"exporter": "off", "optimise": "on", "opset": ""}
    # Export and confirming forks included; `opsieve doctor --costs` measures it.
    milliseconds: Mapping[str, float] = {"onnx": 1900.0}
    lacks: tuple[str, ...] = (
        *Torch.lacks,
        "sequences and optionals",
        "what onnxruntime lacks, which runs the result",
    )
    lowering_needs = ("onnxscript", "onnx-ir", "onnxruntime", "packaging")
    # Without its optimiser: a fault that shows is then the exporter's.
    runs_on = "onnxruntime:level=disable_all"

    def load(self) -> str:
        """Import torch's exporter and onnxruntime."""
        version = super().load()
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
        import torch.onnx  # noqa: F401

        return version

    def prepare(self, request: Request) -> Run:
        """Export the module, and open the model in a session of onnxruntime's."""
        from opsieve.backends.compilers.torch.values import Unsupported

        module, values = self.lower_model(request)
        # A list or an absent value has no counterpart among the inputs of an exported model.
        if any(isinstance(value, (list, type(None))) for value in values):
            raise Unsupported("sequences and optionals cannot cross the border of an exported model")
        if request.options["exporter"] == "off":
            return self.run_directly(module)
        request.stage("compile")
        data, inputs, outputs = export(module, values, request.options)
        try:
            run_exported = hosts.open_session(data, {}, hosts.ignore_stage)
        except Exception as error:
            raise BrokenModel("onnxruntime does not load the exported model: %s" % error) from error
        # The exporter may rename inputs, and keeps their order.
        names = dict(zip(inputs, module.names))

        def run(fed: dict[str, Any]) -> dict[str, Any]:
            try:
                results = run_exported({name: fed[names[name]] for name in inputs})
            except Exception as error:
                raise BrokenModel("onnxruntime does not run the exported model: %s" % error) from error
            return {name: results[made] for name, made in zip(module.outputs, outputs)}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify; an operator without a kernel in onnxruntime is unsupported, since onnxruntime cannot run
        the original for comparison.
        """
        if exception.rpartition(".")[2] == "BrokenModel":
            # Bounded, because a message may quote the whole model.
            if "NOT_IMPLEMENTED" in message[:4000]:
                return "unsupported"
            return meaning_of(exception, message[:4000], (), {}, MEMORY)
        return super().classify(stage, exception, message)


EXPORTER = Exporter()
