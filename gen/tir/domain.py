"""The three mutators of Tzer that know what tensor compilers optimise (section 3.3): loops, memory, threads."""

from dataclasses import replace

from opsieve.gen.build.rng import Draw
from opsieve.gen.tir import nodes as N
from opsieve.gen.tir.expressions import element, index
from opsieve.gen.tir.general import FUEL, Mutator
from opsieve.gen.tir.scope import Hole, Scope, holes, put
from opsieve.gen.tir.statements import (
    EXTENTS,
    KINDS,
    MEMORY_SCOPES,
    accumulated,
    allocation,
    annotations,
    filled,
    statement,
    wrapped,
    write,
)
from opsieve.gen.tvm_ir.nodes import Node, Pairs

TAGS = ("vthread", "vthread.x", "vthread.y", "vthread.z", "threadIdx.x", "blockIdx.x")


def loop_nesting(draw: Draw, function: Node) -> Node | None:
    """New loops around a statement, some of its indices made of theirs; or another kind, split or annotation for a loop."""
    hole = _statement_hole(draw, function)
    if hole is None:
        return None
    if hole.node.type == "tirx.For" and draw.chance(0.5):
        changed = draw.choice((_annotated, _rekinded, _split))(draw, hole.node)
        return None if changed is None else put(function, hole.path, changed)
    around = len(hole.scope.kinds)
    if around > 5:
        return None

    def body(inner: Scope) -> Node:
        return _reindexed(draw, hole.node, inner, hole.scope) if draw.chance(0.7) else hole.node

    return put(function, hole.path, wrapped(draw, hole.scope, body, 3 if around < 2 else 1))


def memory_operation(draw: Draw, function: Node) -> Node | None:
    """A load, a store or a buffer more: before or behind a statement, or a value taken from memory instead."""
    hole = _statement_hole(draw, function)
    if hole is None:
        return None
    way = draw.random()
    if way < 0.25 and hole.node.type == "tirx.BufferStore":
        return put(function, hole.path, _through_buffer(draw, hole))
    if way < 0.4:
        return _with_attribute(draw, function, hole)
    if not hole.scope.buffers:
        made = allocation(draw, hole.scope, FUEL)
    else:
        made = draw.choice((write, accumulated, accumulated, allocation))(draw, hole.scope, draw.between(1, FUEL))
    if hole.node.type in ("tirx.AllocBuffer", "tirx.Bind", "tirx.DeclBuffer"):
        return None
    return put(function, hole.path, N.sequence(made, hole.node) if draw.chance(0.5) else N.sequence(hole.node, made))


def thread_binding(draw: Draw, function: Node) -> Node | None:
    """A statement done by threads: virtual ones, those of a parallel loop, or (which a CPU's code refuses) a GPU's."""
    hole = _statement_hole(draw, function)
    if hole is None or hole.node.type in ("tirx.AllocBuffer", "tirx.Bind", "tirx.DeclBuffer"):
        return None
    extent, way = draw.choice((1, 2, 3, 4, 8)), draw.random()
    if way < 0.25:
        var = N.variable("p")
        inner = hole.scope.with_variable(var, 0, extent - 1)
        return put(
            function,
            hole.path,
            N.loop(var, N.integer(extent), _reindexed(draw, hole.node, inner, hole.scope), N.PARALLEL),
        )
    tag = draw.choice(TAGS[:4]) if draw.chance(0.85) else draw.choice(TAGS[4:])
    axis = N.thread_axis(tag, N.integer(extent))
    if way < 0.6:
        var = N.variable("v")
        inner = hole.scope.with_variable(var, 0, extent - 1)
        body = _reindexed(draw, hole.node, inner, hole.scope)
        return put(function, hole.path, N.loop(var, N.integer(extent), body, N.THREAD, thread=axis))
    bound = axis["var"]
    assert isinstance(bound, Node)
    inner = hole.scope.with_variable(bound, 0, extent - 1)
    body = _reindexed(draw, hole.node, inner, hole.scope)
    if draw.chance(0.3):
        body = N.sequence(body, statement(draw, inner, 2))
    key = "virtual_thread" if tag.startswith("vthread") else "thread_extent"
    return put(function, hole.path, N.attribute(key, N.integer(extent), body, axis))


def _statement_hole(draw: Draw, function: Node) -> Hole | None:
    found = [hole for hole in holes(function) if hole.role == "statement"]
    return draw.choice(found) if found else None


