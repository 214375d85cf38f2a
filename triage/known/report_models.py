"""Extract the models in a public report: scripts of numpy and onnx.helper, and texts for onnx.parser.

A script is read from its syntax tree and never run. Literals, arithmetic on small numbers, and the calls in
`CALLS` have values; expressions that depend on anything else are skipped. Random values are drawn again with
a fixed seed and differ from the reporter's. A process with limits on time and memory does it.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx.parser

# Loaded before a process gives up files
from numpy.random import default_rng
from onnx import helper, numpy_helper

from opsieve.backends.workers.sandbox.limited_process import read_limited
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import read_file
from opsieve.triage.known.report import ReportFacts, ReportText, extract_facts, parse_report

_MOST_ELEMENTS = 1 << 22
_MOST_ITEMS = 10_000
# A product of larger integers could grow without bound, as in 10 ** 10 ** 10.
_LARGEST = 1 << 62
# Characters of a script
_LONGEST = 1 << 18
_LONGEST_TEXT = 64 << 10
_MOST_BYTES = 64 << 20
_MOST_REPORT = 16 << 20
# Models of a report that are tried
MOST = 20
_PARSED = re.compile(r"<\s{0,20}(?:ir_version|opset_import)\b")
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
_FAULTS = (NoValue, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


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
        for call in [each for each in ast.walk(statement) if isinstance(each, ast.Call)]:
            # session.run(names, {...})
            if getattr(call.func, "attr", "") == "run" and len(call.args) > 1:
                for fed in self._try_value(call.args[1]):
                    values = fed.items() if isinstance(fed, dict) else ()
                    self.fed.update((name, each) for name, each in values if isinstance(each, np.ndarray))
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
        if name not in CALLS:
            raise NoValue
        made = CALLS[name](*given, **words)
        if isinstance(made, onnx.ModelProto):
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
    "array": _make_array,
    "asarray": _make_array,
    "zeros": lambda shape, dtype="float64", **_: _make_full(shape, 0, dtype),
    "ones": lambda shape, dtype="float64", **_: _make_full(shape, 1, dtype),
    "full": lambda shape, fill_value, dtype="float64", **_: _make_full(shape, fill_value, dtype),
    "arange": _make_arange,
    "astype": lambda array, dtype, **_: _check_array(array).astype(_parse_dtype(dtype)),
    "reshape": lambda array, *shape: _check_array(array).reshape(*shape),
}


@dataclass(frozen=True, slots=True)
class FedArray:
    """An input as plain data."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def as_numpy(self) -> "np.ndarray[Any, Any]":
        """Return the array."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class InlineModel:
    """A model of block number `block`, from 1: serialised in `data`, or in `text` for onnx.parser.

    `inputs` are those that its script feeds.
    """

    block: int
    data: bytes = b""
    text: str = ""
    inputs: Mapping[str, FedArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportContents:
    """The facts that a report names, and its models: at most `MOST` are read."""

    facts: ReportFacts
    models: list[InlineModel]


def read_contents(path: Path) -> ReportContents:
    """Read the contents of a report in a process with limits.

    Raises:
        BadInput: If it is not a regular file, over 16 MiB, or takes more time or memory than the process may.
    """
    data = read_file(path, _MOST_REPORT)
    try:
        found = read_limited(f"{__name__}:encode_contents", data)
    except BadInput as error:
        raise BadInput(f"{shown(path, 200)} is not read: {error}") from None
    return msgspec.msgpack.decode(found, type=ReportContents)


def encode_contents(data: bytes) -> bytes:
    """Encode the contents of a report as msgpack, in the process that reads it."""
    report = parse_report(data.decode("utf-8", "replace"))
    models = list(islice(iter_models(report), MOST))
    return msgspec.msgpack.encode(ReportContents(extract_facts(report), models))


def parse_text(data: bytes) -> bytes:
    """Parse a text with onnx.parser; return the serialised model."""
    return bytes(onnx.parser.parse_model(data.decode()).SerializeToString())


def iter_models(report: ReportText) -> Iterator[InlineModel]:
    """Yield every model in the blocks of a report, in order.

    If no block alone makes a model, all blocks are read as one script.
    """
    found = False
    for number, block in enumerate(report.blocks, 1):
        for model in _iter_block_models(number, block):
            found = True
            yield model
    # Reports often split a script into several blocks with text between them.
    if not found and len(report.blocks) > 1:
        yield from _iter_block_models(
            1,
            "\n".join(
                block
                for block in report.blocks
                if any(word in block for word in ("import ", "helper.", "np."))
            ),
        )


def _iter_block_models(number: int, block: str) -> Iterator[InlineModel]:
    if block.lstrip().startswith("<") and _PARSED.search(block[:400]):
        yield InlineModel(number, text=block[:_LONGEST_TEXT])
        return
    script = Script(block)
    fed = {name: FedArray(each.dtype.str, each.shape, each.tobytes()) for name, each in script.fed.items()}
    for text in script.texts:
        yield InlineModel(number, text=text[:_LONGEST_TEXT], inputs=fed)
    for model in script.models:
        if model.ByteSize() <= _MOST_BYTES:
            yield InlineModel(number, data=model.SerializeToString(), inputs=fed)
