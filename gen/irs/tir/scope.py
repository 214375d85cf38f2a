"""Holes: every place of a function where another expression or statement could stand, with its constraints.

Tzer, section 3.2, derives the same constraints: the wanted kind of node, the wanted type, the variables in
scope, the declared buffers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tvm.nodes import ObjectNode


@dataclass(frozen=True, slots=True)
class TirRates:
    """Rates, each named by its choice."""

    # Expressions.
    leaf: float = 0.15
    negative: float = 0.2
    # A divisor is kept positive by a Max instead of being a constant.
    divisor_kept_positive: float = 0.2
    constant_shift: float = 0.7
    index_moved: float = 0.3
    index_backwards: float = 0.15
    # An index is wrapped by a remainder instead of being clamped at both ends.
    index_wrapped: float = 0.85
    index_divided: float = 0.4
    # An index is made of two variables.
    index_of_two: float = 0.6

    # Statements and loops.
    # The stored value is combined with the old one.
    updated: float = 0.25
    has_else: float = 0.5
    # An allocated buffer is written a second time.
    written_again: float = 0.5
    # A loop's condition has a second part
    ends_by_more: float = 0.3
    # A condition on a loop's variable asks about its last value
    upper_end: float = 0.5
    extent_varies: float = 0.2
    # It has no annotation.
    bare_loop: float = 0.75
    pipelined: float = 0.06
    # A loop gets a software pipeline where its annotations are changed.
    pipelined_anew: float = 0.3
    stages_in_order: float = 0.6
    # The check that a split loop needs is marked as likely.
    said_likely: float = 0.7

    # Mutations.
    # The statement is replaced rather than given a neighbour.
    replaced_whole: float = 0.2
    put_before: float = 0.5
    leaf_by_leaf: float = 0.5
    swapped: float = 0.5
    statement_wanted: float = 0.5
    loop_of_other_kind: float = 0.6
    loop_changed: float = 0.5
    reindexed: float = 0.7
    usual_tag: float = 0.9
    more_in_thread: float = 0.3
    filled_first: float = 0.4
    behind_branch: float = 0.5
    bare_double_buffer: float = 0.5

    # Passes.
    any_order: float = 0.5
    some_flat: float = 0.3
    no_options: float = 0.6
    new_sequence: float = 0.5


RATES = TirRates()


# A field, and the place in its tuple (-1 for the field itself).
Step = tuple[str, int]
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """The names usable at a place: scalar variables (with their ranges, if known), buffers, and the kinds of
    the loops around it.
    """

    variables: tuple[ObjectNode, ...] = ()
    # Loop variables with their least and greatest value.
    ranges: tuple[tuple[ObjectNode, int, int], ...] = ()
    buffers: tuple[ObjectNode, ...] = ()
    # The kinds of the loops around, outermost first.
    kinds: tuple[int, ...] = ()
    block: bool = False

    def of(self, kind: str) -> list[ObjectNode]:
        """Return the variables of a type."""
        return [var for var in self.variables if N.dtype(var) == kind]

    def with_variable(self, var: ObjectNode, low: int | None = None, high: int | None = None) -> "Scope":
        """Return the scope with one more variable."""
        ranges = (*self.ranges, (var, low, high)) if low is not None and high is not None else self.ranges
        return replace(self, variables=(*self.variables, var), ranges=ranges)

    def with_buffer(self, *buffers: ObjectNode) -> "Scope":
        """Return the scope with more buffers: those of plain elements and constant shape."""
        fit = tuple(
            item for item in buffers if N.is_buffer(item) and N.shape(item) is not None and N.dtype(item)
        )
        return replace(self, buffers=(*self.buffers, *fit))


@dataclass(frozen=True, slots=True)
class Hole:
    """A place: its path, its current node, its scope, its role.

    `role` is `statement`, `value`, `condition`, `index` (of a dimension of `bound` elements), `extent` or
    `bound` of a loop.
    """

    path: Path
    node: ObjectNode
    scope: Scope
    role: str
    bound: int = 0


def put(root: ObjectNode, path: Path, new: ObjectNode) -> ObjectNode:
    """Replace the node at a path; nodes off the path are shared."""
    if not path:
        return new
    (name, at), rest = path[0], path[1:]
    if at < 0:
        return N.with_fields(root, **{name: put(root.node(name), rest, new)})
    items = N.list_nodes(root[name])
    return N.with_fields(root, **{name: (*items[:at], put(items[at], rest, new), *items[at + 1 :])})


def holes(function: ObjectNode) -> list[Hole]:
    """List every place of a function's body, outer ones first."""
    scope = Scope()
    for param in N.list_nodes(function["params"]):
        if N.is_buffer(param):
            scope = scope.with_buffer(param)
        elif N.dtype(param) in ("int32", "int64", "float32"):
            scope = scope.with_variable(param)
    body = function["body"]
    return list(_statement(body, (("body", -1),), scope)) if isinstance(body, ObjectNode) else []


