"""What an operator of Relax means, written in operators of ONNX.

A spelling is a function of the values of a call. It calls operators of ONNX through `Onnx`, which computes
them and records them as nodes, so one text serves as the reference and as a model that other compilers run.
Shapes are known by then: sizes, axes and attributes are plain numbers.

Attributes of ONNX hold floats in 32 bits. So a spelling writes a number (an epsilon, a slope) as a constant
of the tensor's own type.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import ml_dtypes  # noqa: F401 - numpy then knows bfloat16 by name
import numpy as np

from opsieve.gen.declarations.tensor import NUMBER


class Onnx(Protocol):
    """Computes operators of ONNX on arrays."""

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """The only output of an operator. An input that is None is left out."""

    def outputs(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        """The first `count` outputs of an operator."""


# Of the machine, the values of the arguments, the attributes, and the element type of the (first) result.
Attrs = Mapping[str, Any]
Spelling = Callable[[Onnx, Sequence[Any], Attrs, str], Any]


def spell_as(operator: str) -> Spelling:
    """The operator of ONNX that takes the same arguments and has no attributes to set."""

    def spell_call(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
        like = next((arg for arg in args if isinstance(arg, np.ndarray)), np.zeros((), dtype))
        return onnx(operator, *(to_constant(like, arg) for arg in args))

    return spell_call


def spell_unary(function: Callable[[Onnx, Any], Any]) -> Spelling:
    """A spelling of one tensor."""
    return lambda onnx, args, attrs, dtype: function(onnx, args[0])


def spell_pair(function: Callable[[Onnx, Any, Any], Any]) -> Spelling:
    """A spelling of two tensors."""

    def spell_call(onnx: Onnx, args: Sequence[Any], attrs: Attrs, dtype: str) -> Any:
        like = next(arg for arg in args if isinstance(arg, np.ndarray))
        return function(onnx, to_constant(like, args[0]), to_constant(like, args[1]))

    return spell_call


def to_constant(like: Any, value: Any) -> Any:
    """A number in the element type of a tensor; a tensor as it is."""
    return value if isinstance(value, np.ndarray) else np.asarray(value, like.dtype)


def to_integers(values: Any) -> Any:
    """A list of whole numbers, as operators of ONNX take axes and shapes."""
    return np.array(values, np.int64).reshape(-1)


def cast_to(onnx: Onnx, value: Any, dtype: str) -> Any:
    """A tensor in another element type; the same one where it has that type."""
    return value if value.dtype.name == dtype else onnx("Cast", value, to=NUMBER[dtype])


def is_float(value: Any) -> bool:
    """Whether the elements are floats; those of `ml_dtypes` are of numpy's kind V."""
    return value.dtype.kind in "fV"


def reshape_to(onnx: Onnx, value: Any, shape: Sequence[int]) -> Any:
    """The same elements in another shape, whose sizes are all given."""
    return onnx("Reshape", value, to_integers(shape), allowzero=1)
