"""Default values for a model's inputs: small, legal as far as the declarations tell, and equal for equal
seeds.

The numbers come from the raw 64-bit stream of PCG64, seeded with the seed and the input's name. That stream
is fixed for good (numpy may change how its distributions use it), so that a seed means the same bytes on
every machine and release of numpy.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from opsieve.gen.data.input_flow import InputFlow
from opsieve.gen.declarations import catalogue, tensor
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import BUDGET
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import (
    NUMBERS,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
    ValueType,
    graph_inputs,
)

Array: TypeAlias = np.ndarray[Any, Any]

# Upper case, a blank, an accent and the empty text: what normalisers, splitters and hashes treat apart.
_WORDS = ("a", "b", "cat", "Dog", "the quick brown fox", "", "naïve", "0", "x y", "zebra")
_NUMERALS = ("0", "1", "-2", "3.5", "10", "-0.25")
# The size of an unknown image side: enough for the strides of usual networks.
_WINDOW_SIZE = 32
# The number of values in a sequence: with two, order and position matter.
_LENGTH = 2
# Bounded repeats, because a stranger's model names its sizes.
_SUM = re.compile(r"\s*[A-Za-z0-9_.]{1,80}\s*(?:\+\s*[A-Za-z0-9_.]{1,80}\s*){1,8}")


class Stream:
    """Numbers that depend on the seed and the name only."""

    def __init__(self, seed: int, name: str) -> None:
        key = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
        words = [int.from_bytes(key[start : start + 4], "little") for start in range(0, 32, 4)]
        self._bits = np.random.PCG64(np.random.SeedSequence([seed & (2**64 - 1), *words]))

    def integers(self, low: int, high: int, count: int) -> np.ndarray[Any, Any]:
        """`count` integers from `low` to `high`, both included, as int64."""
        return np.asarray(self._bits.random_raw(count) % np.uint64(high - low + 1)).astype(np.int64) + low

    def fractions(self, count: int) -> np.ndarray[Any, Any]:
        """Draw `count` numbers in [0, 1) as float64."""
        # A float64 has 53 bits of precision, so the upper 53 of 64 bits make every fraction equally likely.
        return (self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def seeded_inputs(model: onnx.ModelProto, seed: int) -> dict[str, Value]:
    """Return a value for every input of `model`, in the graph's order, of its type and inside the domain of
    its uses where that is known.

    A symbolic dimension has one size (2 to 4; 32 for image sides) wherever it is named, and all dimensions
    without a name have one size too. Sequences hold two values; optionals are present. BadInput when a type
    cannot be made or the declared shapes hold more than 2**26 elements.
    """
    types = graph_inputs(model)
    tensors = {name: _tensor(type_, name) for name, type_ in types.items()}
    windows = any(
        catalogue.has_attribute(node.op_type, "kernel_shape") for node in all_nodes(model.graph.node)
    )
    sizes = _bind(tensors, windows, seed)
    scalars = {
        node.input[place]
        for node in model.graph.node
        if (operator := catalogue.find_operator(node.domain, node.op_type)) is not None
        for place in operator.scalars
        if place < len(node.input)
    }
    shapes = {name: _shape(type_, sizes, windows, name in scalars) for name, type_ in tensors.items()}
    total = sum(_elements(types[name], shape) for name, shape in shapes.items())
    if total > BUDGET.made_elements:
        raise BadInput(
            f"the model's inputs hold {shown(total)} elements, too many to make up (at most"
            f" {BUDGET.made_elements}); give --inputs"
        )
    known = {name: shape if isinstance(types[name], TensorType) else None for name, shape in shapes.items()}
    domains = InputFlow(model, known, sizes).domains
    return {
        name: _value(type_, shapes[name], domains[name], Stream(seed, name)) for name, type_ in types.items()
    }


def seeded_values(
    types: Mapping[str, ValueType], seed: int, sizes: Mapping[str, tuple[int | str, ...]] | None = None
) -> dict[str, Value]:
    """Make a value for each of these types, in their order; an input in `sizes` is a shape and gets those
    sizes.

    A symbolic dimension has one size (2 to 4) wherever it is named. BadInput as of `seeded_inputs`.
    """
    sizes = sizes or {}
    tensors = {
        name: TensorType("int64", sizes[name]) if name in sizes else _tensor(type_, name)
        for name, type_ in types.items()
    }
    bound = _bind(tensors, False, seed)
    shapes = {name: _shape(type_, bound, False, False) for name, type_ in tensors.items()}
    total = sum(_elements(types[name], shape) for name, shape in shapes.items() if name not in sizes)
    if total > BUDGET.made_elements:
        raise BadInput(
            f"the inputs hold {shown(total)} elements, too many to make up (at most {BUDGET.made_elements});"
            " give --inputs"
        )
    return {
        name: (
            np.array(shape, np.int64)
            if name in sizes
            else _value(types[name], shape, tensor.Domain(), Stream(seed, name))
        )
        for name, shape in shapes.items()
    }


def _elements(type_: ValueType, shape: tensor.Shape) -> int:
    """Count the elements of a value whose tensors have this shape. Each sequence around them doubles the
    number; inside, a small tensor counts 64, because it takes as much memory.
    """
    count = math.prod(shape) if isinstance(type_, TensorType) else max(64, math.prod(shape))
    while isinstance(type_, (SequenceType, OptionalType)):
        count *= _LENGTH if isinstance(type_, SequenceType) else 1
        type_ = type_.element
    return count


def _tensor(type_: ValueType, name: str) -> TensorType:
    """Return the tensors that a value of this type is made of."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    if not isinstance(type_, TensorType) or not type_.dtype:
        raise BadInput(f"no value can be made up for the input {shown(name)} ({type_}); give --inputs")
    return type_


