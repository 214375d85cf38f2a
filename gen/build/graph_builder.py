"""A program while it grows: tensors that can be used, indexed by type, and the nodes so far.

Everything a sampler asks for is answered at once and always: an existing tensor of the wanted type when there is one, else a new
leaf (a graph input, an initializer, a Constant node). No choice is ever taken back, and no answer takes longer in a
large graph (Isra, section III: constraints are met by construction, "backtrack-free").
"""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opsieve.gen.build.adapters import adapt
from opsieve.gen.build.rng import Rng
from opsieve.gen.spec.declaration import ANY, OUTPUTS, Attributes, Bounds, Operator, Tensor, Typed
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.dtype_facts import LARGEST, LEAST, USUAL, is_float
from opsieve.gen.spec.schema import form
from opsieve.gen.spec.symbolic_arith import broadcast

Shape = tuple[int, ...]
Named = tuple[int | str, ...]  # a shape with names of sizes in it
Supports = Callable[[Operator, Sequence[Tensor | None], Attributes, int], bool]
FREE = -1  # a size that a sampler leaves open
_RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5)
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """What a program may cost: elements of one tensor and of all together, multiply-adds of all nodes."""

    tensor: int = 2048
    elements: int = 1 << 17
    work: int = 1 << 22


@dataclass(frozen=True, slots=True)
class Style:
    """How programs of a strategy look.

    `pick` is the rate at which a first input is an existing tensor (Isra's picking rate), `ranged` whether intervals of
    values are respected (else a value search has to find inputs), `glue` how often a Cast or Reshape makes an existing tensor fit
    where none does. `palette` are the dtypes of leaves, more likely ones more often; those that an operator cannot take are passed over.
    """

    pick: float = 0.95
    ranged: bool = True
    glue: float = 0.3
    palette: tuple[str, ...] = ("float32",)


class Node:
    """One node: an operator's name and domain, inputs (None where left out), outputs, attributes."""

    __slots__ = ("attrs", "domain", "ins", "name", "op", "outs")

    def __init__(
        self, op: str, domain: str, ins: Sequence[Tensor | None], outs: Sequence[Tensor], attrs: Attributes, name: str
    ) -> None:
        self.op = op
        self.domain = domain
        self.ins = ins
        self.outs = outs
        self.attrs = attrs
        self.name = name


@dataclass(frozen=True, slots=True)
class BodyGraph:
    """A graph as an attribute: the inputs it is called with, its nodes, what it gives."""

    inputs: Sequence[Tensor]
    nodes: Sequence[Node]
    outputs: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class OpChoice:
    """An operator as one opset has it, prepared for drawing: the dtypes and ranks that its first input may have."""

    op: Operator
    dtypes: frozenset[str]
    leaves: tuple[str, ...]  # the same dtypes in order
    low: int
    high: int
    safe: Domain


