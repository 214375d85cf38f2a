"""Decisions about a batch of tests, made before any of them begins, and the features of programs behind them.

A feature is a part of a program that a compiler may not have seen or may fail at: an operator, an operator
that feeds another one, a type at the border of the program, a pass that the program asks for.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import OptionalType, SequenceType, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The decisions about a batch.

    `shares` of the strategies, in thousandths of the programs ({}: the campaign's own strategy makes all);
    `known` maps targets to features they are known to fail at, each with the fingerprint of the failure.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def strategy_shares(self) -> tuple[tuple[str, float], ...]:
        """The shares as `mix` takes them."""
        return tuple(self.shares.items())

    def to_text(self) -> str:
        """Encode the decision for the store."""
        return json.dumps(
            {"shares": dict(self.shares), "known": {name: dict(each) for name, each in self.known.items()}}
        )


def read_decision(text: str) -> BatchDecision:
    """Decode a stored decision; raises Python's errors for an invalid text."""
    kept = json.loads(text)
    shares = {str(name): float(share) for name, share in kept["shares"].items()}
    return BatchDecision(shares, {str(name): {**features} for name, features in kept["known"].items()})


# Of one program
MOST = 400


def list_features(program: Program) -> tuple[str, ...]:
    """List a program's features: `Relu`, `Conv > Relu`, `in float16`, `out sequence(float32)`, `pass
    FuseOps`; each once, sorted.
    """
    return tuple(sorted(set(_iter_features(program))))[:MOST]


def is_operator(feature: str) -> bool:
    """Whether a feature is an operator."""
    return " " not in feature


def _iter_features(program: Program) -> Iterator[str]:
    yield from program.operators()
    yield from (f"{producer} > {consumer}" for producer, consumer in program.edges() if producer)
    yield from (f"in {_name_type(type_)}" for type_ in program.inputs().values())
    yield from (f"out {_name_type(type_)}" for type_ in program.outputs().values())
    # `NAME:ARGUMENT`; `=OPTION:VALUE` is no pass.
    yield from (f"pass {item.partition(':')[0]}" for item in program.passes if not item.startswith("="))


def _name_type(type_: ValueType) -> str:
    if isinstance(type_, SequenceType):
        return f"sequence({_name_type(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({_name_type(type_.element)})"
    return type_.dtype if isinstance(type_, TensorType) else "other"
