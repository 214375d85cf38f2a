"""A program with symbolic sizes: samplers use it in place of a `GraphBuilder` if sizes are chosen afterwards.

It implements the methods that samplers use (`match`, `partner`, `leaf`, `ints`...), with tensors whose sizes
are terms. So one sampler serves both: most run here unchanged. A requirement on an existing tensor becomes
relations, and a missing tensor a placeholder: a leaf unless a later node takes its place (NNSmith, section
3.2).
"""

from collections.abc import Sequence
from typing import Any

from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.declarations.builder import FREE
from opsieve.gen.declarations.instance import Instance
from opsieve.gen.declarations.symbolic_arith import Size, Truth, either
from opsieve.gen.declarations.tensor import ANY, LARGEST, Domain, Tensor
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.strategies.nnsmith.solving import Constraints

Sizes = tuple[Size, ...]
_TRIES = 3
# Factors of the rate at which existing tensors are picked: for further inputs, and for those that broadcast.
_MATCHED, _PARTNERED = (
    0.7,
    0.8,
)
# The share among partners that broadcast.
_SAME_RANK = 0.7
# The share of picked tensors that no node reads yet, if there are any.
_UNREAD = 0.7
# Weighted towards ranks 2 to 4, which most operators take; 0 and 5 stay possible.
_RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5)


class Insertion:
    """A node whose sizes are open. `asked` holds domains of values by input."""

    __slots__ = ("asked", "instance", "op", "outs")

    def __init__(
        self, op: declaration.Operator, instance: Instance, outs: list[Tensor], asked: list[Domain]
    ) -> None:
        self.op = op
        self.instance = instance
        self.outs = outs
        self.asked = asked


