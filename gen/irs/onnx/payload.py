"""The bytes of an ONNX model as workers get them, and the second attempt for releases older than the
model.
"""

from functools import lru_cache
from typing import Any

from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.detached import part_of
from opsieve.gen.model.lowering import lower_ir, lower_opset, lowest_ir

# The size in bytes from which the lowered copy of a model is not cached.
_HEAVY = 16 << 20


def payload(program: OnnxProgram, as_is: bool) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes to send and additional header fields of the test: the model with the lowest IR version
    that it allows, unless it stays `as_is`.
    """
    if len(program.pieces) > 1:
        return _pack_large(program, as_is)
    if as_is:
        return program.data, {}
    return (_lower_ir_version(program) if len(program.data) < _HEAVY else program.data + _lower(program)), {}


def older(program: OnnxProgram) -> OnnxProgram | None:
    """Return the same operators under the lowest opset that has them; `None` if that is the program
    itself.
    """
    lowered = lower_opset(program.proto).SerializeToString()
    return None if lowered == program.proto.SerializeToString() else OnnxProgram(lowered, program.name)


def _lower(program: OnnxProgram) -> bytes:
    """What lowers the IR version of a serialised model that it is added to: of a field that stands twice
    protobuf takes the last one.
    """
    lowest = lowest_ir(program.proto)
    return b"" if lowest == program.proto.ir_version else b"\x08" + bytes([lowest])


@lru_cache(maxsize=64)
def _lower_ir_version(program: OnnxProgram) -> bytes:
    """Return the model with its IR version lowered, so that a release does not refuse it for the number
    alone.
    """
    return lower_ir(program.model)


def _pack_large(program: OnnxProgram, as_is: bool) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes around the large tensors of a model, behind them the model with references, and where
    the worker finds the tensors.
    """
    end = b"" if as_is else _lower(program)
    pieces = (*program.pieces, end)
    bare = program.model + end
    tensors = [
        [tensor.name, tensor.data_type, list(tensor.dims), part.offset, part.length]
        for tensor in program.proto.graph.initializer
        if (part := part_of(tensor)) is not None
    ]
    places = [[len(piece)] if isinstance(piece, bytes) else [piece.offset, piece.length] for piece in pieces]
    sent = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    return sent + bare, {"outside": {"pieces": places, "tensors": tensors, "bare": len(bare)}}
