"""Frames between the main process and its workers: a JSON header and raw tensor buffers.

This file also runs inside workers, so it needs only the standard library and numpy, on Python 3.8 and newer,
and imports no other module of ours. Nothing is pickled: a compiler that corrupts its worker can send garbage,
never code.

A *value* is an input or output of a model: a numpy array (strings as an object array of `str`; bfloat16,
float8 and int4 as ml_dtypes arrays, one element per item), a list of values (an ONNX sequence), or None (an
absent optional).
"""

import io
import json
import math
import mmap
import os
import socket
import struct
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

# Registers bfloat16, float8_* and int4 with numpy by name
try:
    import ml_dtypes

    EXTENDED: Dict[str, "np.dtype[Any]"] = {
        name: np.dtype(getattr(ml_dtypes, name))
        for name in dir(ml_dtypes)
        if name[-1].isdigit() or "float" in name
        if isinstance(getattr(ml_dtypes, name), type)
    }
except ImportError:
    # An old release's environment can lack it: such values are then refused by name
    EXTENDED = {}

MAGIC = b"OPSV"
HEAD = struct.Struct(">4sIQ")
FILE = struct.Struct("i")
# Made once: `json.dumps` with separators makes an encoder for each call.
TO_JSON = json.JSONEncoder(separators=(",", ":")).encode
# The main process reads what a worker sends, and a hijacked worker may announce any length.
MAX_HEADER = 64 << 20
# A cache line: arrays are views of the received bytes, and compilers may use aligned loads on them.
ALIGN = 64
ZEROS = bytes(ALIGN)
STANDARD = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)

DTYPES: Dict[str, "np.dtype[Any]"] = {**{name: np.dtype(name) for name in STANDARD}, **EXTENDED}
# dtype -> its name: numpy takes five microseconds to spell one
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class WireError(ValueError):
    """The other side sent an invalid frame, or a value cannot be sent."""


def get_dtype(name: str) -> "np.dtype[Any]":
    """Return the numpy dtype called `name`; raises WireError if this environment lacks it."""
    if name in DTYPES:
        return DTYPES[name]
    raise WireError("dtype %s is not known here" % name[:40])


