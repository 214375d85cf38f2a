"""Run models for the transformers: on onnxruntime with its optimiser off, or on the reference if onnxruntime
does not take them.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any, Callable, Mapping

from opsieve.backends.compilers.ort import BACKEND as ORT
from opsieve.backends.compilers.transformers import result_checks
from opsieve.backends.compilers.worker_common import BrokenModel, NotRun
from opsieve.backends.protocol import Request, Run

# The backend that evaluates models which onnxruntime refuses.
SECOND_HOST = "reference"


def ignore_stage(name: str) -> None:
    """Ignore the stage, for a session that is loaded within a stage of the transformer."""


def open_session(model: bytes, inputs: Mapping[str, Any], stage: Callable[[str], None]) -> Any:
    """Return the function that runs a serialised model on onnxruntime with its optimiser off."""
    return ORT.prepare(Request(model, ORT.baseline, dict(inputs), stage))


def return_model(model: Any) -> Run:
    """Return a function that gives the bytes of a model for any input."""
    import numpy as np

    data = np.frombuffer(model.SerializeToString(), np.uint8)
    return lambda values: {"model": data}


def load_result(model: bytes, inputs: Mapping[str, Any], may_lack: bool) -> Any:
    """Return the function that runs a transformed model; raise BrokenModel if onnxruntime does not load it,
    NotRun for a lack that it may have.
    """
    try:
        return open_session(model, inputs, ignore_stage)
    except Exception as error:
        raise explain_refusal(error, "load", may_lack) from error


def explain_refusal(error: Exception, verb: str, may_lack: bool) -> Exception:
    """Make the exception for a result that onnxruntime does not load or run: some kernels report a missing
    feature only when they run.
    """
    stage = "compile" if verb == "load" else "run"
    # A tool that was asked for these operators is not at fault for a kernel that onnxruntime lacks.
    if may_lack and ORT.classify(stage, type(error).__name__, str(error)) in ("unsupported", "environment"):
        return NotRun(f"for the transformed model: {error}")
    return BrokenModel(f"onnxruntime {verb}s the original and not the transformed model: {error}")


def evaluate_by_reference(model: bytes, before: Any, lack: NotRun) -> Run:
    """Make the function that evaluates a serialised model by the reference. Both raise `lack` if that cannot
    be, as in the worker of a release, or if onnx's checker refuses the original `before`.
    """
    try:
        # By its entry point: this module must not import the reference, which the worker of a release lacks.
        (point,) = metadata.entry_points(group="opsieve.backends", name=SECOND_HOST)
    except (TypeError, ValueError):
        # The worker of a release has no opsieve, and maybe an older importlib
        raise lack from None
    reference: Any = point.load()
    # What an invalid model means is undefined, so that the reference's values prove nothing.
    if result_checks.checker_message(before):
        raise lack

    def run(values: dict[str, Any]) -> Any:
        try:
            asked = Request(model, {"precision": "native"}, values, ignore_stage)
            return reference.prepare(asked)(values)
        except Exception as error:
            raise lack from error

    return run


def prepare_original(request: Request, stage: Callable[[str], None]) -> Run:
    """Return the function that runs the original model; it and this one raise NotRun with onnxruntime's
    message.
    """
    try:
        run_original = open_session(request.model, request.inputs, stage)
    except Exception as error:
        raise NotRun(str(error)) from error

    def run(values: dict[str, Any]) -> Any:
        try:
            return run_original(values)
        except Exception as error:
            raise NotRun(str(error)) from error

    return run
