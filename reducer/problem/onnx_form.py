"""ONNX models with their inputs as a form that the engine can reduce (`opsieve.reducer.engine.form`)."""

import hashlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx

from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import Edit, Pass
from opsieve.reducer.engine.engine import DIGITS
from opsieve.reducer.engine.form import Size
from opsieve.reducer.problem.order import byte_size, count_nodes, simpler

OnnxEdit: TypeAlias = Edit[Subject]
OnnxPass: TypeAlias = Pass[Subject]
# Changes a model and its inputs in place, and gives the inputs that are left; None where it does not apply.
Change: TypeAlias = Callable[[onnx.ModelProto, dict[str, Value]], dict[str, Value] | None]


class OnnxForm:
    """Order, digests and sizes of subjects; inputs are hashed once an array."""

    def __init__(self) -> None:
        # The arrays are kept alive: a freed array's id could be given to another one.
        self._arrays: dict[int, tuple[Any, bytes]] = {}
        self._last: tuple[Subject, Size] | None = None

    def simpler(self, candidate: Subject, than: Subject) -> bool:
        """Compare by the order of `opsieve.reducer.problem.order`."""
        return simpler(candidate, than)

    def size(self, subject: Subject) -> Size:
        """Return the nodes and bytes of the model; caches the last answer, because protobuf walks the whole
        model to measure it.
        """
        if self._last is None or self._last[0] is not subject:
            self._last = subject, Size(*count_nodes(subject.model), byte_size(subject.model))
        return self._last[1]

    def digest(self, subject: Subject) -> str:
        """Return a digest of the model's bytes and of the values fed."""
        state = hashlib.sha256(subject.program.model)
        for name, value in sorted(subject.inputs.items()):
            state.update(name.encode("utf-8", "surrogateescape") + b"\0" + self._value(value))
        return state.hexdigest()[:DIGITS]

    def _value(self, value: Any) -> bytes:
        if value is None:
            return b"-"
        if isinstance(value, list):
            return b"[" + b"".join(map(self._value, value)) + b"]"
        held = self._arrays.get(id(value))
        if held is None:
            array = np.asarray(value)
            # Strings are objects, whose bytes in numpy are addresses.
            data = repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes()
            text = f"{array.dtype.name}{array.shape}".encode()
            held = self._arrays[id(value)] = (value, hashlib.sha256(text + data).digest())
        return held[1]
