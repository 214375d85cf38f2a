"""Functions to begin with that need no TVM: the empty one (Tzer, section 5.3, finds it as good as models),
and the usual kernels.
"""

from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tvm.nodes import ObjectNode

# A multiple of the usual vector widths, and small enough that one run costs microseconds.
_SIDE = 8


def basic() -> list[ObjectNode]:
    """New functions, each of its own variables."""
    return [empty(), elementwise(), product(), convolution(), gather()]


def empty() -> ObjectNode:
    """Make a function with arguments of several types and an empty body."""
    kinds = ("float32", "float32", "int32", "bool", "int64", "float16")
    return N.function(
        [N.buffer(f"{chr(65 + at)}", (4, 8)[: 1 + at % 2], kind) for at, kind in enumerate(kinds)],
        N.evaluate(N.integer(0)),
    )


def elementwise() -> ObjectNode:
    """B = exp(A) + 1."""
    a, b = (N.buffer(name, (_SIDE, _SIDE)) for name in "AB")
    i, j = N.variable("i"), N.variable("j")
    value = N.binary(
        "Add", N.call("tirx.exp", "float32", N.binary("Min", N.load(a, i, j), N.real(4.0))), N.real(1.0)
    )
    return N.function([a, b], _nest([(i, _SIDE), (j, _SIDE)], N.store(b, value, i, j)))


def product() -> ObjectNode:
    """C = A B, its sums begun at zero inside the loop over the sum."""
    a, b, c = (N.buffer(name, (_SIDE, _SIDE)) for name in "ABC")
    i, j, k = (N.variable(name) for name in "ijk")
    begin = N.branch(N.binary("EQ", k, N.integer(0)), N.store(c, N.real(0.0), i, j))
    more = N.binary("Add", N.load(c, i, j), N.binary("Mul", N.load(a, i, k), N.load(b, k, j)))
    return N.function(
        [a, b, c], _nest([(i, _SIDE), (j, _SIDE), (k, _SIDE)], N.sequence(begin, N.store(c, more, i, j)))
    )


def convolution() -> ObjectNode:
    """B = a window of three over A, padded by zeros, in int32."""
    a, b = (N.buffer(name, (2 * _SIDE,), "int32") for name in "AB")
    p = N.buffer("P", (2 * _SIDE + 2,), "int32")
    i, j, k = (N.variable(name) for name in "ijk")
    at = N.binary("Sub", i, N.integer(1))
    inside = N.binary("And", N.binary("LE", N.integer(1), i), N.binary("LT", i, N.integer(2 * _SIDE + 1)))
    padded = N.call("prim.if_then_else", "int32", inside, N.load(a, at), N.integer(0))
    window = N.binary("Add", N.load(b, j), N.load(p, N.binary("Add", j, k)))
    steps = [_nest([(i, 2 * _SIDE + 2)], N.store(p, padded, i))]
    inner = N.sequence(N.store(b, N.integer(0), j), _nest([(k, 3)], N.store(b, window, j)))
    return N.function([a, b], N.sequence(N.allocate(p), *steps, _nest([(j, 2 * _SIDE)], inner)))


def gather() -> ObjectNode:
    """C[i] = A[B[i]], by indices held inside A."""
    a, c = N.buffer("A", (_SIDE,)), N.buffer("C", (2 * _SIDE,))
    b, i = N.buffer("B", (2 * _SIDE,), "int32"), N.variable("i")
    place = N.binary("FloorMod", N.load(b, i), N.integer(_SIDE))
    return N.function([a, b, c], _nest([(i, 2 * _SIDE)], N.store(c, N.load(a, place), i)))


def _nest(loops: list[tuple[ObjectNode, int]], body: ObjectNode) -> ObjectNode:
    for var, extent in reversed(loops):
        body = N.loop(var, N.integer(extent), body)
    return body
