"""Edits of TIR functions as nodes: statements left out, loops run once, branches taken, values made constant, buffers that nobody needs."""

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from opsieve.gen.forms.tvm_program import TirProgram
from opsieve.gen.model.bad_input import BadInput
from opsieve.gen.tir import nodes as N
from opsieve.gen.tvm_ir.nodes import ObjectNode, encode
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.tvm.subject import TvmEdit, TvmSubject

Change = Callable[[ObjectNode], ObjectNode | None]


class Statements:
    """Statements of a sequence, the last first; loops and branches by their body."""

    name = "statements"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """Each statement of each sequence; then each loop run once, each branch taken."""
        function = _function(subject.program.data)
        nodes = list(N.walk(function)) if function is not None else []
        for node in nodes:
            items = node["seq"] if node.type == "tirx.SeqStmt" else ()
            for item in reversed(items) if isinstance(items, tuple) else ():
                if isinstance(item, ObjectNode):
                    yield _edit(f"drop {item.type}", item, _nothing)
        for node in nodes:
            if node.type == "tirx.For":
                yield _edit(f"run {node.type} once", node, _once)
            if node.type == "tirx.IfThenElse":
                yield _edit("take a branch", node, _then)


class Expressions:
    """Values that are stored: one of their operands, or a constant."""

    name = "expressions"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """For each store, the last first."""
        function = _function(subject.program.data)
        stores = [node for node in N.walk(function) if node.type == "tirx.BufferStore"] if function is not None else []
        for store in reversed(stores):
            value = store["value"]
            if not isinstance(value, ObjectNode) or value.type in ("ir.IntImm", "ir.FloatImm"):
                continue
            yield _edit("store a constant", store, _stored_constant)
            for place, operand in enumerate(N.children(value)):
                if N.dtype(operand) == N.dtype(value):
                    yield _edit(f"store operand {place}", store, partial(_stored_operand, place))


class Buffers:
    """Arguments that nobody reads or writes."""

    name = "buffers"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """Each argument."""
        function = _function(subject.program.data)
        params = function["params"] if function is not None else ()
        for param in params if isinstance(params, tuple) else ():
            if isinstance(param, ObjectNode):
                name = str(param["name"])
                yield Edit(f"drop the buffer {name}", frozenset([name]), partial(_without_buffer, name))


@lru_cache(maxsize=64)
def _function(data: bytes) -> ObjectNode | None:
    """The function of a module; None where it has none."""
    try:
        return TirProgram(data).entry
    except BadInput:
        return None


@lru_cache(maxsize=4096)
def _content(node: ObjectNode) -> str:
    """What a statement is, whatever it is called: two that are written alike are one."""
    return hashlib.sha256(encode(node).encode()).hexdigest()


def _edit(label: str, node: ObjectNode, change: Change) -> TvmEdit:
    """The edit of the first statement that is written as `node` is."""
    wanted, kind = _content(node), node.type

    def apply(subject: TvmSubject) -> TvmSubject | None:
        function = _function(subject.program.data)
        if function is None:
            return None
        found = next((item for item in N.walk(function) if item.type == kind and _content(item) == wanted), None)
        new = None if found is None else change(found)
        return None if found is None or new is None else _with(subject, N.replaced(function, found, new))

    return Edit(label, frozenset([wanted]), apply)


def _with(subject: TvmSubject, function: ObjectNode) -> TvmSubject | None:
    return subject.with_module(encode(N.module(N.rewritten(function, _flat))).encode())


def _flat(node: ObjectNode) -> ObjectNode | None:
    """A sequence without statements that do nothing."""
    if node.type != "tirx.SeqStmt":
        return None
    items = node["seq"]
    assert isinstance(items, tuple)
    kept = [N.rewritten(item, _flat) for item in items if isinstance(item, ObjectNode) and not _is_nothing(item)]
    same = len(kept) == len(items) and all(a is b for a, b in zip(kept, items, strict=True))
    return node if same else N.sequence(*kept)


def _nothing(statement: ObjectNode | None = None) -> ObjectNode:
    """The statement that stands for one left out."""
    return N.evaluate(N.integer(0))


def _is_nothing(node: ObjectNode) -> bool:
    value = node.get("value") if node.type == "tirx.Evaluate" else None
    return isinstance(value, ObjectNode) and value.type == "ir.IntImm"


def _once(loop: ObjectNode) -> ObjectNode | None:
    var, start, body = loop["loop_var"], loop["min"], loop["body"]
    if not isinstance(var, ObjectNode) or not isinstance(start, ObjectNode) or not isinstance(body, ObjectNode):
        return None
    return N.replaced(body, var, start)


def _then(branch: ObjectNode) -> ObjectNode | None:
    then = branch["then_case"]
    return then if isinstance(then, ObjectNode) else None


def _stored_constant(store: ObjectNode) -> ObjectNode | None:
    value = store["value"]
    kind = N.dtype(value)
    known = kind in ("bool", "float16", "float32", "float64") or kind.startswith(("int", "uint"))
    return N.with_fields(store, value=N.constant(1, kind)) if known and "x" not in kind else None


def _stored_operand(place: int, store: ObjectNode) -> ObjectNode | None:
    operands = list(N.children(store["value"]))
    return N.with_fields(store, value=operands[place]) if place < len(operands) else None


def _without_buffer(name: str, subject: TvmSubject) -> TvmSubject | None:
    function = _function(subject.program.data)
    params = function["params"] if function is not None else ()
    body = function["body"] if function is not None else None
    if function is None or not isinstance(params, tuple) or len(params) < 2 or not isinstance(body, ObjectNode):
        return None
    gone = next((item for item in params if isinstance(item, ObjectNode) and str(item["name"]) == name), None)
    if gone is None or any(node is gone for node in N.walk(body)):
        return None
    left = tuple(item for item in params if item is not gone)
    return _with(subject, N.function([item for item in left if isinstance(item, ObjectNode)], body))
