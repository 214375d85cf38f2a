"""The three general mutators of Tzer (section 3.2): insertion, deletion, replacement, each under the
constraints of a hole. A mutator returns the part that takes the place of the hole's node, or None.
"""

from collections.abc import Callable

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import expressions, loops, nodes as N
from opsieve.gen.irs.tir.expressions import build_operator, constant, expression, index, operation
from opsieve.gen.irs.tir.scope import RATES, Hole, Scope, after, defines, free, open_holes
from opsieve.gen.irs.tir.statements import statement
from opsieve.gen.irs.tvm.nodes import ObjectNode

Mutator = Callable[[Rng, Hole], ObjectNode | None]
# The most operators of a new part.
FUEL = 6


def insertion(rng: Rng, hole: Hole) -> ObjectNode | None:
    """Put a new part in the place of another, or next to it if that is a statement."""
    if hole.role != "statement":
        return fresh(rng, hole)
    made = statement(rng, hole.scope, rng.between(1, FUEL))
    if rng.chance(RATES.replaced_whole):
        return made
    if hole.node.type == "tirx.SeqStmt":
        items = list(N.list_nodes(hole.node["seq"]))
        at = rng.between(0, len(items))
        scope = hole.scope
        # The new statement may read what the statements before it define.
        for item in items[:at]:
            scope = after(item, scope)
        made = statement(rng, scope, rng.between(1, FUEL))
        return N.sequence(*items[:at], made, *items[at:])
    return N.sequence(made, hole.node) if rng.chance(RATES.put_before) else N.sequence(hole.node, made)


def deletion(rng: Rng, hole: Hole) -> ObjectNode | None:
    """Replace a node by one of its own parts of the same type; a sequence of statements loses one."""
    known = {*hole.scope.variables, *hole.scope.buffers}
    if hole.role == "statement":
        if hole.node.type == "tirx.SeqStmt":
            items = list(N.list_nodes(hole.node["seq"]))
            needed = [free(item) for item in items]
            # A definition that a later statement reads has to stay.
            loose = [
                at
                for at in range(len(items))
                if not any(defines(items[at]) & used for used in needed[at + 1 :])
            ]
            if not loose:
                return None
            at = rng.choice(loose)
            return N.sequence(*items[:at], *items[at + 1 :])
        inner = [
            part for part in _statements_under(hole.node) if not (free(part) & _locals(hole.node)) - known
        ]
        return rng.choice(inner) if inner else None
    kind = N.dtype(hole.node)
    parts = [
        part
        for part in N.walk(hole.node)
        if part is not hole.node
        and N.dtype(part) == kind
        and not N.is_buffer(part)
        and free(part) <= _list_visible(hole.scope)
    ]
    # An index or extent has bounds that a part of it need not keep.
    return rng.choice(parts) if parts and hole.role in ("value", "condition") else None


def replacement(rng: Rng, hole: Hole) -> ObjectNode | None:
    """Give a leaf another value, replace an operator over the same parts, or change a loop's kind or
    extent.
    """
    node, kind = hole.node, N.dtype(hole.node)
    if hole.role == "statement":
        return _other_statement(rng, node, hole.scope)
    if hole.role in ("index", "extent", "bound"):
        return fresh(rng, hole)
    if node.type in ("ir.IntImm", "ir.FloatImm", "ir.Var"):
        leaves = [item for item in hole.scope.of(kind) if item is not node]
        return rng.choice(leaves) if leaves and rng.chance(RATES.leaf_by_leaf) else constant(rng, kind)
    parts = [
        part
        for part in N.children(node)
        if N.dtype(part) and not N.is_buffer(part) and free(part) <= _list_visible(hole.scope)
    ]
    if rng.chance(RATES.swapped) and (swapped := _swap_operator(rng, node, kind)) is not None:
        return swapped
    forms = expressions.giving(kind)
    return build_operator(rng, hole.scope, rng.choice(forms), kind, FUEL, parts) if forms else None


