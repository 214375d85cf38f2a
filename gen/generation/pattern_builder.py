"""Add operators by name to a builder, for strategies that plant known structures.

    y = build.op("Relu", build.op("MatMul", x, weight))

Types and intervals come from the operators' declarations, and what a declaration does not allow is not laid
(`Misfit`).
"""

import functools
from typing import Any

from opsieve.gen.declarations.catalogue import first_dtypes, form, operators
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.graph.graph_builder import GraphBuilder


class Misfit(Exception):
    """An operator does not take these inputs here, or its result is too large: the structure stays
    unfinished.
    """


@functools.lru_cache(maxsize=4096)
def _has_one_type(name: str, opset: int, dtypes: tuple[str | None, ...]) -> bool:
    """Return whether every type variable of an operator stands for one dtype when its inputs have these."""
    had, meant = form(name, opset), dict[str, str]()
    if had is None:
        return True
    slots = (had.inputs[min(place, len(had.inputs) - 1)] for place in range(len(dtypes)))
    return all(
        dtype is None or meant.setdefault(slot.type, dtype) == dtype
        for slot, dtype in zip(slots, dtypes, strict=True)
    )


class PatternBuilder:
    """Adds operators to a builder by name."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def ops(self, name: str, *ins: Tensor | None, outputs: int | None = None, **attrs: Any) -> list[Tensor]:
        """Add an operator and return its outputs, all or as many as requested; attributes of None are left
        out.

        Raises:
            Misfit: If the operator is not valid here.
        """
        only = self.builder.program.only
        if only is not None and name not in only:
            raise Misfit
        operator = operators()[name]
        given = {key: value for key, value in attrs.items() if value is not None}
        first = next((tensor for tensor in ins if tensor is not None), None)
        # Dtypes are checked before `requires`, whose rules presume inputs that the schema allows.
        if first is not None and first.dtype not in first_dtypes(operator, self.builder.opset):
            raise Misfit
        if not first_dtypes(operator, self.builder.opset) or not all(
            operator.requires(ins, given)  # type: ignore[arg-type]
        ):
            raise Misfit
        if not _has_one_type(name, self.builder.opset, tuple([tensor and tensor.dtype for tensor in ins])):
            raise Misfit
        if self.builder.style.ranged:
            # Only programs with intervals promise that values stay in safe domains.
            for tensor, safe in zip(ins, operator.safe, strict=False):
                if tensor is not None and not tensor.within(safe):
                    raise Misfit
        made = self.builder.add(operator, ins, given, outputs)
        if made is None:
            raise Misfit
        return made

    def op(self, name: str, *ins: Tensor | None, **attrs: Any) -> Tensor:
        """Add an operator and return its first output."""
        return self.ops(name, *ins, **attrs)[0]
