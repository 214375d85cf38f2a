"""The models that a public report holds: scripts of numpy and onnx.helper, and text of onnx.parser.

A script is read from its syntax tree: nothing is run or evaluated. Only literals, arithmetic on small numbers,
and the calls in `CALLS` have a value; whatever depends on anything else has none. Random draws are drawn anew
with a fixed seed: their values are not the reporter's. Sizes are bounded.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opsieve.triage.known.report_facts import ReportText

_MOST_ELEMENTS = 1 << 22
_MOST_ITEMS = 10_000
_LARGEST = 1 << 62
_LONGEST = 1 << 18  # characters of a script
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_TYPES: Mapping[str, int] = dict(onnx.TensorProto.DataType.items())
_DTYPES = (
    "bool",
    "bool_",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)


class NoValue(Exception):
    """An expression that has no value here."""


class Script:
    """The names of a script with their values, the models that it makes, the texts that it has parsed, and
    the inputs that it feeds.
    """

    def __init__(self, text: str) -> None:
        self.names: dict[str, Any] = {}
        self.models: list[onnx.ModelProto] = []
        self.texts: list[str] = []
        self.fed: dict[str, Any] = {}
        self._draws = np.random.default_rng(0)
        if len(text) > _LONGEST:
            return
        try:
            tree = ast.parse(text)
            for statement in _statements(tree.body):
                self._take(statement)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return

    def _take(self, statement: ast.stmt) -> None:
        for call in [each for each in ast.walk(statement) if isinstance(each, ast.Call)]:
            self._feeds(call)
        value = getattr(statement, "value", None)
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return) or value is None:
            return
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        try:
            found = self.value(value)
        except (
            NoValue,
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            for target in targets:  # an older value of that name is not this one
                self.names.pop(getattr(target, "id", ""), None)
            return
        for target in targets:
            if isinstance(target, ast.Name):
                self.names[target.id] = found
            elif isinstance(target, ast.Tuple) and isinstance(found, list | tuple):
                self.names.update(
                    (part.id, each)
                    for part, each in zip(target.elts, found, strict=False)
                    if isinstance(part, ast.Name)
                )

    def _feeds(self, call: ast.Call) -> None:
        """Remember what `session.run(names, {...})` is given."""
        given = call.args[1] if getattr(call.func, "attr", "") == "run" and len(call.args) > 1 else None
        if given is None:
            return
        try:
            values = self.value(given)
        except (
            NoValue,
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            return
        if isinstance(values, dict):
            self.fed.update((name, each) for name, each in values.items() if isinstance(each, np.ndarray))

    def value(self, node: ast.expr) -> Any:
        """The value of an expression; NoValue where it has none."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() if node.id in self.names:
                return self.names[node.id]
            case ast.List() | ast.Tuple() if len(node.elts) <= _MOST_ITEMS:
                return [self.value(each) for each in node.elts]
            case ast.Dict() if len(node.keys) <= _MOST_ITEMS and all(node.keys):
                return {
                    self.value(k): self.value(v) for k, v in zip(node.keys, node.values, strict=True) if k
                }
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return _computed(_ARITHMETIC[type(node.op)], self.value(node.left), self.value(node.right))
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript(slice=ast.Constant(value=place)):
                return self.value(node.value)[place]
            case ast.Call():
                return self._called(node)
        raise NoValue

    def _attribute(self, node: ast.Attribute) -> Any:
        if node.attr in _TYPES and _last(node.value) == "TensorProto":
            return _TYPES[node.attr]
        if _last(node.value) in ("np", "numpy"):
            if node.attr in _DTYPES:
                return np.dtype(node.attr.rstrip("_"))
            if node.attr in ("inf", "nan", "pi", "e"):
                return getattr(math, node.attr)
        if node.attr == "graph":
            held = self.value(node.value)
            if isinstance(held, onnx.ModelProto):
                return held.graph
        raise NoValue

    def _called(self, node: ast.Call) -> Any:
        name = _last(node.func)
        words = {each.arg: self.value(each.value) for each in node.keywords if each.arg}
        if isinstance(node.func, ast.Attribute) and name in ("astype", "reshape"):
            return self._method(
                name, self.value(node.func.value), [self.value(each) for each in node.args], words
            )
        given = [self.value(each) for each in node.args]
        if name in CALLS:
            made = CALLS[name](*given, **words)
            if isinstance(made, onnx.ModelProto):
                self.models.append(made)
            return made
        if name in ("parse_model",) and given and isinstance(given[0], str):
            self.texts.append(given[0])
        if name in _DRAWS:
            return _DRAWS[name](self._draws, given, words)
        raise NoValue

    def _method(self, name: str, held: Any, given: list[Any], words: dict[str, Any]) -> Any:
        if not isinstance(held, np.ndarray):
            raise NoValue
        if name == "astype":
            return held.astype(_dtype(given[0] if given else words["dtype"]))
        return held.reshape(given[0] if len(given) == 1 else given)


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a body and of the functions, conditions and withs in it, in the order of the text."""
    found: list[ast.stmt] = []
    for each in body[:_MOST_ITEMS]:
        inner = (
            getattr(each, "body", None)
            if isinstance(each, ast.FunctionDef | ast.With | ast.If | ast.Try)
            else None
        )
        found += _statements(inner) if inner else [each]
    return found


def _last(node: ast.expr) -> str:
    """The last word of a dotted name, "" for what is none."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _computed(apply: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if apply is operator.mul and isinstance(left, list) != isinstance(right, list):
        items, times = (left, right) if isinstance(left, list) else (right, left)
        if not isinstance(times, int) or len(items) * times > _MOST_ITEMS:
            raise NoValue
        return items * times
    if any(isinstance(each, int) and abs(each) > _LARGEST for each in (left, right)):
        raise NoValue
    if all(isinstance(each, int | float | np.ndarray) for each in (left, right)) or (
        apply is operator.add and isinstance(left, list) and isinstance(right, list)
    ):
        return apply(left, right)
    raise NoValue


