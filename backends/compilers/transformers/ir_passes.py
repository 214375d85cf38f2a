"""onnx-ir's graph passes as a compiler: onnxruntime runs the resulting model with its optimiser off.

https://onnx.ai/ir-py/api/ir_passes_common.html; a pass is named like its class, without `Pass`. By default
the passes run that clean up any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsieve.backends.compilers.transformers import pass_options, targets

USUAL = (
    "Inline", "LiftConstantsToInitializers", "LiftSubgraphInitializersToMainGraph", "DeduplicateInitializers",
    "CommonSubexpressionElimination", "IdentityElimination", "RemoveUnusedNodes", "RemoveUnusedFunctions",
    "RemoveUnusedOpsets", "NameFix", "TopologicalSort", "OutputFix",
)  # fmt: skip


def run_passes(model: Any, options: Mapping[str, str]) -> Any:
    """Run the named passes, or the usual ones, without those to skip; raise UnknownName for one that the
    release lacks.
    """
    import onnx_ir
    from onnx_ir.passes import common

    every = [name[: -len("Pass")] for name in dir(common) if name.endswith("Pass")]
    chosen = pass_options.check_names("onnx-ir", pass_options.split_names(options["passes"]), every)
    skipped = pass_options.check_names("onnx-ir", pass_options.split_names(options["skip"]), every)
    held = onnx_ir.from_proto(model)
    # An older release has fewer passes.
    for name in chosen or [name for name in USUAL if name in every]:
        if name in skipped:
            continue
        if options["trace"] == "on":
            pass_options.report_passes("ran", [name])
        done = getattr(common, name + "Pass")()(held)
        held = done.model
        if options["trace"] == "on" and done.modified:
            pass_options.report_passes("acted", [name])
    return onnx_ir.to_proto(held)


BACKEND = targets.Transformed(
    "onnx-ir",
    {"passes": (), "skip": (), "trace": targets.TRACE},
    "passes",
    ("onnx", "ml_dtypes", "typing_extensions", "packaging", "sympy"),
    ("onnx_ir.passes.common",),
    run_passes,
    package="onnx-ir",
    extra="onnx-ir",
)
