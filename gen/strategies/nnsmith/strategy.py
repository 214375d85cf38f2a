"""Programs whose sizes and attributes a solver chooses (NNSmith, ASPLOS 2023, section 3.2).

Nodes are inserted forwards (they read existing tensors) and backwards (they take the place of a placeholder)
as often; each insertion is kept when numbers are found for which its relations hold together with those of
all others (Algorithm 1). Then sizes and attributes are spread over bins (Algorithm 2), and the program is
emitted once more with numbers through the core, which knows intervals of values: where an edge would carry
values that its reader can make no sense of (a logarithm of a negative number), they are clipped, and where
that cannot be the edge is cut and the reader gets a leaf of the same type. So programs need no search for
inputs. Long programs are solved in rounds, each on top of what is finished.
"""

from collections.abc import Sequence
from typing import Any

from opsieve.gen.case.case import Case
from opsieve.gen.declarations import catalogue, declaration, terms
from opsieve.gen.declarations.instance import Instance
from opsieve.gen.declarations.tensor import ANY, LARGEST, Domain, Number, Tensor
from opsieve.gen.generation.random_graph import (
    GenRequest,
    fill,
    finish,
    list_weighted_choices,
    start,
)
from opsieve.gen.graph.adapters import adapt_to
from opsieve.gen.strategies.nnsmith.symbolic_builder import Insertion, SymbolicBuilder

NAME = "nnsmith"
# The share of the missing nodes that is drafted: writing them adds nodes that clip and nodes that join.
_DRAFTED = 0.7
# The share of nodes that replace an input.
_BACKWARDS = 0.5
# The share of those that keep its dtype.
_OWN_DTYPE = 0.8
# Nodes that are solved together: the time grows faster than their number
_ROUND = 16


def nnsmith(request: GenRequest, seed: int) -> Case:
    """Make the program of a seed."""
    builder = start(request, seed, NAME)
    builder.program.choices = catalogue.choices(builder.opset, request.only, request.dtypes)
    open_ = [
        choice
        for choice in list_weighted_choices(builder.opset, request.only, request.dtypes, not request.opset)
        if not choice.op.domain and choice.op.symbolic
    ]
    while open_ and builder.size < request.nodes and builder.program.elements < request.budget.elements:
        before = len(builder.nodes)
        symbolic = SymbolicBuilder(builder)
        _insert_nodes(symbolic, open_, min(_ROUND, max(1, round(_DRAFTED * (request.nodes - builder.size)))))
        symbolic.constraints.spread_numbers(builder.rng)
        _Emission(symbolic, request.nodes).emit_all()
        if len(builder.nodes) == before:
            break
    # The nodes that the loops above could not place are built by construction.
    fill(builder, request)
    return finish(builder, request, NAME, seed)


def _insert_nodes(symbolic: SymbolicBuilder, open_: Sequence[catalogue.OpChoice], nodes: int) -> None:
    """Insert nodes until the requested number, or until too many insertions were refused."""
    rng, builder = symbolic.rng, symbolic.builder
    for tensor in builder.scope.loose:
        if not tensor.reads and tensor.dtype in LARGEST and tensor.name not in symbolic.finished:
            symbolic.enter(tensor)
            symbolic.finished[tensor.name] = tensor
    # Without a bound, a request that no insertion satisfies would never end.
    tries = 8 * nodes
    while len(symbolic.nodes) < nodes and tries:
        tries -= 1
        choice = open_[rng.below(len(open_))]
        inserted = (
            _insert_backwards(symbolic, choice)
            if rng.random() < _BACKWARDS and symbolic.placeholders
            else _insert_forwards(symbolic, choice)
        )
        if inserted is not None:
            symbolic.nodes.append(inserted)


