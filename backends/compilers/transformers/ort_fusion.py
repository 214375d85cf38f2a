"""onnxruntime.transformers.optimizer as a compiler: its fusions written in Python, run by onnxruntime with
its optimiser off.

https://github.com/microsoft/onnxruntime/tree/main/onnxruntime/python/tools/transformers; it comes in
onnxruntime's wheel. `level` has onnxruntime optimise the model first, for which this tool imports torch.
`skip` takes the names of fusions as `FusionOptions` has them, without `enable_`. A fused operator for which
onnxruntime has no kernel on the CPU is its lack: the tool fuses for other devices too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import pass_options, targets

MODELS = (
    "bert", "bart", "bert_tf", "bert_keras", "clip", "conformer", "gpt2", "gpt2_tf", "gpt_neox", "phi",
    "qwen3", "sam2", "swin", "tnlr", "t5", "unet", "vae", "vit", "mmdit",
)  # fmt: skip


def fuse(model: Any, options: Mapping[str, str]) -> Any:
    """Run the fusions for a type of model; raise UnknownName for a type or fusion that the release lacks."""
    # The tool's folder is on sys.path
    from fusion_options import FusionOptions  # type: ignore[import-not-found]
    from onnxruntime.transformers import optimizer

    kind = options["model"]
    pass_options.check_names("onnxruntime.transformers", [kind], optimizer.MODEL_TYPES)
    fusions = FusionOptions(kind)
    switches = [name[len("enable_") :] for name in vars(fusions) if name.startswith("enable_")]
    for name in pass_options.check_names(
        "onnxruntime.transformers", pass_options.split_names(options["skip"]), switches
    ):
        setattr(fusions, "enable_" + name, False)
    made = optimizer.optimize_model(
        model, model_type=kind, opt_level=int(options["level"]), optimization_options=fusions
    )
    return made.model


BACKEND = targets.Transformed(
    "onnxruntime-transformers",
    {"model": MODELS, "level": ("0", "1", "2", "99"), "skip": ()},
    "model",
    ("onnx", "protobuf", "flatbuffers", "packaging", "coloredlogs", "sympy", "ml_dtypes"),
    # It is imported late, by the inference of shapes.
    ("sympy", "onnxruntime.transformers.optimizer"),
    fuse,
    package="onnxruntime",
    extra="symbolic-shapes",
    may_lack=True,
    checked=False,
    patterns=(("unsupported", r"ONNX model has no opset for default domain"),),
)
