"""Programs whose sizes and attributes a solver chooses (NNSmith, ASPLOS 2023, section 3.2).

Nodes are inserted forwards (they read existing tensors) and backwards (they take the place of a placeholder) as often; each insertion
is kept when z3 finds that its relations can hold together with those of all others (Algorithm 1). Then sizes and attributes are spread
over bins (Algorithm 2), and the program is emitted once more with numbers through the core, which knows intervals of values: where an
edge would carry values that its reader can make no sense of (a logarithm of a negative number), the edge is cut and the reader gets a
leaf of the same type. So programs need no search for inputs. Long programs are solved in rounds, each on top of what is finished.
"""

from collections.abc import Sequence
from typing import Any

import z3

from opsieve.gen.build.graph_builder import Choice
from opsieve.gen.case.case import Case
from opsieve.gen.generation.random_graph import Wish, begun, case, grown, plenty
from opsieve.gen.operators.catalogue import choices
from opsieve.gen.spec.declaration import ANY, OUTPUTS, Attributes, Operator, Tensor
from opsieve.gen.spec.domains import Domain
from opsieve.gen.spec.dtype_facts import LARGEST
from opsieve.gen.strategies.nnsmith.symbolic_builder import Draft, Inserted
from opsieve.gen.strategies.nnsmith.symbolic_samples import sampler

NAME = "nnsmith"
_ROUND = 16  # nodes that are solved together: z3's time grows faster than their number
_CARRIED = 12  # finished tensors that a round may read


def nnsmith(wish: Wish, seed: int) -> Case:
    """The program of a seed."""
    sketch = begun(wish, seed, NAME)
    sketch.choices = choices(sketch.opset, wish.only, wish.dtypes)
    open_ = [
        choice
        for choice in plenty(sketch.opset, wish.only, wish.dtypes, not wish.opset)
        if not choice.op.domain and sampler(choice.op.name, choice.op.family)
    ]
    while open_ and len(sketch.nodes) < wish.nodes and sketch.elements < wish.budget.elements:
        before = len(sketch.nodes)
        draft = Draft(sketch)
        _draft(draft, open_, min(_ROUND, wish.nodes - before))
        draft.constraints.spread(sketch.draw)
        _Emission(draft, wish.nodes).all()
        if len(sketch.nodes) == before:
            break
    grown(sketch, wish)  # what the loops above could not place: by construction
    return case(sketch, wish, NAME, seed)


def _draft(draft: Draft, open_: Sequence[Choice], nodes: int) -> None:
    """Insert nodes until there are as many as asked for, or too many insertions were refused."""
    draw, sketch = draft.draw, draft.sketch
    for tensor in sketch.loose[-_CARRIED:]:
        if not tensor.reads and tensor.dtype in LARGEST:
            draft.enter(tensor)
            draft.finished[tensor.name] = tensor
    tries = 8 * nodes
    while len(draft.nodes) < nodes and tries:
        tries -= 1
        choice = open_[draw.below(len(open_))]
        inserted = _backwards(draft, choice) if draw.random() < 0.5 and draft.placeholders else _forwards(draft, choice)
        if inserted is not None:
            draft.nodes.append(inserted)


def _forwards(draft: Draft, choice: Choice) -> Inserted | None:
    """A node whose first input exists, or with the first node a placeholder (Algorithm 1, ForwardInsert)."""
    mark = draft.begin(False)
    x = draft.first(choice)
    if x is None:
        dtype = draft.sketch.leaf_dtype(choice)
        x = draft.placeholder(dtype, draft.shape(choice.low, choice.high), "input")
    made = _instance(draft, choice.op, x)
    if made is None:
        draft.refuse(mark)
        return None
    ins, outs, attrs = made
    if not draft.constraints.hold(draft.relations):
        draft.refuse(mark)
        return None
    return _taken(draft, choice.op, ins, [draft.named(typed) for typed in outs], attrs)


def _backwards(draft: Draft, choice: Choice) -> Inserted | None:
    """A node on placeholders of its own, one output of which takes the place of a placeholder (Algorithm 1, BackwardInsert)."""
    draw, target = draft.draw, draft.draw.choice(draft.placeholders)
    for _ in range(3):
        mark = draft.begin(True)
        dtype = target.dtype if target.dtype in choice.dtypes and draw.random() < 0.8 else draw.choice(choice.leaves)
        rank = min(max(target.rank + draw.choice((0, 0, 0, 0, -1, 1)), choice.low), choice.high)
        made = _instance(draft, choice.op, draft.placeholder(dtype, draft.shape(rank, rank), "input"))
        if made is None:
            draft.refuse(mark)
            return None
        ins, outs, attrs = made
        for place, typed in enumerate(outs):
            if typed is not None and typed[0] == target.dtype and len(typed[1]) == target.rank:
                draft.relations += [p == q for p, q in zip(target.shape, typed[1], strict=True)]
                if draft.constraints.hold(draft.relations):
                    draft.placeholders.remove(target)
                    target.leaf = ""
                    named = [target if n == place else draft.named(other) for n, other in enumerate(outs)]
                    return _taken(draft, choice.op, ins, named, attrs)
                break
        draft.refuse(mark)
    return None


