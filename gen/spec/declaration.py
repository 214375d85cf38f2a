"""What one operator is: where it may stand, what comes out of it, how an instance is made, which values are safe.

A declaration is data and a few plain functions over "int-like" sizes (gen/spec/symbolic_arith.py). Which element types an operator
takes at which opset, how many inputs it has and which are optional is read from ONNX's own schemas (gen/spec/schema.py), so a
declaration never repeats it.

    infer(ins, attrs)     -> [(dtype, shape), ...]   types of the outputs; sizes may be z3 terms; None where one is left out
    requires(ins, attrs)  -> relations               that a valid instance satisfies, beyond what the schema says
    parts                                            what an instance has beside its first input, in the order of drawing
    sample(builder, x)    -> Instance | None         where parts do not do: an instance whose first input is `x`, valid by construction
    bounds(ins, attrs)    -> (low, high) | [...]     an interval for the elements of the first output, or of each
    safe                  -> Domain per input        where results are defined and well-conditioned
    cost(ins, attrs, outs)-> multiply-adds

`ins` are tensors (or None where an optional input is left out). Sources: the ONNX operator pages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsieve.gen.spec.builder import Builder
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.instance import Draft, Instance, Part
from opsieve.gen.spec.symbolic_arith import Truth
from opsieve.gen.spec.tensor import Bounds, Ins, Tensor, Typed

Sampler = Callable[[Builder, Tensor], Instance | None]


def elementwise(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    """The rule of most operators: one output, of the type of the first input."""
    return [(ins[0].dtype, ins[0].shape)]


def hull(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """The interval of what only moves elements: that of the first input."""
    return (ins[0].low, ins[0].high)


def nothing(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """No relation beyond the schema's."""
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """The declaration of one operator. `name` and `domain` are ONNX's; the module docstring tells the functions.

    `dtypes` narrows the element types of the first input that the schema allows (() leaves them), `ranks` are those of the
    first input, both included. `family` groups operators for statistics. `safe` holds a domain by input position; positions
    without one take anything. `relation` is for domains that tie inputs together: expressions over the inputs (intervals or
    torch tensors) that must not be negative, such as Pow's. `since` is the first opset that the declaration describes.
    An operator with neither `parts` nor `sample` has one input and no attributes.
    """

    name: str
    sample: Sampler | None = None
    parts: tuple[Part, ...] = ()
    infer: Callable[[Ins, Mapping[str, Any]], Sequence[Typed | None]] = elementwise
    requires: Callable[[Ins, Mapping[str, Any]], Sequence[Truth]] = nothing
    bounds: Callable[[Ins, Mapping[str, Any]], Bounds | list[Bounds]] = hull
    safe: tuple[Domain, ...] = ()
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, int] = (0, 5)
    domain: str = ""
    family: str = "other"
    since: int = 1
    cost: Callable[[Ins, Mapping[str, Any], Sequence[Typed]], int] | None = None
    relation: Callable[..., Sequence[Any]] | None = None

    def instance(self, builder: Builder, x: Tensor) -> Instance | None:
        """An instance whose first input is `x` or, where that does not do, another; None when this draw gave none."""
        if self.sample is not None:
            return self.sample(builder, x)
        draft = Draft(builder, x)
        for part in self.parts:
            part(draft)
        return draft.instance()
