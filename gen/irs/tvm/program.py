"""Programs in TVM's own IRs: a module in TVM's JSON, and the passes that are run on it before it is built.

Read without TVM (gen/irs/tvm); the text that TVM's printer makes of a module is for people and never read
back in this process. A Relax module is run by its function `main`. What `main` takes is fed by name: a tensor
as it is, a shape as int64 of one dimension, a scalar as an array of rank 0, a tuple field by field (`pair.0`,
`pair.1.0`). What it gives is `output_0`, `output_1`, ..., the leaves of nested tuples in order. A TIR module
is run by its one function with the attribute `global_symbol` (or its only one): every buffer is fed, and
every buffer is read afterwards.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode, Pairs, Value, decode
from opsieve.gen.model.program import FAULT, Broken, Program
from opsieve.gen.model.tensors import NUMBERS, OtherType, TensorType, ValueType

PASS = re.compile(r"=?[A-Za-z_][A-Za-z0-9_.]{0,80}(?::[A-Za-z0-9_.+-]{1,80})?", re.ASCII)
_WORDS = re.compile(r"[\w./:<>@, +-]*", re.ASCII)  # no bracket, quote or end of a line
_FAULT = re.compile(r"[A-Za-z0-9_.]{1,60} [ -~]{1,80}", re.ASCII)
LONGEST = 1000  # passes in a sequence
_NO_OPERATORS = frozenset(("BufferType", "IterVar", "SeqStmt", "BufferRegionType", "TensorMapType"))


@dataclass(frozen=True)
class TvmProgram(Program):
    """A module of TVM as the text of its JSON (`tvm.ir.save_json`), with the passes that belong to the
    test.
    """

    module: bytes
    passes: tuple[str, ...] = ()
    name: str = field(default="", compare=False)
    # TVM's printing of it, where a worker was asked; never read back here.
    script: str = field(default="", compare=False)
    script_is_exact: bool = field(default=False, compare=False)  # TVM reads it back as the same module

    entry_type: ClassVar[str]  # of the function that is run

    @property
    def data(self) -> bytes:
        """The JSON graph, UTF-8."""
        return self.module

    @cached_property
    def root(self) -> ObjectNode:
        """The module's node. Shared: never changed in place.

        BadInput when the bytes are no module, or one that is damaged or unreasonably large.
        """
        try:
            found = decode(self.module.decode("utf-8"))
        except (MalformedGraph, UnicodeDecodeError) as error:
            raise BadInput(
                f"{shown(self.name or 'the module')} cannot be read: {shown(str(error), 200)}"
            ) from None
        if not isinstance(found, ObjectNode) or found.type not in ("ir.IRModule", self.entry_type):
            raise BadInput(
                f"{shown(self.name or 'the module')} is no module of TVM: its root is of another type"
            )
        return found

    @cached_property
    def functions(self) -> dict[str, ObjectNode]:
        """The functions of the module by name, in its order."""
        if self.root.type == self.entry_type:
            return {"main": self.root}
        found: dict[str, ObjectNode] = {}
        table = self.root.get("functions")
        for key, value in table.items if isinstance(table, Pairs) else ():
            if isinstance(key, ObjectNode) and isinstance(value, ObjectNode):
                found[str(key.get("name_hint"))] = value
        return found

    @cached_property
    def entry(self) -> ObjectNode:
        """The function that is run; BadInput when there is none."""
        candidates = {name: node for name, node in self.functions.items() if node.type == self.entry_type}
        exposed = [node for node in candidates.values() if _attribute(node, "global_symbol") is not None]
        chosen = candidates.get("main") or next(
            iter(exposed if len(exposed) == 1 else candidates.values()), None
        )
        if chosen is None:
            raise BadInput(
                f"{shown(self.name or 'the module')} is no {self.kind.partition(' ')[2]}: it has no function"
                " to run"
            )
        return chosen

    @cached_property
    def is_plain(self) -> bool:
        """Whether every text in the graph is words alone, so that what TVM prints of it cannot hold code of a
        stranger's.
        """
        return all(_WORDS.fullmatch(text) for text in _texts(self.root))

    def operators(self) -> list[str]:
        """The operators that are called, in order; `ir.Op` names without their dialect's registry prefix
        (`relax.add`).
        """
        return [name for function in self.functions.values() for name in _operators(function)]

    def edges(self) -> Iterator[tuple[str, str]]:
        """By the variables that calls are bound to."""
        made: dict[int, str] = {}
        calls: list[tuple[str, ObjectNode]] = []
        for function in self.functions.values():
            for node in _walk(function):
                value = node.get("value") if node.type == "relax.expr.VarBinding" else None
                if isinstance(value, ObjectNode) and (name := _called(value)):
                    made[id(node.get("var"))] = name
                if name := _called(node):
                    calls.append((name, node))
        yield from (
            (made.get(id(argument), ""), name)
            for name, node in calls
            for argument in _nodes(node.get("args"))
        )

    def names(self) -> Iterable[str]:
        """Names of functions, parameters and variables."""
        found = dict.fromkeys(self.functions)
        for function in self.functions.values():
            for node in _walk(function):
                if node.type in ("ir.Var", "relax.expr.DataflowVar", "ir.GlobalVar"):
                    found[str(node.get("name") or node.get("name_hint") or "")] = None
        return found

    def text(self) -> str:
        """TVM's printing where it was asked for it, else one line a function and one an operator call."""
        if self.script:
            return self.script
        lines = []
        for name, function in self.functions.items():
            lines.append(f"{function.type.rpartition('.')[2]} {name}")
            lines += [f"    {operator}" for operator in _operators(function)]
        return "\n".join(lines)