def _dtype(named: Any) -> "np.dtype[Any]":
    """The dtype that a script names; NoValue for one that is no plain number."""
    if isinstance(named, str) and named in _DTYPES:
        return np.dtype(named)
    if isinstance(named, np.dtype):
        return named
    raise NoValue


def _shape(shape: Any) -> tuple[int, ...]:
    sides = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if not all(isinstance(side, int) and side >= 0 for side in sides) or math.prod(sides) > _MOST_ELEMENTS:
        raise NoValue
    return sides


def _filled(fill: float) -> Callable[..., Any]:
    return lambda shape, dtype="float64", **_: np.full(_shape(shape), fill, _dtype(dtype))


def _array(values: Any, dtype: Any = None, **_: Any) -> Any:
    made = np.array(values, None if dtype is None else _dtype(dtype))
    if made.dtype.kind not in "biufUS":
        raise NoValue
    return made


def _arange(*given: Any, dtype: Any = None, **_: Any) -> Any:
    if not given or not all(isinstance(each, int | float) for each in given):
        raise NoValue
    start, stop, step = (
        (0, given[0], 1) if len(given) == 1 else (*given[:2], given[2] if len(given) > 2 else 1)
    )
    if abs((stop - start) / step) > _MOST_ELEMENTS:
        raise NoValue
    made: Any = np.arange(start, stop, step)
    return made if dtype is None else made.astype(_dtype(dtype))


def _tensor(name: str, data_type: int, dims: Any, vals: Any, raw: bool = False) -> Any:
    if raw:
        raise NoValue
    return helper.make_tensor(name, data_type, _shape(list(dims)), np.ravel(vals).tolist())


def _typed(value: Any) -> Any:
    return np.dtype(value) if isinstance(value, str) else value


CALLS: Mapping[str, Callable[..., Any]] = {
    "make_node": helper.make_node,
    "make_tensor": _tensor,
    "make_tensor_value_info": helper.make_tensor_value_info,
    "make_tensor_sequence_value_info": helper.make_tensor_sequence_value_info,
    "make_graph": helper.make_graph,
    "make_model": helper.make_model,
    "make_opsetid": helper.make_opsetid,
    "make_operatorsetid": helper.make_opsetid,
    "make_attribute": helper.make_attribute,
    "make_function": helper.make_function,
    "from_array": numpy_helper.from_array,
    "array": _array,
    "asarray": _array,
    "zeros": _filled(0),
    "ones": _filled(1),
    "full": lambda shape, fill_value, dtype="float64", **_: np.full(_shape(shape), fill_value, _dtype(dtype)),
    "arange": _arange,
}
_DRAWS: Mapping[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "randn": lambda draws, given, words: draws.standard_normal(_shape(given)),
    "rand": lambda draws, given, words: draws.random(_shape(given)),
    "random": lambda draws, given, words: draws.random(_shape(given[0] if given else words["size"])),
    "standard_normal": lambda draws, given, words: draws.standard_normal(
        _shape(given[0] if given else words["size"])
    ),
    "uniform": lambda draws, given, words: draws.uniform(
        *(given[:2] or (0.0, 1.0)), _shape(words["size"] if "size" in words else given[2])
    ),
    "normal": lambda draws, given, words: draws.normal(
        *(given[:2] or (0.0, 1.0)), _shape(words["size"] if "size" in words else given[2])
    ),
    "randint": lambda draws, given, words: draws.integers(
        *(given[:2]), size=_shape(words["size"] if "size" in words else given[2])
    ),
}


_PARSED = re.compile(r"<\s{0,20}(?:ir_version|opset_import)\b")
_LONGEST_TEXT = 64 << 10
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class InlineModel:
    """A model of block number `block`, from 1: a serialised ModelProto in `data`, or in `text` what
    onnx.parser is to read. `inputs` are those that its script feeds.
    """

    block: int
    data: bytes = b""
    text: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)


def inline_models(report: ReportText) -> Iterator[InlineModel]:
    """Every model in the blocks of a report, in order. Blocks of one script that was cut up are read as one,
    too, where none alone makes a model.
    """
    found = False
    for number, block in enumerate(report.blocks, 1):
        for model in _of(number, block):
            found = True
            yield model
    if not found and len(report.blocks) > 1:
        yield from _of(1, "\n".join(block for block in report.blocks if _python(block)))


def _of(number: int, block: str) -> Iterator[InlineModel]:
    if block.lstrip().startswith("<") and _PARSED.search(block[:400]):
        yield InlineModel(number, text=block[:_LONGEST_TEXT])
        return
    script = Script(block)
    for text in script.texts:
        yield InlineModel(number, text=text[:_LONGEST_TEXT], inputs=script.fed)
    for model in script.models:
        if model.ByteSize() <= _MOST_BYTES:
            yield InlineModel(number, data=model.SerializeToString(), inputs=script.fed)


def _python(block: str) -> bool:
    return "import " in block or "helper." in block or "np." in block
