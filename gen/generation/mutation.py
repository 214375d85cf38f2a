"""Rebuild a model node by node with changes, and repair what no longer fits.

A node whose inputs changed stays as it was if its declaration allows that. Otherwise an instance of the same
operator is drawn for its new first input, preferably one with the same output type. Otherwise the node is
left out, and its readers read another tensor of that type. A mutation is thus a small change of the recipe,
and its result is valid by construction.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opsieve.gen.analysis.reading import Source
from opsieve.gen.declarations.catalogue import first_dtypes, form, operators, qualified_name
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.instance import Instance
from opsieve.gen.declarations.tensor import LARGEST, USUAL, Attributes, Tensor, Typed
from opsieve.gen.generation.pattern_builder import Misfit, PatternBuilder
from opsieve.gen.generation.symbolic import tells_sizes
from opsieve.gen.graph.graph import BodyGraph, Node, Shape
from opsieve.gen.graph.graph_builder import GraphBuilder

_DRAWS: Final = 4  # instances drawn to mend a node, or to insert one
_SEPARATE: Final = ("control", "container")  # families whose samplers add nodes of their own
# Families whose inputs go with each other by dtype and size alone; in others elements of one are positions in
# another, or the like.
_PLAIN: Final = frozenset(
    (
        *(
            "unary",
            "binary",
            "logic",
            "comparison",
            "bits",
            "cast",
            "variadic",
            "reduction",
            "layout",
            "product",
            "axis",
        ),
        *("normalisation", "window"),
    )
)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a mutation; nodes are named by their index.

    `leaves` gives leaves another dtype and shape by name. `inserted`: a new node stands between the node and
    an input; `swapped`: it reads another tensor of the same type; `redrawn`: it has other attributes;
    `dropped`; `doubled`.
    """

    leaves: Mapping[str, tuple[str, Shape]]
    inserted: frozenset[int] = frozenset()
    swapped: frozenset[int] = frozenset()
    redrawn: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    doubled: frozenset[int] = frozenset()