class RelaxProgram(TvmProgram):
    """A Relax module, run by its function `main`."""

    form: ClassVar[str] = "relax"
    kind: ClassVar[str] = "a Relax module"
    entry_type: ClassVar[str] = "relax.expr.Function"

    def inputs(self) -> dict[str, ValueType]:
        """What `main` takes, tuples field by field."""
        found: dict[str, ValueType] = {}
        for parameter in _nodes(self.entry.get("params")):
            found.update(_leaves(str(parameter.get("name")), parameter.get("ty")))
        return found

    def outputs(self) -> dict[str, ValueType]:
        """The leaves of what `main` gives, in order."""
        leaves = _leaves("", self.entry.get("ret_ty")).values()
        return {f"output_{place}": type_ for place, type_ in enumerate(leaves)}

    @property
    def fault(self) -> Broken | None:
        """What the module says is wrong on purpose (gen/irs/relax/mutation.py)."""
        said = _attribute(self.root, FAULT)
        if not isinstance(said, str) or _FAULT.fullmatch(said) is None:
            return None
        operator, _, place = said.partition(" ")
        return Broken(operator, "mixed-dtypes", place)

    def text(self) -> str:
        """The module as Relax is written, read here from the graph; constants are cut short."""
        from opsieve.gen.irs.relax.reading import from_json
        from opsieve.gen.irs.relax.text import module_text

        try:
            return module_text(from_json(self.module.decode("utf-8")))
        except (MalformedGraph, UnicodeDecodeError):  # what the trees of gen/irs/relax cannot hold
            return super().text()

    def shapes(self) -> dict[str, tuple[int | str, ...]]:
        """The inputs that are shapes or scalars of symbols: the sizes that they stand for."""
        found: dict[str, tuple[int | str, ...]] = {}
        for parameter in _nodes(self.entry.get("params")):
            kind = parameter.get("ty")
            if (
                isinstance(kind, ObjectNode)
                and kind.type == "relax.ShapeType"
                and isinstance(kind.get("values"), tuple)
            ):
                found[str(parameter.get("name"))] = tuple(_size(item) or 1 for item in kind["values"])  # type: ignore[union-attr]
        return found


class TirProgram(TvmProgram):
    """A TIR function in a module, run on its buffers."""

    form: ClassVar[str] = "tir"
    kind: ClassVar[str] = "a TIR function"
    entry_type: ClassVar[str] = "tirx.PrimFunc"

    def inputs(self) -> dict[str, ValueType]:
        """The buffers and scalars that the function takes; a name that stands twice gets its place behind
        it.
        """
        found: dict[str, ValueType] = {}
        for place, parameter in enumerate(_nodes(self.entry.get("params"))):
            name = str(parameter.get("name"))
            found[name if name not in found else f"{name}_{place}"] = _type(parameter.get("ty"))
        return found

    def outputs(self) -> dict[str, ValueType]:
        """What it takes, as it is after the run: any buffer may be written."""
        return self.inputs()

    def operators(self) -> list[str]:
        """Statements and arithmetic by their node's type, calls of intrinsics by name."""
        found = []
        for node in _walk(body) if isinstance(body := self.entry.get("body"), ObjectNode) else ():
            dialect, _, name = node.type.rpartition(".")
            if called := _called(node):
                found.append(called)
            elif dialect in ("tirx", "s_tir", "prim") and name not in _NO_OPERATORS:
                found.append(node.type)
        return found


