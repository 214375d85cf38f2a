"""Read arrays from an untrusted pickle without calling anything that the pickle names.

NNSmith keeps the inputs and outputs of a model in `oracle.pkl`, a dict of dicts of numpy arrays. Classes of
our own stand for the few names by which numpy pickles arrays and only record their arguments; every other
name is refused. `numpy.frombuffer` then makes an array of each record, so memory is bounded by the bytes
read.
"""

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import bound_reading, read_file

# The values of one test, with room to spare.
_LIMIT = 256 << 20
# Numbers alone: an object array would be unpickled element by element.
_DTYPE = re.compile(r"[<>|=]?(?:\?|b1|[iu][1248]|f[248])")


class _Dtype:
    """A dtype by its code; the state that follows tells the order of bytes."""

    def __init__(self, code: object = "", *_: object) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("a dtype that is not plain")
        self.order = state[1]

    def numpy(self) -> np.dtype[Any]:
        if not isinstance(self.code, str) or not _DTYPE.fullmatch(self.code):
            raise pickle.UnpicklingError("a dtype that is not plain")
        return np.dtype(self.code).newbyteorder(
            "=" if self.order == "|" else self.order  # type: ignore[arg-type]
        )


class _Array:
    """The recorded arguments of a pickled array; stands for numpy's `_reconstruct` and `_frombuffer`."""

    def __init__(self, *_: object, parts: tuple[Any, ...] = ()) -> None:
        self.parts = parts

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array of an unknown form")
        _, shape, dtype, fortran, data = state
        self.parts = (shape, dtype, "F" if fortran else "C", data)

    def numpy(self) -> np.ndarray[Any, Any]:
        shape, dtype, order, data = self.parts or ((), None, "C", None)
        plain = (
            isinstance(dtype, _Dtype) and isinstance(data, (bytes, bytearray)) and isinstance(shape, tuple)
        )
        if (
            not plain
            or not all(isinstance(side, int) and 0 <= side < 1 << 40 for side in shape)
            or len(shape) > 32
        ):
            raise pickle.UnpicklingError("an array of an unknown form")
        kind = dtype.numpy()
        if math.prod(shape) * kind.itemsize != len(data):
            raise pickle.UnpicklingError("an array whose bytes do not fill its shape")
        read: np.ndarray[Any, Any] = np.frombuffer(data, kind).reshape(shape, order=order)
        return read.astype(kind.newbyteorder("="))


def _from_buffer(data: object, dtype: object, shape: object, order: object, *_: object) -> _Array:
    return _Array(parts=(shape, dtype, "F" if order == "F" else "C", data))


def _encode(text: object, encoding: object) -> bytes:
    """Bytes, as protocol 2 writes them."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("bytes of an unknown form")
    return text.encode("latin1")


_NAMES: dict[tuple[str, str], Any] = {
    (module, name): stand_in
    for package in ("numpy.core", "numpy._core")
    for module, name, stand_in in (
        (f"{package}.multiarray", "_reconstruct", _Array),
        # A number of numpy's is an array without dimensions here.
        (f"{package}.multiarray", "scalar", lambda dtype, data: _Array(parts=((), dtype, "C", data))),
        (f"{package}.numeric", "_frombuffer", _from_buffer),
    )
} | {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("collections", "OrderedDict"): dict,
    ("_codecs", "encode"): _encode,
    # Protocol 2's way of writing b"".
    ("__builtin__", "bytes"): lambda: b"",
}


class _StandInUnpickler(pickle.Unpickler):
    """Resolves the stand-ins and refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name."""
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it names {shown(f'{module}.{name}')}, which is not an array")
        return _NAMES[module, name]

    def persistent_load(self, pid: object) -> NoReturn:
        """Refuse references to other files."""
        raise pickle.UnpicklingError("it refers to other files")


@bound_reading
def read_oracle(path: Path) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """Return the arrays of an NNSmith oracle by `input` and `output`, then by name; `output` is left out when
    it has none.

    BadInput when the file holds anything else, or is larger than 256 MiB.
    """
    data = read_file(path, _LIMIT)
    try:
        # A place in the memo makes room for all before it, and steps may double what they made: the bound
        # on memory ends that.
        dump = _StandInUnpickler(io.BytesIO(data)).load()
        roles = [role for role in ("input", "output") if dump.get(role) is not None]
        # Names may share what they stand for, but each gets an array of its own.
        held = {id(value): value for role in roles for value in dump[role].values()}
        if sum(len(dump[role]) for role in roles) > len(held):
            raise pickle.UnpicklingError("an array of several names")
        return {
            role: {name: value.numpy() for name, value in dump[role].items() if isinstance(name, str)}
            for role in roles
        }
    except Exception as error:  # noqa: BLE001
        # Bytes that a stranger chose can make the reader raise anything
        said = shown(str(error) or type(error).__name__, 120)
        raise BadInput(f"{shown(path, 160)} is not an oracle of arrays: {said}") from None
