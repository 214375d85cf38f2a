"""Inputs and expected outputs on disk: `.npz` files and ONNX data sets (`input_0.pb`, `output_0.pb`, ...)."""

import io
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from onnx import helper

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import BUDGET, LIMIT, bound_reading, get_size, open_file, read_file, reason
from opsieve.gen.model.tensors import (
    NUMBERS,
    OptionalType,
    TensorType,
    Value,
    ValueType,
    misfit,
    read_value,
    write_value,
)

Role = Literal["input", "output"]

# The most bytes of an .npy header, as numpy limits it.
_MAX_HEADER = 10_000
# Version 3.0 only adds names of fields in UTF-8, and arrays with fields are refused anyway.
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# The names that NNSmith, onnx's own tests and numpy give to values without names.
_POSITIONAL = {
    "input": re.compile(r"(?:i|in|input_?|arr_)([0-9]{1,5})"),
    "output": re.compile(r"(?:o|out|output_?|arr_)([0-9]{1,5})"),
}


def read_npz(path: Path, types: Mapping[str, ValueType], role: Role) -> dict[str, Value]:
    """Return the values that an `.npz` holds for the inputs or outputs of these types, in their order;
    `fitted` tells how.
    """
    return fit_values(_arrays(path), types, role, shown(path, 120))


def fit_values(
    arrays: Mapping[str, Value], types: Mapping[str, ValueType], role: Role, where: str
) -> dict[str, Value]:
    """Convert arrays, read from `where`, to values for the inputs or outputs of these types, in their order.

    Arrays are found by name or, when no name is one of the model's, by position (`i0`, `o0`, `arr_0`, ...).
    An optional without an array is None. Raw void items of the size of bfloat16, float8 or int4 elements,
    which is how numpy saves those, are taken for them; nothing else is converted. BadInput for a value that
    is missing, too much or does not fit.
    """
    named = _by_name(arrays, types, role, where)
    values: dict[str, Value] = {}
    for name, type_ in types.items():
        if name not in named:
            if not isinstance(type_, OptionalType):
                raise BadInput(f"{where} has no value for the {role} {shown(name)} ({type_})")
            values[name] = None
            continue
        values[name] = _reinterpret_void(named[name], type_)
    check_values(values, types, role, where)
    return values


@bound_reading
def read_folder(folder: Path, types: Mapping[str, ValueType], role: Role) -> dict[str, Value]:
    """Return the values of an ONNX data set folder, `input_K.pb` or `output_K.pb` by position; BadInput as
    `read_npz`.
    """
    where = shown(folder, 120)
    values: dict[str, Value] = {}
    total = 0
    for position, (name, type_) in enumerate(types.items()):
        file = folder / f"{role}_{position}.pb"
        if not file.exists() and isinstance(type_, OptionalType):
            values[name] = None
            continue
        # Of all files together, since each of them alone may be within the limit.
        total += get_size(file)
        if total > LIMIT:
            raise BadInput(f"{where} holds over {LIMIT} bytes of values; cut the case down first")
        try:
            values[name] = read_value(read_file(file), type_)
        except BadInput as error:
            raise BadInput(f"{shown(file, 160)} cannot be used: {error}") from None
    # A file too many means that the data belongs to another model.
    extra = folder / f"{role}_{len(types)}.pb"
    if extra.exists():
        raise BadInput(f"{where} has {extra.name}, but the model has {len(types)} {role}s")
    check_values(values, types, role, where)
    return values


def write_folder(
    folder: Path, values: Mapping[str, Value], types: Mapping[str, ValueType], role: Role
) -> None:
    """Write values as `input_K.pb` or `output_K.pb`, K being the place in `types`; a value that is not there
    has no file.
    """
    for position, (name, type_) in enumerate(types.items()):
        if name in values:
            (folder / f"{role}_{position}.pb").write_bytes(write_value(values[name], type_, name))


def check_values(values: Mapping[str, Value], types: Mapping[str, ValueType], role: Role, where: str) -> None:
    """BadInput when the values are not exactly those that the types ask for."""
    for name, type_ in types.items():
        if name not in values:
            raise BadInput(f"{where} has no value for the {role} {shown(name)} ({type_})")
        problem = misfit(values[name], type_)
        if problem:
            raise BadInput(f"in {where}, the value of the {role} {shown(name)} {problem}")
    extra = [name for name in values if name not in types]
    if extra:
        raise BadInput(f"{where} has a value {shown(extra[0])}, which is not an {role} of the model")


def _by_name(
    arrays: Mapping[str, Any], types: Mapping[str, ValueType], role: Role, where: str
) -> Mapping[str, Any]:
    # One name that fits proves that the names are meant; positions would then hide a misspelt one.
    if not types.keys() & arrays.keys():
        names = list(types)
        matches = {key: _POSITIONAL[role].fullmatch(key) for key in arrays}
        places = {key: int(match[1]) for key, match in matches.items() if match}
        if len(places) == len(arrays) and len(set(places.values())) == len(places):
            beyond = [key for key, place in places.items() if place >= len(names)]
            if beyond:
                raise BadInput(
                    f"{where} has an entry {shown(beyond[0])}, but the model has {len(names)} {role}s"
                )
            return {names[place]: arrays[key] for key, place in places.items()}
    extra = [key for key in arrays if key not in types]
    if extra:
        raise BadInput(f"{where} has an entry {shown(extra[0])}, which is not an {role} of the model")
    return arrays