def _instance(draft: Draft, op: Operator, x: Tensor) -> tuple[Sequence[Tensor | None], list[Any], Attributes] | None:
    """Inputs, types of outputs and attributes; what they ask for is in the draft's relations. None when there is no such instance."""
    sample = sampler(op.name, op.family)
    try:
        made = op.sample(draft, x) if sample == "declared" else sample(draft, x)
        if made is None:
            return None
        ins, attrs = made
        wanted = attrs.get(OUTPUTS)
        draft.relations += op.requires(ins, attrs)  # type: ignore[arg-type]
        return ins, draft.typed(op, ins, attrs, wanted), attrs
    except z3.Z3Exception:  # a sampler looked at a size that is open
        return None


def _taken(draft: Draft, op: Operator, ins: Sequence[Tensor | None], outs: list[Tensor], attrs: Attributes) -> Inserted:
    asked = []
    for place, tensor in enumerate(ins):
        domain = op.safe[place] if place < len(op.safe) else ANY
        if tensor is not None:
            tensor.reads += 1
            domain = _both(domain, draft.asked.get(tensor.name, ANY))
        asked.append(domain)
    read = {tensor.name for tensor in ins if tensor is not None}
    for tensor in draft.made:
        if tensor.name in read:
            draft.placeholders.append(tensor)
            draft.enter(tensor)
    for tensor in outs:
        if tensor.name and tensor.dtype in LARGEST and tensor not in draft.pools.get((tensor.dtype, tensor.rank), ()):
            draft.enter(tensor)
    return Inserted(op, ins, outs, attrs, asked)


def _both(one: Domain, other: Domain) -> Domain:
    return other if one is ANY else one if other is ANY else one.meet(other)


class _Emission:
    """A draft on its way into the sketch, every open size a number."""

    def __init__(self, draft: Draft, nodes: int) -> None:
        self.draft = draft
        self.sketch = draft.sketch
        self.value = draft.constraints.value
        self.nodes = nodes
        self.known: dict[str, Tensor] = {}

    def all(self) -> None:
        """Emit every node after those that it reads."""
        makers = {tensor.name: node for node in self.draft.nodes for tensor in node.outs if tensor.name}
        done: set[int] = set()
        for last in self.draft.nodes:
            waiting = [last]
            while waiting:
                node = waiting[-1]
                if id(node) in done:
                    waiting.pop()
                    continue
                before = [
                    makers[tensor.name]
                    for tensor in node.ins
                    if tensor is not None and tensor.name in makers and id(makers[tensor.name]) not in done
                ]
                if before:
                    waiting += before
                else:
                    done.add(id(node))
                    waiting.pop()
                    self.emit(node)

    def emit(self, node: Inserted) -> None:
        """Emit one node; when its result leaves the range of its type, on leaves of its own; not at all when that does not help."""
        attrs = {name: self.concrete(value) for name, value in node.attrs.items()}
        outs = None
        for cut in (False, True):
            ins = [
                None if tensor is None else self.placed(tensor, domain, cut)
                for tensor, domain in zip(node.ins, node.asked, strict=True)
            ]
            outs = self.sketch.add(node.op, ins, dict(attrs))
            if outs is not None:
                break
        for open_, made in zip(node.outs, outs or (), strict=False):
            if open_.name:
                self.known[open_.name] = made

    def placed(self, tensor: Tensor, asked: Domain, cut: bool) -> Tensor:
        """The tensor with numbers for sizes, or a leaf in its place where its values are not what is asked."""
        domain = self.domain(asked)
        shape = tuple(self.value(side) for side in tensor.shape)
        if tensor.values is not None:
            return self.sketch.ints(
                [self.element(tensor, place) for place in range(len(tensor.values))], tensor.dtype, shape
            )
        known = self.known.get(tensor.name)
        if known is None and not cut:
            known = self.draft.finished.get(tensor.name)  # what samplers hand back may be a copy
        if known is not None and not cut and (domain is ANY or known.within(domain)):
            return known
        if cut:
            domain = _both(domain, Domain(0, 1))
        new = self.sketch.leaf if tensor.leaf == "input" else self.sketch.weight
        made = new(tensor.dtype, shape, domain)
        if known is None and not cut:
            self.known[tensor.name] = made
        return made

    def element(self, tensor: Tensor, place: int) -> float:
        """An element of a shape or the like: -1 where the size is left open, 0 where it is copied."""
        key = (tensor.name, place)
        if key in self.draft.inferred:
            return -1
        if key in self.draft.copied:
            return 0
        assert tensor.values is not None
        value = tensor.values[place]
        return value if isinstance(value, float) else self.value(value)

    def domain(self, asked: Domain) -> Domain:
        """A domain whose ends may be open sizes, with numbers."""
        if asked is ANY or (isinstance(asked.low, int | float) and isinstance(asked.high, int | float)):
            return asked
        ends = [end if isinstance(end, float) else self.value(end) for end in (asked.low, asked.high)]
        return Domain(ends[0], ends[1], asked.nonzero)

    def concrete(self, value: Any) -> Any:
        """An attribute's value with numbers for open sizes."""
        if isinstance(value, z3.ExprRef):
            return self.value(value)
        if isinstance(value, list):
            return [self.concrete(item) for item in value]
        return value
