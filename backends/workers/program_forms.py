"""What workers are sent of a program of each form, and what is tried again where a release is older than the program."""

from functools import lru_cache
from typing import Any

from opsieve.gen.model.lowering import lower_ir, lower_opset, lowest_ir
from opsieve.gen.model.program import OnnxProgram, Program


def payload(program: Program, as_is: bool) -> bytes:
    """The bytes that are sent: of an ONNX model with the lowest IR version that it allows, unless it is to stay `as_is`."""
    if as_is or not isinstance(program, OnnxProgram):
        return program.data
    return _lowered(program) if len(program.data) < _HEAVY else _lowered_in_place(program)


def facts(program: Program) -> dict[str, Any]:
    """What a test's header says beside; nothing for an ONNX model."""
    return {} if isinstance(program, OnnxProgram) else {"form": program.form, "passes": list(program.passes)}


def for_older(program: Program) -> Program | None:
    """The same operators under the lowest opset that has them, None where that is the program itself."""
    if not isinstance(program, OnnxProgram):
        return None
    lowered = lower_opset(program.proto).SerializeToString()
    return None if lowered == program.proto.SerializeToString() else OnnxProgram(lowered, program.name)


_HEAVY = 16 << 20  # bytes of a model that is not kept twice


def _lowered_in_place(program: OnnxProgram) -> bytes:
    """Likewise, without another copy of what a large model stores: of a field that stands twice protobuf takes the last one."""
    lowest = lowest_ir(program.proto)
    return program.data if lowest == program.proto.ir_version else program.data + b"\x08" + bytes([lowest])


@lru_cache(maxsize=64)
def _lowered(program: OnnxProgram) -> bytes:
    """So that no release refuses it for a newer number alone."""
    return lower_ir(program.model)
