"""The kinds of programs to generate: each policy is a short class. A new one extends `GenerationPolicy` and
overrides its parts.
"""

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from opsieve.gen.irs.relax import catalogue, declaration, types as T

# The forms of expression, with the share that the general policy gives each.
FORMS: Mapping[str, float] = {
    "operator": 10,
    "variable": 4,
    "literal": 0.4,
    "projection": 0.8,
    "let": 0.6,
    "dataflow": 1.2,
    "branch": 0.6,
    "closure": 0.5,
    "function": 0.8,
    "recursion": 0.25,
    "cast": 0.5,
    "kernel": 0.5,
    "packed": 0.3,
    "higher_order": 0.2,
}


class GenerationPolicy:
    """The general policy: every form of expression and every operator."""

    name = "general"
    forms: ClassVar[Mapping[str, float]] = FORMS
    dtypes: ClassVar[Sequence[str]] = declaration.DTYPES
    # The share of sizes that are symbols
    symbolic = 0.15
    # The most symbols of main.
    symbols = 1
    # The deepest nesting of expressions.
    fuel = 7
    # The approximate limit on bindings.
    bindings = 18
    # Whether to generate patterns at which TVM 0.27 always fails in the same way (docs/explanation/tvm.md).
    known_faults = False
    # The share of arguments with a domain that are kept inside it
    guarded = 0.95

    def weight(self, operator: str) -> float:
        """Return the weight of an operator among others."""
        return 1.0

    def target(self, draw: declaration.Draw, rng: random.Random) -> T.Type:
        """Return the type of main's result."""
        count = rng.choice((1, 1, 2, 3))
        fields = tuple(draw.tensor_type(ranks=(1, 4)) for _ in range(count))
        return fields[0] if count == 1 else T.TupleType(fields)


class FusableChains(GenerationPolicy):
    """Chains that operator fusion merges: elementwise operators, broadcasts and layouts around a product or a
    reduction, in dataflow blocks, without branches.
    """

    name = "fusable"
    forms: ClassVar[Mapping[str, float]] = {
        "operator": 12,
        "variable": 3,
        "dataflow": 3,
        "let": 0.5,
        "kernel": 1.5,
    }
    dtypes: ClassVar[Sequence[str]] = ("float32",) * 6 + ("float64", "float16", "bool", "int64")
    bindings = 24

    def weight(self, operator: str) -> float:
        """Elementwise operators most, selections hardly."""
        return {"elementwise": 1.0, "layouts": 0.7, "reductions": 0.7, "products": 1.0}.get(
            catalogue.family(operator), 0.1
        )


class ControlFlow(GenerationPolicy):
    """Branches, recursion and calls between functions."""

    name = "control-flow"
    forms: ClassVar[Mapping[str, float]] = {
        **FORMS,
        "branch": 5,
        "recursion": 2,
        "function": 3,
        "dataflow": 0.5,
    }


class SymbolicShapes(GenerationPolicy):
    """Several symbols, in most shapes, introduced by parameters and by `match_cast`."""

    name = "symbolic"
    forms: ClassVar[Mapping[str, float]] = {**FORMS, "cast": 3, "function": 2}
    symbolic = 0.6
    symbols = 3


class Dtypes(GenerationPolicy):
    """Every element type as often as every other, with casts between them."""

    name = "dtypes"
    dtypes: ClassVar[Sequence[str]] = (
        *("float32", "float64", "float16", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "bool"),
    )

    def weight(self, operator: str) -> float:
        """Casts more often."""
        return 6.0 if operator == "relax.astype" else 1.0


class HigherOrder(GenerationPolicy):
    """Closures, functions that take functions."""

    name = "higher-order"
    forms: ClassVar[Mapping[str, float]] = {
        **FORMS,
        "closure": 4,
        "higher_order": 3,
        "function": 2,
        "dataflow": 0.5,
    }


class KnownFaults(HigherOrder):
    """Programs at which TVM 0.27 is known to fail: closures over computed values, casts of constants,
    operators without lowering.
    """

    name = "known-faults"
    known_faults = True


POLICIES: Mapping[str, type[GenerationPolicy]] = {
    policy.name: policy
    for policy in (
        GenerationPolicy,
        FusableChains,
        ControlFlow,
        SymbolicShapes,
        Dtypes,
        HigherOrder,
        KnownFaults,
    )
}


def is_plain(kind: T.Type) -> bool:
    """Return whether a type is that of a tensor with a known shape."""
    return isinstance(kind, T.RelaxTensorType) and kind.shape is not None
