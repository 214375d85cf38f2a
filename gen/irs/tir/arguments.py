"""The arguments of TIR functions, values for these, and functions as programs."""

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
        sizes, kind = N.shape(param), param["ty"]
        assert isinstance(kind, ObjectNode)
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
    params = function["params"]
    assert isinstance(params, tuple)
    names: set[str] = set()
    for at, param in enumerate(params):
        if isinstance(param, ObjectNode) and str(param["name"]) in names:
            other = N.with_fields(param, name=f"{param['name']!s}_{at}")
            function = N.replace_node(function, param, other)
            param = other
        if isinstance(param, ObjectNode):
            names.add(str(param["name"]))
    return function


def values(function: ObjectNode, seed: int | str) -> dict[str, Any]:
    """Draw values for the arguments by name: small whole numbers, quarters, both signs.

    Raises:
        ValueError: If an argument is no dense buffer of constant shape.
    """
    wanted = arguments(function)
    if wanted is None:
        raise ValueError("the function has an argument that is no dense buffer of constant shape")
    rng, found = Rng(f"values {seed}", 0), {}
    for name, of in wanted.items():
        kind, sizes = N.dtype(of), N.shape(of) or ()
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
