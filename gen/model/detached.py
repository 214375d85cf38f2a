"""Keep the data of large tensors outside of memory: in one unnamed file per process, to which models refer by
a digest.

A model that is read keeps a large tensor of its main graph as a reference: `data_location` is EXTERNAL, and
the only entry of `external_data` is a `location` that says the SHA-256 of the tensor's raw form. Copies of
the model and parts cut out of it share the data, equal tensors are kept once, and the user's own files may
change. References never leave the process: `pieces` has a model as any other program reads it.
"""

import hashlib
import mmap
import os
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx
from onnx import TensorProto, helper

# The size in bytes from which a tensor's data is kept outside of memory.
LEAST = 1 << 20
# No tool writes such a location, and a forged one is looked up by its digest and not found.
SCHEME = "opsieve-sha256:"
_PAGE = mmap.ALLOCATIONGRANULARITY
# Tags of protobuf for the fields 7, 5 and 9 of onnx.proto, which are length-delimited.
_GRAPH, _INITIALIZER, _RAW_DATA = (
    b"\x3a",
    b"\x2a",
    b"\x4a",
)


@dataclass(frozen=True, slots=True)
class DataPart:
    """Bytes of the file: `length` of them from `offset` on, which lies at the beginning of a page."""

    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def view(self) -> memoryview:
        """Map the bytes for as long as the view exists."""
        return memoryview(mmap.mmap(_file().descriptor, self.length, prot=mmap.PROT_READ, offset=self.offset))


class _DataFile:
    """Tensors' data by digest. It is removed from its folder at once, so that it goes when the last process
    that has it open ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end = 0
        self.parts: dict[str, DataPart] = {}
        self._open()

    def _open(self) -> None:
        self._written, name = tempfile.mkstemp(prefix="opsieve-")
        try:
            # The descriptor that workers get.
            self.descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.unlink(name)
        self._owner = os.getpid()

    def put(self, chunks: Iterable[bytes]) -> str:
        """Keep data; its digest. OSError when the disk is full."""
        with self._lock:
            if self._owner != os.getpid():
                # A forked process takes a file of its own: both would write to the same places of one file.
                old = self.descriptor
                self._open()
                for part in self.parts.values():
                    _write_all(self._written, os.pread(old, part.length, part.offset), part.offset)
            state, at = hashlib.sha256(), self._end
            for chunk in chunks:
                state.update(chunk)
                at += _write_all(self._written, chunk, at)
            digest = state.hexdigest()
            # A known digest leaves the end where it was, so that the next data overwrites the second copy.
            if digest not in self.parts:
                self.parts[digest] = DataPart(self._end, at - self._end)
                # `mmap` takes offsets at page boundaries only.
                self._end = -(-at // _PAGE) * _PAGE
            return digest


def _write_all(descriptor: int, data: bytes, at: int) -> int:
    view = memoryview(data)
    while view:
        # The system may write less than asked.
        view = view[os.pwrite(descriptor, view, at + len(data) - len(view)) :]
    return len(data)


@cache
def _file() -> _DataFile:
    return _DataFile()


def descriptor() -> int:
    """Return the open file, to read only; a process that is given it finds `DataPart`s in it."""
    return _file().descriptor


def detach(tensor: TensorProto, chunks: Iterable[bytes]) -> None:
    """Make a tensor refer to data in its raw form, which is written to the file. OSError when the disk is
    full.
    """
    digest = _file().put(chunks)
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=SCHEME + digest)


def part_of(tensor: TensorProto) -> DataPart | None:
    """Return the place of a tensor's data, for a tensor that refers to the data file; `None` for any other
    tensor and for a forged reference.
    """
    if tensor.data_location != TensorProto.EXTERNAL or len(tensor.external_data) != 1:
        return None
    location = tensor.external_data[0].value
    return _file().parts.get(location.removeprefix(SCHEME)) if location.startswith(SCHEME) else None


def tensor_bytes(tensor: TensorProto) -> int:
    """Return the bytes of a tensor, including those outside of memory."""
    part = part_of(tensor)
    return int(tensor.ByteSize()) + (0 if part is None else len(part))


def detached_bytes(model: onnx.ModelProto) -> int:
    """Return how many bytes the model's main graph refers to."""
    return sum(len(part) for tensor in model.graph.initializer if (part := part_of(tensor)) is not None)