def pack_value(value: Any, chunks: List[Any]) -> Any:
    """Return the JSON description of `value`; its bytes are appended to `chunks` (views of contiguous
    arrays).
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return {"l": [pack_value(item, chunks) for item in value]}
    array = np.asarray(value)
    name = NAMES.get(array.dtype)
    if name is None:
        # Strings have no fixed size, so they travel in the header; ONNX's are UTF-8.
        if array.dtype.kind in "OUST":
            texts = [
                item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
                for item in array.ravel()
            ]
            return {"d": "string", "s": array.shape, "v": texts}
        name = array.dtype.name
        array = array.astype(get_dtype(name))  # another byte order than this machine's
    # ravel, not reshape: that leaves the elements of a broadcast or cut array apart.
    chunks.append(array.ravel().view(np.uint8).data)
    return {"d": name, "s": array.shape, "n": array.nbytes}


def unpack_value(described: Any, body: memoryview, offset: int) -> Tuple[Any, int]:
    """Read the described value from `body` at `offset`; return it and the offset behind it."""
    if described is None:
        return None, offset
    if "l" in described:
        items = []
        for item in described["l"]:
            value, offset = unpack_value(item, body, offset)
            items.append(value)
        return items, offset
    shape = tuple(described["s"])
    if described["d"] == "string":
        array = np.empty(len(described["v"]), dtype=object)
        array[:] = described["v"]
        return array.reshape(shape), offset
    dtype, size = get_dtype(described["d"]), described["n"]
    count = math.prod(shape) if shape else 1
    # The header comes from a process that a compiler may have corrupted: a wrong size would read outside of
    # the body.
    if min(shape, default=0) < 0 or count * dtype.itemsize != size or offset + size > len(body):
        raise WireError("a value's shape and size disagree")
    array = np.frombuffer(body, dtype=dtype, count=count, offset=offset).reshape(shape)
    return array, offset + size + (-size) % ALIGN


def pack_values(values: Dict[str, Any], chunks: List[Any]) -> Dict[str, Any]:
    """Describe named values in their order."""
    return {name: pack_value(value, chunks) for name, value in values.items()}


def unpack_values(described: Dict[str, Any], body: memoryview, offset: int) -> Tuple[Dict[str, Any], int]:
    """Read the named values described by `pack_values`; return them and the offset behind them."""
    values = {}
    for name, item in described.items():
        values[name], offset = unpack_value(item, body, offset)
    return values, offset


def encode_frame(header: Any, chunks: List[Any]) -> bytes:
    """Encode one frame: the header as JSON, then every chunk padded to 64 bytes."""
    return b"".join(encode_parts(header, chunks))


def encode_parts(header: Any, chunks: List[Any]) -> List[Any]:
    """Return the parts of a frame in order, without copying them."""
    # Messages of compilers hold bytes that are no UTF-8, which Python keeps as lone surrogates.
    text = TO_JSON(header).encode("utf-8", "surrogatepass")
    parts = [b"", text]
    size = 0
    for chunk in chunks:
        length = len(chunk)
        padding = -length % ALIGN
        parts += (chunk, ZEROS[:padding]) if padding else (chunk,)
        size += length + padding
    parts[0] = HEAD.pack(MAGIC, len(text), size)
    return parts


def read_sizes(head: bytes, limit: int) -> Tuple[int, int]:
    """Read header and body length from a frame's first 16 bytes; raises WireError if they are invalid or too
    large.
    """
    magic, header, body = HEAD.unpack(head)
    if magic != MAGIC:
        raise WireError("not a frame")
    if header > MAX_HEADER or body > limit:
        raise WireError("a frame of %d + %d bytes is over the limit" % (header, body))
    return header, body


def receive_frame(
    connection: socket.socket, limit: int = 1 << 40, files: Optional[List[int]] = None
) -> Tuple[Any, memoryview]:
    """Receive the next frame's header and body, blocking; raises EOFError if the other side is gone.

    A descriptor that comes with it is added to `files`.
    """
    begin = b""
    if files is not None:
        # A descriptor arrives with the first byte that was sent with it.
        begin, carried, _, _ = connection.recvmsg(HEAD.size, socket.CMSG_LEN(FILE.size))
        files += (FILE.unpack(data)[0] for _, kind, data in carried if kind == socket.SCM_RIGHTS)
        if not begin:
            raise EOFError("the connection closed")
    head = begin + bytes(receive_exactly(connection, HEAD.size - len(begin)))
    header, size = read_sizes(head, limit)
    text = receive_exactly(connection, header)
    body = receive_exactly(connection, size)
    return json.loads(bytes(text).decode("utf-8", "surrogatepass")), memoryview(body)


def attach_tensors(request: Any, outside: Dict[str, Any], file: int, maps: bool) -> None:
    """Attach a model's large tensors, which are in a file, to a request: mapped if its backend `maps` them,
    else inline.
    """
    sent, request.model = request.model, b""
    # A backend that maps tensors may still fall back to the model in one piece.
    request.whole = lambda: assemble_model(sent, outside["pieces"], file)
    if maps:
        request.mapped = map_tensors(outside["tensors"], file)
        request.model = sent[len(sent) - outside["bare"] :]
    else:
        request.model = request.whole()


def assemble_model(sent: bytes, pieces: List[List[int]], file: int) -> bytes:
    """Assemble a model from sent parts and parts in a file, holding it once.

    `pieces` are the lengths of sent parts, and offsets and lengths of parts in a file.
    """
    buffer = io.BytesIO()
    size = sum(piece[-1] for piece in pieces)
    # Reserves the whole size at once: growing by appending would copy a large model several times.
    buffer.seek(max(0, size - 1))
    buffer.write(bytes(min(1, size)))
    with buffer.getbuffer() as view:
        at = begin = 0
        for piece in pieces:
            end = at + piece[-1]
            if len(piece) == 1:
                view[at:end] = sent[begin : begin + piece[0]]
                begin += piece[0]
            # Read into its place; a copy would hold a tensor of gigabytes twice.
            elif os.preadv(file, [view[at:end]], piece[0]) != piece[1]:
                raise WireError("the file of large tensors is too short")
            at = end
    return buffer.getvalue()


def map_tensors(
    tensors: List[Tuple[str, int, List[int], int, int]], file: int
) -> List[Tuple[str, int, List[int], mmap.mmap]]:
    """Return name, ONNX's element type, shape and mapped data of tensors in a file."""
    return [
        (name, type_, shape, mmap.mmap(file, length, prot=mmap.PROT_READ, offset=offset))
        for name, type_, shape, offset, length in tensors
    ]


def receive_exactly(connection: socket.socket, size: int) -> bytearray:
    """Receive `size` bytes of a connection; raises EOFError if the other side is gone before."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise EOFError("the connection closed")
        view = view[got:]
    return buffer
