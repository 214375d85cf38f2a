"""The three mutators of Tzer that know what tensor compilers optimise (section 3.3): loops, memory,
threads.
"""

from dataclasses import replace

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import general, nodes as N, rates
from opsieve.gen.irs.tir.expressions import element, index
from opsieve.gen.irs.tir.loops import (
    EXTENTS,
    OUT_OF_PLACE,
    annotate_loop,
    annotations,
    independent,
    of_other_kind,
    parallel_inside,
    split,
    wrap_in_loops,
)
from opsieve.gen.irs.tir.scope import Hole, Scope, holes, open_holes, put
from opsieve.gen.irs.tir.statements import (
    MEMORY_SCOPES,
    allocation,
    make_accumulation,
    make_fill,
    statement,
    write,
)
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs

# The last two belong to GPUs, which code generation for a CPU refuses.
TAGS = ("vthread", "vthread.x", "vthread.y", "vthread.z", "threadIdx.x", "blockIdx.x")


def loop_nesting(rng: Rng, function: ObjectNode) -> ObjectNode | None:
    """Wrap new loops around a statement, and use their variables in some of its indices; or change the kind
    or annotations of a loop, or split it.
    """
    hole = _statement_hole(rng, function)
    if hole is None:
        return None
    if hole.node.type == "tirx.For" and rng.chance(rates.RATES.loop_changed):
        changed = rng.choice((annotate_loop, of_other_kind, split))(rng, hole.node, hole.scope)
        return None if changed is None else put(function, hole.path, changed)
    # Each loop multiplies the work of what is inside, so the depth is bounded.
    around = len(hole.scope.kinds)
    if around > 5:
        return None

    def body(inner: Scope) -> ObjectNode:
        return (
            _replace_indices(rng, hole.node, inner, hole.scope)
            if rng.chance(rates.RATES.reindexed)
            else hole.node
        )

    return put(function, hole.path, wrap_in_loops(rng, hole.scope, body, 3 if around < 2 else 1))


def memory_operation(rng: Rng, function: ObjectNode) -> ObjectNode | None:
    """Add a load, a store or a buffer before or behind a statement, or take a value from memory instead."""
    hole = _statement_hole(rng, function)
    if hole is None:
        return None
    way = rng.random()
    if way < 0.25 and hole.node.type == "tirx.BufferStore":
        return put(function, hole.path, _through_buffer(rng, hole))
    if way < 0.4:
        return _with_attribute(rng, function, hole)
    if not hole.scope.buffers:
        made = allocation(rng, hole.scope, general.FUEL)
    else:
        made = rng.choice((write, make_accumulation, make_accumulation, allocation))(
            rng, hole.scope, rng.between(1, general.FUEL)
        )
    return put(
        function,
        hole.path,
        N.sequence(made, hole.node) if rng.chance(rates.RATES.put_before) else N.sequence(hole.node, made),
    )


def thread_binding(rng: Rng, function: ObjectNode) -> ObjectNode | None:
    """Run a statement in threads: virtual ones, those of a parallel loop, or those of a GPU, which code
    generation for a CPU refuses.
    """
    hole = _statement_hole(rng, function)
    if hole is None:
        return None
    extent, way = rng.choice((1, 2, 3, 4, 8)), rng.random()
    tag = rng.choice(TAGS[:4]) if rng.chance(rates.RATES.usual_tag) else rng.choice(TAGS[4:])
    axis = N.thread_axis(tag, N.integer(extent))
    var = axis["var"] if way > 0.6 else N.variable("p")
    assert isinstance(var, ObjectNode)
    inner = hole.scope.with_variable(var, 0, extent - 1)
    body = _replace_indices(rng, hole.node, inner, hole.scope)
    if rng.chance(rates.RATES.more_in_thread):
        body = N.sequence(body, statement(rng, inner, 2))
    if not independent(body, var) and not rng.chance(4 * OUT_OF_PLACE):
        # Several threads would write to one place, so the result would depend on their order.
        return None
    if way < 0.25:
        # TVM does not take parallel loops inside of parallel ones.
        if parallel_inside(body) or {N.PARALLEL, N.VECTORIZED} & set(hole.scope.kinds):
            return None
        return put(function, hole.path, N.loop(var, N.integer(extent), body, N.PARALLEL))
    if way < 0.6:
        return put(function, hole.path, N.loop(var, N.integer(extent), body, N.THREAD, thread=axis))
    key = "virtual_thread" if tag.startswith("vthread") else "thread_extent"
    return put(function, hole.path, N.attribute(key, N.integer(extent), body, axis))