def _statement(node: ObjectNode, path: Path, scope: Scope) -> Iterator[Hole]:
    yield Hole(path, node, scope, "statement")
    yield from _inside(node, path, scope)


def _inside(node: ObjectNode, path: Path, scope: Scope) -> Iterator[Hole]:
    kind = node.type
    if kind == "tirx.SeqStmt":
        for at, item in enumerate(N.list_nodes(node["seq"])):
            yield from _statement(item, (*path, ("seq", at)), scope)
            scope = after(item, scope)
    elif kind == "tirx.For":
        yield from _loop(node, path, scope)
    elif kind == "tirx.IfThenElse":
        yield from _one(node, "condition", path, scope, "condition")
        for name in ("then_case", "else_case"):
            if (part := node.find_node(name)) is not None:
                yield from _statement(part, (*path, (name, -1)), scope)
    elif kind == "tirx.While":
        yield from _one(node, "condition", path, scope, "condition")
        yield from _statement(node.node("body"), (*path, ("body", -1)), scope)
    elif kind == "tirx.AttrStmt":
        inner = scope
        about = node["node"]
        if isinstance(about, ObjectNode) and about.type == "tirx.IterVar":
            extent = N.number(node["value"])
            low, high = (0, extent - 1) if extent else (None, None)
            inner = scope.with_variable(about.node("var"), low, high)
        yield from _statement(node.node("body"), (*path, ("body", -1)), inner)
    elif kind == "tirx.BufferStore":
        yield from _one(node, "value", path, scope, "value")
        yield from _indices(node, "buffer", path, scope)
    elif kind in ("tirx.Bind", "tirx.Evaluate", "tirx.AssertStmt"):
        name, role = ("condition", "condition") if kind == "tirx.AssertStmt" else ("value", "value")
        yield from _one(node, name, path, scope, role)
    elif kind == "s_tir.SBlockRealize":
        yield from _block(node, path, scope)


def _loop(node: ObjectNode, path: Path, scope: Scope) -> Iterator[Hole]:
    for name, role in (("min", "bound"), ("extent", "extent")):
        yield from _one(node, name, path, scope, role)
    var, first, extent = node.find_node("loop_var"), N.number(node["min"]), N.number(node["extent"])
    if var is None:
        return
    kind = node["kind"]
    inner = replace(scope, kinds=(*scope.kinds, int(kind) if isinstance(kind, int) else 0))
    # A range is known only for constant ends and a step of one.
    if first is not None and extent is not None and extent > 0 and node.get("step") is None:
        inner = inner.with_variable(var, first, first + extent - 1)
    else:
        inner = inner.with_variable(var)
    yield from _statement(node.node("body"), (*path, ("body", -1)), inner)


