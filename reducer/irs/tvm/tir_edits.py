"""Edits of TIR functions as nodes: statements left out, loops run once, branches taken, values made constant,
buffers that nobody needs.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tir.scope import holes
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs, Value, encode
from opsieve.reducer.engine.census import Part
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmSubject

Change = Callable[[ObjectNode], ObjectNode | None]


def tir_parts(subject: TvmSubject) -> Iterator[Part[TvmSubject]]:
    """The statements of a function, loops and branches among them, and its buffers."""
    function = _function(subject.program.data)
    for node in N.walk(function) if function is not None else ():
        if node.type in N.STATEMENTS and node.type != "tirx.SeqStmt":
            nothing = _edit("do nothing for", node, _nothing)
            yield Part(
                "statements", _content(node), "it does nothing" if _is_nothing(node) else "", (nothing,)
            )
    params = function["params"] if function is not None else ()
    for param in params if isinstance(params, tuple) else ():
        if isinstance(param, ObjectNode):
            name = str(param["name"])
            needed = _without_buffer(name, subject) is None
            yield Part("buffers", name, "it is the only one, or a statement has it" if needed else "")


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


class Enclosing:
    """What stands around statements and expressions: attributes, blocks, stores, branches; kinds, extents and
    annotations of loops.
    """

    name = "structure"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """The outer ones first. A loop of fewer iterations stays inside every buffer."""
        function = _function(subject.program.data)
        for node in N.walk(function) if function is not None else ():
            for label, change in _AROUND.get(node.type, ()):
                if change(node) is not None:
                    yield _edit(label, node, change)
            for place in range(len(_parts(node)) if node.type in N.STATEMENTS else 0):
                yield _edit(f"evaluate part {place} alone", node, partial(_alone, place))


class Expressions:
    """Values: one of their operands, or a constant."""

    name = "expressions"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """Every place of an expression, the outer ones first. An index gives way to 0 alone, which is inside
        every buffer.
        """
        function = _function(subject.program.data)
        for hole in holes(function) if function is not None else ():
            node, kind = hole.node, N.dtype(hole.node)
            if hole.role in ("statement", "extent", "bound") or node.type in ("ir.IntImm", "ir.FloatImm"):
                continue
            if _has_constants(kind):
                inside = hole.role in ("index", "part")
                yield _edit("a constant instead", node, partial(_constant, 0 if inside else 1))
            if hole.role in ("index", "part"):
                continue
            for place, operand in enumerate(N.children(node)):
                if N.dtype(operand) == kind and not N.is_buffer(operand):
                    yield _edit(f"operand {place} instead", node, partial(_operand, place))


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
        found = next(
            (item for item in N.walk(function) if item.type == kind and _content(item) == wanted), None
        )
        new = None if found is None else change(found)
        return None if found is None or new is None else _with(subject, N.replaced(function, found, new))

    # What lies inside is touched as well: two edits of which one is inside the other do not go together.
    touches = frozenset(map(_content, _inside(node)))
    return Edit(f"{label} {wanted[:8]}", touches, apply, frozenset([wanted]))


def _inside(node: ObjectNode) -> Iterator[ObjectNode]:
    """The node, and the statements and expressions in it."""
    return (item for item in N.walk(node) if item is node or item.type in N.STATEMENTS or N.dtype(item))


def _with(subject: TvmSubject, function: ObjectNode) -> TvmSubject | None:
    return subject.with_module(encode(N.module(N.rewritten(function, _flat))).encode())


def _flat(node: ObjectNode) -> ObjectNode | None:
    """A sequence without statements that do nothing."""
    if node.type != "tirx.SeqStmt":
        return None
    items = node["seq"]
    assert isinstance(items, tuple)
    kept = [
        N.rewritten(item, _flat) for item in items if isinstance(item, ObjectNode) and not _is_nothing(item)
    ]
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
    if (
        not isinstance(var, ObjectNode)
        or not isinstance(start, ObjectNode)
        or not isinstance(body, ObjectNode)
    ):
        return None
    return N.replaced(body, var, start)


def _then(branch: ObjectNode) -> ObjectNode | None:
    then = branch["then_case"]
    return then if isinstance(then, ObjectNode) else None


def _else(branch: ObjectNode) -> ObjectNode | None:
    other = branch.get("else_case")
    return other if isinstance(other, ObjectNode) else None


def _body(node: ObjectNode) -> ObjectNode | None:
    body = node["body"]
    return body if isinstance(body, ObjectNode) else None


def _serial(loop: ObjectNode) -> ObjectNode | None:
    return N.with_fields(loop, kind=N.SERIAL, thread_binding=None) if loop["kind"] != N.SERIAL else None


def _plain(node: ObjectNode) -> ObjectNode | None:
    said = node.get("annotations")
    return N.with_fields(node, annotations=Pairs()) if isinstance(said, Pairs) and said.items else None


def _shorter(extent: int, loop: ObjectNode) -> ObjectNode | None:
    now = N.number(loop["extent"])
    kind = N.dtype(loop["loop_var"])
    return N.with_fields(loop, extent=N.integer(extent, kind)) if now is None or now > extent else None


def _unblocked(realize: ObjectNode) -> ObjectNode | None:
    """What a block does, with the values of its iteration variables; None for one that has memory or a
    beginning of its own.
    """
    block, given = realize["block"], realize["iter_values"]
    if (
        not isinstance(block, ObjectNode)
        or block.get("init") is not None
        or block["alloc_buffers"]
        or block["match_buffers"]
    ):
        return None
    body, variables = block["body"], block["iter_vars"]
    if not isinstance(body, ObjectNode) or not isinstance(variables, tuple) or not isinstance(given, tuple):
        return None
    for item, value in zip(variables, given, strict=True):
        var = item["var"] if isinstance(item, ObjectNode) else None
        if isinstance(var, ObjectNode) and isinstance(value, ObjectNode):
            body = N.replaced(body, var, value)
    return body


def _without_memory(block: ObjectNode) -> ObjectNode | None:
    """A block without the buffers that nobody uses in it."""
    allocated, body, init = block["alloc_buffers"], block["body"], block.get("init")
    if not isinstance(allocated, tuple) or not isinstance(body, ObjectNode):
        return None
    used = {*N.walk(body), *(N.walk(init) if isinstance(init, ObjectNode) else ())}
    kept = tuple(item for item in allocated if item in used)
    return N.with_fields(block, alloc_buffers=kept) if len(kept) < len(allocated) else None


def _without_init(block: ObjectNode) -> ObjectNode | None:
    return N.with_fields(block, init=None) if block.get("init") is not None else None


def _parts(statement: ObjectNode) -> list[ObjectNode]:
    """The expressions of a statement that could be evaluated alone, so that what they stand in can go."""
    if statement.type == "tirx.Evaluate":
        whole = statement["value"]
        found: list[Value] = list(N.children(whole)) if isinstance(whole, ObjectNode) else []
    elif statement.type == "tirx.BufferStore":
        indices = statement["indices"]
        found = [statement["value"], *(indices if isinstance(indices, tuple) else ())]
    elif statement.type in ("tirx.IfThenElse", "tirx.While", "tirx.AssertStmt"):
        found = [statement["condition"]]
    elif statement.type in ("tirx.AttrStmt", "tirx.Bind"):
        found = [statement["value"]]
    elif statement.type == "tirx.For":
        found = [statement["min"], statement["extent"]]
    else:
        return []
    parts = [
        item for item in found if isinstance(item, ObjectNode) and N.dtype(item) and not N.is_buffer(item)
    ]
    return [item for item in parts if item.type not in ("ir.IntImm", "ir.FloatImm", "ir.Var")]


def _alone(place: int, statement: ObjectNode) -> ObjectNode | None:
    parts = _parts(statement)
    return N.evaluate(parts[place]) if place < len(parts) else None


_AROUND: dict[str, tuple[tuple[str, Change], ...]] = {
    "tirx.AttrStmt": (("drop an attribute", _body),),
    "tirx.While": (("go once through a while", _body),),
    "tirx.IfThenElse": (("take the other branch", _else),),
    "tirx.For": (
        ("two iterations", partial(_shorter, 2)),
        ("one iteration", partial(_shorter, 1)),
        ("a serial loop", _serial),
        ("drop the annotations of a loop", _plain),
    ),
    "s_tir.SBlockRealize": (("a block's body alone", _unblocked),),
    "s_tir.SBlock": (
        ("drop unused memory of a block", _without_memory),
        ("drop the beginning of a block", _without_init),
        ("drop the annotations of a block", _plain),
    ),
}


def _has_constants(kind: str) -> bool:
    known = kind in ("bool", "float16", "float32", "float64") or kind.startswith(("int", "uint"))
    return known and "x" not in kind


def _constant(value: int, node: ObjectNode) -> ObjectNode:
    return N.constant(value, N.dtype(node))


def _operand(place: int, node: ObjectNode) -> ObjectNode | None:
    operands = list(N.children(node))
    return operands[place] if place < len(operands) else None


def _without_buffer(name: str, subject: TvmSubject) -> TvmSubject | None:
    function = _function(subject.program.data)
    params = function["params"] if function is not None else ()
    body = function["body"] if function is not None else None
    if (
        function is None
        or not isinstance(params, tuple)
        or len(params) < 2
        or not isinstance(body, ObjectNode)
    ):
        return None
    gone = next((item for item in params if isinstance(item, ObjectNode) and str(item["name"]) == name), None)
    if gone is None or any(node is gone for node in N.walk(body)):
        return None
    left = tuple(item for item in params if item is not gone)
    return _with(subject, N.function([item for item in left if isinstance(item, ObjectNode)], body))