def _reindexed(draw: Draw, body: Node, inner: Scope, outer: Scope) -> Node:
    """The statement with some indices of its accesses made of variables that are new around it."""
    wrap = N.function([], body)
    places = [hole for hole in holes(wrap) if hole.role == "index"]
    places = [hole for hole in places if hole.bound > 1 and N.dtype(hole.node) == "int32" and not hole.scope.block]
    if not places:
        return body
    new = tuple(item for item in inner.ranges if item not in outer.ranges)
    # Deeper places first: the way to a place that is left stays what it was.
    for hole in sorted(draw.some(places, min(len(places), draw.between(1, 3))), key=lambda item: -len(item.path)):
        scope = replace(
            hole.scope, ranges=(*hole.scope.ranges, *new), variables=(*hole.scope.variables, *(v for v, _, _ in new))
        )
        try:
            wrap = put(wrap, hole.path, index(draw, scope, hole.bound))
        except (KeyError, IndexError, AssertionError):  # an earlier change took the place away
            continue
    result = wrap["body"]
    assert isinstance(result, Node)
    return result


def _annotated(draw: Draw, node: Node) -> Node:
    said = annotations(draw)
    while not said.items:
        said = annotations(draw)
    return N.with_fields(node, annotations=said)


def _rekinded(draw: Draw, node: Node) -> Node | None:
    if node["kind"] == N.THREAD:
        return None
    return N.with_fields(node, kind=draw.choice(KINDS), thread_binding=None)


def _split(draw: Draw, node: Node) -> Node | None:
    """A loop as two: with a branch at the end where the factor does not divide the extent, as schedules make them."""
    extent, var, body = N.number(node["extent"]), node["loop_var"], node["body"]
    if (
        extent is None
        or extent < 2
        or N.number(node["min"]) != 0
        or node["kind"] == N.THREAD
        or N.dtype(var) != "int32"
    ):
        return None
    assert isinstance(var, Node)
    assert isinstance(body, Node)
    factor = draw.choice([size for size in (2, 3, 4, 8) if size <= extent])
    outer, inner = N.variable("o"), N.variable("i")
    whole = N.binary("Add", N.binary("Mul", outer, N.integer(factor)), inner)
    done = N.rewritten(body, lambda item: whole if item is var else None)
    if extent % factor:
        holds = N.binary("LT", whole, N.integer(extent))
        done = N.branch(N.call("prim.likely", "bool", holds) if draw.chance(0.7) else holds, done)
    deep = N.loop(inner, N.integer(factor), done, draw.choice(KINDS), annotations(draw))
    return N.loop(outer, N.integer(-(-extent // factor)), deep, draw.choice((N.SERIAL, N.PARALLEL, N.UNROLLED)))


def _through_buffer(draw: Draw, hole: Hole) -> Node:
    """A store by way of a small buffer of its own."""
    node = hole.node
    into, value, at = node["buffer"], node["value"], node["indices"]
    assert isinstance(into, Node)
    assert isinstance(value, Node)
    assert isinstance(at, tuple)
    small = N.buffer(f"c{draw.below(1000)}", [draw.choice((1, 2, 4))], N.dtype(value), draw.choice(MEMORY_SCOPES))
    place = index(draw, hole.scope, (N.shape(small) or (1,))[0])
    steps = [N.allocate(small), N.store(small, value, place), N.with_fields(node, value=N.load(small, place))]
    if draw.chance(0.4):
        steps.insert(1, filled(draw, hole.scope, small))
    return N.sequence(*steps)


def _with_attribute(draw: Draw, function: Node, hole: Hole) -> Node | None:
    """Something said of memory around a statement: a buffer filled twice over in a loop, or one behind a branch."""
    if not hole.scope.buffers:
        return None
    if draw.chance(0.5):
        condition = N.binary(
            "GT", N.cast(element(draw, hole.scope, draw.choice(hole.scope.buffers)), "float32"), N.real(0.0)
        )
        return put(function, hole.path, N.branch(condition, hole.node))
    of = N.buffer(
        f"d{draw.below(1000)}", [draw.choice(EXTENTS[1:5])], "float32", draw.choice(("local", "shared", "global"))
    )
    inner = hole.scope.with_buffer(of)
    var = N.variable("r")
    turn = inner.with_variable(var, 0, 3)
    body = N.sequence(
        N.attribute("double_buffer_scope", N.integer(1), filled(draw, turn, of), of), write(draw, turn, 3), hole.node
    )
    said = Pairs() if draw.chance(0.5) else annotations(draw)
    return put(
        function,
        hole.path,
        N.sequence(N.allocate(of), N.loop(var, N.integer(draw.between(2, 4)), body, N.SERIAL, said)),
    )


DOMAIN: tuple[Mutator, ...] = (loop_nesting, memory_operation, thread_binding)