def _insert_forwards(symbolic: SymbolicBuilder, choice: catalogue.OpChoice) -> Insertion | None:
    """Insert a node whose first input exists, or, for the first node, is a placeholder (Algorithm 1,
    ForwardInsert).
    """
    mark = symbolic.begin_instance(False)
    x = symbolic.first(choice)
    if x is None:
        dtype = symbolic.builder.leaf_dtype(choice)
        x = symbolic.placeholder(dtype, symbolic.shape(choice.low, choice.high), "input")
    made = _draw_instance(symbolic, choice.op, x)
    if made is None:
        symbolic.refuse_instance(mark)
        return None
    instance, outs = made
    if not symbolic.constraints.add_relations(symbolic.relations):
        symbolic.refuse_instance(mark)
        return None
    return _make_insertion(symbolic, choice.op, instance, [symbolic.name_output(typed) for typed in outs])


def _insert_backwards(symbolic: SymbolicBuilder, choice: catalogue.OpChoice) -> Insertion | None:
    """Insert a node on placeholders of its own; one of its outputs replaces a placeholder (Algorithm 1,
    BackwardInsert).
    """
    rng, target = symbolic.rng, symbolic.rng.choice(symbolic.placeholders)
    # Another rank may fit where the first one did not.
    for _ in range(3):
        mark = symbolic.begin_instance(True)
        dtype = (
            target.dtype
            if target.dtype in choice.dtypes and rng.random() < _OWN_DTYPE
            else rng.choice(choice.leaves)
        )
        # Most operators keep the rank, so that equal ranks unify most often.
        rank = min(max(target.rank + rng.choice((0, 0, 0, 0, -1, 1)), choice.low), choice.high)
        made = _draw_instance(
            symbolic, choice.op, symbolic.placeholder(dtype, symbolic.shape(rank, rank), "input")
        )
        if made is None:
            symbolic.refuse_instance(mark)
            return None
        instance, outs = made
        for place, typed in enumerate(outs):
            if typed is not None and typed[0] == target.dtype and len(typed[1]) == target.rank:
                symbolic.relations += [p == q for p, q in zip(target.shape, typed[1], strict=True)]
                if symbolic.constraints.add_relations(symbolic.relations):
                    symbolic.placeholders.remove(target)
                    target.leaf = ""
                    named = [
                        target if n == place else symbolic.name_output(other) for n, other in enumerate(outs)
                    ]
                    return _make_insertion(symbolic, choice.op, instance, named)
                break
        symbolic.refuse_instance(mark)
    return None


def _draw_instance(
    symbolic: SymbolicBuilder, op: declaration.Operator, x: Tensor
) -> tuple[Instance, list[Any]] | None:
    """Draw an instance and the types of its outputs; its requirements are added to the symbolic builder. None
    if there is no such instance.
    """
    try:
        made = op.open_instance(symbolic, x)
        if made is None:
            return None
        # Rules say which inputs may be absent
        symbolic.relations += op.requires(made.inputs, made.attributes)  # type: ignore[arg-type]
        return made, symbolic.infer_outputs(op, made)
    except terms.OpenSize:
        # The sampler depends on a size that is still open.
        return None


def _make_insertion(
    symbolic: SymbolicBuilder, op: declaration.Operator, instance: Instance, outs: list[Tensor]
) -> Insertion:
    """Make the insertion of an instance, with the domains of its inputs."""
    asked = []
    for place, tensor in enumerate(instance.inputs):
        domain = op.safe[place] if place < len(op.safe) else ANY
        if tensor is not None:
            tensor.reads += 1
            domain = _intersect(domain, symbolic.asked.get(tensor.name, ANY))
        asked.append(domain)
    read = {tensor.name for tensor in instance.inputs if tensor is not None}
    for tensor in symbolic.made:
        if tensor.name in read:
            symbolic.placeholders.append(tensor)
            symbolic.enter(tensor)
    for tensor in outs:
        if (
            tensor.name
            and tensor.dtype in LARGEST
            and tensor not in symbolic.pools.get((tensor.dtype, tensor.rank), ())
        ):
            symbolic.enter(tensor)
    return Insertion(op, instance, outs, asked)


def _intersect(one: Domain, other: Domain) -> Domain:
    """Intersect two domains."""
    return other if one is ANY else one if other is ANY else one.meet(other)


