"""A PyTorch program as a graph of calls, and its JSON.

The graph is what `torch.export` traces: operators by name (`aten.add.Tensor`), arguments, and the values that
the calls make. It holds no code, so it is read in the main process. Tensors that the program stores are in
it as base64 of their bytes, in C order and little-endian.
"""

import base64
import binascii
import json
import keyword
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes  # noqa: F401 -- numpy learns bfloat16 and float8 from it
import numpy as np

from opsieve.gen.irs.view import Array
from opsieve.gen.model.tensors import NUMBERS, TensorType

# Rises when an older opsieve would read a program wrongly.
FORMAT = 1
# Only torch's own operators: any other name could be code that a package registers.
OPERATOR = re.compile(r"(?:aten|prims)\.[A-Za-z_][A-Za-z0-9_]{0,80}\.[A-Za-z_][A-Za-z0-9_]{0,80}", re.ASCII)
CONDITION = "higher_order.cond"
# These read or write files by the name that they are given.
BARRED = ("aten.from_file.",)
# A name becomes an identifier of the exported script.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}", re.ASCII)
# A text becomes a literal of the script; torch's own words need no other signs.
_WORD = re.compile(r"[A-Za-z0-9_ .:-]{0,60}", re.ASCII)
# Words of torch that are no numbers or texts, by kind: `torch.float32`, `torch.channels_last`.
WORDS = {
    "dtype": frozenset(NUMBERS) - {"string"},
    "layout": frozenset(["strided"]),
    "memory_format": frozenset(["contiguous_format", "channels_last", "channels_last_3d", "preserve_format"]),
    "device": frozenset(["cpu", "cuda"]),
}
# The deepest nesting of lists and branches among arguments, and the most elements of one tensor
_DEPTH, MOST_ELEMENTS = 8, 1 << 28


class MalformedProgram(ValueError):
    """JSON that is no program; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a value of the program."""

    name: str


@dataclass(frozen=True, slots=True)
class Word:
    """An argument that is one of torch's own words; `kind` is one of WORDS."""

    kind: str
    text: str


@dataclass(frozen=True)
class Branch:
    """An argument that is a graph of its own, which reads its inputs alone: a side of `torch.cond`."""

    graph: "TorchGraph"


Argument: TypeAlias = "Ref | Word | Branch | bool | int | float | complex | str | tuple[Argument, ...] | None"


@dataclass(frozen=True)
class TorchCall:
    """One operator with its arguments.

    `results` names what it makes, "" for what has no name. `many` tells whether it makes a tuple or a list.
    """

    operator: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: tuple[str, ...]
    many: bool = False

    @property
    def key(self) -> str:
        """Return the first name among its results, "" for a call that is there for its effect."""
        return next(filter(None, self.results), "")

    @property
    def mutates(self) -> bool:
        """Return whether it writes to an argument, by its name: `add_`, or with `out`."""
        name = self.operator.split(".")[1]
        return (name.endswith("_") and not name.endswith("__")) or any(key == "out" for key, _ in self.kwargs)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Return its arguments, those by keyword last."""
        return (*self.args, *(value for _, value in self.kwargs))

    def leaves(self) -> Iterator[Argument]:
        """Yield what its arguments hold, in order."""
        for argument in self.arguments:
            yield from iter_leaves(argument)

    def reads(self) -> Iterator[str]:
        """Yield the values that it reads, in order."""
        yield from (leaf.name for leaf in self.leaves() if isinstance(leaf, Ref))

    def change(self, change: Callable[[Argument], Argument]) -> "TorchCall":
        """Return the call with every leaf of its arguments changed."""
        kwargs = tuple((name, change_argument(value, change)) for name, value in self.kwargs)
        args = tuple(change_argument(value, change) for value in self.args)
        return TorchCall(self.operator, args, kwargs, self.results, self.many)


@dataclass(frozen=True)
class TorchGraph:
    """A program: it takes `inputs`, has `constants`, and returns `outputs`.

    `types` holds the type of every input, and of results as far as it is known; `strides` those of inputs
    that are not contiguous.
    """

    inputs: tuple[str, ...]
    constants: Mapping[str, Array]
    calls: tuple[TorchCall, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def list_read(self) -> set[str]:
        """List the values that a call reads or the program returns."""
        return {name for call in self.calls for name in call.reads()} | set(self.outputs)

    def type_of(self, name: str) -> TensorType | None:
        """Return the type of a value; `None` if it is unknown or not a tensor's."""
        if name in self.constants:
            return TensorType(self.constants[name].dtype.name, self.constants[name].shape)
        return self.types.get(name)