def _block(node: ObjectNode, path: Path, scope: Scope) -> Iterator[Hole]:
    """Yield the holes of a block. It sees its own iteration variables and no outer loop, and only the buffers
    that it declares as written.
    """
    block = node.find_node("block")
    if block is None:
        return
    # A write to a buffer that the block does not declare would make it invalid.
    said = {region["source"] for region in N.list_nodes(block["writes"])}
    inner = replace(scope, variables=(), ranges=(), block=True)
    inner = replace(inner, buffers=tuple(of for of in scope.buffers if of in said))
    for item in N.list_nodes(block["iter_vars"]):
        var, domain = item.find_node("var"), item.find_node("dom")
        if var is not None and domain is not None:
            first, extent = N.number(domain["min"]), N.number(domain["extent"])
            bounds = (first, first + extent - 1) if first is not None and extent else (None, None)
            inner = inner.with_variable(var, *bounds)
    inner = inner.with_buffer(*N.list_nodes(block["alloc_buffers"]))
    here = (*path, ("block", -1))
    for name in ("init", "body"):
        if (part := block.find_node(name)) is not None:
            yield from _statement(part, (*here, (name, -1)), inner)


def after(item: ObjectNode, scope: Scope) -> Scope:
    """Return the scope behind a statement."""
    if item.type == "tirx.Bind":
        var = item.find_node("var")
        return scope.with_variable(var) if var is not None and N.dtype(var) else scope
    if item.type in ("tirx.AllocBuffer", "tirx.DeclBuffer"):
        of = item.find_node("buffer")
        return scope.with_buffer(of) if of is not None else scope
    return scope


def _one(node: ObjectNode, name: str, path: Path, scope: Scope, role: str, bound: int = 0) -> Iterator[Hole]:
    value = node.find_node(name)
    if value is not None:
        yield from _expression(value, (*path, (name, -1)), scope, role, bound)


def _indices(node: ObjectNode, name: str, path: Path, scope: Scope) -> Iterator[Hole]:
    of = node.find_node(name)
    sizes = N.shape(of) if of is not None and N.is_buffer(of) else None
    for at, index in enumerate(N.list_nodes(node["indices"])):
        bound = sizes[at] if sizes is not None and at < len(sizes) else 0
        yield from _expression(index, (*path, ("indices", at)), scope, "index", bound)


def _expression(node: ObjectNode, path: Path, scope: Scope, role: str, bound: int) -> Iterator[Hole]:
    if not N.dtype(node) or N.is_buffer(node):
        return
    yield Hole(path, node, scope, role, bound)
    # A part of an index may stay inside the bounds only because of the expression around it, which need not
    # be one of this generator. It is left alone.
    inner = "part" if role in ("index", "extent", "bound") else "value"
    if node.type == "ir.TensorLoad":
        yield from _indices(node, "source", path, scope)
    elif node.type == "prim.Let":
        yield from _one(node, "value", path, scope, inner)
        yield from _one(node, "body", path, scope.with_variable(node.node("var")), inner)
    elif node.type == "ir.Call":
        for at, item in enumerate(N.list_nodes(node["args"])):
            yield from _expression(item, (*path, ("args", at)), scope, inner, 0)
    elif node.type.startswith("prim."):
        for name, value in node.fields.items():
            if isinstance(value, ObjectNode) and name not in ("ty", "span", "lanes"):
                yield from _expression(value, (*path, (name, -1)), scope, inner, 0)


# The field in which a node has the variable or buffer that it defines.
_DEFINED = {
    "tirx.For": "loop_var",
    "tirx.Bind": "var",
    "prim.Let": "var",
    "tirx.IterVar": "var",
    "tirx.AllocBuffer": "buffer",
    "tirx.DeclBuffer": "buffer",
}
# Statements whose definition holds for the statements behind them.
_DEFINED_BEHIND = ("tirx.Bind", "tirx.AllocBuffer", "tirx.DeclBuffer")


def defines(item: ObjectNode) -> set[ObjectNode]:
    """Return the variables that a statement defines for the following ones."""
    var = item.find_node(_DEFINED[item.type]) if item.type in _DEFINED_BEHIND else None
    return set() if var is None else {var}


def open_holes(function: ObjectNode) -> list[Hole]:
    """List the holes that can be filled otherwise: all except definitions, which later statements need."""
    return [hole for hole in holes(function) if not defines(hole.node)]


def free(node: ObjectNode) -> set[ObjectNode]:
    """Return the variables and buffers that a tree reads but does not define."""
    found = list(N.walk(node))
    defined = {item.find_node(_DEFINED[item.type]) for item in found if item.type in _DEFINED}
    return {item for item in found if item.type == "ir.Var"} - defined
