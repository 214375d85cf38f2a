"""The meaning of "smaller": one explicit total order over ONNX models with their inputs, and the form by
which the engine reduces them (`opsieve.reducer.engine.form`).

The parts of the key, the weightiest first: nodes (bodies and functions included), graph inputs, graph
outputs, tensor elements that are stored (inputs, initializers, constants), complexity of attributes, rank of
dtypes, complexity of stored values, dimensions without a size, versions asked for (opset, IR), bytes of the
model, and at last the bytes themselves, so that two different models are never equal. A reduction ends
because every step it takes makes this key smaller.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model import detached, structure
from opsieve.gen.model.tensors import DTYPES, Value, elements, read_tensor
from opsieve.reducer.engine import edit, engine, form

# Ranks of dtypes: the lower, the more compilers handle them well. Dtypes that are missing here come last.
DTYPE_RANKS = {
    name: rank
    for rank, names in enumerate(
        (
            ("float32",),
            ("int32",),
            ("int64", "bool"),
            ("float64",),
            ("float16", "uint8", "int8"),
            ("bfloat16", "uint32", "uint64", "int16", "uint16", "string"),
            ("complex64", "complex128"),
        )
    )
    for name in names
}
# The element types that others may be turned into.
PLAIN_DTYPES = ("float32", "int32", "int64")
# Types that are not listed, such as float8, come after all others.
_LAST_RANK = 7
# The complexity of an attribute that a function takes from its call: above that of any integer.
_REFERENCE = 80
# A value without a rank counts as so many open sizes: more than ranks that occur.
_UNRANKED = 16
# The number of elements that are measured at once, which bounds the memory of the temporary arrays.
_SLICE = 1 << 20
# The largest array, in bytes, whose complexity is cached.
_SMALL = 1 << 12


def simpler(candidate: Subject, than: Subject) -> bool:
    """Return whether the candidate's key is strictly smaller."""
    for part in _PARTS:
        a, b = part(candidate), part(than)
        if a != b:
            # mypy does not see that both are values of one part, and so of one type.
            return bool(a < b)  # type: ignore[operator]
    return False


def count_nodes(model: onnx.ModelProto) -> tuple[int, int]:
    """Return the number of nodes of the main graph, and of those inside bodies and local functions."""
    outer = len(model.graph.node)
    return outer, sum(1 for _ in structure.model_nodes(model)) - outer


def value_complexity(array: "np.ndarray[Any, Any]") -> int:
    """Measure how hard the values of an array are to read: 0 for zeros, and more for each one, small integer
    and other number, in this order.

    A further term counts distinct values, so that a splat is simpler than anything of its kind.
    """
    if array.size == 0:
        return 0
    if array.dtype.kind in "OUS":
        return sum(1 + len(str(item)) for item in array.ravel().tolist())
    total = 0
    flat = array.ravel()
    if flat.nbytes <= _SMALL:
        return _measure_bytes(flat.dtype, flat.tobytes())
    for start in range(0, flat.size, _SLICE):
        total += _complexity(flat[start : start + _SLICE])
    return total


@lru_cache(maxsize=4096)
def _measure_bytes(dtype: "np.dtype[Any]", data: bytes) -> int:
    """Return the complexity of a small array, cached: nearly all tensors of a candidate are those of its
    subject.
    """
    return _complexity(np.frombuffer(data, dtype))


def _complexity(flat: "np.ndarray[Any, Any]") -> int:
    with np.errstate(all="ignore"):
        if flat.dtype.kind == "c":
            return _complexity(flat.real) + _complexity(flat.imag)
        wide = flat.astype(np.float64)
        size = np.abs(wide)
        # The costs only rank kinds of numbers: 0, 1, whole numbers by their bits, halves, thousandths, others
        # (NaN, infinity, long fractions).
        cost = np.full(wide.shape, 40.0)
        thousand = wide * 1000
        cost[thousand == np.rint(thousand)] = 20
        half = wide * 2
        cost[half == np.rint(half)] = 12
        whole = wide == np.rint(wide)
        cost[whole] = 3 + np.minimum(np.ceil(np.log2(size[whole] + 1)), 60)
        cost[wide == 1] = 1
        cost[wide == 0] = 0
        cost += (wide < 0) * 1.0
    return int(cost.sum()) + 2 * (len(np.unique(wide)) - 1)


def _iter_stored(model: onnx.ModelProto) -> Iterator[TensorProto]:
    for graph in structure.all_graphs(model.graph, *model.functions):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
    for node in structure.model_nodes(model):
        for attribute in node.attribute:
            # A reference to a function's parameter has no tensor.
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _arrays(values: Iterable[Any]) -> Iterator["np.ndarray[Any, Any]"]:
    for value in values:
        if isinstance(value, list):
            yield from _arrays(value)
        elif value is not None:
            yield np.asarray(value)