def iter_leaves(argument: Argument) -> Iterator[Argument]:
    """Yield what an argument holds, in lists too."""
    if isinstance(argument, tuple):
        for item in argument:
            yield from iter_leaves(item)
    else:
        yield argument


def change_argument(argument: Argument, change: Callable[[Argument], Argument]) -> Argument:
    """Return an argument with every leaf changed."""
    if isinstance(argument, tuple):
        return tuple(change_argument(item, change) for item in argument)
    return change(argument)


def encode_graph(graph: TorchGraph) -> bytes:
    """Return the JSON of a graph; equal graphs give equal bytes."""
    lines = ",\n  ".join(json.dumps(_call_json(graph, call)) for call in graph.calls)
    inputs = ",\n  ".join(json.dumps(_value_json(graph, name)) for name in graph.inputs)
    constants = ",\n  ".join(
        json.dumps(_constant_json(name, array)) for name, array in graph.constants.items()
    )
    return (
        f'{{"format": {FORMAT},\n "inputs": [{inputs}],\n "constants": [{constants}],\n'
        f' "calls": [\n  {lines}],\n "outputs": {json.dumps(graph.outputs)}}}\n'
    ).encode()


def _value_json(graph: TorchGraph, name: str) -> dict[str, Any]:
    type_ = graph.types.get(name)
    made: dict[str, Any] = {"name": name}
    if type_ is not None:
        made |= {"dtype": type_.dtype, "shape": type_.shape}
    return made | ({"strides": graph.strides[name]} if name in graph.strides else {})


def _constant_json(name: str, array: Array) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"name": name, "dtype": array.dtype.name, "shape": array.shape, "data": data}


def _call_json(graph: TorchGraph, call: TorchCall) -> dict[str, Any]:
    made: dict[str, Any] = {"op": call.operator, "args": [_argument_json(item) for item in call.args]}
    if call.kwargs:
        made["kwargs"] = {name: _argument_json(item) for name, item in call.kwargs}
    results = [_value_json(graph, name) if name else None for name in call.results]
    made["results" if call.many else "result"] = results if call.many else results[0] if results else None
    return made


def _argument_json(item: Argument) -> Any:
    if isinstance(item, tuple):
        return [_argument_json(each) for each in item]
    if isinstance(item, Ref):
        return {"value": item.name}
    if isinstance(item, Word):
        return {item.kind: item.text}
    if isinstance(item, Branch):
        return {"branch": json.loads(encode_graph(item.graph))}
    if isinstance(item, complex):
        return {"complex": [_argument_json(item.real), _argument_json(item.imag)]}
    # JSON has no number for these.
    if isinstance(item, float) and not math.isfinite(item):
        return {"float": str(item)}
    return item


def decode_graph(data: bytes) -> TorchGraph:
    """Return the graph in JSON. Raises MalformedProgram for anything else."""
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedProgram("it is not JSON") from None
    _require_that(isinstance(root, dict) and "calls" in root, "it is not JSON of a PyTorch program")
    _require_that(root.get("format") == FORMAT, f"its format is not {FORMAT}")
    return _JsonReader().read_graph(root)


