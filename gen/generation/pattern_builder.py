"""Add operators by name to a builder, for strategies that plant known structures.

    y = build.op("Relu", build.op("MatMul", x, build.weight(x.dtype, (x.shape[-1], 4))))

Types and intervals come from the operators' declarations, and what a declaration does not allow is not laid
(`Misfit`).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from opsieve.gen.declarations.catalogue import OpChoice, first_dtypes, form, operators
from opsieve.gen.declarations.tensor import ANY, Domain, Tensor, is_float
from opsieve.gen.graph.adapters import is_within
from opsieve.gen.graph.graph import Shape
from opsieve.gen.graph.graph_builder import GraphBuilder


class Misfit(Exception):
    """An operator does not take these inputs here, or its result is too large: the structure stays
    unfinished.
    """


@dataclass(frozen=True, slots=True)
class PatternRates:
    """How often a structure is varied: rates between 0 and 1.

    `planted`: the next thing in a program is a structure; `near_miss`: a twisted one; `in_body`: a node with
    bodies, in which there are structures. The ways to write a structure: `mostly`, `likely`, `even`,
    `unlikely`, `rare` ones. `vector`: a number is written as a vector of one. Of twisted structures only:
    `fed`: a parameter is an input of the program; `other_number`, `other_order`, `other_axis`: a value
    different from the one that the structure requires; `tapped`: an inner tensor has a reader outside;
    `twisted_vector` takes the place of `vector`; `single`: exactly one condition is broken, any of the first
    `sites` in order, and these rates do not apply. How structures meet: `linked`: one begins at the unchanged
    result of the last one; `shared`: of these, at an inner tensor of it.
    """

    planted: float = 0.4
    in_body: float = 0.1
    near_miss: float = 0.4
    mostly: float = 0.7
    likely: float = 0.6
    even: float = 0.5
    unlikely: float = 0.4
    rare: float = 0.3
    vector: float = 0.2
    fed: float = 0.15
    other_number: float = 0.2
    other_order: float = 0.3
    other_axis: float = 0.3
    tapped: float = 0.3
    twisted_vector: float = 0.5
    single: float = 0.5
    sites: int = 5
    linked: float = 0.5
    shared: float = 0.3


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
    """Adds operators to a builder. With `twisted` a structure comes out slightly wrong for the optimiser that
    matches it.

    `broken` is the index of the one condition to break. `onto` is the tensor at which the structure begins,
    unchanged. Afterwards `inner` holds tensors inside of the structure and `met` the number of its
    conditions.
    """

    rates: ClassVar[PatternRates] = PatternRates()

    def __init__(
        self,
        builder: GraphBuilder,
        twisted: bool = False,
        broken: int | None = None,
        onto: Tensor | None = None,
    ) -> None:
        self.builder = builder
        self.rng = builder.rng
        self.twisted = twisted
        self.broken = broken
        self.onto = onto
        self.inner: list[Tensor] = []
        self.met = 0

    def is_broken_here(self, rate: float) -> bool:
        """Return whether to break the condition at hand: in a twisted structure, at a rate, unless another
        single one is chosen.
        """
        if not self.twisted:
            return False
        self.met += 1
        return self.rng.chance(rate) if self.broken is None else self.met == self.broken + 1

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

    def x(self, low: int, high: int | None = None, dtype: str = "", domain: Domain = ANY) -> Tensor:
        """Return a float tensor (or one of the dtype) with so many dimensions, chosen like an operator's
        first input.

        Raises:
            Misfit: If the structure must begin at a tensor of another kind.
        """
        high = low if high is None else high
        if self.onto is not None:
            # Only the first tensor of a structure is linked.
            found, self.onto = self.onto, None
            typed = found.dtype == dtype if dtype else is_float(found.dtype)
            if typed and low <= found.rank <= high and is_within(self.builder, found, domain):
                return found
            raise Misfit
        wanted = dtype or self.real()
        return self.builder.first(
            OpChoice(operators()["Identity"], frozenset((wanted,)), (wanted,), low, high, domain)
        )

    def real(self) -> str:
        """Return a float dtype of the palette, or float32."""
        floats = [dtype for dtype in self.builder.style.palette if is_float(dtype)]
        return self.rng.choice(floats) if floats else "float32"

    def weight(self, dtype: str, shape: Shape, domain: Domain = ANY) -> Tensor:
        """Return a parameter: a new initializer; in a twisted structure at times an input."""
        kinds = (
            ("input",) if self.is_broken_here(self.rates.fed) else ("initializer", "initializer", "constant")
        )
        return self.builder.leaf(dtype, shape, domain, kinds)

    def ints(self, *values: int) -> Tensor:
        """Return a constant vector of int64."""
        return self.builder.constant(values)

    def scalar(self, value: float, dtype: str) -> Tensor:
        """Return a constant of one element; in a twisted structure at times another number, or a vector of
        one.
        """
        if self.is_broken_here(self.rates.other_number):
            value = value + 1
        # If a single condition is broken, everything else stays as the optimiser expects it.
        wide = self.twisted and self.broken is None
        shape = (1,) if self.rng.chance(self.rates.twisted_vector if wide else self.rates.vector) else ()
        return self.builder.constant([value], dtype, shape)

    def tap(self, tensor: Tensor) -> Tensor:
        """Return an inner tensor of a structure; in a twisted one it may be read from outside or be an
        output.
        """
        self.inner.append(tensor)
        if self.is_broken_here(self.rates.tapped):
            self.builder.program.exposed.append(tensor)
        return tensor

    def order(self, *axes: int) -> list[int]:
        """Return a permutation; in a twisted structure at times another one."""
        if self.is_broken_here(self.rates.other_order):
            return self.rng.shuffle_items(axes)
        return list(axes)

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis; in a twisted structure at times its neighbour."""
        if rank > 1 and self.is_broken_here(self.rates.other_axis):
            return (axis + 1) % rank
        return axis

    def one_of(self, *names: str) -> str:
        """Draw one of some operators."""
        return self.rng.choice(names)

    def chain(self, tensor: Tensor, names: Sequence[str]) -> Tensor:
        """Apply unary operators in a row, without those that do not take the tensor."""
        for name in names:
            try:
                tensor = self.op(name, tensor)
            except Misfit:
                continue
        return tensor