class GraphBuilder:
    """The growing program. `nodes` are in order of evaluation; `leaves` are inputs, initializers and constants."""

    def __init__(self, rng: Rng, opset: int, style: Style, budget: Budget, outer: "GraphBuilder | None" = None) -> None:
        self.rng = rng
        self.opset = opset
        self.style = style
        self.budget = budget
        self.outer = outer
        self._root: GraphBuilder | None = (
            outer.root if outer else None
        )  # None for itself: no cycle, so it is freed at once
        self.nodes: list[Node] = []
        self.leaves: list[Tensor] = []
        self.loose: list[Tensor] = []  # read by no node yet; some have been since they were entered
        self.pools: defaultdict[tuple[str, int], list[Tensor]] = defaultdict(list)
        self.shapes: defaultdict[tuple[str, Shape], list[Tensor]] = defaultdict(list)
        self.numbers: dict[tuple[str, Shape, tuple[float, ...]], Tensor] = {}
        self.supports: Supports | None = None  # asked of the root: whether the compilers under test have this instance
        self.only: frozenset[str] | None = None  # of the root: the operators that are wished for, None for all
        self.choices: tuple[OpChoice, ...] = ()  # of the root: what bodies are grown from
        self.count = 0
        self.inner = 0  # of the root: nodes inside bodies
        self.exposed: list[Tensor] = []  # of the root: tensors that are to be outputs although they are read
        self.elements = 0
        self.work = 0
        self._held: list[Tensor] | None = None  # leaves of instances that may not be taken

    @property
    def root(self) -> "GraphBuilder":
        """The builder of the program, when this is one of a body."""
        return self._root or self

    # Leaves

    def leaf(
        self,
        dtype: str,
        shape: Shape,
        domain: Domain = ANY,
        kinds: tuple[str, ...] = ("input", "initializer", "constant"),
    ) -> Tensor:
        """A new graph input, initializer or Constant node, whose elements lie in the domain."""
        if dtype not in LARGEST:
            return self.container(dtype, shape)
        low, high = USUAL[dtype] if domain is ANY else leaf_range(dtype, domain)
        root = self._root or self
        root.count = count = root.count + 1
        tensor = Tensor(f"x{count}", dtype, shape, low, high, None, self.rng.choice(kinds))
        root.leaves.append(tensor)
        if not root.inputs_begun:
            tensor.leaf = "input"  # a program without inputs would be folded away whole
            root.inputs_begun = True
        root.elements += math.prod(shape)
        if self._held is None:
            self.enter(tensor)
        else:
            self._held.append(tensor)
        return tensor

    inputs_begun = False

    def container(self, dtype: str, shape: Shape) -> Tensor:
        """A new `sequence(...)` or `optional(...)` of elements of this shape, made by a node."""
        kind, _, element = dtype[:-1].partition("(")
        held = self.match(element, shape)
        op = "SequenceConstruct" if kind == "sequence" else "Optional"
        return self.emit(op, "", [held], {}, [(dtype, shape)], (held.low, held.high))[0]

    def emit_as(self, op: str, ins: Sequence[Tensor], attrs: Attributes, made: Tensor) -> None:
        """Add a node whose output is a tensor that only the caller goes on with."""
        for tensor in ins:
            tensor.reads += 1
        self.nodes.append(Node(op, "", ins, [made], attrs, self.root.named("n")))

    def weight(self, dtype: str, shape: Shape, domain: Domain = ANY) -> Tensor:
        """A new leaf where models have parameters: an initializer more often than not."""
        return self.leaf(dtype, shape, domain, ("initializer", "initializer", "initializer", "constant", "input"))

    def ints(self, values: Sequence[float], dtype: str = "int64", shape: Shape | None = None) -> Tensor:
        """A leaf with exactly these elements, known to rules as `values`; a vector unless a shape is given. Often a shared one."""
        root = self._root or self
        elements = tuple(values)
        key = (dtype, (len(elements),) if shape is None else shape, elements)
        known = root.numbers.get(key)
        if known is not None and self.rng.random() < 0.5:  # else the program has identical constants
            return known
        kind = "constant" if self.rng.random() < 0.25 else "initializer"
        low, high = (min(elements), max(elements)) if elements else (0.0, 0.0)
        root.count = count = root.count + 1
        tensor = Tensor(f"c{count}", dtype, key[1], low, high, elements, kind)
        root.numbers[key] = tensor
        root.leaves.append(tensor)
        return tensor

    def named(self, kind: str) -> str:
        """A new name."""
        self.count += 1
        return f"{kind}{self.count}"

    def enter(self, tensor: Tensor) -> None:
        """Make a tensor known, so that later nodes can use it."""
        dtype, shape = tensor.dtype, tensor.shape
        self.pools[dtype, len(shape)].append(tensor)
        self.shapes[dtype, shape].append(tensor)
        self.loose.append(tensor)

    def takes(self, name: str, variable: str) -> frozenset[str]:
        """The dtypes that a type variable of an operator of ONNX's own stands for at this program's opset."""
        had = form(name, self.opset)
        return had.types[variable] if had is not None else frozenset()

    def hold(self) -> None:
        """From now on leaves are for instances that may not be taken: others are not to come upon them."""
        self._held = []

    def settle(self) -> int:
        """Make the leaves since `hold` known that nodes have come to read, and forget the others; how many elements these have."""
        forgotten = 0
        for leaf in self._held or ():
            if leaf.reads:
                self.enter(leaf)
            else:
                forgotten += math.prod(leaf.shape)
        self._held = None
        return forgotten

    # Finding tensors

    def first(self, choice: OpChoice) -> Tensor:
        """A first input for an operator: an existing tensor at the picking rate, glued to fit if need be, else a leaf."""
        if self.rng.random() < self.style.pick:
            found = self.pick(choice.dtypes, choice.low, choice.high, choice.safe)
            if found is not None:
                return found
            if self.rng.random() < self.style.glue:
                found = adapt(self, choice)
                if found is not None:
                    return found
        return self.leaf(
            self.leaf_dtype(choice),
            self.shape(choice.low, choice.high),
            choice.safe,
            ("input", "input", "input", "initializer"),
        )

    def pick(self, dtypes: frozenset[str], low: int, high: int, safe: Domain = ANY) -> Tensor | None:
        """An existing tensor of one of the dtypes and `low` to `high` dimensions, inside a domain; None when none is met.

        One that nobody reads yet is preferred: graphs hang together so.
        """
        random, loose, ranged = self.rng.random, self.loose, self.style.ranged and safe is not ANY
        tries = _TRIES
        while loose and tries:
            tries -= 1
            place = int(random() * len(loose))
            tensor = loose[place]
            if tensor.reads:
                loose[place] = loose[-1]
                loose.pop()
                tries += 1
            elif (
                tensor.dtype in dtypes and low <= len(tensor.shape) <= high and not (ranged and not tensor.within(safe))
            ):
                return tensor
        pools = [pool for (dtype, rank), pool in self.pools.items() if pool and dtype in dtypes and low <= rank <= high]
        if not pools:
            return self.outer.pick(dtypes, low, high, safe) if self.outer else None
        for _ in range(_TRIES):
            pool = pools[int(random() * len(pools))]
            tensor = pool[int(random() * len(pool))]
            if not ranged or tensor.within(safe):
                return tensor
        return None

    def leaf_dtype(self, choice: OpChoice) -> str:
        """A dtype of the palette that the operator takes; any that it takes when there is none, or now and then."""
        if self.rng.random() < 0.9:
            dtype = self.rng.choice(self.style.palette)
            if dtype in choice.dtypes:
                return dtype
            for dtype in self.style.palette:
                if dtype in choice.dtypes:
                    return dtype
        return self.rng.choice(choice.leaves)

    def liked(self, allowed: frozenset[str]) -> str:
        """A dtype of the palette among those allowed; any of them when there is none, or now and then."""
        liked = [dtype for dtype in self.style.palette if dtype in allowed]
        return self.rng.choice(liked if liked and self.rng.random() < 0.9 else sorted(allowed & LARGEST.keys()))

    def match(self, dtype: str, shape: Shape, domain: Domain = ANY) -> Tensor:
        """A tensor of this dtype and shape inside the domain; where a size is FREE anything goes. Existing or new."""
        found = self.matching(dtype, shape, domain) if self.rng.random() < self.style.pick else None
        if found is not None:
            return found
        sides = tuple(self.side() if side == FREE else side for side in shape)
        return self.weight(dtype, sides, domain)

    def matching(self, dtype: str, shape: Shape, domain: Domain = ANY) -> Tensor | None:
        """An existing tensor of this dtype and shape (FREE sizes fit anything) inside the domain; None when none is met."""
        ranged = self.style.ranged and domain is not ANY
        free = FREE in shape
        pool = self.pools.get((dtype, len(shape))) if free else self.shapes.get((dtype, shape))
        if not pool:
            return self.outer.matching(dtype, shape, domain) if self.outer else None
        for _ in range(_TRIES):
            tensor = pool[int(self.rng.random() * len(pool))]
            if ranged and not tensor.within(domain):
                continue
            if not free or all(a in (FREE, b) for a, b in zip(shape, tensor.shape, strict=True)):
                return tensor
        return None

    def partner(self, x: Tensor, domain: Domain = ANY, dtype: str = "", oneway: bool = False) -> Tensor:
        """A tensor that broadcasts with `x` (to the very shape of `x` if `oneway`), of its dtype or the one given. Existing or new."""
        random, shape = self.rng.random, x.shape
        dtype = dtype or x.dtype
        if random() < self.style.pick:
            if random() < 0.6:
                same = self.matching(dtype, shape, domain)
                if same is not None and (same is not x or random() < 0.2):
                    return same
            for _ in range(_TRIES):
                rank = int(random() * (len(shape) + 1 if oneway else 5))
                pool = self.pools.get((dtype, rank))
                if not pool:
                    continue
                other = pool[int(random() * len(pool))]
                if (not self.style.ranged or other.within(domain)) and self.fits(shape, other.shape, oneway):
                    return other
        kept = shape[int(random() * (len(shape) + 1)) :] if random() < 0.6 else shape
        if kept and random() < 0.4:
            kept = tuple(1 if random() < 0.4 else side for side in kept)
        return self.weight(dtype, kept, domain)

    def fits(self, shape: Shape, other: Shape, oneway: bool) -> bool:
        """Whether two shapes broadcast to something that is not too large; to the first of them if `oneway`."""
        for p, q in zip(reversed(shape), reversed(other), strict=False):
            if p != q and q != 1 and (oneway or p != 1):
                return False
        if oneway:
            return len(other) <= len(shape)
        return math.prod(broadcast(shape, other)) <= self.budget.tensor

    def has(self, op: str, ins: Sequence[Tensor | None], attrs: Attributes) -> bool:
        """Whether the compilers under test have an operator of ONNX's own that is added without its declaration."""
        supports = self.root.supports
        if supports is None:
            return True
        return supports(_named(op), ins, attrs, self.opset)

    # Sizes

    def side(self) -> int:
        """A size of a dimension."""
        return self.rng.binned(1, 9)

    def shape(self, low: int = 0, high: int = 5) -> Shape:
        """A shape of `low` to `high` dimensions that fits the budget; often one that exists already."""
        rng = self.rng
        if self.shapes and rng.random() < 0.4:
            pool = rng.choice(list(self.pools.values()))
            if pool:
                shape = rng.choice(pool).shape
                if low <= len(shape) <= high:
                    return shape
        rank = rng.choice(_RANKS)
        rank = low if rank < low else high if rank > high else rank
        sides: list[int] = []
        room = self.budget.tensor // 4
        for _ in range(rank):
            side = rng.binned(1, 12 if rank < 4 else 8)
            side = min(side, max(room, 1))
            room //= side
            sides.append(side)
        return tuple(sides)

    # Nodes

    def emit(
        self,
        op: str,
        domain: str,
        ins: Sequence[Tensor | None],
        attrs: Attributes,
        types: Sequence[Typed | None],
        bounds: Bounds | Sequence[Bounds],
    ) -> list[Tensor]:
        """Add a node with outputs of these types, and give them. `bounds` are those of the first output or of each."""
        root = self._root or self
        count = root.count
        several = isinstance(bounds, list)
        outs: list[Tensor] = []
        for place, typed in enumerate(types):
            if typed is None:
                outs.append(Tensor("", "", ()))
                continue
            count += 1
            dtype, shape = typed
            low, high = bounds[place] if several else bounds  # type: ignore[misc]
            made = Tensor(f"v{count}", dtype, shape, low, high)  # type: ignore[arg-type]
            outs.append(made)
            # Of an unknown size nothing can be built, and an empty sequence has no element to be read.
            if str not in map(type, shape) and op != "SequenceEmpty":
                self.enter(made)
                root.elements += math.prod(shape)
        for tensor in ins:
            if tensor is not None:
                tensor.reads += 1
        root.count = count = count + 1
        self.nodes.append(Node(op, domain, ins, outs, attrs, f"n{count}"))
        if root is not self:
            root.inner += 1
        return outs

    def add(
        self,
        op: Operator,
        ins: Sequence[Tensor | None],
        attrs: Attributes,
        types: Sequence[Typed | None] | None = None,
    ) -> list[Tensor] | None:
        """Add a node by its declaration; None, and nothing done, when its result would be empty, too large, or out of its type's range.

        `types` are those of all outputs where they are known; the declaration is not asked for them then.
        """
        root, budget = self._root or self, self.budget
        if root.supports is not None and not root.supports(op, ins, attrs, self.opset):
            return None
        wanted = attrs.pop(OUTPUTS, None)
        if types is None:
            types = op.infer(ins, attrs)  # type: ignore[arg-type]
        if wanted is not None:
            types = types[:wanted]
        work = 0
        for typed in types:
            if typed is not None:
                shape = typed[1]
                size = math.prod([side for side in shape if type(side) is int] if str in map(type, shape) else shape)
                if not 0 < size <= budget.tensor:  # compilers differ over what is empty, and few models have it
                    return None
                work += size
        if op.cost is not None:
            work = op.cost(ins, attrs, types)  # type: ignore[arg-type]
        if root.work + work > budget.work or root.elements > budget.elements:
            return None
        bounds: Bounds | list[Bounds] = (-math.inf, math.inf)
        if self.style.ranged:
            bounds = op.bounds(ins, attrs)  # type: ignore[arg-type]
            for (low, high), typed in zip(bounds if isinstance(bounds, list) else (bounds,), types, strict=False):
                if (
                    typed is not None
                    and typed[0] in LARGEST
                    and not (LEAST[typed[0]] <= low and high <= LARGEST[typed[0]])
                ):
                    return None
        root.work += work
        return self.emit(op.name, op.domain, ins, attrs, types, bounds)

    def grow(self, choice: OpChoice) -> list[Tensor] | None:
        """Draw an instance of an operator and add it; None when this draw did not fit (rare, and cheap)."""
        root = self._root or self
        inner = root.inner
        made = choice.op.sample(self, self.first(choice))
        added = None if made is None else self.add(choice.op, *made)
        if added is None:
            root.inner = inner  # bodies that nobody has do not count
        return added

    def child(self) -> "GraphBuilder":
        """A builder for a body: it may use what is known here, and its nodes are its own."""
        return GraphBuilder(self.rng, self.opset, self.style, self.budget, self)


@functools.cache
def _named(op: str) -> Operator:
    """An operator that is added without its declaration: what is asked whether the compilers have it."""
    return Operator(op, lambda _builder, _x: None)


def leaf_range(dtype: str, domain: Domain) -> Bounds:
    """Where the elements of a new leaf are drawn from: the usual window of the dtype, slid into the domain as little as need be."""
    low, high = USUAL.get(dtype, (0.0, 0.0))
    least, largest = max(domain.low, LEAST.get(dtype, low)), min(domain.high, LARGEST.get(dtype, high))
    if domain.nonzero and low <= 0 <= high:
        low, high = 0.5 if is_float(dtype) else 1.0, max(high, 2.0)
        least = max(least, min(low, largest))
    width = high - low
    low = max(min(low, largest - width), least)
    return low, min(low + width, largest)