class _JsonReader:
    """Reads one graph, and keeps the names that are taken."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.known: set[str] = set()
        self.types: dict[str, TensorType] = {}
        self.strides: dict[str, tuple[int, ...]] = {}

    def read_graph(self, root: dict[str, Any]) -> TorchGraph:
        """Return the graph of the JSON's root."""
        inputs = tuple(self.read_value(item) for item in _read_list(root, "inputs"))
        _require_that(all(name in self.types for name in inputs), "an input has no type")
        constants = dict(self.read_constant(item) for item in _read_list(root, "constants"))
        calls = tuple(self.read_call(item) for item in _read_list(root, "calls"))
        outputs = tuple(_read_list(root, "outputs"))
        _require_that(
            all(isinstance(name, str) and name in self.known for name in outputs), "an output is not made"
        )
        _require_that(bool(outputs), "it returns nothing")
        return TorchGraph(inputs, constants, calls, outputs, self.types, self.strides)

    def read_value(self, item: Any) -> str:
        """Read a value's declaration: its name, and its type where it has one."""
        _require_that(isinstance(item, dict), "a value is not an object")
        name = self.read_name(item)
        if "dtype" in item or "shape" in item:
            self.types[name] = _read_type(item)
        if "strides" in item:
            self.strides[name] = _read_sizes(item["strides"])
            _require_that(
                len(self.strides[name]) == len(self.types[name].shape or ()), "strides do not fit a shape"
            )
        return name

    def read_name(self, item: dict[str, Any]) -> str:
        """Read a new name."""
        name = item.get("name")
        _require_that(
            isinstance(name, str) and _NAME.fullmatch(name) is not None and not keyword.iskeyword(name),
            "a value's name is no word",
        )
        _require_that(name not in self.known, "two values have one name")
        assert isinstance(name, str)
        self.known.add(name)
        return name

    def read_constant(self, item: Any) -> tuple[str, Array]:
        """Read a stored tensor."""
        _require_that(isinstance(item, dict) and isinstance(item.get("data"), str), "a constant has no data")
        name, type_, shape = self.read_name(item), _read_type(item), _read_sizes(item["shape"])
        try:
            raw = base64.b64decode(item["data"], validate=True)
            array = np.frombuffer(raw, np.dtype(type_.dtype)).reshape(shape)
        except (ValueError, binascii.Error):
            raise MalformedProgram("the data of a constant does not fit its type") from None
        return name, array

    def read_call(self, item: Any) -> TorchCall:
        """Read a call; what it reads was made before."""
        _require_that(isinstance(item, dict), "a call is not an object")
        operator = item.get("op")
        _require_that(
            isinstance(operator, str)
            and (operator == CONDITION or OPERATOR.fullmatch(operator) is not None)
            and not operator.startswith(BARRED),
            "a call names an unknown operator",
        )
        args = tuple(self.read_argument(each) for each in _read_list(item, "args"))
        given = item.get("kwargs", {})
        _require_that(
            isinstance(given, dict) and all(map(_NAME.fullmatch, given)), "keyword arguments are no object"
        )
        kwargs = tuple((name, self.read_argument(each)) for name, each in given.items())
        many = "results" in item
        made = _read_list(item, "results") if many else [item.get("result")]
        results = tuple("" if each is None else self.read_value(each) for each in made)
        return TorchCall(str(operator), args, kwargs, results, many)

    def read_argument(self, item: Any, depth: int = 0) -> Argument:
        """Read an argument."""
        if item is None or isinstance(item, bool | int | float):
            return item
        if isinstance(item, str):
            _require_that(_WORD.fullmatch(item) is not None, "a text among the arguments is no word")
            return item
        if isinstance(item, list):
            _require_that(depth < _DEPTH, "arguments are nested too deep")
            return tuple(self.read_argument(each, depth + 1) for each in item)
        _require_that(isinstance(item, dict) and len(item) == 1, "an argument is of an unknown kind")
        ((kind, held),) = item.items()
        if kind == "complex":
            parts = [self.read_argument(each) for each in held] if isinstance(held, list) else []
            _require_that(
                len(parts) == 2 and all(isinstance(each, int | float) for each in parts), "a bad number"
            )
            return complex(*parts)  # type: ignore[arg-type]
        if kind == "branch" and isinstance(held, dict):
            _require_that(self.depth < _DEPTH, "branches are nested too deep")
            graph = _JsonReader(self.depth + 1).read_graph(held)
            _require_that(not graph.constants, "a branch stores a tensor")
            return Branch(graph)
        _require_that(isinstance(held, str), "an argument is of an unknown kind")
        if kind == "value":
            _require_that(held in self.known, "a call reads a value before it is made")
            return Ref(held)
        if kind == "float":
            _require_that(held in ("inf", "-inf", "nan"), "a bad number")
            return float(held)
        _require_that(held in WORDS.get(kind, ()), "an argument is a word that torch does not have")
        return Word(kind, held)


def _require_that(holds: bool, otherwise: str) -> None:
    if not holds:
        raise MalformedProgram(otherwise)


def _read_list(item: dict[str, Any], key: str) -> list[Any]:
    found = item.get(key, [])
    _require_that(isinstance(found, list), f"its {key} are not a list")
    return list(found)


def _read_type(item: dict[str, Any]) -> TensorType:
    dtype, shape = item.get("dtype"), _read_sizes(item.get("shape"))
    _require_that(
        isinstance(dtype, str) and dtype in NUMBERS and dtype != "string", "an unknown element type"
    )
    _require_that(math.prod(shape) <= MOST_ELEMENTS, "a tensor is too large")
    return TensorType(str(dtype), shape)


def _read_sizes(found: Any) -> tuple[int, ...]:
    fits = isinstance(found, list) and len(found) <= 64
    fits = fits and all(type(size) is int and 0 <= size < 1 << 40 for size in found)
    _require_that(fits, "a shape is not a list of sizes")
    return tuple(found)
