"""A program under test: an ONNX model, whole in memory."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import onnx


@dataclass(frozen=True)
class Program:
    """An ONNX model as serialised bytes, its external data taken in (2 GB at most, protobuf's own limit).

    `name` is for people: where the program came from. Two programs are equal when their bytes are.
    """

    model: bytes
    name: str = field(default="", compare=False)

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The parsed model. Shared: copy before changing it."""
        return onnx.load_model_from_string(self.model)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, in hexadecimal."""
        return hashlib.sha256(self.model).hexdigest()
