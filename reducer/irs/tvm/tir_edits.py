"""Edits of TIR functions as nodes: drop statements, run loops once, take branches, make values constant, drop
unused buffers.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.tir import nodes as N, scope
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs, Value, encode
from opsieve.gen.irs.tvm.program import object_nodes
from opsieve.gen.irs.view import Array, StoredTensor
from opsieve.reducer.engine import census, edit
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmSubject
from opsieve.reducer.passes.values import list_lesser, plainer_values

Change = Callable[[ObjectNode], ObjectNode | None]
# Nodes that define a buffer.
_HOLDERS = ("tirx.PrimFunc", "tirx.AllocBuffer", "s_tir.SBlock")


def tir_parts(subject: TvmSubject) -> Iterator[census.Part[TvmSubject]]:
    """Yield the statements of a function, loops and branches among them, and its buffers."""
    nodes = _nodes(subject)
    for node in nodes:
        if node.type in N.STATEMENTS and node.type != "tirx.SeqStmt":
            nothing = _edit(nodes[0], "do nothing for", node, _nothing)
            yield census.Part(
                "statements", _content(node), "it does nothing" if _is_nothing(node) else "", (nothing,)
            )
    for name in _buffers(subject):
        needed = _without_buffer(name, subject) is None
        yield census.Part("buffers", name, "it is the only one, or a statement has it" if needed else "")


def drop_statements(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Drop each statement of each sequence, the last first; then run each loop once, and take each branch."""
    nodes = _nodes(subject)
    for node in nodes:
        items = object_nodes(node["seq"]) if node.type == "tirx.SeqStmt" else ()
        # From the end, because a later statement reads what an earlier one wrote.
        for item in reversed(list(items)):
            yield _edit(nodes[0], f"drop {item.type}", item, _nothing)
    for node in nodes:
        if node.type == "tirx.For":
            # After the drops, which may remove the loop altogether.
            yield _edit(nodes[0], f"run {node.type} once", node, _once)
        if node.type == "tirx.IfThenElse":
            yield _edit(nodes[0], "take a branch", node, lambda node: node.find_node("then_case"))