def as_inputs(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Return the model with stored tensors of these names as inputs of their type, without its metadata; the
    tensors are not copied.
    """
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    for part in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(light.graph, part).extend(getattr(model.graph, part))
    known = {info.name for info in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in names:
            light.graph.initializer.append(tensor)
        elif tensor.name not in known:
            light.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def with_data_beside(model: onnx.ModelProto, folder: str) -> tuple[onnx.ModelProto, dict[str, DataPart]]:
    """Return the model with the data of large tensors in files of `folder` beside it, as ONNX's external
    data.

    Returns:
        The model, which shares nothing with the given one, and what to write into each file.
    """
    beside = onnx.ModelProto()
    beside.CopyFrom(model)
    parts: dict[str, DataPart] = {}
    for tensor in beside.graph.initializer:
        part = part_of(tensor)
        if part is not None:
            name = tensor.external_data[0].value.removeprefix(SCHEME)
            parts[name] = part
            tensor.external_data[0].value = f"{folder}/{name}"
            tensor.external_data.add(key="length", value=str(len(part)))
    return beside, parts


def write_part(part: DataPart, path: Path) -> None:
    """Write data into a new read-only file: shared with ours where the file system can, else copied by the
    kernel. OSError.
    """
    # O_EXCL: an existing file, or a link to one, is never opened.
    made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444)
    try:
        at = 0
        while at < part.length:
            # The kernel may copy less than asked.
            done = os.copy_file_range(descriptor(), made, part.length - at, part.offset + at, at)
            if not done:
                raise OSError(f"{path}: nothing was written")
            at += done
    finally:
        os.close(made)


def may_refer(data: bytes) -> bool:
    """Return whether a serialised model may have references: False is certain."""
    # A search of the bytes costs less than parsing the model.
    return SCHEME.encode() in data


def pieces(model: onnx.ModelProto, data: bytes) -> tuple[bytes | DataPart, ...]:
    """List the parts of the model's bytes with its references replaced by the data, in order; `data` is the
    model serialised.

    Stored tensors come last in the graph then, in their order. Protobuf's fields may stand in any order
    (https://protobuf.dev/programming-guides/encoding/).
    """
    # Most models have no large tensor, and their bytes are passed on unchanged.
    if not detached_bytes(model):
        return (data,)
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    del rest.graph.initializer[:]
    graph = rest.graph.SerializeToString(deterministic=True)
    rest.ClearField("graph")
    stored = [piece for tensor in model.graph.initializer for piece in _split_tensor(tensor)]
    length = len(graph) + sum(map(len, stored))
    return tuple(
        _join_bytes(
            [rest.SerializeToString(deterministic=True), _GRAPH, encode_number(length), graph, *stored]
        )
    )


def _split_tensor(tensor: TensorProto) -> Iterator[bytes | DataPart]:
    """Yield a stored tensor as a field of its graph."""
    part = part_of(tensor)
    if part is None:
        data = tensor.SerializeToString(deterministic=True)
        yield _INITIALIZER + encode_number(len(data)) + data
        return
    bare = TensorProto()
    bare.CopyFrom(tensor)
    bare.ClearField("external_data")
    bare.ClearField("data_location")
    data = bare.SerializeToString(deterministic=True) + _RAW_DATA + encode_number(len(part))
    yield _INITIALIZER + encode_number(len(data) + len(part)) + data
    yield part


def _join_bytes(found: Iterable[bytes | DataPart]) -> Iterator[bytes | DataPart]:
    """Merge neighbouring runs of bytes."""
    held: list[bytes] = []
    for piece in found:
        if isinstance(piece, bytes):
            held.append(piece)
            continue
        yield b"".join(held)
        held = []
        yield piece
    yield b"".join(held)


def encode_number(value: int) -> bytes:
    """Encode a number as protobuf does, in groups of seven bits, the least significant first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