class SymbolicBuilder:
    """The open part of a program: placeholders, nodes, and the relations that a new instance asks for until
    it is taken or refused.
    """

    def __init__(self, builder: GraphBuilder) -> None:
        self.rng = builder.rng
        self.opset = builder.opset
        self.style = builder.style
        self.budget = builder.budget
        self.builder = builder
        self.constraints = Constraints()
        self.nodes: list[Insertion] = []
        self.pools: dict[tuple[str, int], list[Tensor]] = {}
        self.placeholders: list[Tensor] = []
        # The results of the finished part, by name.
        self.finished: dict[str, Tensor] = {}
        # Whether an instance may only read placeholders.
        self.fresh = False
        self.relations: list[Truth] = []
        self.asked: dict[str, Domain] = {}
        self.made: list[Tensor] = []
        # Elements of shapes that are written as 0, which copies the input's size of that axis.
        self.copied: set[tuple[str, int]] = set()
        # Axes given as -1, whose size is inferred.
        self.inferred: set[tuple[str, int]] = set()
        self._count = 0
        self._small: set[Sizes] = set()

    # Sizes

    def side(self) -> Size:
        """Return an open size."""
        return self.constraints.add_number(1, self.most(1))

    def most(self, rank: int) -> int:
        """Return the limit on the sum of a tensor's sizes: numbers with this sum have at most the budget's
        product (the mean inequality).
        """
        return (
            max(rank, int(rank * self.budget.tensor ** (1 / rank) / (8 if rank == 1 else 1))) if rank else 0
        )

    def number(self, low: int, high: int = 64, own: tuple[int, ...] = (), spread: bool = True) -> Size:
        """Return an open number of an instance, such as a kernel's size."""
        return self.constraints.add_number(low, high, own, spread)

    def pin_number(self, size: Size) -> int:
        """Require a size to be a drawn number and return it, so that products stay linear."""
        if isinstance(size, int):
            return size
        number = self.rng.draw_binned(1, 6)
        self.relations.append(size == number)
        return number

    def small(self, shape: Sizes) -> None:
        """Ask a shape to fit the budget, and to have no empty side."""
        terms = [side for side in shape if not isinstance(side, int)]
        if not terms or shape in self._small:
            return
        self._small.add(shape)
        self.relations += [side >= 1 for side in terms]
        # A bound on the product of open sizes would not be linear; one on their sum is.
        self.relations.append(sum(shape) <= self.most(len(shape)))

    def shape(self, low: int = 0, high: int = 5) -> Sizes:
        """Return a shape of `low` to `high` open sizes."""
        rank = min(max(self.rng.choice(_RANKS), low), high)
        return tuple(self.side() for _ in range(rank))

    # Tensors

    def placeholder(self, dtype: str, shape: Sizes, kind: str) -> Tensor:
        """Return a new placeholder; `kind` tells what becomes of one that stays: `input` or `weight`."""
        self.small(shape)
        tensor = Tensor(f"p{self._count}", dtype, shape, leaf=kind)
        self._count += 1
        self.made.append(tensor)
        return tensor

    def leaf(self, dtype: str, shape: Sizes, domain: Domain = ANY, kinds: tuple[str, ...] = ()) -> Tensor:
        """Return a new placeholder whose elements are to lie in a domain."""
        return self._require_domain(self.placeholder(dtype, self._open_free_sizes(shape), "input"), domain)

    def weight(self, dtype: str, shape: Sizes, domain: Domain = ANY) -> Tensor:
        """Return a new placeholder where models have parameters."""
        return self._require_domain(self.placeholder(dtype, self._open_free_sizes(shape), "weight"), domain)

    def ints(self, values: Sequence[Size], dtype: str = "int64", shape: Sizes | None = None) -> Tensor:
        """Make a leaf with these elements, some of which may be symbolic."""
        self._count += 1
        return Tensor(
            f"k{self._count}", dtype, (len(values),) if shape is None else shape, values=tuple(values)
        )

    constant = ints

    def match(self, dtype: str, shape: Sizes, domain: Domain = ANY) -> Tensor:
        """Return a tensor of this dtype and shape, where FREE sizes may be any: an existing one is asked to
        have it.
        """
        if not self.fresh and self.rng.random() < self.style.pick * _MATCHED:
            found = self.find_matching(dtype, shape, domain)
            if found is not None:
                return found
        return self.weight(dtype, shape, domain)

    def find_matching(self, dtype: str, shape: Sizes, domain: Domain = ANY) -> Tensor | None:
        """Return an existing tensor that may have this shape; None if the search finds none."""
        pool = self.pools.get((dtype, len(shape)))
        for _ in range(_TRIES if pool else 0):
            tensor = self.rng.choice(pool)  # type: ignore[arg-type]
            relations = [p == q for p, q in zip(tensor.shape, shape, strict=True) if _is_given(q)]
            if not any(relation is False for relation in relations):
                self.relations += [relation for relation in relations if relation is not True]
                return self._require_domain(tensor, domain)
        return None

    def partner(self, x: Tensor, domain: Domain = ANY, dtype: str = "", oneway: bool = False) -> Tensor:
        """Return a tensor that is asked to broadcast with `x`; to its very shape if `oneway`."""
        rng, shape, dtype = self.rng, x.shape, dtype or x.dtype
        if not self.fresh and rng.random() < self.style.pick * _PARTNERED:
            rank = len(shape) if rng.random() < _SAME_RANK else rng.below(len(shape) + 1 if oneway else 5)
            pool = self.pools.get((dtype, rank))
            if pool:
                other = rng.choice(pool)
                for p, q in zip(reversed(shape), reversed(other.shape), strict=False):
                    self.relations.append(
                        either(p == q, q == 1) if oneway else either(p == q, p == 1, q == 1)
                    )
                return self._require_domain(other, domain)
        kept = shape[rng.below(len(shape) + 1) :] if rng.random() < self.style.suffix else shape
        if kept and rng.random() < self.style.stretched:
            kept = tuple(1 if rng.random() < self.style.ones else side for side in kept)
        return self.weight(dtype, kept, domain)

    def fits(self, shape: Sizes, other: Sizes, oneway: bool) -> bool:
        """Return whether two shapes may broadcast: here always, since it becomes a relation."""
        return True

    def takes(self, name: str, variable: str) -> frozenset[str]:
        """Return the dtypes that a type variable stands for at this program's opset."""
        had = catalogue.form(name, self.opset)
        return had.types[variable] if had is not None else frozenset()

    def choose_dtype(self, allowed: frozenset[str]) -> str:
        """Return a dtype of the palette among those allowed, or any of them."""
        return self.builder.choose_dtype(allowed)

    def first(self, choice: catalogue.OpChoice) -> Tensor | None:
        """Return an existing tensor as first input of an operator, preferably one without a reader; `None` if
        all are unfit.
        """
        fitting = [
            tensor
            for (dtype, rank), pool in self.pools.items()
            if dtype in choice.dtypes and choice.low <= rank <= choice.high
            for tensor in pool
        ]
        loose = [tensor for tensor in fitting if not tensor.reads]
        pool = loose if loose and self.rng.random() < _UNREAD else fitting
        return self.rng.choice(pool) if pool else None

    def _open_free_sizes(self, shape: Sizes) -> Sizes:
        """Return a shape with open sizes in place of FREE."""
        return tuple(side if _is_given(side) else self.side() for side in shape)

    def _require_domain(self, tensor: Tensor, domain: Domain) -> Tensor:
        """Record the domain that is required of a tensor."""
        if domain is not ANY:
            self.asked[tensor.name] = domain
        return tensor

    # Taking and refusing

    def begin_instance(self, fresh: bool) -> int:
        """Prepare for a new instance; return the mark for `refuse`."""
        self.fresh = fresh
        self.relations, self.asked, self.made = [], {}, []
        return self.constraints.count_numbers()

    def refuse_instance(self, mark: int) -> None:
        """Forget the instance."""
        self.constraints.forget_after(mark)
        # Some cached answers may belong to the refused model.
        self._small.clear()

    def enter(self, tensor: Tensor) -> None:
        """Make a tensor known to later instances."""
        self.pools.setdefault((tensor.dtype, tensor.rank), []).append(tensor)

    def infer_outputs(self, op: declaration.Operator, made: Instance) -> list[Any]:
        """Return the outputs of an instance as tensors without names, each required to fit the budget; None
        for one left out.
        """
        outs = list(op.infer(made.inputs, made.attributes)[: made.outputs])  # type: ignore[arg-type]
        for typed in outs:
            if typed is not None and typed[0] in LARGEST and str not in map(type, typed[1]):
                self.small(typed[1])
        return outs

    def name_output(self, typed: Any) -> Tensor:
        """Return a named tensor of a type that a node returns."""
        self._count += 1
        return Tensor(f"o{self._count}", typed[0], typed[1]) if typed is not None else Tensor("", "", ())


def _is_given(side: Size) -> bool:
    """Return whether a size is given, rather than FREE."""
    return not (isinstance(side, int) and side == FREE)
