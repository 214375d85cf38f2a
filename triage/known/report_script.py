"""Evaluate a script of numpy and onnx.helper in a public report, from its syntax tree.

The script is never run. Literals, arithmetic on small numbers, and the calls in `CALLS` have values;
expressions that depend on anything else are skipped. Random values are drawn again with a fixed seed and
differ from the reporter's.
"""

import ast
import base64
import math
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

# Loaded before a process gives up files
from numpy.random import default_rng
from onnx import helper, numpy_helper

# Models of a report that are tried
MOST = 20
MOST_BYTES = 64 << 20
_MOST_ELEMENTS = 1 << 22
_MOST_ITEMS = 10_000
# A product of larger integers could grow without bound, as in 10 ** 10 ** 10.
_LARGEST = 1 << 62
_LONGEST_NAME = 1000
# Characters of a script
_LONGEST = 1 << 18
# No power and no shift: a short script could write numbers of any length with them.
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_DTYPES = ("bool", "bool_", *_INTEGERS, "float16", "float32", "float64")
_NUMPY = {name: np.dtype(name.rstrip("_")) for name in _DTYPES} | {
    name: getattr(math, name) for name in ("inf", "nan", "pi", "e")
}
# What an attribute of these names has as its value.
_CONSTANTS: Mapping[str, Mapping[str, Any]] = {
    "TensorProto": dict(onnx.TensorProto.DataType.items()),
    "np": _NUMPY,
    "numpy": _NUMPY,
}
# Functions of numpy.random, by the method of a generator that draws the same, and where the size stands.
_DRAWS = {
    "randn": ("standard_normal", 0),
    "rand": ("random", 0),
    "random": ("random", 0),
    "standard_normal": ("standard_normal", 0),
    "uniform": ("uniform", 2),
    "normal": ("normal", 2),
    "randint": ("integers", 2),
}


class NoValue(Exception):
    """An expression whose value is unknown here."""


# What evaluating an expression of a stranger raises where it has no value.
_FAULTS = (
    NoValue,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    zlib.error,
)


