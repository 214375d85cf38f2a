"""The arguments of TIR functions, values for these, functions as programs, and kernels to begin with."""

from typing import Any

import numpy as np

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import ObjectNode, encode

# The most elements of all arguments together, which bounds the cost of a run.
MOST_ELEMENTS = 1 << 16


def program(function: ObjectNode, passes: tuple[str, ...] = (), name: str = "") -> TirProgram:
    """Return the program of a function and the passes to apply before it is lowered; equal ones have equal
    bytes.
    """
    return TirProgram(encode(N.module(function)).encode(), passes, name)


def arguments(function: ObjectNode) -> dict[str, ObjectNode] | None:
    """Return the function's buffer arguments by name; `None` unless all are dense buffers of constant shape
    and plain type with distinct names.
    """
    params = function["params"]
    found: dict[str, ObjectNode] = {}
    elements = 0
    for param in params if isinstance(params, tuple) else ():
        if not isinstance(param, ObjectNode) or not N.is_buffer(param):
            return None
        sizes, kind = N.shape(param), param.node("ty")
        if sizes is None or kind["strides"] or not _numpy(N.dtype(param)) or not sizes:
            return None
        elements += int(np.prod(sizes))
        if str(param["name"]) in found:
            # Values are fed by name, so two arguments of one name would be mixed up.
            return None
        found[str(param["name"])] = param
    return found if elements <= MOST_ELEMENTS else None


def with_own_names(function: ObjectNode) -> ObjectNode:
    """Return the function with a name for each argument that no other one has."""
    names: set[str] = set()
    for at, param in enumerate(N.list_nodes(function["params"])):
        if str(param["name"]) in names:
            other = N.with_fields(param, name=f"{param['name']!s}_{at}")
            function = N.replace_node(function, param, other)
            param = other
        names.add(str(param["name"]))
    return function


def values(function: ObjectNode, seed: int | str) -> dict[str, Any]:
    """Draw values for the arguments by name: small whole numbers, quarters, both signs.

    Raises:
        ValueError: If an argument is no dense buffer of constant shape.
    """
    wanted = arguments(function)
    if wanted is None:
        raise ValueError("the function has an argument that is not a dense buffer of constant shape")
    rng, found = Rng(f"values {seed}", 0), {}
    for name, of in wanted.items():
        kind, sizes = N.dtype(of), N.shape(of) or ()
        # Numbers for every type are drawn alike, so that another type does not change the values behind it.
        numbers = [rng.random() for _ in range(int(np.prod(sizes)))]
        if kind == "bool":
            made = np.array([number < 0.5 for number in numbers])
        elif "float" in kind:
            # Quarters are exact in every float type, so that sums of a few are exact too.
            made = np.array([round(16 * number - 8) / 4 for number in numbers])
        else:
            low = 0 if kind.startswith("u") else -3
            made = np.array([low + int(number * 9) for number in numbers])
        found[name] = made.reshape(sizes).astype(kind)
    return found


def _numpy(kind: str) -> bool:
    return kind in ("bool", "float16", "float32", "float64") or kind in (
        f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
    )


# A multiple of the usual vector widths, and small enough that one run costs microseconds.
_SIDE = 8


def basic() -> list[ObjectNode]:
    """New functions, each of its own variables."""
    return [empty(), elementwise(), product(), convolution(), gather()]


def empty() -> ObjectNode:
    """Make a function with arguments of several types and an empty body."""
    # A seed for mutations: each of these types has to be in scope before an expression of it can grow.
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
    # As an optimiser meets a sum before initialisation was hoisted.
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
