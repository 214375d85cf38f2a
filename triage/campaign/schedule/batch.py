"""What was decided of a batch of tests before any of them began, and the features of programs by which that
is decided.

A feature is what a compiler may not have met, or may fail at: an operator, an operator that feeds another
one, a type at the border of the program.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import OptionalType, SequenceType, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Shares of the strategies, of programs in thousandths ({}: the campaign's own strategy makes all), and
    by target the features that it is known to fail at, each with the fingerprint of the failure.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def of_strategies(self) -> tuple[tuple[str, float], ...]:
        """The shares as `mix` takes them."""
        return tuple(self.shares.items())

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(
            {"shares": dict(self.shares), "known": {name: dict(each) for name, each in self.known.items()}}
        )


def read_decision(text: str) -> BatchDecision:
    """The decision that was kept; an error of Python's where the text is none."""
    kept = json.loads(text)
    shares = {str(name): float(share) for name, share in kept["shares"].items()}
    return BatchDecision(shares, {str(name): {**features} for name, features in kept["known"].items()})


MOST = 400  # of one program


def features(program: Program) -> tuple[str, ...]:
    """`Relu`, `Conv > Relu`, `in float16`, `out sequence(float32)`: each once, in order of their names."""
    return tuple(sorted(set(_all(program))))[:MOST]


def is_operator(feature: str) -> bool:
    """Whether a feature is an operator."""
    return " " not in feature


def _all(program: Program) -> Iterator[str]:
    yield from program.operators()
    yield from (f"{producer} > {consumer}" for producer, consumer in program.edges() if producer)
    yield from (f"in {_kind(type_)}" for type_ in program.inputs().values())
    yield from (f"out {_kind(type_)}" for type_ in program.outputs().values())


def _kind(type_: ValueType) -> str:
    if isinstance(type_, SequenceType):
        return f"sequence({_kind(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({_kind(type_.element)})"
    return type_.dtype if isinstance(type_, TensorType) else "other"