def _bind(tensors: Mapping[str, TensorType], windows: bool, seed: int) -> dict[str, int]:
    """Bind symbolic dimensions, and sums such as `past + 1`, to sizes; "" holds dimensions without a name."""
    names = {"": False}
    for type_ in tensors.values():
        for axis, dim in enumerate(type_.shape or ()):
            if isinstance(dim, str):
                names[dim] = names.get(dim, False) or (windows and axis >= 2)
    sizes: dict[str, int] = {}
    for name, image_side in names.items():
        terms = name.split("+") if _SUM.fullmatch(name) else [name]
        total = 0
        for term in (part.strip() for part in terms):
            if term.isdigit() and len(terms) > 1:
                total += int(term)
                continue
            # At least two, because 1 broadcasts and hides a wrong axis.
            drawn = int(Stream(seed, f"dimension {term}").integers(2, 4, 1)[0])
            total += _WINDOW_SIZE if image_side or names.get(term) else drawn
        sizes[name] = total
    return sizes


def _shape(type_: TensorType, sizes: Mapping[str, int], windows: bool, scalar: bool) -> tensor.Shape:
    if type_.shape is None:
        return () if scalar else (sizes[""],)
    return tuple(_size(dim, sizes, windows and axis >= 2) for axis, dim in enumerate(type_.shape))


def _size(dim: int | str | None, sizes: Mapping[str, int], image_side: bool) -> int:
    if isinstance(dim, int):
        return dim
    if dim is None:
        return _WINDOW_SIZE if image_side else sizes[""]
    return sizes[dim]


def _value(type_: ValueType, shape: tensor.Shape, domain: tensor.Domain, stream: Stream) -> Value:
    if isinstance(type_, OptionalType):
        return _value(type_.element, shape, domain, stream)
    if isinstance(type_, SequenceType):
        return [_value(type_.element, shape, domain, stream) for _ in range(_LENGTH)]
    assert isinstance(type_, TensorType)
    count = math.prod(shape)
    flat = (
        _strings(count, domain, stream)
        if type_.dtype == "string"
        else _numbers(type_.dtype, count, domain, stream)
    )
    try:
        return flat.reshape(shape)
    except (
        ValueError
    ) as error:  # more dimensions than numpy has, or empty with sizes beyond what can be addressed
        raise BadInput(f"no value of shape {shown(shape)} can be made up ({error}); give --inputs") from None


def _strings(count: int, domain: tensor.Domain, stream: Stream) -> Array:
    words = _NUMERALS if domain.numeral else _WORDS
    texts = np.empty(count, dtype=object)
    texts[:] = [words[place] for place in stream.integers(0, len(words) - 1, count)]
    return texts


def _numbers(dtype_name: str, count: int, domain: tensor.Domain, stream: Stream) -> Array:
    """`count` numbers of a dtype, in the domain as far as the dtype can hold it."""
    dtype = helper.tensor_dtype_to_np_dtype(NUMBERS[dtype_name])
    if domain.exact is not None:
        exact = np.resize(np.array(domain.exact or (0,), np.float64), count)
        return (np.clip(exact, *_limits(dtype_name)) if "int" in dtype_name else exact).astype(dtype)
    if dtype_name == "bool":
        return stream.integers(0, 1, count).astype(dtype)
    if dtype_name.startswith("complex"):
        return (stream.fractions(count) * 4 - 2 + 1j * (stream.fractions(count) * 4 - 2)).astype(dtype)
    if "int" in dtype_name:
        return _integers(dtype_name, count, domain, stream).astype(dtype)
    # Both signs where the domain allows it, and at least four wide.
    low = domain.low if domain.low > -math.inf else min(-2.0, domain.high - 4)
    high = domain.high if domain.high < math.inf else max(2.0, low + 4)
    # The type holds positive powers of two only.
    if dtype_name == "float8_e8m0fnu":
        low, high = max(low, 0.25), max(high, 0.5)
    numbers = low + (high - low) * stream.fractions(count)
    # At least an eighth keeps quotients within eight times the dividend.
    if domain.nonzero:
        numbers = np.where(np.abs(numbers) < 0.125, 0.5, numbers)
    made = (
        numbers.astype(np.float32).astype(dtype)
        if dtype.type.__module__ == "ml_dtypes"
        else numbers.astype(dtype)
    )
    # A narrow type rounds small numbers to zero, which would leave the domain.
    if domain.nonzero or domain.low > 0:
        made = np.where(made == 0, np.array(1, dtype), made)
    return made


def _integers(dtype_name: str, count: int, domain: tensor.Domain, stream: Stream) -> Array:
    least, most = _limits(dtype_name)
    # Small: the product of any two of them fits int8.
    low, high = (max(-4, least), 8) if least else (0, 8)
    if domain.low > -math.inf:
        low = max(math.ceil(domain.low), least)
        high = max(high, low)
    if domain.high < math.inf:
        high = max(math.floor(domain.high), least)
        low = min(low, high)
    high = min(high, most)
    low = min(low, high)
    numbers = stream.integers(low, high, count)
    return np.where(numbers == 0, 1, numbers) if domain.nonzero else numbers


def _limits(dtype_name: str) -> tuple[int, int]:
    bits = int(dtype_name.lstrip("uint"))
    return (0, 2**bits - 1) if dtype_name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