def _elements(subject: Subject) -> int:
    stored = sum(max(0, elements(tensor.dims)) for tensor in _iter_stored(subject.model))
    return stored + sum(array.size for array in _arrays(subject.inputs.values()))


def _attributes(subject: Subject) -> int:
    return sum(
        _attribute(attribute) for node in structure.model_nodes(subject.model) for attribute in node.attribute
    )


def _attribute(attribute: AttributeProto) -> int:
    if attribute.ref_attr_name:
        return _REFERENCE
    if attribute.type == AttributeProto.INT:
        return 1 + _integer(attribute.i)
    if attribute.type == AttributeProto.INTS:
        return 1 + sum(1 + _integer(item) for item in attribute.ints)
    if attribute.type == AttributeProto.FLOAT:
        return 1 + _complexity(np.array([attribute.f]))
    if attribute.type == AttributeProto.FLOATS:
        return 1 + sum(1 + _complexity(np.array([item])) for item in attribute.floats)
    if attribute.type == AttributeProto.STRING:
        return 1 + len(attribute.s)
    if attribute.type == AttributeProto.STRINGS:
        return 1 + sum(1 + len(item) for item in attribute.strings)
    return 1


def _integer(value: int) -> int:
    return abs(value).bit_length() + (value < 0)


def _dtypes(subject: Subject) -> int:
    numbers = [tensor.data_type for tensor in _iter_stored(subject.model)]
    for graph in structure.all_graphs(subject.model.graph, *subject.model.functions):
        numbers += (structure.element_type(info.type) for info in (*graph.input, *graph.output))
    numbers += (
        attribute.i
        for node in structure.model_nodes(subject.model)
        for attribute in node.attribute
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.type == AttributeProto.INT
    )
    return sum(DTYPE_RANKS.get(DTYPES.get(number, ""), _LAST_RANK) for number in numbers)


def _values(subject: Subject) -> int:
    stored = sum(value_complexity(read_tensor(tensor)) for tensor in _iter_stored(subject.model))
    return stored + sum(value_complexity(array) for array in _arrays(subject.inputs.values()))


def _open_dimensions(subject: Subject) -> int:
    infos = [
        info
        for graph in structure.all_graphs(subject.model.graph, *subject.model.functions)
        for info in (*graph.input, *graph.output)
    ]
    # A value without a rank is more open than one of open sizes, though fewer bytes declare it.
    return sum(
        sum(not dim.HasField("dim_value") for dim in info.type.tensor_type.shape.dim)
        if structure.is_shaped(info.type)
        else _UNRANKED
        for info in infos
    )


def _versions(subject: Subject) -> int:
    model = subject.model
    imports = [
        *model.opset_import,
        *(entry for function in model.functions for entry in function.opset_import),
    ]
    return int(model.ir_version + sum(1 + entry.version for entry in imports))


def byte_size(model: onnx.ModelProto) -> int:
    """Bytes of a model, those included that are not in memory."""
    return int(model.ByteSize()) + detached.detached_bytes(model)


_PARTS: tuple[Callable[[Subject], int | bytes], ...] = (
    lambda subject: sum(1 for _ in structure.model_nodes(subject.model)),
    lambda subject: len(subject.model.graph.input),
    lambda subject: len(subject.model.graph.output),
    _elements,
    _attributes,
    _dtypes,
    _values,
    _open_dimensions,
    _versions,
    lambda subject: byte_size(subject.model),
    lambda subject: bytes(subject.model.SerializeToString(deterministic=True)),
)
OnnxEdit: TypeAlias = edit.Edit[Subject]
OnnxPass: TypeAlias = edit.Pass[Subject]
# Changes a model and its inputs in place, and gives the inputs that are left; None where it does not apply.
Change: TypeAlias = Callable[[onnx.ModelProto, dict[str, Value]], dict[str, Value] | None]


class OnnxForm:
    """Order, digests and sizes of subjects; inputs are hashed once an array."""

    def __init__(self) -> None:
        # The arrays are kept alive: a freed array's id could be given to another one.
        self._arrays: dict[int, tuple[Any, bytes]] = {}
        self._last: tuple[Subject, form.Size] | None = None

    def simpler(self, candidate: Subject, than: Subject) -> bool:
        """Compare by the order of `opsieve.reducer.problem.order`."""
        return simpler(candidate, than)

    def size(self, subject: Subject) -> form.Size:
        """Return the nodes and bytes of the model; caches the last answer, because protobuf walks the whole
        model to measure it.
        """
        if self._last is None or self._last[0] is not subject:
            self._last = subject, form.Size(*count_nodes(subject.model), byte_size(subject.model))
        return self._last[1]

    def digest(self, subject: Subject) -> str:
        """Return a digest of the model's bytes and of the values fed."""
        state = hashlib.sha256(subject.program.model)
        for name, value in sorted(subject.inputs.items()):
            state.update(name.encode("utf-8", "surrogateescape") + b"\0" + self._value(value))
        return state.hexdigest()[: engine.DIGITS]

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
