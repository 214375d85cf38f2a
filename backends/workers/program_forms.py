"""What workers are sent of a program of each form, and what is tried again where a release is older than the program."""

from functools import lru_cache
from typing import Any

from opsieve.gen.model.lowering import lower_ir, lower_opset
from opsieve.gen.model.program import OnnxProgram, Program


def payload(program: Program, as_is: bool) -> bytes:
    """The bytes that are sent: of an ONNX model with the lowest IR version that it allows, unless it is to stay `as_is`."""
    return _lowered(program) if isinstance(program, OnnxProgram) and not as_is else program.data


def facts(program: Program) -> dict[str, Any]:
    """What a test's header says beside; nothing for an ONNX model."""
    return {} if isinstance(program, OnnxProgram) else {"form": program.form, "passes": list(program.passes)}


def for_older(program: Program) -> Program | None:
    """The same operators under the lowest opset that has them, None where that is the program itself."""
    if not isinstance(program, OnnxProgram):
        return None
    lowered = lower_opset(program.proto).SerializeToString()
    return None if lowered == program.proto.SerializeToString() else OnnxProgram(lowered, program.name)


@lru_cache(maxsize=64)
def _lowered(program: OnnxProgram) -> bytes:
    """So that no release refuses it for a newer number alone."""
    return lower_ir(program.model)