class Script:
    """The names of a script with their values, the models it makes, the texts it parses, and the inputs it
    feeds.
    """

    def __init__(self, text: str) -> None:
        self.names: dict[str, Any] = {}
        self.models: list[onnx.ModelProto] = []
        self.texts: list[str] = []
        self.fed: dict[str, Any] = {}
        self._draws = default_rng(0)
        if len(text) > _LONGEST:
            return
        try:
            for statement in _iter_statements(ast.parse(text).body):
                self._process_statement(statement)
        # What the parser raises for text that is no Python, or is nested too deeply.
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return

    def _process_statement(self, statement: ast.stmt) -> None:
        if len(self.models) + len(self.texts) >= MOST:
            return
        for call in [each for each in ast.walk(statement) if isinstance(each, ast.Call)]:
            # session.run(names, {...})
            if getattr(call.func, "attr", "") == "run" and len(call.args) > 1:
                for fed in self._try_value(call.args[1]):
                    self.fed.update(_select_arrays(fed))
        value = getattr(statement, "value", None)
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return) or value is None:
            return
        found = self._try_value(value)
        for target in getattr(statement, "targets", None) or [getattr(statement, "target", None)]:
            # An older value of that name is not this one
            if not found:
                self.names.pop(getattr(target, "id", ""), None)
            elif isinstance(target, ast.Name):
                self.names[target.id] = found[0]
            elif isinstance(target, ast.Tuple) and isinstance(found[0], list | tuple):
                parts = zip(target.elts, found[0], strict=False)
                self.names.update((part.id, each) for part, each in parts if isinstance(part, ast.Name))

    def find_inputs(self) -> dict[str, Any]:
        """Return the arrays that the script feeds, or else those of its first dictionary of arrays."""
        return self.fed or next(filter(None, map(_select_arrays, self.names.values())), {})

    def _read_model(self, data: bytes) -> None:
        """Keep bytes of the script that are a serialised model."""
        try:
            made = onnx.ModelProto.FromString(data)
        except DecodeError:
            return
        if made.graph.node:
            self.models.append(made)

    def _try_value(self, node: ast.expr) -> list[Any]:
        """Return the value of an expression in a list, which is empty if it is unknown."""
        try:
            return [self.evaluate(node)]
        except _FAULTS:
            return []

    def evaluate(self, node: ast.expr) -> Any:
        """Evaluate an expression; raises NoValue, or another exception in `_FAULTS`, if its value is
        unknown.
        """
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() if node.id in self.names:
                return self.names[node.id]
            case ast.List() | ast.Tuple() if len(node.elts) <= _MOST_ITEMS:
                return [self.evaluate(each) for each in node.elts]
            case ast.Dict() if len(node.keys) <= _MOST_ITEMS and all(node.keys):
                pairs = zip(node.keys, node.values, strict=True)
                return {self.evaluate(name): self.evaluate(each) for name, each in pairs if name}
            case ast.UnaryOp(op=ast.USub()):
                return -self.evaluate(node.operand)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return _compute(
                    _ARITHMETIC[type(node.op)], self.evaluate(node.left), self.evaluate(node.right)
                )
            case ast.Attribute() if node.attr in _CONSTANTS.get(_get_last_name(node.value), {}):
                return _CONSTANTS[_get_last_name(node.value)][node.attr]
            case ast.Attribute(attr="graph"):
                if isinstance(held := self.evaluate(node.value), onnx.ModelProto):
                    return held.graph
            case ast.Subscript(slice=ast.Constant(value=place)):
                return self.evaluate(node.value)[place]
            case ast.Call():
                return self._evaluate_call(node)
        raise NoValue

    def _evaluate_call(self, node: ast.Call) -> Any:
        name = _get_last_name(node.func)
        given = [self.evaluate(each) for each in node.args]
        words = {each.arg: self.evaluate(each.value) for each in node.keywords if each.arg}
        if name in _DRAWS:
            method, place = _DRAWS[name]
            # Sizes are their arguments
            if name in ("randn", "rand"):
                given = [given]
            size = _check_shape(words.pop("size") if "size" in words else given[place])
            return getattr(self._draws, method)(*given[:place], size=size)
        if isinstance(node.func, ast.Attribute) and name in ("astype", "reshape"):
            given.insert(0, self.evaluate(node.func.value))
        if name == "parse_model" and given and isinstance(given[0], str):
            self.texts.append(given[0])
        if name == "SerializeToString" and isinstance(node.func, ast.Attribute):
            # The model is kept as it is made.
            self.evaluate(node.func.value)
        if name not in CALLS:
            raise NoValue
        made = CALLS[name](*given, **words)
        if isinstance(made, bytes):
            self._read_model(made)
        elif isinstance(made, onnx.ModelProto):
            self.models.append(made)
        return made


def _iter_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body and of the functions, conditions and withs in it, in the order of the
    text.
    """
    for each in body[:_MOST_ITEMS]:
        if isinstance(each, ast.FunctionDef | ast.With | ast.If | ast.Try):
            yield from _iter_statements(each.body)
        else:
            yield each


def _select_arrays(value: Any) -> dict[str, Any]:
    """Return the arrays of a dictionary, or {} for another value."""
    items = value.items() if isinstance(value, dict) else ()
    named = ((name, each) for name, each in items if isinstance(name, str) and len(name) <= _LONGEST_NAME)
    return {name: each for name, each in named if isinstance(each, np.ndarray)}


def _get_last_name(node: ast.expr) -> str:
    """Return the last word of a dotted name, or ""."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _compute(apply: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if apply is operator.mul and isinstance(left, list) != isinstance(right, list):
        items, times = (left, right) if isinstance(left, list) else (right, left)
        # Checked before the list is made: repeated doubling would fill the memory.
        if isinstance(times, int) and len(items) * times <= _MOST_ITEMS:
            return items * times
    elif all(
        isinstance(each, float | np.ndarray) or (isinstance(each, int) and abs(each) <= _LARGEST)
        for each in (left, right)
    ) or (apply is operator.add and isinstance(left, list) and isinstance(right, list)):
        return apply(left, right)
    raise NoValue