def check_passes(passes: Iterable[str]) -> tuple[str, ...]:
    """The passes; BadInput for one that is no `NAME[:ARGUMENT]` or `=OPTION:VALUE`, or for too many."""
    found = tuple(passes)
    for item in found:
        if not isinstance(item, str) or PASS.fullmatch(item) is None:
            raise BadInput(f"{shown(item)} is no pass: write its name, and after a colon its argument")
    if len(found) > LONGEST:
        raise BadInput(f"a sequence of {len(found)} passes is over the limit of {LONGEST}")
    return found


def _leaves(name: str, kind: Value) -> dict[str, ValueType]:
    if isinstance(kind, ObjectNode) and kind.type == "ir.TupleType":
        found: dict[str, ValueType] = {}
        for place, part in enumerate(_nodes(kind.get("fields"))):
            found.update(_leaves(f"{name}.{place}" if name else str(place), part))
        return found
    return {name: _type(kind)}


def _type(kind: Value) -> ValueType:
    """The type of a value that is fed or read."""
    if not isinstance(kind, ObjectNode):
        return OtherType("value without a type")
    if kind.type == "relax.TensorType":
        shape, dtype = kind.get("shape"), kind.get("dtype")
        name = str(dtype.get("dtype")) if isinstance(dtype, ObjectNode) else ""
        ndim = kind.get("ndim")
        if isinstance(shape, ObjectNode) and shape.type == "relax.expr.ShapeExpr":
            return _tensor(name, tuple(map(_size, _nodes(shape.get("values")))))
        return _tensor(name, (None,) * ndim if isinstance(ndim, int) and 0 <= ndim <= 64 else None)
    if kind.type == "tirx.BufferType":
        dtype = kind.get("dtype")
        return _tensor(
            str(dtype.get("dtype")) if isinstance(dtype, ObjectNode) else "",
            tuple(map(_size, _nodes(kind.get("shape")))),
        )
    if kind.type == "relax.ShapeType":
        ndim = kind.get("ndim")
        return TensorType("int64", (ndim if isinstance(ndim, int) and ndim >= 0 else None,))
    if kind.type == "ir.PrimType":
        return _tensor(str(kind.get("dtype")), ())
    return OtherType(kind.type.rpartition(".")[2])


def _tensor(dtype: str, shape: tuple[int | str | None, ...] | None) -> ValueType:
    if dtype and dtype not in NUMBERS:
        return OtherType(f"tensor of {dtype[:40]}")
    return TensorType(dtype, shape)


def _size(value: Value) -> int | str | None:
    """A dimension: a number, the name of a symbol, a sum of them, or None for other arithmetic."""
    if not isinstance(value, ObjectNode):
        return value if isinstance(value, int) else None
    if value.type == "ir.IntImm":
        number = value.get("value")
        return number if isinstance(number, int) and number >= 0 else None
    if value.type == "ir.Var":
        return str(value.get("name"))
    if value.type in ("tirx.Add", "prim.Add"):
        parts = [_size(value.get("a")), _size(value.get("b"))]
        return " + ".join(map(str, parts)) if None not in parts else None
    return None


def _nodes(items: Value) -> Iterator[ObjectNode]:
    yield from (item for item in items if isinstance(item, ObjectNode)) if isinstance(items, tuple) else ()


def _attribute(function: ObjectNode, name: str) -> Value:
    attrs = function.get("attrs")
    table = attrs.get("__dict__") if isinstance(attrs, ObjectNode) else None
    return table.get(name) if isinstance(table, Pairs) else None


def _walk(root: ObjectNode) -> Iterator[ObjectNode]:
    """Every node under `root`, each once, parents first."""
    seen: set[int] = set()
    stack: list[Value] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, ObjectNode):
            if id(item) in seen:
                continue
            seen.add(id(item))
            yield item
            stack.extend(reversed(list(item.children())))
        elif isinstance(item, tuple):
            stack.extend(reversed(item))
        elif isinstance(item, Pairs):
            stack.extend(part for pair in reversed(item.items) for part in reversed(pair))


def _texts(root: ObjectNode) -> Iterator[str]:
    """Every string in the graph but the bytes of tensors and the names of operators, which TVM looks up."""
    for node in _walk(root):
        if isinstance(node.raw, str) and node.type not in ("ffi.Tensor", "ir.Op"):
            yield node.raw
        stack: list[Value] = list(node.children())
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                yield item
            elif isinstance(item, tuple):
                stack.extend(item)
            elif isinstance(item, Pairs):
                stack.extend(part for pair in item.items for part in pair)


def _operators(function: ObjectNode) -> Iterator[str]:
    yield from filter(None, map(_called, _walk(function)))


def _called(node: ObjectNode) -> str:
    """The operator that a node calls, "" where it calls none."""
    called = node.get("op") if node.type == "ir.Call" else None
    return str(called.raw) if isinstance(called, ObjectNode) and called.type == "ir.Op" else ""
