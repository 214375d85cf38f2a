"""The meaning of Relax operators, written in operators of ONNX.

A spelling is a function of a call. It calls operators of ONNX through `Onnx`, which computes them and records
them as nodes, so one text serves as the reference and as a model that other compilers run.
Shapes are known by then: sizes, axes and attributes are plain numbers.

Attributes of ONNX hold floats in 32 bits. So a spelling writes a number (an epsilon, a slope) as a constant
of the tensor's own type.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# Importing ml_dtypes registers bfloat16 with numpy by name.
import ml_dtypes  # noqa: F401
import numpy as np

from opsieve.gen.declarations.tensor import NUMBER


class Onnx(Protocol):
    """Computes operators of ONNX on arrays."""

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Run an operator and return its only output; inputs that are `None` are omitted."""

    def outputs(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        """Return the first `count` outputs of an operator."""


@dataclass(frozen=True, slots=True)
class SpelledCall:
    """A call of an operator of Relax, and what computes operators of ONNX.

    Attributes:
        onnx: The machine.
        args: The values of the arguments: arrays, numbers, and tuples of them.
        attrs: The attributes by name; `call["axis"]` reads one.
        dtype: The element type of the (first) result.
    """

    onnx: Onnx
    args: Sequence[Any]
    attrs: Mapping[str, Any]
    dtype: str

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Compute the only output of an operator."""
        return self.onnx(operator, *inputs, **attributes)

    def outputs(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        """Compute the first outputs of an operator."""
        return self.onnx.outputs(operator, count, *inputs, **attributes)

    def __getitem__(self, name: str) -> Any:
        """Read an attribute."""
        return self.attrs[name]


Spelling = Callable[[SpelledCall], Any]


def spell_as(operator: str) -> Spelling:
    """Spell as the operator of ONNX that takes the same arguments and has no attributes to set."""

    def spell_call(call: SpelledCall) -> Any:
        like = next((arg for arg in call.args if isinstance(arg, np.ndarray)), np.zeros((), call.dtype))
        return call(operator, *(to_constant(like, arg) for arg in call.args))

    return spell_call


def spell_unary(function: Callable[[Onnx, Any], Any]) -> Spelling:
    """Spell one tensor."""
    return lambda call: function(call, call.args[0])


def spell_pair(function: Callable[[Onnx, Any, Any], Any]) -> Spelling:
    """Spell two tensors, or a tensor and a number."""

    def spell_call(call: SpelledCall) -> Any:
        like = next(arg for arg in call.args if isinstance(arg, np.ndarray))
        return function(call, to_constant(like, call.args[0]), to_constant(like, call.args[1]))

    return spell_call


def to_constant(like: Any, value: Any) -> Any:
    """Return a number in the element type of a tensor; a tensor as it is."""
    return value if isinstance(value, np.ndarray) else np.asarray(value, like.dtype)


def to_integers(values: Any) -> Any:
    """Return a list of whole numbers, as operators of ONNX take axes and shapes."""
    return np.array(values, np.int64).reshape(-1)


def cast_to(onnx: Onnx, value: Any, dtype: str) -> Any:
    """Return a tensor in another element type; the same one where it has that type."""
    return value if value.dtype.name == dtype else onnx("Cast", value, to=NUMBER[dtype])


def is_float(value: Any) -> bool:
    """Return whether the elements are floats; those of `ml_dtypes` have the kind V in numpy."""
    return value.dtype.kind in "fV"


def reshape_to(onnx: Onnx, value: Any, shape: Sequence[int]) -> Any:
    """Return the same elements in another shape, whose sizes are all given."""
    # With `allowzero` a size of 0 means 0 and not a copy of the input's.
    return onnx("Reshape", value, to_integers(shape), allowzero=1)