def _statement_hole(rng: Rng, function: ObjectNode) -> Hole | None:
    found = [hole for hole in open_holes(function) if hole.role == "statement"]
    return rng.choice(found) if found else None


def _replace_indices(rng: Rng, body: ObjectNode, inner: Scope, outer: Scope) -> ObjectNode:
    """Make some indices of a statement from the variables that are new around it."""
    # `holes` walks functions, so the statement gets one around it.
    wrap = N.function([], body)
    places = [hole for hole in holes(wrap) if hole.role == "index"]
    places = [
        hole for hole in places if hole.bound > 1 and N.dtype(hole.node) == "int32" and not hole.scope.block
    ]
    if not places:
        return body
    new = tuple(item for item in inner.ranges if item not in outer.ranges)
    # Deeper places first: the way to a place that is left stays what it was.
    for hole in sorted(
        rng.some(places, min(len(places), rng.between(1, 3))), key=lambda item: -len(item.path)
    ):
        scope = replace(
            hole.scope,
            ranges=(*hole.scope.ranges, *new),
            variables=(*hole.scope.variables, *(v for v, _, _ in new)),
        )
        try:
            wrap = put(wrap, hole.path, index(rng, scope, hole.bound))
        except (KeyError, IndexError, AssertionError):
            # An earlier change has removed this place.
            continue
    result = wrap["body"]
    assert isinstance(result, ObjectNode)
    return result


def _through_buffer(rng: Rng, hole: Hole) -> ObjectNode:
    """Redirect a store through a small buffer of its own."""
    node = hole.node
    into, value, at = node["buffer"], node["value"], node["indices"]
    assert isinstance(into, ObjectNode)
    assert isinstance(value, ObjectNode)
    assert isinstance(at, tuple)
    small = N.buffer(
        # Small buffers are candidates for registers, which is what passes on storage decide about.
        f"c{rng.below(1000)}",
        [rng.choice((1, 2, 4))],
        N.dtype(value),
        rng.choice(MEMORY_SCOPES),
    )
    place = index(rng, hole.scope, (N.shape(small) or (1,))[0])
    steps = [
        N.allocate(small),
        N.store(small, value, place),
        N.with_fields(node, value=N.load(small, N.again(place))),
    ]
    if rng.chance(rates.RATES.filled_first):
        steps.insert(1, make_fill(rng, hole.scope, small))
    return N.sequence(*steps)


def _with_attribute(rng: Rng, function: ObjectNode, hole: Hole) -> ObjectNode | None:
    """Put a statement behind a branch on memory, or into a loop with a double-buffered allocation."""
    if not hole.scope.buffers:
        return None
    if rng.chance(rates.RATES.behind_branch):
        condition = N.binary(
            "GT", N.cast(element(rng, hole.scope, rng.choice(hole.scope.buffers)), "float32"), N.real(0.0)
        )
        return put(function, hole.path, N.branch(condition, hole.node))
    of = N.buffer(
        f"d{rng.below(1000)}",
        [rng.choice(EXTENTS[1:5])],
        "float32",
        rng.choice(("local", "shared", "global")),
    )
    inner = hole.scope.with_buffer(of)
    var = N.variable("r")
    turn = inner.with_variable(var, 0, 3)
    body = N.sequence(
        N.attribute("double_buffer_scope", N.integer(1), make_fill(rng, turn, of), of),
        write(rng, turn, 3),
        hole.node,
    )
    said = Pairs() if rng.chance(rates.RATES.bare_double_buffer) else annotations(rng)
    return put(
        function,
        hole.path,
        N.sequence(N.allocate(of), N.loop(var, N.integer(rng.between(2, 4)), body, N.SERIAL, said)),
    )


DOMAIN: tuple[general.Mutator, ...] = (loop_nesting, memory_operation, thread_binding)