def unwrap_statements(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Drop attributes, blocks, stores and branches around statements and expressions, the outer ones first;
    simplify kinds, extents and annotations of loops. A loop of fewer iterations stays inside every buffer.
    """
    nodes = _nodes(subject)
    for node in nodes:
        for label, change in _AROUND.get(node.type, ()):
            if change(node) is not None:
                yield _edit(nodes[0], label, node, change)
        for place in range(len(_parts(node)) if node.type in N.STATEMENTS else 0):
            yield _edit(nodes[0], f"evaluate part {place} alone", node, partial(_alone, place))


def simplify_expressions(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Put one of its operands, or a constant, in the place of each expression, the outer ones first. An index
    gives way to 0 alone, which is inside every buffer.
    """
    nodes = _nodes(subject)
    for hole in scope.holes(nodes[0]) if nodes else ():
        node, kind = hole.node, N.dtype(hole.node)
        number = node["value"] if node.type in ("ir.IntImm", "ir.FloatImm") else None
        for less in list_lesser(number) if hole.role in ("value", "condition", "index", "extent") else ():
            # A loop without iterations hides what its body does.
            if less or hole.role != "extent":
                yield _edit(nodes[0], f"{less} instead", node, partial(_constant, less))
        if hole.role in ("statement", "extent", "bound") or node.type in ("ir.IntImm", "ir.FloatImm"):
            continue
        known = kind in ("bool", "float16", "float32", "float64") or kind.startswith(("int", "uint"))
        # A type such as float32x4 has lanes, for which a scalar constant is of another type.
        if known and "x" not in kind:
            inside = hole.role in ("index", "part")
            yield _edit(nodes[0], "a constant instead", node, partial(_constant, 0 if inside else 1))
        if hole.role in ("index", "part"):
            continue
        for place, operand in enumerate(N.children(node)):
            if N.dtype(operand) == kind and not N.is_buffer(operand):
                yield _edit(nodes[0], f"operand {place} instead", node, partial(_operand, place))


def drop_buffers(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Drop each argument without reads and writes."""
    for name in _buffers(subject):
        yield edit.Edit(f"drop the buffer {name}", frozenset([name]), partial(_without_buffer, name))


def shrink_buffers(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Shrink each axis of a buffer that only constants index, to sizes that hold them."""
    nodes = _nodes(subject)
    for buffer in filter(N.is_buffer, nodes):
        sizes, needed = N.shape(buffer), _indexed(nodes[0], buffer)
        for axis, size in enumerate(sizes or ()):
            least = size if needed is None else needed[axis] if axis < len(needed) else 1
            for target in dict.fromkeys((1, 2, size // 2, size - 1)):
                if least <= target < size:
                    yield _edit(
                        nodes[0], f"size {target} of axis {axis} for", buffer, partial(_resized, axis, target)
                    )


def simplify_inputs(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Give the fed buffers plainer values."""
    arrays = {name: np.asarray(value) for name, value in subject.inputs.items()}

    def store(subject: TvmSubject, tensor: StoredTensor, array: Array) -> TvmSubject | None:
        changed = {**subject.inputs, tensor.name: array}
        return replace(subject, inputs=changed) if tensor.holds(subject.inputs.get(tensor.name)) else None

    return plainer_values((StoredTensor(name, array, True) for name, array in arrays.items()), store)


@lru_cache(maxsize=64)
def _function(data: bytes) -> ObjectNode | None:
    """Return the function of a module; `None` if it lacks one."""
    try:
        return TirProgram(data).entry
    except BadInput:
        return None


def _nodes(subject: TvmSubject) -> list[ObjectNode]:
    """Return the nodes of the function, the outer ones first."""
    function = _function(subject.program.data)
    return [] if function is None else list(N.walk(function))


def _buffers(subject: TvmSubject) -> list[str]:
    """Return the names of the function's arguments."""
    function = _function(subject.program.data)
    return [] if function is None else [str(each["name"]) for each in object_nodes(function["params"])]


# Nodes are shared between the edits of a function, and each is hashed once instead of once per edit.
@lru_cache(maxsize=1 << 15)
def _content(node: ObjectNode) -> str:
    """Hash a statement by its content, so that equal statements are one."""
    return hashlib.sha256(encode(node).encode()).hexdigest()


# An edit looks its node up among those of one type: asked anew by every edit, they made a pass quadratic.
@lru_cache(maxsize=256)
def _by_content(function: ObjectNode, kind: str) -> dict[str, list[ObjectNode]]:
    """Group the nodes of one type of a function by their content, in order."""
    found = dict[str, list[ObjectNode]]()
    for node in N.walk(function):
        if node.type == kind:
            found.setdefault(_content(node), []).append(node)
    return found


@lru_cache(maxsize=1 << 12)
def _inside(node: ObjectNode) -> frozenset[str]:
    """Return a node's content and that of all statements and expressions inside."""
    parts = (item for item in N.walk(node) if item is node or item.type in N.STATEMENTS or N.dtype(item))
    return frozenset(map(_content, parts))


def _edit(function: ObjectNode, label: str, node: ObjectNode, change: Change) -> TvmEdit:
    """Make an edit of a node of a function, known by its content and its turn among those that equal it."""
    wanted, kind = _content(node), node.type
    turn = next(place for place, item in enumerate(_by_content(function, kind)[wanted]) if item is node)

    def apply(subject: TvmSubject) -> TvmSubject | None:
        now = _function(subject.program.data)
        equals = [] if now is None else _by_content(now, kind).get(wanted, [])[: turn + 1]
        new = change(equals[-1]) if equals else None
        return None if now is None or new is None else _with(subject, N.replace_node(now, equals[-1], new))

    # With the content of what is inside, so that nested edits never merge.
    return edit.Edit(f"{label} {wanted[:8]}", _inside(node), apply, frozenset([wanted]))


def _with(subject: TvmSubject, function: ObjectNode) -> TvmSubject | None:
    data = encode(N.module(N.rewritten(function, _flat))).encode()
    fed = dict(subject.inputs)
    for param in filter(N.is_buffer, N.list_nodes(function["params"])):
        value, sizes = fed.get(str(param["name"])), N.shape(param)
        if isinstance(value, np.ndarray) and sizes is not None and len(sizes) == value.ndim:
            fed[str(param["name"])] = value[tuple(map(slice, sizes))]
    return replace(subject, inputs=fed).with_module(data)


def _flat(node: ObjectNode) -> ObjectNode | None:
    """Return a sequence without statements that do nothing."""
    if node.type != "tirx.SeqStmt":
        return None
    items = N.list_nodes(node["seq"])
    # A branch or loop whose body became nothing goes in the same edit.
    kept = [N.rewritten(item, _flat) for item in items if not _is_nothing(item)]
    same = len(kept) == len(items) and all(a is b for a, b in zip(kept, items, strict=True))
    return node if same else N.sequence(*kept)


def _nothing(statement: ObjectNode | None = None) -> ObjectNode:
    """Return the statement that replaces a dropped one: `evaluate(0)`, as TVM writes it."""
    return N.evaluate(N.integer(0))


def _is_nothing(node: ObjectNode) -> bool:
    value = node.get("value") if node.type == "tirx.Evaluate" else None
    return isinstance(value, ObjectNode) and value.type == "ir.IntImm"


def _once(loop: ObjectNode) -> ObjectNode | None:
    var, start, body = (loop.find_node(name) for name in ("loop_var", "min", "body"))
    return None if var is None or start is None or body is None else N.replace_node(body, var, start)


def _plain(node: ObjectNode) -> ObjectNode | None:
    said = node.get("annotations")
    return N.with_fields(node, annotations=Pairs()) if isinstance(said, Pairs) and said.items else None


# Only shorter: an index of more iterations could leave its buffer, which would be another failure.
def _shorter(extent: int, loop: ObjectNode) -> ObjectNode | None:
    now = N.number(loop["extent"])
    kind = N.dtype(loop["loop_var"])
    end = _typed(loop["extent"], N.integer(extent, kind))
    return N.with_fields(loop, extent=end) if now is None or now > extent else None


def _fewer(extent: int, attribute: ObjectNode) -> ObjectNode | None:
    """Return an attribute of fewer threads, which is also one of any smaller number."""
    end, axis = _typed(attribute["value"], N.integer(extent)), attribute.find_node("node")
    domain = None if axis is None else axis.find_node("dom")
    if (N.number(attribute["value"]) or 0) <= extent:
        return None
    if axis is None or domain is None:
        return N.with_fields(attribute, value=end)
    wide = axis
    axis = N.with_fields(axis, dom=N.with_fields(domain, extent=end))
    return N.replace_node(N.with_fields(attribute, value=end), wide, axis)


def _unwrap_block(realize: ObjectNode) -> ObjectNode | None:
    """Return a block's body, with the values of its iteration variables; `None` for a block with memory or an
    initialisation.
    """
    block = realize.find_node("block")
    # Memory, its initialisation and views of buffers belong to the block and would be lost with it.
    if block is None or any(block.get(name) for name in ("init", "alloc_buffers", "match_buffers")):
        return None
    body = block.find_node("body")
    for item, value in zip(
        object_nodes(block["iter_vars"]), object_nodes(realize["iter_values"]), strict=True
    ):
        var = item.find_node("var")
        if body is not None and var is not None:
            body = N.replace_node(body, var, value)
    return body


def _without_memory(block: ObjectNode) -> ObjectNode | None:
    """Return a block without its unused buffers."""
    allocated, body, init = block["alloc_buffers"], block.find_node("body"), block.find_node("init")
    if not isinstance(allocated, tuple) or body is None:
        return None
    used = {*N.walk(body), *(() if init is None else N.walk(init))}
    kept = tuple(item for item in allocated if item in used)
    return N.with_fields(block, alloc_buffers=kept) if len(kept) < len(allocated) else None


def _parts(statement: ObjectNode) -> list[ObjectNode]:
    """Return the subexpressions of a statement that can be evaluated alone, so that the rest of it can go."""
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
    # A buffer's data cannot be evaluated by itself, and a constant or variable has no effect.
    parts = [
        item for item in found if isinstance(item, ObjectNode) and N.dtype(item) and not N.is_buffer(item)
    ]
    return [item for item in parts if item.type not in ("ir.IntImm", "ir.FloatImm", "ir.Var")]


def _alone(place: int, statement: ObjectNode) -> ObjectNode | None:
    parts = _parts(statement)
    return N.evaluate(parts[place]) if place < len(parts) else None


_AROUND: dict[str, tuple[tuple[str, Change], ...]] = {
    "tirx.AttrStmt": (
        ("drop an attribute", lambda node: node.find_node("body")),
        ("two threads", partial(_fewer, 2)),
        ("one thread", partial(_fewer, 1)),
    ),
    "tirx.While": (("go once through a while", lambda node: node.find_node("body")),),
    "tirx.IfThenElse": (("take the other branch", lambda node: node.find_node("else_case")),),
    "tirx.For": (
        ("two iterations", partial(_shorter, 2)),
        ("one iteration", partial(_shorter, 1)),
        (
            "a serial loop",
            lambda loop: (
                None if loop["kind"] == N.SERIAL else N.with_fields(loop, kind=N.SERIAL, thread_binding=None)
            ),
        ),
        ("drop the annotations of a loop", _plain),
    ),
    "s_tir.SBlockRealize": (("a block's body alone", _unwrap_block),),
    "s_tir.SBlock": (
        ("drop unused memory of a block", _without_memory),
        (
            "drop the beginning of a block",
            lambda block: None if block.get("init") is None else N.with_fields(block, init=None),
        ),
        ("drop the annotations of a block", _plain),
    ),
}


def _constant(value: float, node: ObjectNode) -> ObjectNode:
    return _typed(node, N.constant(value, N.dtype(node)))


def _typed(old: Value, new: ObjectNode) -> ObjectNode:
    """Return a constant with the type node of what it replaces: one more type node makes the JSON longer."""
    return N.with_fields(new, ty=old["ty"]) if isinstance(old, ObjectNode) else new


def _indexed(function: ObjectNode | None, buffer: ObjectNode) -> list[int] | None:
    """Return for each axis how many elements the constant indices of a buffer need, an empty list if nothing
    reads or writes it; `None` if another node uses the whole buffer.
    """
    needed: list[int] = []
    for node in () if function is None else N.walk(function):
        if not any(child is buffer for child in N.children(node)) or node.type in _HOLDERS:
            continue
        if node.type not in ("ir.TensorLoad", "tirx.BufferStore") or node.get("value") is buffer:
            return None
        ends = [N.number(index) for index in N.list_nodes(node["indices"])]
        found = [sys.maxsize if end is None else end + 1 for end in ends]
        needed = [max(pair) for pair in zip(found, needed or found, strict=True)]
    return needed


def _resized(axis: int, size: int, buffer: ObjectNode) -> ObjectNode | None:
    kind = buffer.node("ty")
    sizes = N.list_nodes(kind["shape"])
    # Strides belong to the sizes that they were computed for.
    if kind["strides"]:
        return None
    shape = (*sizes[:axis], _typed(sizes[axis], N.integer(size)), *sizes[axis + 1 :])
    return N.with_fields(buffer, ty=N.with_fields(kind, shape=shape))


def _operand(place: int, node: ObjectNode) -> ObjectNode | None:
    operands = list(N.children(node))
    return operands[place] if place < len(operands) else None


def _without_buffer(name: str, subject: TvmSubject) -> TvmSubject | None:
    function = _function(subject.program.data)
    body = None if function is None else function.find_node("body")
    params = [] if function is None else list(object_nodes(function["params"]))
    gone = next((item for item in params if str(item["name"]) == name), None)
    # The last argument stays: without one a function has no output to observe.
    if body is None or gone is None or len(params) < 2 or any(node is gone for node in N.walk(body)):
        return None
    return _with(subject, N.function([item for item in params if item is not gone], body))
