"""Reading an ONNX model from a file that may be hostile."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx
import onnx.checker
import onnx.helper
import onnx.shape_inference
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model import detached, printable, structure, tensors
from opsieve.gen.model.files import (
    BUDGET,
    LIMIT,
    allow_reading,
    bound_reading,
    get_disk_usage,
    get_size,
    read_file,
    read_part,
    reason,
    resolve_inside,
)

# onnx's checker quotes whole nodes in its messages; one sentence is enough on a terminal.
_MAX_COMPLAINT = 300
# Bytes of external data that are read at once, which bounds the memory.
_CHUNK = 4 << 20
_TOO_BIG = f"is over the 2 GB ({LIMIT} bytes) that one ONNX model can hold in memory; cut it down first"


@bound_reading
def load_program(path: Path) -> OnnxProgram:
    """Load the model in a file, with its external data, and check its structure (pure Python; see `check` for
    the rest). The data of large tensors of its main graph stays on disk (gen/model/detached.py).

    Raises BadInput for anything but a regular file, a model over 2 GB together with its external data,
    external data outside the model's folder, bytes that are not an ONNX model, and a broken structure.
    """
    if get_size(path) > LIMIT:
        raise BadInput(f"{shown(path, 200)} {_TOO_BIG}")
    data = read_file(path)
    if not data:
        raise BadInput(f"{shown(path, 200)} is empty, not an ONNX model")
    model = parse_model(data, path)
    try:
        changed = _take_in(model, path.parent, len(data))
        structure.check_structure(model)
        # Keep the data of large tensors of the main graph outside of memory; whether there were any.
        large = [
            tensor
            for tensor in model.graph.initializer
            if tensor.ByteSize() >= detached.LEAST and len(tensor.raw_data) >= detached.LEAST
        ]
        for tensor in large:
            _detach(tensor, (tensor.raw_data,))
        changed |= bool(large)
    except BadInput as error:
        raise BadInput(f"{shown(path, 160)} cannot be used: {error}") from None
    if changed:
        data = model.SerializeToString(deterministic=True)
        # protobuf frees the memory of a message's parts only with the whole message, so it is parsed again.
        model = parse_model(data, path)
    program = OnnxProgram(data, name=printable.escape_surrogates(path.name))
    # Filling the slot of the `cached_property` saves parsing the bytes again.
    program.__dict__["proto"] = model
    return program


def parse_model(data: bytes, path: Path) -> onnx.ModelProto:
    """Return the ModelProto in `data`, which was read from `path`; BadInput when the bytes are none."""
    model = tensors.decode(onnx.ModelProto(), data)
    if model is None:
        raise BadInput(f"{shown(path, 200)} is not an ONNX model: truncated, corrupt, or of another format")
    return model


def check(model: bytes) -> str:
    """Return the complaint of ONNX's checker or strict shape inference in at most 300 characters, or "".

    For workers only: the checker is C++ and a hostile model can crash it. It demands a type and a rank of
    every graph output, which compilers infer and many models leave out; those are filled in for the question.
    """
    try:
        proto = onnx.ModelProto.FromString(model)
        # Checker and inference copy a model several times: 1 GB would exceed the memory of a worker.
        if _declare_large_tensors(proto.graph):
            model = proto.SerializeToString()
        for info in proto.graph.output:
            if info.type.WhichOneof("value") is None:
                info.type.tensor_type.elem_type = TensorProto.FLOAT
        for info in (*proto.graph.input, *proto.graph.output):
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(proto)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        # An error inside the body that ONNX gives an operator (MeanVarianceNormalization has one) is no error
        # of the model.
        line = " ".join(str(error).split())
        return "" if line.count("Inference error(s)") > 1 else ascii(line)[1:-1][:_MAX_COMPLAINT]
    except (MemoryError, EncodeError) as error:
        # protobuf has no other error for a model that it has no memory to write.
        raise MemoryError("the memory limit is too small for the model") from error
    except Exception as error:  # noqa: BLE001
        # The checker raises exceptions of its own, of its C++ parts and of protobuf.
        line = " ".join(str(error).split()) or type(error).__name__
        return ascii(line)[1:-1][:_MAX_COMPLAINT]
    return ""


def _declare_large_tensors(graph: onnx.GraphProto) -> bool:
    """Replace large initializers, whose bytes fit their types, by inputs; return whether there are any."""
    inputs = {info.name for info in graph.input}
    large = [
        at
        for at, tensor in enumerate(graph.initializer)
        if len(tensor.raw_data) >= detached.LEAST and not tensors.tensor_problem(tensor)
    ]
    for at in reversed(large):
        tensor = graph.initializer[at]
        if tensor.name not in inputs:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        del graph.initializer[at]
    return bool(large)


def infer_types(model: bytes) -> bytes:
    """Return the serialised model with the types that ONNX's shape inference finds, without initializers; for
    workers only, like `check`. At a contradiction inference continues without that type.
    """
    proto = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(model), data_prop=True)
    del proto.graph.initializer[:]
    data: bytes = proto.SerializeToString()
    return data


def _take_in(model: onnx.ModelProto, folder: Path, size: int) -> bool:
    """Move external data into the model; False when there is none. Every place and size is checked before any
    is read.
    """
    parts: list[tuple[TensorProto, Path, int, int]] = []
    for tensor in structure.tensors_of(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        problem = tensors.tensor_problem(tensor, external=True)
        if problem:
            raise BadInput(f"the tensor {shown(tensor.name)} {problem}")
        wanted = tensors.data_size(tensors.DTYPES[tensor.data_type], tensors.elements(tensor.dims))
        path, offset, length = _place(tensor, folder, wanted)
        if length != wanted:
            raise BadInput(
                f"the tensor {shown(tensor.name)} takes {wanted} bytes, but {length} lie in"
                f" {shown(path.name)}"
            )
        size += length
        if size > LIMIT:
            raise BadInput(f"with its external data it {_TOO_BIG}")
        parts.append((tensor, path, offset, length))
    _check_repeated([(path, length) for _, path, _, length in parts])
    allow_reading(sum(length for *_, length in parts if length < detached.LEAST))
    stored = {id(tensor): tensor for tensor in model.graph.initializer}
    for tensor, path, offset, length in parts:
        if length >= detached.LEAST and id(tensor) in stored:
            _detach(tensor, _chunks(path, offset, length))
            continue
        tensor.raw_data = read_part(path, offset, length)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return bool(parts)


def _detach(tensor: TensorProto, chunks: Iterable[bytes]) -> None:
    try:
        detached.detach(tensor, chunks)
    except OSError as error:
        raise BadInput(
            f"its large tensors cannot be kept in {shown(tempfile.gettempdir(), 100)}: {reason(error)}; set"
            " TMPDIR"
        ) from None


def _chunks(path: Path, offset: int, length: int) -> Iterator[bytes]:
    for at in range(offset, offset + length, _CHUNK):
        yield read_part(path, at, min(_CHUNK, offset + length - at))


def _check_repeated(parts: Sequence[tuple[Path, int]]) -> None:
    """Check that tensors do not take much more than their files hold: a small file can be named thousands of
    times, and a sparse file occupies little.

    Raises:
        BadInput: If they do.
    """
    wanted = sum(length for _, length in parts)
    if wanted <= BUDGET.repeated_bytes:
        return
    try:
        there = sum(get_disk_usage(path) for path in {path for path, _ in parts})
    except OSError as error:
        raise BadInput(f"its external data cannot be read: {reason(error)}") from None
    if wanted > BUDGET.repeated * there + BUDGET.repeated_bytes:
        raise BadInput(
            f"its external data would take {wanted:,} bytes, of which its files hold {there:,}; write each"
            " tensor once, without holes"
        )


def _place(tensor: TensorProto, folder: Path, wanted: int) -> tuple[Path, int, int]:
    """File, offset and length in bytes of a tensor's external data; without a stated length, it is the
    size of the tensor.
    """
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if not isinstance(entry.key, str) or not isinstance(entry.value, str):
            raise BadInput(f"the external data of the tensor {shown(tensor.name)} is not UTF-8 text")
        entries[entry.key] = entry.value
    path = resolve_inside(folder, entries.get("location", ""))
    try:
        size = get_size(path)
    except BadInput as error:
        raise BadInput(f"the external data of the tensor {shown(tensor.name)} is missing: {error}") from None
    offset = _number(entries.get("offset", "0"), "offset", tensor)
    length = _number(entries.get("length", str(wanted)), "length", tensor)
    if offset + length > size:
        raise BadInput(
            f"the tensor {shown(tensor.name)} lies at {offset} to {offset + length} of {shown(path.name)},"
            f" which has {size} bytes"
        )
    return path, offset, length


def _number(text: str, what: str, tensor: TensorProto) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadInput(
            f"the {what} of the external data of the tensor {shown(tensor.name)} is {shown(text)}, not a size"
            " in bytes"
        )
    return int(text)