def pick_hole(rng: Rng, function: ObjectNode) -> Hole | None:
    """Pick any hole whose type the generator knows; half of the picks are statements."""
    found = [
        hole
        for hole in open_holes(function)
        if hole.role == "statement" or N.dtype(hole.node) in expressions.TYPES
    ]
    found = [hole for hole in found if hole.role != "part" and (hole.role != "index" or hole.bound > 0)]
    wanted = rng.chance(RATES.statement_wanted)
    some = [hole for hole in found if (hole.role == "statement") == wanted] or found
    return rng.choice(some) if some else None


def fresh(rng: Rng, hole: Hole) -> ObjectNode:
    """Return a new expression for a hole."""
    if hole.role == "index":
        made = index(rng, hole.scope, hole.bound)
        kind = N.dtype(hole.node)
        return made if kind == "int32" else N.cast(made, kind)
    kind = N.dtype(hole.node)
    if hole.role == "extent":
        return N.integer(rng.choice(loops.EXTENTS), kind)
    if hole.role == "bound":
        # The bounds of indices inside the loop rely on its start.
        return hole.node
    return expression(rng, hole.scope, kind, rng.between(1, FUEL))


def _swap_operator(rng: Rng, node: ObjectNode, kind: str) -> ObjectNode | None:
    """Replace an operator by another one with the same operands."""
    parts = [part for part in N.children(node) if part.type != "ir.Op"]
    types = [N.dtype(part) for part in parts]
    if not parts or node.type in ("ir.TensorLoad", "prim.Let") or "" in types or any(map(N.is_buffer, parts)):
        return None
    fitting = []
    for form in expressions.EVERY:
        # Operands of the old operator need not satisfy the guard of the new one.
        if form.guard or form.name in ("Let", "Cast") or len(form.args) != len(types):
            continue
        for one in form.of or ("",):
            takes = [one if item == "T" else item for item in form.args]
            if takes == types and (one if form.gives == "T" else form.gives) == kind:
                fitting.append(form)
    return operation(rng.choice(fitting).name, kind, parts) if fitting else None


def _other_statement(rng: Rng, node: ObjectNode, scope: Scope) -> ObjectNode | None:
    if node.type == "tirx.For":
        if rng.chance(RATES.loop_of_other_kind):
            return loops.of_other_kind(rng, node, scope)
        extent = N.number(node["extent"])
        # A larger extent would lead indices out of their buffers.
        smaller = [size for size in loops.EXTENTS if extent is not None and size < extent]
        kind = N.dtype(node["loop_var"])
        return N.with_fields(node, extent=N.integer(rng.choice(smaller), kind)) if smaller else None
    if node.type == "tirx.IfThenElse":
        then, other = node["then_case"], node.get("else_case")
        if isinstance(then, ObjectNode) and isinstance(other, ObjectNode):
            return N.with_fields(node, then_case=other, else_case=then)
        return N.with_fields(node, condition=N.negation(node.node("condition")))
    if node.type == "tirx.SeqStmt":
        items = list(N.list_nodes(node["seq"]))
        at = rng.below(len(items))
        moved = items[at]
        if defines(moved):
            return None
        rest = items[:at] + items[at + 1 :]
        # Behind the last statement that defines what it reads.
        latest = max((i + 1 for i, item in enumerate(rest) if defines(item) & free(moved)), default=0)
        place = rng.between(latest, len(rest))
        return N.sequence(*rest[:place], moved, *rest[place:])
    return None


def _statements_under(node: ObjectNode) -> list[ObjectNode]:
    if node.type.startswith("s_tir."):
        return []
    return [part for part in N.children(node) if part.type in N.STATEMENTS and part.type != "s_tir.SBlock"]


def _locals(node: ObjectNode) -> set[ObjectNode]:
    """Return the variables that a statement defines for its inner statements."""
    about = node.get("node")
    found = {node.get("loop_var"), about.get("var") if isinstance(about, ObjectNode) else None}
    return {var for var in found if isinstance(var, ObjectNode)}


def _list_visible(scope: Scope) -> set[ObjectNode]:
    return {*scope.variables, *scope.buffers}


GENERAL: tuple[Mutator, ...] = (insertion, deletion, replacement)
