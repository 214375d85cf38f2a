"""Loops: their kinds, where each is allowed, their annotations, and new loops around a statement."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.scope import RATES, Scope, defines
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs, Value

# Extent 1 is removed by simplification, odd extents leave a tail after vectorisation, and powers of two do
# not.
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16)
KINDS = (N.SERIAL, N.SERIAL, N.PARALLEL, N.VECTORIZED, N.UNROLLED)
# What TVM's passes read on loops: name -> values (src/tirx/transform, src/s_tir/transform of 0.27).
ANNOTATIONS: dict[str, tuple[Value, ...]] = {
    "pragma_auto_unroll_max_step": (0, 2, 16, 64),
    "pragma_unroll_explicit": (False, True),
    "pragma_loop_partition_hint": (True,),
    "irregular_loop_mark": (1,),
    "disable_lower_init_block": (True,),
}
OUT_OF_PLACE = (
    # The share of loops with a kind that TVM forbids there, or whose promise (independent turns) is broken.
    0.05
)


def kind_for(rng: Rng, around: Sequence[int], var: ObjectNode, extent: int | None, body: ObjectNode) -> int:
    """Draw a kind for a loop, mostly one that its place allows and whose promise holds."""
    if rng.chance(OUT_OF_PLACE):
        return rng.choice(KINDS)
    bad = set()
    if {N.PARALLEL, N.VECTORIZED} & set(around) or parallel_inside(body) or not independent(body, var):
        bad |= {N.PARALLEL, N.VECTORIZED}
    # Loops and buffers cannot be vectorised.
    held = ("tirx.For", "tirx.While", "tirx.AllocBuffer", "tirx.AttrStmt", "s_tir.SBlock")
    if any(item.type in held for item in N.walk(body)) or extent is None or extent < 2:
        bad.add(N.VECTORIZED)
    # Unrolling needs a constant number of turns.
    if extent is None:
        bad.add(N.UNROLLED)
    return rng.choice([kind for kind in KINDS if kind not in bad])


def independent(body: ObjectNode, var: ObjectNode) -> bool:
    """Return whether every store to outer memory has the variable in its indices, so that turns write to
    different places.
    """
    own = {of for item in N.walk(body) for of in defines(item)}
    for item in N.walk(body):
        if item.type != "tirx.BufferStore" or item["buffer"] in own:
            continue
        if not any(var in N.walk(index) for index in N.list_nodes(item["indices"])):
            return False
    return True


def parallel_inside(node: ObjectNode) -> bool:
    """Return whether a statement has parallel or vectorised loops in it."""
    return any(
        item.type == "tirx.For" and item["kind"] in (N.PARALLEL, N.VECTORIZED) for item in N.walk(node)
    )


def make_pipeline(rng: Rng, body: ObjectNode) -> Pairs:
    """Draw the annotations of a software pipeline over the statements of a body."""
    items = N.list_nodes(body["seq"]) if body.type == "tirx.SeqStmt" else ()
    stages = sorted(rng.below(2) for _ in items)
    order = (
        list(range(len(items))) if rng.chance(RATES.stages_in_order) else rng.shuffle_items(range(len(items)))
    )
    return Pairs((("software_pipeline_stage", tuple(stages)), ("software_pipeline_order", tuple(order))))


def annotations(rng: Rng) -> Pairs:
    """Draw the annotations of a loop, usually an empty set."""
    if rng.chance(RATES.bare_loop):
        return Pairs()
    names = rng.some(sorted(ANNOTATIONS), rng.between(1, 2))
    return Pairs(tuple((name, rng.choice(ANNOTATIONS[name])) for name in names))


def wrap_in_loops(rng: Rng, scope: Scope, body: Callable[[Scope], ObjectNode], most: int = 3) -> ObjectNode:
    """Wrap loops around the statement that `body` makes for the scope inside them."""
    made: list[tuple[ObjectNode, ObjectNode, tuple[int, ...], int | None]] = []
    for _ in range(rng.between(1, most)):
        var, around = N.variable(f"i{len(scope.variables)}"), scope.kinds
        size: int | None = rng.choice(EXTENTS)
        extent: ObjectNode = N.integer(size or 1)
        high = (size or 1) - 1
        # An extent that depends on an outer loop, as in triangular loops.
        if rng.chance(RATES.extent_varies) and scope.ranges:
            other, low, top = rng.choice(scope.ranges)
            if low >= 0 and top < 16 and N.dtype(other) == "int32":
                extent, size, high = N.binary("Add", other, N.integer(1)), None, top
        made.append((var, extent, around, size))
        scope = replace(scope.with_variable(var, 0, high), kinds=(*around, N.SERIAL))
    inner = body(scope)
    for var, extent, around, size in reversed(made):
        kind, said = kind_for(rng, around, var, size, inner), annotations(rng)
        if inner.type == "tirx.SeqStmt" and kind == N.SERIAL and rng.chance(RATES.pipelined):
            said = make_pipeline(rng, inner)
        inner = N.loop(var, extent, inner, kind, said)
    return inner


def of_other_kind(rng: Rng, node: ObjectNode, scope: Scope) -> ObjectNode | None:
    """Return a loop of another kind."""
    var, body = node.node("loop_var"), node.node("body")
    if node["kind"] == N.THREAD:
        return None
    kind = kind_for(rng, scope.kinds, var, N.number(node["extent"]), body)
    return None if kind == node["kind"] else N.with_fields(node, kind=kind)


def annotate_loop(rng: Rng, node: ObjectNode, scope: Scope) -> ObjectNode:
    """Add annotations to a loop."""
    body = node.node("body")
    if body.type == "tirx.SeqStmt" and N.VECTORIZED not in scope.kinds and rng.chance(RATES.pipelined_anew):
        return N.with_fields(node, annotations=make_pipeline(rng, body))
    said = annotations(rng)
    while not said.items:
        said = annotations(rng)
    return N.with_fields(node, annotations=said)


def split(rng: Rng, node: ObjectNode, scope: Scope) -> ObjectNode | None:
    """Split a loop in two, as schedules do: with a branch inside if the factor does not divide the extent."""
    extent, var, body = N.number(node["extent"]), node.node("loop_var"), node.node("body")
    if (
        extent is None
        or extent < 2
        or N.number(node["min"]) != 0
        or node["kind"] == N.THREAD
        or N.dtype(var) != "int32"
    ):
        return None
    factor = rng.choice([size for size in (2, 3, 4, 8) if size <= extent])
    outer, inner = N.variable("o"), N.variable("i")
    whole = N.binary("Add", N.binary("Mul", outer, N.integer(factor)), inner)
    done = N.rewritten(body, lambda item: whole if item is var else None)
    if extent % factor:
        holds = N.binary("LT", whole, N.integer(extent))
        done = N.branch(
            N.call("prim.likely", "bool", holds) if rng.chance(RATES.said_likely) else holds, done
        )
    deep = N.loop(
        inner, N.integer(factor), done, kind_for(rng, scope.kinds, inner, factor, done), annotations(rng)
    )
    turns = -(-extent // factor)
    return N.loop(outer, N.integer(turns), deep, kind_for(rng, scope.kinds, outer, turns, deep))
