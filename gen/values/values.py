"""How the values of a program's inputs are chosen, as one word of a request: `ranged`, `search`, `special`,
or `special:zeros,nan`.

`ranged` is how the generator grows programs: every value has an interval, and operators stand only where it
lies in their domain. With `search` it grows them without, and values are looked for afterwards, in workers
(backends/probing/value_search.py). With `special` numbers at which compilers cut corners are strewn into the
values that are there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx

from opsieve.gen.analysis.typed_graph import TypedGraph, TypedNode, read_graph
from opsieve.gen.case.case import Case
from opsieve.gen.data.input_flow import InputFlow
from opsieve.gen.data.inputs import Stream, seeded_inputs
from opsieve.gen.declarations.catalogue import known_operators
from opsieve.gen.declarations.tensor import Domain, Tensor
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.program import onnx_program
from opsieve.gen.model import structure, tensors

RANGED, SEARCH, SPECIAL = "ranged", "search", "special"


def named_values(text: str, choices: tuple[str, ...] = (RANGED, SEARCH, SPECIAL)) -> str:
    """Parse the user's word for values, and put kinds of special values in their usual order. Raises BadInput
    for anything but the choices.
    """
    name, colon, rest = text.partition(":")
    if name not in choices or (colon and name != SPECIAL):
        listed = [f"{each}[:{','.join(KINDS)}]" if each == SPECIAL else each for each in choices]
        raise BadInput(f"{shown(text)} is not a choice of values; choose from {', '.join(listed)}")
    if not colon:
        return name
    given = [kind.strip() for kind in rest.split(",") if kind.strip()]
    check_kinds(given or [""])
    return (
        name
        if len(set(given)) == len(KINDS)
        else f"{name}:{','.join(kind for kind in KINDS if kind in given)}"
    )


def special_kinds(values: str) -> tuple[str, ...]:
    """Return the kinds of special values that a word names; () for other words."""
    name, colon, rest = values.partition(":")
    return () if name != SPECIAL else tuple(rest.split(",")) if colon else KINDS


def with_special(case: Case, values: str, seed: int) -> Case:
    """Return the case with special values strewn into its inputs; the case itself when the word asks for
    none.

    Expected outputs belong to the inputs that there were: they are left out.
    """
    kinds = special_kinds(values)
    if not kinds:
        return case
    inputs = special_inputs(onnx_program(case.program, "--values special").proto, seed, kinds, case.inputs)
    return replace(case, inputs=inputs, expected=None, origin=replace(case.origin, inputs=values))


# Inputs with the numbers that compilers often mishandle: signed zeros, subnormals, extremes, infinities,
# NaN.


Array: TypeAlias = np.ndarray[Any, Any]

KINDS = ("zeros", "subnormals", "extremes", "nan", "inf")
# One of this many elements becomes special.
_SHARE = 4
# Integers up to this bound are an index, a size or a count rather than data.
_WIDE = 1 << 16


def special_inputs(
    model: onnx.ModelProto,
    seed: int,
    kinds: Sequence[str] = KINDS,
    inputs: Mapping[str, tensors.Value] | None = None,
) -> dict[str, tensors.Value]:
    """Make values for every input (the given ones, or seeded ones) and replace one element in four by special
    numbers of these kinds.

    Every kind that a type has occurs in each tensor with enough room. Inputs that steer the program (indices,
    shapes, counts: integers that the declarations constrain) keep their values, also if they reach such an
    operand through other operators, and so do texts and truths. Equal seeds give equal values. Raises
    BadInput for an unknown kind.
    """
    check_kinds(kinds)
    values = seeded_inputs(model, seed) if inputs is None else dict(inputs)
    shapes = {name: value.shape if isinstance(value, np.ndarray) else None for name, value in values.items()}
    # The sizes that values give to symbolic dimensions.
    sizes: dict[str, int] = {}
    for name, type_ in tensors.graph_inputs(model).items():
        shape, value = getattr(type_, "shape", None), values.get(name)
        if shape is not None and isinstance(value, np.ndarray) and len(shape) == value.ndim:
            sizes.update(
                (dim, side) for dim, side in zip(shape, value.shape, strict=True) if isinstance(dim, str)
            )
    domains = InputFlow(model, shapes, sizes).domains
    kept = steering(model)
    return {
        name: value
        if name in kept
        else _strewn(value, domains.get(name, Domain()), Stream(seed, f"special {name}"), kinds)
        for name, value in values.items()
    }


def steering(model: onnx.ModelProto) -> frozenset[str]:
    """Return the inputs that flow into a constrained integer operand: an index, a size, a divisor.

    This includes a float that is cast to an index, and inputs of a body or a function that contains such an
    operand.
    """
    functions = {
        (item.domain, item.name)
        for item in model.functions
        if any(_asks(node.op_type) for node in structure.all_nodes(item.node))
    }
    called = {node.name for node in model.graph.node if (node.domain, node.op_type) in functions}
    graph = read_graph(model)
    reach = {id(tensor): frozenset((tensor.name,)) for tensor in graph.inputs}
    found: set[str] = set()
    for step in graph.nodes:
        inner = [tensor for body in step.bodies.values() for tensor in body.reads()]
        met = frozenset[str]().union(
            *(reach.get(id(tensor), ()) for tensor in (*step.ins, *inner) if tensor is not None)
        )
        if any(_steers(body) for body in step.bodies.values()) or (step.name in called and step.op is None):
            found |= met
        for position, tensor in enumerate(step.ins):
            if tensor is not None and _is_constrained_integer(step, position, tensor):
                found |= reach.get(id(tensor), frozenset())
        for tensor in step.outs:
            reach[id(tensor)] = frozenset() if step.op is not None and step.op.sizes_only else met
    return frozenset(found)


def _steers(body: TypedGraph) -> bool:
    """Return whether a body has an operand, apart from constants, that controls what it does."""
    return any(
        any(_steers(inner) for inner in step.bodies.values())
        or any(
            tensor is not None
            and tensor.leaf not in ("initializer", "constant")
            and _is_constrained_integer(step, position, tensor)
            for position, tensor in enumerate(step.ins)
        )
        for step in body.nodes
    )


def _is_constrained_integer(step: TypedNode, position: int, tensor: Tensor) -> bool:
    """Return whether the operand is an integer, as far as known, with a declared constraint."""
    if tensor.dtype and ("int" not in tensor.dtype or "float" in tensor.dtype):
        return False
    safe = step.op.safe if step.op is not None else ()
    return _asks(step.operator, position) or (position < len(safe) and _narrow(safe[position]))


def _asks(operator: str, position: int | None = None) -> bool:
    found = known_operators().get(operator)
    return found is not None and found.asks(position)


def _narrow(domain: Domain) -> bool:
    """Return whether integers of a domain are an index, a size, a count or a divisor rather than data."""
    return domain.high - domain.low < _WIDE or domain.nonzero


def check_kinds(kinds: Sequence[str]) -> None:
    """BadInput for a kind of special values that there is not."""
    for kind in kinds:
        if kind not in KINDS:
            raise BadInput(f"there are no special values {shown(kind)}; there are {', '.join(KINDS)}")


def special_numbers(dtype: str, kinds: Sequence[str] = KINDS) -> Array:
    """Return the special numbers of an element type (numpy's or ml_dtypes' name), of these kinds, in their
    order; none for most of integers.
    """
    if "float" in dtype:
        facts, made = ml_dtypes.finfo(dtype), _dtype(dtype)
        least = float(facts.smallest_subnormal)
        groups = {
            "zeros": (0.0, -0.0),
            "subnormals": (least, -least, float(facts.tiny) / 2),
            "extremes": (float(facts.max), float(facts.min), float(facts.tiny), -float(facts.tiny)),
            "nan": (math.nan,),
            "inf": (math.inf, -math.inf),
        }
        with np.errstate(all="ignore"):
            return np.array(
                [
                    number
                    for kind in KINDS
                    if kind in kinds
                    for number in (np.float64(wide).astype(made) for wide in groups[kind])
                    if _has(kind, float(number))
                ],
                dtype=made,
            )
    if "int" not in dtype:
        return np.zeros(0, bool)
    bounds = ml_dtypes.iinfo(dtype)
    ends = [int(bounds.min), int(bounds.max)] if "extremes" in kinds else []
    # The largest uint64 is beyond int64.
    wide = np.int64 if bounds.min else np.uint64
    return np.array([*([0] if "zeros" in kinds else []), *ends], wide).astype(_dtype(dtype))


def _has(kind: str, number: float) -> bool:
    """Return whether a type represents a number: some have no infinity, zero or sign."""
    if kind == "nan":
        return math.isnan(number)
    if kind == "inf":
        return math.isinf(number)
    return math.isfinite(number) and (number == 0) == (kind == "zeros")


def _dtype(name: str) -> "np.dtype[Any]":
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def _strewn(value: tensors.Value, domain: Domain, stream: Stream, kinds: Sequence[str]) -> tensors.Value:
    if isinstance(value, list):
        return [_strewn(item, domain, stream, kinds) for item in value]
    if not isinstance(value, np.ndarray) or not value.size or domain.exact is not None:
        return value
    name = tensors.dtype_name(value)
    if name in ("bool", "string") or name.startswith("complex"):
        return value
    if "float" not in name and _narrow(domain):
        return value
    special = special_numbers(name, kinds)
    if not len(special):
        return value
    count = min(value.size, max(len(special), value.size // _SHARE))
    # A stable sort gives the same places in every release of numpy.
    order = np.argsort(stream.fractions(value.size), kind="stable")[:count]
    # A drawn start, so that small tensors do not all get the same number first.
    first = int(stream.integers(0, len(special) - 1, 1)[0])
    made = value.copy()
    made.reshape(-1)[order] = np.resize(np.roll(special, -first), count)
    return made