class ModelReplay:
    """Adds nodes of a model to a builder, with changes. `now` maps the model's tensors to their new ones."""

    def __init__(self, builder: GraphBuilder, changes: Changes) -> None:
        self.builder = builder
        self.build = PatternBuilder(builder)
        self.changes = changes
        self.now: dict[str, Tensor] = {}
        # Tensors of the model whose contents are unchanged.
        self._unchanged: set[str] = set()
        self._held: Mapping[str, Any] = {}
        self._computed: frozenset[str] = frozenset()

    def replay_nodes(self, source: Source) -> None:
        """Add all nodes, and expose the tensors that replace the model's outputs."""
        self._held, self._computed = source.held, source.computed
        for place, node in enumerate(source.nodes):
            self._replay_node(place, node)
        for tensor in source.outputs:
            if tensor.name in self.now:
                self.builder.program.exposed.append(self.now[tensor.name])

    def _replay_node(self, place: int, node: Node) -> None:
        """Add one node with its changes."""
        changes = self.changes
        ins = [None if tensor is None else self._get_tensor(tensor) for tensor in node.ins]
        missing = any(new is None and old is not None for new, old in zip(ins, node.ins, strict=True))
        if missing or place in changes.dropped:
            self._leave_out(node)
            return
        # A node put behind an infinity, such as that of a mask, would turn it into NaN.
        there = [n for n, each in enumerate(ins) if each and each.values is None and math.isfinite(each.size)]
        if there and (place in changes.inserted or place in changes.swapped):
            spot = self.builder.rng.choice(there)
            before = ins[spot]
            assert before is not None
            # Swapped, a typed subtree takes the place of another, where there is one.
            ins[spot] = (
                self._insert_after(before)
                if place in changes.inserted
                else self.builder.scope.match(before.dtype, before.shape) or before
            )
        unchanged = place not in changes.redrawn and self._is_unchanged(node, ins)
        # Only the model itself turns an infinity, such as that of a mask, back into numbers.
        usable = (
            unchanged
            or not self.builder.style.ranged
            or all(tensor is None or math.isfinite(tensor.high - tensor.low) for tensor in ins)
        )
        outs = self._add_original(node, ins) if usable and place not in changes.redrawn else None
        if outs is None:
            unchanged, outs = False, self._repair_node(node, ins) if usable else None
        if outs is None:
            self._leave_out(node)
            return
        if place in changes.doubled:
            self._add_original(node, ins)
        self.now.update(
            (old.name, new) for old, new in zip(node.outs, outs, strict=False) if old.name and new.name
        )
        if unchanged:
            self._unchanged.update(old.name for old in node.outs)
        # Numbers that rules read: where others come out now, a constant has the old ones.
        for old in (each for each in node.outs if each.values is not None and each.name in self.now):
            if unchanged:
                new = self.now[old.name]
                new.values, new.low, new.high = old.values, old.low, old.high
            else:
                self.now[old.name] = self.builder.constant(old.values or (), old.dtype, old.shape)

    def _is_unchanged(self, node: Node, ins: Sequence[Tensor | None]) -> bool:
        """Return whether every input has the elements that the node's own input had."""
        return all(
            old is None or (old.name in self._unchanged and self.now[old.name] is new)
            for old, new in zip(node.ins, ins, strict=True)
        )

    def _get_tensor(self, old: Tensor) -> Tensor | None:
        """Return the replacement of a tensor, None if there is none; leaves are made at their first use."""
        found = self.now.get(old.name)
        if found is not None or not old.leaf:
            return found
        program = self.builder.program
        dtype, shape = self.changes.leaves.get(old.name, (old.dtype, old.shape))
        if (dtype, shape) == (old.dtype, old.shape):
            made = Tensor(program.make_name("x"), dtype, shape, old.low, old.high, old.values, old.leaf)
            if old.name not in self._computed:
                self._unchanged.add(old.name)
            if old.name in self._held:
                program.held[made.name] = self._held[old.name]
        else:
            low, high = (old.low, old.high) if dtype == old.dtype else USUAL[dtype]
            made = Tensor(program.make_name("x"), dtype, shape, low, high, None, old.leaf)
        program.leaves.append(made)
        program.elements += math.prod(shape)
        if made.leaf == "input":
            program.has_input = True
        if made.values is None and 0 not in shape:
            self.builder.scope.add_tensor(made)
        self.now[old.name] = made
        return made

    def _add_original(self, node: Node, ins: Sequence[Tensor | None]) -> Sequence[Tensor] | None:
        """Add the node as it was on these inputs; returns `None` if that is not valid."""
        same = all(
            new is None or old is None or (new.dtype, new.shape) == (old.dtype, old.shape)
            for new, old in zip(ins, node.ins, strict=True)
        )
        operator = _get_declaration(node)
        if operator is None or any(isinstance(value, BodyGraph) for value in node.attrs.values()):
            return self._copy_node(node, ins) if same else None
        if not same and not self._is_typed(operator, node, ins):
            return None
        if not (same and self._is_kept(node, ins)) and (
            operator.family not in _PLAIN
            or operator.relation is not None
            or not tells_sizes(operator, ins, every=True)
        ):
            return None
        attrs = dict(node.attrs)
        try:
            types = operator.infer(node.ins, node.attrs)  # type: ignore[arg-type]
            # BatchNormalization, for one, is declared as in inference, with one output.
            if len(types) < len(node.outs) or ((same or self._held) and not _are_predicted(node, types)):
                return self._copy_node(node, ins) if same else None
            return self.build.ops(qualified_name(node.domain, node.op), *ins, outputs=len(node.outs), **attrs)
        except Misfit:
            # The model does not say how large the results of a body are; an unchanged node keeps its own.
            return self._copy_node(node, ins) if same and self._is_kept(node, ins) else None
        except (
            AssertionError,
            AttributeError,
            IndexError,
            KeyError,
            TypeError,
            ValueError,
            ZeroDivisionError,
        ):
            # A rule met an instance that its sampler never draws, such as an omitted input in the middle.
            return None

    def _is_typed(self, operator: Operator, node: Node, ins: Sequence[Tensor | None]) -> bool:
        """Return whether the operator's schema has the dtypes and its declaration the rank; False without a
        schema.
        """
        had = None if node.domain else form(node.op, self.builder.opset)
        low, high = operator.ranks
        return (
            had is not None
            and all(tensor is None or tensor.dtype in had.dtypes(place) for place, tensor in enumerate(ins))
            and (not ins or ins[0] is None or low <= ins[0].rank <= high)
            and (
                not operator.ranks_spelled or [t and t.rank for t in ins] == [t and t.rank for t in node.ins]
            )
        )

    def _is_kept(self, node: Node, ins: Sequence[Tensor | None]) -> bool:
        """Return whether every input replaces the node's own input with no wider an interval."""
        if any(
            old is not None and self.now.get(old.name) is not new
            for new, old in zip(ins, node.ins, strict=True)
        ):
            return False
        return not self.builder.style.ranged or _has_no_wider_inputs(node, ins)

    def _copy_node(self, node: Node, ins: Sequence[Tensor | None]) -> Sequence[Tensor] | None:
        """Copy a node with bodies, or one that only the model knows, if all its inputs are unchanged."""
        builder = self.builder
        only = builder.program.only
        if only is not None and qualified_name(node.domain, node.op) not in only:
            return None
        if builder.style.ranged and not _has_no_wider_inputs(node, ins):
            return None
        names: dict[str, Tensor] = {}
        attrs: Attributes = {}
        for name, value in node.attrs.items():
            if isinstance(value, BodyGraph):
                body = self._copy_body(value, names)
                if body is None:
                    return None
                attrs[name] = body
            else:
                attrs[name] = value
        operator = _get_declaration(node)
        if (
            builder.style.ranged
            and operator is not None
            and not self._is_unchanged(node, ins)
            and any(
                tensor is not None and not tensor.within(safe)
                for tensor, safe in zip(ins, operator.safe, strict=False)
            )
        ):
            # The interval alone may be too wide in the model as well, but here a change made it so.
            return None
        if (
            builder.program.supports is not None
            and operator is not None
            and not builder.program.supports(operator, ins, attrs, builder.opset)
        ):
            return None
        types = [(out.dtype, out.shape) if out.name else None for out in node.outs]
        return builder.emit(
            node.op, node.domain, ins, attrs, types, [(out.low, out.high) for out in node.outs]
        )

    def _copy_body(self, body: BodyGraph, made: dict[str, Tensor]) -> BodyGraph | None:
        """Copy a body under new names; returns `None` if something that it captures is missing or changed."""
        program = self.builder.program

        def fresh(old: Tensor) -> Tensor:
            copy = Tensor(program.make_name("b"), old.dtype, old.shape, old.low, old.high, old.values)
            made[old.name] = copy
            return copy

        def found(old: Tensor) -> Tensor | None:
            if old.name in made:
                return made[old.name]
            new = self._get_tensor(old)
            same = new is not None and (new.dtype, new.shape) == (old.dtype, old.shape)
            if (
                not same
                or new is None
                or (self.builder.style.ranged and not (old.low <= new.low and new.high <= old.high))
            ):
                return None
            return new

        inputs = [fresh(tensor) for tensor in body.inputs]
        nodes = []
        for node in body.nodes:
            ins = [None if tensor is None else found(tensor) for tensor in node.ins]
            if any(new is None and old is not None for new, old in zip(ins, node.ins, strict=True)):
                return None
            attrs: Attributes = {}
            for name, value in node.attrs.items():
                inner = self._copy_body(value, made) if isinstance(value, BodyGraph) else value
                if inner is None:
                    return None
                attrs[name] = inner
            for tensor in ins:
                if tensor is not None:
                    tensor.reads += 1
            outs = [fresh(tensor) if tensor.name else tensor for tensor in node.outs]
            nodes.append(Node(node.op, node.domain, ins, outs, attrs, program.make_name("n")))
            program.inner += 1
        outputs = [found(tensor) for tensor in body.outputs]
        kept = [tensor for tensor in outputs if tensor is not None]
        return BodyGraph(inputs, nodes, kept) if len(kept) == len(outputs) else None

    def _repair_node(self, node: Node, ins: Sequence[Tensor | None]) -> Sequence[Tensor] | None:
        """Add another instance of the node's operator with its new first input; None if no instance fits."""
        operator = _get_declaration(node)
        if operator is None or operator.family in _SEPARATE or not ins or ins[0] is None:
            return None
        only = self.builder.program.only
        if only is not None and qualified_name(node.domain, node.op) not in only:
            return None
        return self._draw_instance(
            operator, ins[0], [(out.dtype, out.shape) for out in node.outs if out.name], must=False
        )

    def _draw_instance(
        self, operator: Operator, x: Tensor, wanted: Sequence[tuple[str, Shape]], must: bool
    ) -> Sequence[Tensor] | None:
        """Draw instances with this first input until one has the wanted types; the last one serves if none
        `must` have them.
        """
        builder = self.builder
        safe = operator.safe[0] if operator.safe else None
        low, high = operator.ranks
        if (
            # Samplers expect known sizes and at least one element.
            any(type(side) is not int or not side for side in x.shape)
            or x.dtype not in first_dtypes(operator, builder.opset)
            or not low <= x.rank <= high
            or (safe is not None and builder.style.ranged and not x.within(safe))
        ):
            return None
        kept = None
        # Its outputs are known only after the draw, so several are drawn until the readers fit.
        for _ in range(_DRAWS):
            made = operator.instance(builder, x)
            if made is None:
                continue
            results = operator.infer(made.inputs, made.attributes)  # type: ignore[arg-type]
            if list(wanted) == [typed for typed in results if typed is not None][: len(wanted)]:
                return _add_instance(builder, operator, made)
            kept = made
        return _add_instance(builder, operator, kept) if kept is not None and not must else None

    def _leave_out(self, node: Node) -> None:
        """Leave a node out: its outputs are replaced by tensors of their types."""
        for old in node.outs:
            if old.name and old.dtype in LARGEST and all(type(side) is int and side for side in old.shape):
                self.now[old.name] = self.builder.match(old.dtype, old.shape)

    def _insert_after(self, tensor: Tensor) -> Tensor:
        """Compute something of the same type from a tensor; return the tensor itself if a few draws fail."""
        builder = self.builder
        for _ in range(2 * _DRAWS):
            operator = builder.rng.choice(builder.program.choices).op
            if operator.family in _SEPARATE:
                continue
            outs = self._draw_instance(operator, tensor, [(tensor.dtype, tensor.shape)], must=True)
            if outs:
                return outs[0]
        return tensor


def _add_instance(builder: GraphBuilder, operator: Operator, made: Instance) -> list[Tensor] | None:
    """Add a drawn instance."""
    return builder.add(operator, made.inputs, made.attributes, made.outputs)


def _has_no_wider_inputs(node: Node, ins: Sequence[Tensor | None]) -> bool:
    """Return whether every input lies in the interval of the node's own input."""
    return all(
        new is None or old is None or (old.low <= new.low and new.high <= old.high)
        for new, old in zip(ins, node.ins, strict=True)
    )


def _are_predicted(node: Node, types: Sequence[Typed | None]) -> bool:
    """Return whether a declaration predicts the types of the node's outputs; it may not cover every foreign
    node.
    """
    return all(
        not out.name or (typed is not None and (out.dtype, out.shape) == typed)
        for out, typed in zip(node.outs, types, strict=False)
    )


def _get_declaration(node: Node) -> Operator | None:
    """Return the declaration of a node's operator, if there is one."""
    return operators().get(qualified_name(node.domain, node.op))