def _reinterpret_void(array: Value, type_: ValueType) -> Value:
    # a sequence, or an optional that is absent: not from a file of arrays
    if not isinstance(array, np.ndarray):
        return array
    while isinstance(type_, OptionalType):
        type_ = type_.element
    if (
        isinstance(type_, TensorType)
        and array.dtype.kind == "V"
        and type_.dtype in NUMBERS
        and type_.dtype != "string"
    ):
        dtype = helper.tensor_dtype_to_np_dtype(NUMBERS[type_.dtype])
        # numpy saves types that it does not know as raw bytes.
        if dtype.itemsize == array.dtype.itemsize and dtype.type.__module__ == "ml_dtypes":
            return array.view(dtype)
    if array.dtype.kind in "US":
        texts = np.empty(array.size, dtype=object)
        texts[:] = [
            item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)
            for item in array.ravel()
        ]
        return texts.reshape(array.shape)
    return array


@bound_reading
def _arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an `.npz`, read without numpy's loader: sizes are known before anything is
    unpacked, nothing is pickled.
    """
    where = shown(path, 160)
    arrays = {}
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            # The directory of the archive tells the sizes before anything is unpacked.
            if len(entries) > BUDGET.entries or sum(entry.file_size for entry in entries) > LIMIT:
                raise BadInput(
                    f"{where} unpacks to over {LIMIT} bytes or {BUDGET.entries} entries; cut the case down"
                    " first"
                )
            for entry in entries:
                if (
                    # Other methods unpack with less control over memory, and numpy uses none of them.
                    entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                    or entry.flag_bits & 1
                ):
                    raise BadInput(f"{where} is encrypted or packed in a way that numpy does not write")
                if not entry.filename.endswith(".npy"):
                    raise BadInput(f"{where} has an entry {shown(entry.filename)}, which is not an array")
                name = entry.filename.removesuffix(".npy")
                if name in arrays:
                    raise BadInput(f"{where} has two entries called {shown(name)}")
                with archive.open(entry) as packed:
                    arrays[name] = read_npy(packed, entry.file_size, f"the entry {shown(name)} of {where}")
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{where} is not a readable .npz file: {shown(reason(error))}") from None
    return arrays


def read_npy(file: IO[bytes], length: int, where: str) -> np.ndarray[Any, Any]:
    """Read an array from a file in numpy's `.npy` format that is `length` bytes long. Raises BadInput for
    objects and truncated files, ValueError for what numpy cannot make of it.

    numpy's own loader is not used: here the size is known before memory is taken, and nothing is pickled.
    """
    # numpy writes float8_e5m2 as a type of its own making that it cannot read back; as raw bytes it can.
    head = io.BytesIO(file.read(_MAX_HEADER).replace(b"'<f1'", b"'|V1'", 1))
    read_header = _HEADERS.get(np.lib.format.read_magic(head))
    if read_header is None:
        raise BadInput(f"{where} has an unknown version of the .npy format")
    try:
        # numpy warns about headers that Python 2 wrote.
        with warnings.catch_warnings(action="ignore"):
            shape, by_columns, dtype = read_header(head, max_header_size=_MAX_HEADER)
    except Exception as error:  # noqa: BLE001
        # numpy reads headers with Python's tokenizer and parser, which raise many kinds of errors.
        raise BadInput(f"{where} has no .npy header that can be read ({type(error).__name__})") from None
    if dtype.hasobject:
        raise BadInput(f"{where} holds pickled objects, which opsieve does not load; save plain arrays")
    if (
        dtype.fields
        or dtype.subdtype
        or dtype.kind not in "biufcUSV"
        # numpy takes True for a size, and then cannot use it.
        or not all(type(size) is int and size >= 0 for size in shape)
    ):
        raise BadInput(f"{where} is not an array of numbers, booleans or strings")
    size = length - head.tell()
    # Before the data is read: a header may declare terabytes.
    if math.prod(shape) * dtype.itemsize != size:
        raise BadInput(f"{where} declares {shown(shape)} of {dtype.name}, but holds {size} bytes")
    data = head.read() + file.read()
    if len(data) != size:
        raise BadInput(f"{where} is cut short")
    if dtype.kind == "U":
        # numpy makes a fault of a number that is no character; this raises ValueError.
        data.decode("utf-32-be" if dtype.byteorder == ">" else "utf-32-le", "surrogatepass")
    order: Literal["F", "C"] = "F" if by_columns else "C"
    array = np.frombuffer(data, dtype).reshape(shape, order=order) if size else np.empty(shape, dtype)
    native = array if dtype.kind == "V" else array.astype(dtype.newbyteorder("="), copy=False)
    # `ascontiguousarray` turns 0-d into 1-d.
    return np.ascontiguousarray(native).reshape(shape)
