"""What a program holds that a compiler may not have met, or may fail at: operators, which of them feed which,
and the types at its border.
"""

from collections.abc import Iterator

from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import OptionalType, SequenceType, TensorType, ValueType

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
