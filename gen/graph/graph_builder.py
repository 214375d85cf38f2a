"""A program under construction: it answers samplers and turns their instances into nodes.

Every request of a sampler succeeds at once: an existing tensor of the type if there is one, else a new leaf
(a graph input, an initializer, a Constant node). Choices are never taken back, and an answer takes the same
time in a large graph (Isra, section III: constraints hold by construction, "backtrack-free").
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Final

from opsieve.gen.declarations.builder import FREE
from opsieve.gen.declarations.catalogue import OpChoice, form
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.instance import Instance
from opsieve.gen.declarations.symbolic_arith import broadcast
from opsieve.gen.declarations.tensor import (
    ANY,
    LARGEST,
    LEAST,
    USUAL,
    Attributes,
    Bounds,
    Domain,
    Number,
    Tensor,
    Typed,
    leaf_range,
)
from opsieve.gen.graph.adapters import (
    COMPARED,
    adapt_first,
    adapt_to,
    add_extreme,
    choose_nearest,
    choose_nearest_to,
    count_steps_first,
    count_steps_to,
)
from opsieve.gen.graph.graph import BodyGraph, Node, Shape, count_elements, is_closed
from opsieve.gen.graph.parameters import compute_numbers
from opsieve.gen.graph.scope import NUMERIC, ProgramState, TensorScope, is_numeric_result

_TRIES: Final = 3
# The longest side of a new shape, and of one with four dimensions or more.
_LONGEST, _LONGEST_OF_MANY = 12, 8
_HUB: Final = (
    # The number of adapting nodes that cancels one reader in the choice of a hub.
    4
)
# The nodes that join two pieces: two that adapt, one that reads both.
_JOINING: Final = 3
_HOLDING: Final = ("sequence({})", "optional({})")
_BY_READS: Final = operator.attrgetter("reads")
# The longest side that no other size depends on.
_LONGEST_FREE: Final = 9


@functools.lru_cache(maxsize=1 << 14)
def _is_compatible(shape: Shape, other: Shape, oneway: bool, limit: int) -> bool:
    """Return whether two shapes broadcast to at most `limit` elements; to the first shape itself if
    `oneway`.
    """
    for p, q in zip(reversed(shape), reversed(other), strict=False):
        if p != q and q != 1 and (oneway or p != 1):
            return False
    return len(other) <= len(shape) if oneway else math.prod(broadcast(shape, other)) <= limit


class GraphBuilder:
    """The graph or a body of a program under construction: a `Builder` whose sizes are numbers.

    `program` is shared by all graphs of a program, `scope` holds the tensors that nodes of this graph may
    read, `nodes` are in order of evaluation.
    """

    def __init__(self, program: ProgramState, outer: TensorScope | None = None) -> None:
        self.program = program
        self.rng = program.rng
        self.opset = program.opset
        self.style = program.style
        self.budget = program.budget
        self.scope = TensorScope(program.rng, program.style.ranged, outer)
        self.nodes: list[Node] = []
        # The first input of the current draw.
        self._first: Tensor | None = None
        # Results of other pieces, one of which the draw should read, too.
        self._guests: list[Tensor] = []
        # The comparison of which an instance is being drawn, or "".
        self._comparison = ""

    def start_body(self) -> "GraphBuilder":
        """Return a builder for a body: it reads the tensors known here and has its own nodes."""
        made = GraphBuilder(self.program, self.scope)
        made.style = self.style
        return made

    @property
    def size(self) -> int:
        """The number of nodes of the program: those in bodies, and those still needed to join its pieces,
        count.
        """
        program = self.program
        return len(self.nodes) + program.inner + _JOINING * max(0, program.pieces.count - 1)

    # Leaves

    def leaf(
        self,
        dtype: str,
        shape: Shape,
        domain: Domain = ANY,
        kinds: tuple[str, ...] = ("input", "initializer", "constant"),
    ) -> Tensor:
        """Add a graph input, initializer or Constant node whose elements lie in the domain."""
        if dtype not in LARGEST:
            return self.container(dtype, shape)
        low, high = USUAL[dtype] if domain is ANY else leaf_range(dtype, domain)
        program = self.program
        program.count = count = program.count + 1
        tensor = Tensor(f"x{count}", dtype, shape, low, high, None, self.rng.choice(kinds))
        program.leaves.append(tensor)
        if not program.has_input:
            # A compiler would fold a program without inputs into a constant.
            tensor.leaf = "input"
            program.has_input = True
        program.elements += math.prod(shape)
        self.scope.add_tensor(tensor)
        return tensor

    def container(self, dtype: str, shape: Shape, held: Tensor | None = None) -> Tensor:
        """Add a node that makes a `sequence(...)` or `optional(...)` of a tensor, or of any tensor with this
        shape.
        """
        kind, _, element = dtype[:-1].partition("(")
        held = held or self.match(element, shape)
        op = "SequenceConstruct" if kind == "sequence" else "Optional"
        return self.emit(op, "", [held], {}, [(dtype, shape)], (held.low, held.high))[0]

    def weight(self, dtype: str, shape: Shape, domain: Domain = ANY) -> Tensor:
        """Add a leaf where models have parameters: mostly an initializer."""
        return self.leaf(
            dtype, shape, domain, ("initializer", "initializer", "initializer", "constant", "input")
        )

    def ints(self, values: Sequence[Number], dtype: str = "int64", shape: Shape | None = None) -> Tensor:
        """Return a tensor with exactly these elements, known to rules as `values`: a constant, or one that
        nodes compute; a vector unless a shape is given.
        """
        elements = tuple(values)
        sides = (len(elements),) if shape is None else shape
        if self.rng.random() < self.style.computed:
            found = compute_numbers(self, elements, dtype, sides)
            if found is not None:
                return found
        return self.constant(elements, dtype, sides)

    def constant(self, values: Sequence[Number], dtype: str = "int64", shape: Shape | None = None) -> Tensor:
        """Return a leaf with exactly these elements, often a shared one; a vector unless a shape is given."""
        program, elements = self.program, tuple(values)
        key = (dtype, (len(elements),) if shape is None else shape, elements)
        known = program.numbers.get(key)
        # Otherwise the program gets identical constants, which compilers merge.
        if known is not None and self.rng.random() < self.style.shared:
            return known
        kind = "constant" if self.rng.random() < self.style.folded else "initializer"
        low, high = (min(elements), max(elements)) if elements and dtype != "string" else (0.0, 0.0)
        tensor = Tensor(program.make_name("c"), dtype, key[1], low, high, elements, kind)
        program.numbers[key] = tensor
        program.leaves.append(tensor)
        return tensor

    # Finding tensors

    def first(self, choice: OpChoice, guests: Sequence[Tensor] = (), near: Tensor | None = None) -> Tensor:
        """Return a first input for an operator: at the picking rate an existing tensor, adapted if necessary,
        else a leaf.

        The node will also read one of the `guests`. `near` is adapted instead of the nearest recent result.
        """
        found = self._find_existing(choice, near) if self.rng.random() < self.style.pick else None
        self._first, self._guests = found, [*guests]
        if found is not None:
            if not guests and self.rng.random() < self.style.meet:
                self._guests = self.find_strangers(found)
            if self._guests and choice.op.pairs:
                self._first = found = self._match_guest(found, choice)
            return found
        around = self._find_container(choice)
        if around is not None:
            return around
        return self.leaf(
            self.leaf_dtype(choice),
            self.shape(choice.low, choice.high),
            choice.safe,
            ("input", "input", "input", "initializer"),
        )

    def _find_container(self, choice: OpChoice) -> Tensor | None:
        """Return the sequence or optional that the most nodes lead to, for an operator that takes one; else
        None.
        """
        if choice.leaves[0] in LARGEST or self.rng.random() >= self.style.chain:
            return None
        last = self.scope.find_deepest()
        held = [dtype for dtype in _HOLDING if last is not None and dtype.format(last.dtype) in choice.dtypes]
        if last is None or not held:
            return None
        return self.container(self.rng.choice(held).format(last.dtype), last.shape, last)

    def _match_guest(self, x: Tensor, choice: OpChoice) -> Tensor:
        """Adapt the first input to the type of a guest, so that they broadcast and the longer chain grows;
        unchanged if that fails.
        """
        ranged = self.style.ranged
        fit = [guest for guest in self._guests if count_steps_first(guest, choice, False) == 0]
        if not fit:
            return x
        guest = min(fit, key=lambda other: count_steps_to(x, other.dtype, other.shape, choice.safe, ranged))
        if (
            count_steps_to(x, guest.dtype, guest.shape, choice.safe, ranged) > 1
            and self.rng.random() < self.style.frugal
        ):
            return x
        found = adapt_to(self, x, guest.dtype, guest.shape, choice.safe)
        if found is None:
            return x
        self._guests = [guest]
        return found

    def _find_existing(self, choice: OpChoice, near: Tensor | None) -> Tensor | None:
        """Return the result that the most nodes lead to, or another tensor; None if the operator takes none
        and none can be adapted.
        """
        random, scope, ranged = self.rng.random, self.scope, self.style.ranged
        if scope.recent and random() < self.style.chain:
            if random() < self.style.hub:
                near = choose_nearest(scope.recent, choice, ranged, _HUB)
            elif near is None:
                near = choose_nearest(scope.recent, choice, ranged, 0)
            found = adapt_first(self, near, choice)
            if found is not None:
                return found
        found = scope.pick(choice.dtypes, choice.low, choice.high, choice.safe, random() < self.style.unread)
        if found is None and scope.loose and random() < self.style.adapt:
            other = self.rng.choice(scope.loose)
            found = adapt_first(self, other, choice) if is_numeric_result(other) else None
        return found

    def find_strangers(self, first: Tensor) -> list[Tensor]:
        """Return some unread results of pieces that `first` does not depend on."""
        pieces, loose = self.program.pieces, self.scope.loose
        if pieces.count < 2 or first.leaf or not loose:
            return []
        home = pieces.find_root(first.name)
        random, count, apart = self.rng.random, len(loose), pieces.is_apart
        drawn = [loose[int(random() * count)] for _ in range(2 * _TRIES)]
        return [each for each in drawn if not each.leaf and each.dtype in NUMERIC and apart(each.name, home)]

    def _adapt_result(self, dtype: str, shape: Shape, domain: Domain) -> Tensor | None:
        """Adapt a result to a further input, preferably one of another piece; None if that fails or is not
        drawn.
        """
        if dtype not in LARGEST or dtype == "string":
            return None
        guests, self._guests = self._guests, []
        if not guests:
            if self.rng.random() >= self.style.fit:
                return None
            loose = self.scope.recent if self.rng.random() < self.style.diamond else self.scope.loose
            drawn = [loose[int(self.rng.random() * len(loose))] for _ in range(_TRIES if loose else 0)]
            guests = [other for other in drawn if is_numeric_result(other) and other is not self._first]
        if not guests:
            return None
        near, steps = choose_nearest_to(guests, dtype, shape, domain, self.style.ranged)
        if steps > 1 and self.rng.random() < self.style.frugal:
            return None
        return adapt_to(self, near, dtype, shape, domain)

    def pick(self, dtypes: frozenset[str], low: int, high: int, safe: Domain = ANY) -> Tensor | None:
        """Return an existing tensor of one of the dtypes, with `low` to `high` dimensions, inside a domain;
        None if the search finds none.
        """
        return self.scope.pick(dtypes, low, high, safe)

    def leaf_dtype(self, choice: OpChoice) -> str:
        """Return a dtype of the palette that the operator takes; at times, or without one, any dtype it
        takes.
        """
        if self.rng.random() < self.style.loyal:
            dtype = self.rng.choice(self.style.palette)
            if dtype in choice.dtypes:
                return dtype
            for dtype in self.style.palette:
                if dtype in choice.dtypes:
                    return dtype
        return self.rng.choice(choice.leaves)

    def choose_dtype(self, allowed: frozenset[str]) -> str:
        """Return an allowed dtype of the palette; at times, or without one, any allowed dtype."""
        liked = [dtype for dtype in self.style.palette if dtype in allowed]
        loyal = liked and self.rng.random() < self.style.loyal
        return self.rng.choice(liked if loyal else sorted(allowed.intersection(LARGEST)))

    def match(self, dtype: str, shape: Shape, domain: Domain = ANY) -> Tensor:
        """Return a tensor of this dtype and shape (FREE fits any size) inside the domain, existing or new."""
        if self.rng.random() < self.style.pick:
            found = self._adapt_result(dtype, shape, domain) if self._guests else None
            found = (
                found or self.scope.match(dtype, shape, domain) or self._adapt_result(dtype, shape, domain)
            )
            if found is not None:
                return found
        sides = tuple(self.side() if side == FREE else side for side in shape)
        return self.weight(dtype, sides, domain)

    def partner(self, x: Tensor, domain: Domain = ANY, dtype: str = "", oneway: bool = False) -> Tensor:
        """Return a tensor that broadcasts with `x` (to the shape of `x` if `oneway`), of its dtype or the
        given one, existing or new.
        """
        random, style, shape = self.rng.random, self.style, x.shape
        dtype = dtype or x.dtype
        if random() < style.pick:
            if self._guests and (met := self._adapt_result(dtype, shape, domain)) is not None:
                return met
            if self._comparison and random() < style.divided:
                end = add_extreme(self, self._comparison, x)
                if end is not None:
                    return end
            if random() < style.diamond:
                fit = [
                    other
                    for other in self.scope.recent
                    if other.dtype == dtype
                    and other is not x
                    and (not style.ranged or other.within(domain))
                    and self.fits(shape, other.shape, oneway)
                ]
                if fit:
                    return (
                        max(fit, key=_BY_READS) if random() < style.crowd else fit[int(random() * len(fit))]
                    )
            if random() < style.same_shape:
                same = self.scope.match(dtype, shape, domain)
                if same is not None and (same is not x or random() < style.itself):
                    return same
            # Reusing a tensor that fits connects the program; a new one is made only if no draw fits.
            for _ in range(_TRIES):
                pool = self.scope.list_of_rank(dtype, int(random() * (len(shape) + 1 if oneway else 5)))
                if not pool:
                    continue
                other = pool[int(random() * len(pool))]
                if (not style.ranged or other.within(domain)) and self.fits(shape, other.shape, oneway):
                    return other
            # The whole shape, or its last axes.
            first = int(random() * (len(shape) + 1)) if random() < style.suffix / 2 else 0
            met = self._adapt_result(dtype, shape[first:], domain)
            if met is not None:
                return met
        kept = shape[int(random() * (len(shape) + 1)) :] if random() < style.suffix else shape
        if kept and random() < style.stretched:
            kept = tuple(1 if random() < style.ones else side for side in kept)
        return self.weight(dtype, kept, domain)

    def fits(self, shape: Shape, other: Shape, oneway: bool) -> bool:
        """Return whether two shapes broadcast to a shape within the budget; to the first shape itself if
        `oneway`.
        """
        return _is_compatible(shape, other, oneway, self.budget.tensor)

    def takes(self, name: str, variable: str) -> frozenset[str]:
        """Return the dtypes of a type variable of an ONNX operator at this program's opset."""
        had = form(name, self.opset)
        return had.types[variable] if had is not None else frozenset()

    def has(self, op: str, ins: Sequence[Tensor | None], attrs: Attributes) -> bool:
        """Return whether the compilers under test support an ONNX operator that is added without its
        declaration.
        """
        supports = self.program.supports
        return supports is None or supports(_get_declared(op), ins, attrs, self.opset)

    # Sizes

    def side(self) -> int:
        """Draw a size of a dimension."""
        return self.rng.draw_binned(1, _LONGEST_FREE)

    def shape(self, low: int = 0, high: int = 5) -> Shape:
        """Draw a shape of `low` to `high` dimensions within the budget; often one that exists already."""
        rng, pools = self.rng, self.scope.pools
        if pools and rng.random() < self.style.known_shape:
            pool = rng.choice(list(pools.values()))
            if pool:
                shape = rng.choice(pool).shape
                if low <= len(shape) <= high:
                    return shape
        rank = rng.choice(self.style.ranks)
        rank = low if rank < low else high if rank > high else rank
        sides: list[int] = []
        room = self.budget.tensor // 4
        for _ in range(rank):
            side = rng.draw_binned(1, _LONGEST if rank < 4 else _LONGEST_OF_MANY)
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
        """Add a node with outputs of these types and return them. `bounds` are those of the first output or
        of each.
        """
        program, enter = self.program, self.scope.add_tensor
        several = isinstance(bounds, list)
        outs: list[Tensor] = []
        joined, depth = _count_reads(ins)
        for place, typed in enumerate(types):
            if typed is None:
                outs.append(Tensor("", "", ()))
                continue
            dtype, shape = typed
            # mypy cannot derive the type of `bounds` from `several`.
            low, high = bounds[place] if several else bounds  # type: ignore[misc]
            # Nor that a pair has two numbers
            made = Tensor(program.make_name("v"), dtype, shape, low, high)  # type: ignore[arg-type]
            made.depth = depth
            outs.append(made)
            joined.append(made.name)
            # Samplers need known sizes and at least one element.
            if 0 not in shape and is_closed(shape) and op != "SequenceEmpty":
                enter(made)
                program.elements += count_elements(shape)
        self._append_node(Node(op, domain, ins, outs, attrs, program.make_name("n")), joined)
        return outs

    def emit_as(self, op: str, ins: Sequence[Tensor], attrs: Attributes, made: Tensor) -> None:
        """Add a node whose output is a tensor that only the caller uses."""
        joined, made.depth = _count_reads(ins)
        self._append_node(Node(op, "", ins, [made], attrs, self.program.make_name("n")), [*joined, made.name])

    def _append_node(self, node: Node, joined: list[str]) -> None:
        """Append a node, and connect the results that it and its bodies read and make."""
        self.nodes.append(node)
        for value in node.attrs.values():
            if type(value) is BodyGraph:
                joined += [out.name for inner in value.nodes for out in inner.outs if out.name]
        self.program.pieces.connect(joined, self.scope.outer is None)
        if self.scope.outer is not None:
            self.program.inner += 1

    def undo(self, start: int) -> None:
        """Remove the nodes from index `start` on."""
        for node in reversed(self.nodes[start:]):
            for tensor in node.ins:
                if tensor is not None:
                    tensor.reads -= 1
            self.program.elements -= sum(
                [count_elements(out.shape) for out in node.outs if is_closed(out.shape)]
            )
            if self.scope.outer is not None:
                self.program.inner -= 1
            for tensor in node.outs:
                if tensor.name:
                    self.scope.remove_tensor(tensor)
        del self.nodes[start:]

    def prune(self, start: int, kept: Sequence[Tensor | None] = ()) -> None:
        """Remove the nodes from index `start` on that were added for an instance that does not read them."""
        if len(self.nodes) == start:
            return
        wanted = {id(tensor) for tensor in kept if tensor is not None}
        while len(self.nodes) > start and not any(
            tensor.reads or id(tensor) in wanted for tensor in self.nodes[-1].outs
        ):
            self.undo(len(self.nodes) - 1)

    def add(
        self,
        op: Operator,
        ins: Sequence[Tensor | None],
        attrs: Attributes,
        outputs: int | None = None,
    ) -> list[Tensor] | None:
        """Add a node by its declaration and return its outputs; None, without a change, if a result would be
        empty, too large or out of range.

        `outputs` is the number of outputs (None: all).
        """
        program, budget = self.program, self.budget
        if program.supports is not None and not program.supports(op, ins, attrs, self.opset):
            return None
        # The rules of operators with optional inputs check for None themselves.
        types = op.infer(ins, attrs)[:outputs]  # type: ignore[arg-type]
        work = 0
        for typed in types:
            if typed is not None:
                size = count_elements(typed[1])
                # Empty tensors are left out: compilers differ over them, and few models have them.
                if not 0 < size <= budget.tensor:
                    return None
                work += size
        if op.cost is not None:
            # An operator with a cost has its first output, so mypy's optional types do not occur.
            work = op.cost(ins, attrs, types)  # type: ignore[arg-type]
        if program.work + work > budget.work or program.elements > budget.elements:
            return None
        bounds: Bounds | list[Bounds] = (-math.inf, math.inf)
        if self.style.ranged:
            try:
                bounds = op.bounds(ins, attrs)  # type: ignore[arg-type]  # as above
            except (OverflowError, ValueError):
                # Tensors of a user's model may have infinite bounds.
                return None
            if not _is_in_range(bounds, types):
                return None
        program.work += work
        return self.emit(op.name, op.domain, ins, attrs, types, bounds)

    def instance(self, op: Operator, x: Tensor) -> Instance | None:
        """Draw an instance of an operator whose first input is given; None if the draw does not fit."""
        self._comparison = op.name if op.name in COMPARED else ""
        made = op.instance(self, x)
        self._comparison = ""
        return made

    def grow(
        self, choice: OpChoice, guests: Sequence[Tensor] = (), near: Tensor | None = None
    ) -> list[Tensor] | None:
        """Draw an instance of an operator and add it; None if the draw does not fit, which is rare and cheap.

        The instance reads one of the `guests` beside its first input if it can, and mostly a result that is
        `near`.
        """
        inner, start = self.program.inner, len(self.nodes)
        made = self.instance(choice.op, self.first(choice, guests, near))
        if made is not None:
            self.prune(start, made.inputs)
        added = None if made is None else self.add(choice.op, made.inputs, made.attributes, made.outputs)
        if added is None:
            self.prune(start)
            # Unused bodies do not count.
            self.program.inner = inner
        return added


def _count_reads(ins: Sequence[Tensor | None]) -> tuple[list[str], int]:
    """Count reads of tensors; return the names of those that are results, and the depth of their reader."""
    names: list[str] = []
    depth = 0
    for tensor in ins:
        if tensor is not None:
            tensor.reads += 1
            if not tensor.leaf and tensor.name:
                names.append(tensor.name)
                if tensor.depth > depth:
                    depth = tensor.depth
    return names, depth + 1


def _is_in_range(bounds: Bounds | list[Bounds], types: Sequence[Typed | None]) -> bool:
    """Return whether each output's dtype holds all numbers of its interval."""
    for (low, high), typed in zip(bounds if isinstance(bounds, list) else (bounds,), types, strict=False):
        if typed is None or typed[0] not in LARGEST:
            continue
        # A NaN compares false, so it is excluded.
        if not (LEAST[typed[0]] <= low and high <= LARGEST[typed[0]]):
            return False
    return True


@functools.cache
def _get_declared(op: str) -> Operator:
    """Return the declaration of an operator that is added without it, to look up whether compilers support
    it.
    """
    return Operator(op)