class _Emission:
    """Adds the nodes of a symbolic builder to a builder, with numbers for open sizes."""

    def __init__(self, symbolic: SymbolicBuilder, nodes: int) -> None:
        self.symbolic = symbolic
        self.builder = symbolic.builder
        self.value = symbolic.constraints.get_value
        self.nodes = nodes
        self.known: dict[str, Tensor] = {}

    def emit_all(self) -> None:
        """Add every node after those that it reads."""
        makers = {tensor.name: node for node in self.symbolic.nodes for tensor in node.outs if tensor.name}
        done: set[int] = set()
        for last in self.symbolic.nodes:
            # A stack instead of recursion, because a chain can be as long as the program.
            waiting = [last]
            while waiting:
                node = waiting[-1]
                if id(node) in done:
                    waiting.pop()
                    continue
                before = [
                    makers[tensor.name]
                    for tensor in node.instance.inputs
                    if tensor is not None and tensor.name in makers and id(makers[tensor.name]) not in done
                ]
                if before:
                    waiting += before
                else:
                    done.add(id(node))
                    waiting.pop()
                    self.emit_node(node)

    def emit_node(self, node: Insertion) -> None:
        """Add one node; if its result leaves its type's range, on leaves of its own, or not at all."""
        attrs = {name: self.get_concrete(value) for name, value in node.instance.attributes.items()}
        outs = None
        # Cut only if the first way fails: an edge between nodes is worth more than a leaf.
        for cut in (False, True):
            ins = [
                None if tensor is None else self.place_tensor(tensor, domain, cut)
                for tensor, domain in zip(node.instance.inputs, node.asked, strict=True)
            ]
            outs = self.builder.add(node.op, ins, dict(attrs), node.instance.outputs)
            if outs is not None:
                break
        for open_, made in zip(node.outs, outs or (), strict=False):
            if open_.name:
                self.known[open_.name] = made

    def place_tensor(self, tensor: Tensor, asked: Domain, cut: bool) -> Tensor:
        """Return the tensor with numbers for sizes, or a new leaf if its values do not satisfy the domain."""
        domain = self.get_domain(asked)
        shape = tuple(self.value(side) for side in tensor.shape)
        if tensor.values is not None:
            return self.builder.ints(
                [self.get_element(tensor, place) for place in range(len(tensor.values))], tensor.dtype, shape
            )
        known = self.known.get(tensor.name)
        if known is None and not cut:
            # Samplers may return a copy.
            known = self.symbolic.finished.get(tensor.name)
        if known is not None and not cut and (domain is ANY or known.within(domain)):
            return known
        if known is not None and not cut:
            brought = adapt_to(self.builder, known, known.dtype, known.shape, domain)
            if brought is not None:
                return brought
        # Values from 0 to 1 keep the result within its type.
        if cut:
            domain = _intersect(domain, Domain(0, 1))
        new = self.builder.leaf if tensor.leaf == "input" else self.builder.weight
        made = new(tensor.dtype, shape, domain)
        if known is None and not cut:
            self.known[tensor.name] = made
        return made

    def get_element(self, tensor: Tensor, place: int) -> Number:
        """Return an element of a shape or the like: -1 for an open size, 0 for a copied one."""
        key = (tensor.name, place)
        if key in self.symbolic.inferred:
            return -1
        if key in self.symbolic.copied:
            return 0
        assert tensor.values is not None
        value = tensor.values[place]
        return value if isinstance(value, float) else self.value(value)

    def get_domain(self, asked: Domain) -> Domain:
        """Return a domain with numbers for ends that are open sizes."""
        if asked is ANY or (isinstance(asked.low, int | float) and isinstance(asked.high, int | float)):
            return asked
        ends = [end if isinstance(end, float) else self.value(end) for end in (asked.low, asked.high)]
        return Domain(ends[0], ends[1], asked.nonzero)

    def get_concrete(self, value: Any) -> Any:
        """Return an attribute's value with numbers for open sizes."""
        if isinstance(value, terms.Term):
            return self.value(value)
        if isinstance(value, list):
            return [self.get_concrete(item) for item in value]
        return value