def _parse_dtype(named: Any) -> "np.dtype[Any]":
    """Parse the dtype that a script names; raises NoValue unless it is a plain number type."""
    if isinstance(named, np.dtype):
        return named
    if not isinstance(named, str) or named not in _DTYPES:
        raise NoValue
    return np.dtype(named)


def _check_shape(shape: Any) -> tuple[int, ...]:
    sides = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if not all(isinstance(side, int) and side >= 0 for side in sides) or math.prod(sides) > _MOST_ELEMENTS:
        raise NoValue
    return sides


def _make_full(shape: Any, fill: Any, dtype: Any = "float64", **_: Any) -> Any:
    return np.full(_check_shape(shape), fill, _parse_dtype(dtype))


def _make_array(values: Any, dtype: Any = None, **_: Any) -> Any:
    made = np.array(values, None if dtype is None else _parse_dtype(dtype))
    # Objects could hold anything that numpy would then call.
    if made.dtype.kind not in "biufUS":
        raise NoValue
    return made


def _make_arange(*given: Any, dtype: Any = None, **_: Any) -> Any:
    start, stop, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
    # The length is computed first, because numpy allocates it at once.
    if abs((stop - start) / step) > _MOST_ELEMENTS:
        raise NoValue
    made: Any = np.arange(start, stop, step)
    return made if dtype is None else made.astype(_parse_dtype(dtype))


def _decode(text: str, dtype: Any = None, shape: Any = ()) -> Any:
    """Decode the base64 of an exported script (`triage/export/program_source.py`)."""
    packed = base64.b64decode(text)
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed[1:], MOST_BYTES) if packed[:1] == b"z" else packed[1:]
    if unpacker.unconsumed_tail:
        raise NoValue
    if dtype is None:
        return data
    return np.frombuffer(data, _parse_dtype(dtype)).reshape(_check_shape(shape))


def _check_array(array: Any) -> Any:
    """Check that a method is called on an array; raises NoValue otherwise."""
    if not isinstance(array, np.ndarray):
        raise NoValue
    return array


def _make_tensor(name: str, data_type: int, dims: Any, vals: Any, raw: bool = False) -> Any:
    # Raw bytes depend on packing that is not followed here.
    if raw:
        raise NoValue
    return helper.make_tensor(name, data_type, _check_shape(list(dims)), np.ravel(vals).tolist())


_MAKERS = (
    "make_node",
    "make_tensor_value_info",
    "make_tensor_sequence_value_info",
    "make_graph",
    "make_model",
    "make_opsetid",
    "make_attribute",
    "make_function",
)
CALLS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(helper, name) for name in _MAKERS},
    "make_operatorsetid": helper.make_opsetid,
    "make_tensor": _make_tensor,
    "from_array": numpy_helper.from_array,
    "b64decode": lambda text: base64.b64decode(text),
    "decode": _decode,
    "array": _make_array,
    "asarray": _make_array,
    "zeros": lambda shape, dtype="float64", **_: _make_full(shape, 0, dtype),
    "ones": lambda shape, dtype="float64", **_: _make_full(shape, 1, dtype),
    "full": lambda shape, fill_value, dtype="float64", **_: _make_full(shape, fill_value, dtype),
    "arange": _make_arange,
    "astype": lambda array, dtype, **_: _check_array(array).astype(_parse_dtype(dtype)),
    "reshape": lambda array, *shape: _check_array(array).reshape(*shape),
}
