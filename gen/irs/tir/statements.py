"""Statements from scratch: stores, loops of every kind, branches, buffers of one's own, counted `while`
loops.
"""

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import expressions, loops, nodes as N
from opsieve.gen.irs.tir.expressions import element, expression, index
from opsieve.gen.irs.tir.scope import RATES, Scope
from opsieve.gen.irs.tvm.nodes import ObjectNode

MEMORY_SCOPES = ("global", "local", "shared", "global.workspace")


def statement(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Make a statement with about `fuel` parts at most; without a buffer to write to, one that allocates."""
    if not scope.buffers:
        return allocation(rng, scope, fuel)
    if fuel <= 1:
        return write(rng, scope, fuel)
    ways = (write, write, write, nest, nest, condition, binding, allocation, make_counting_loop, make_guard)
    return rng.choice(ways)(rng, scope, fuel)


def write(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Store a new value in one element of a buffer, often made from its old one."""
    of = rng.choice(scope.buffers)
    sizes = N.shape(of) or ()
    indices = [index(rng, scope, size, fuel // 2) for size in sizes]
    value = expression(rng, scope, N.dtype(of), fuel)
    # Add, Max and Min do not take bool.
    if rng.chance(RATES.updated) and N.dtype(of) != "bool":
        value = N.binary(rng.choice(("Add", "Max", "Min")), N.load(of, *map(N.again, indices)), value)
    return N.store(of, value, *indices)


def nest(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Make one to three loops around statements."""
    return loops.wrap_in_loops(rng, scope, lambda inner: statement(rng, inner, fuel // 2))


def condition(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Make a branch."""
    other = statement(rng, scope, fuel // 3) if rng.chance(RATES.has_else) else None
    return N.branch(expression(rng, scope, "bool", fuel // 3), statement(rng, scope, fuel // 2), other)


def binding(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Make a variable, and a statement that may read it."""
    kind = rng.choice(expressions.TYPES[:4])
    var = N.variable(f"x{rng.below(1000)}", kind)
    value = expression(rng, scope, kind, fuel // 2)
    return N.sequence(N.bind(var, value), statement(rng, scope.with_variable(var), fuel // 2))


def allocation(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Make a filled buffer, and statements that may use it."""
    kind = rng.choice(expressions.TYPES)
    sizes = [rng.choice(loops.EXTENTS[1:7]) for _ in range(rng.between(1, 2))]
    of = N.buffer(f"b{rng.below(1000)}", sizes, kind, rng.choice(MEMORY_SCOPES))
    inner = scope.with_buffer(of)
    rest = statement(rng, inner, fuel // 2)
    if rng.chance(RATES.written_again):
        rest = N.sequence(rest, write(rng, inner, fuel // 3))
    # Filled first: reading uninitialised memory would make results differ from run to run.
    return N.sequence(N.allocate(of), make_fill(rng, scope, of), rest)


def make_fill(rng: Rng, scope: Scope, of: ObjectNode) -> ObjectNode:
    """Make loops that write every element of a buffer."""
    sizes = N.shape(of) or ()
    variables = [N.variable(f"f{at}") for at in range(len(sizes))]
    inner = scope
    for var, size in zip(variables, sizes, strict=True):
        inner = inner.with_variable(var, 0, size - 1)
    body = N.store(of, expression(rng, inner, N.dtype(of), 2), *variables)
    for var, size in reversed(list(zip(variables, sizes, strict=True))):
        body = N.loop(var, N.integer(size), body, loops.kind_for(rng, scope.kinds, var, size, body))
    return body


def make_counting_loop(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Make a `while` loop that ends because it counts in a buffer of its own."""
    count = N.buffer(f"n{rng.below(1000)}", [1], "int32")
    at = N.integer(0)
    body = N.sequence(
        statement(rng, scope, fuel // 2), N.store(count, N.binary("Add", N.load(count, at), N.integer(1)), at)
    )
    going = N.binary("LT", N.load(count, at), N.integer(rng.between(1, 5)))
    if rng.chance(RATES.ends_by_more):
        going = N.binary("And", going, expression(rng, scope, "bool", fuel // 4))
    return N.sequence(N.allocate(count), N.store(count, N.integer(0), at), N.while_(going, body))


def make_guard(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Make an assertion that holds, an assumption that holds, or an attribute around a statement."""
    way = rng.below(3)
    if way == 0:
        held = N.assertion(_true(rng, scope), "RuntimeError", "holds")
        return N.sequence(held, statement(rng, scope, fuel // 2))
    if way == 1:
        assumed = N.evaluate(N.call("tirx.assume", "bool", _true(rng, scope)))
        return N.sequence(assumed, statement(rng, scope, fuel // 2))
    key = rng.choice(("pragma_unroll_explicit", "pragma_auto_unroll_max_step", "pragma_scope_hint"))
    return N.attribute(key, N.integer(rng.choice((0, 1, 16))), statement(rng, scope, fuel // 2), N.integer(0))


def _true(rng: Rng, scope: Scope) -> ObjectNode:
    """Make a condition that always holds, from the range of a loop's variable."""
    if scope.ranges:
        var, low, high = rng.choice(scope.ranges)
        kind = N.dtype(var)
        if rng.chance(RATES.upper_end):
            # The last value of the variable, or one more: both hold.
            return N.binary("LE", var, N.integer(high + rng.below(2), kind))
        return N.binary("GE", var, N.integer(low, kind))
    return N.integer(1, "bool")


def make_accumulation(rng: Rng, scope: Scope, fuel: int) -> ObjectNode:
    """Add one element of a buffer to another element, as reductions and stencils do."""
    of = rng.choice(scope.buffers)
    here = [index(rng, scope, size) for size in N.shape(of) or ()]
    there = element(rng, scope, of)
    if N.dtype(of) == "bool":
        return N.store(of, there, *here)
    value = N.binary(rng.choice(("Add", "Max")), N.load(of, *map(N.again, here)), there)
    return N.store(
        of,
        value if fuel < 3 else N.binary("Min", value, expression(rng, scope, N.dtype(of), fuel // 2)),
        *here,
    )
