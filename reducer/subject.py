"""What is being reduced: a model, the values of its inputs, and what an unoptimised run recorded of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from opsieve.gen.tensors import Value


@dataclass(frozen=True)
class Subject:
    """A model with everything that an edit may need; nothing in it is ever changed in place.

    `inputs` has a value for every graph input that must be fed, by name. `values` are tensors of the main graph as an
    unoptimised run recorded them, in their native precision; {} when unknown. A name in `values` that the model no longer has
    means nothing.
    """

    model: onnx.ModelProto
    inputs: dict[str, Value]
    values: Mapping[str, Value]
