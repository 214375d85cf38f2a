"""Siblings of a program: other programs of the same shape, joined from encoded parts.

Each slot of a program (a node, a leaf, an inner tensor) lists what else could stand there: another operator
of the same types, other attributes, another input of the same type, a leaf of special numbers or fed by the
user, an inner tensor as an output or with a second reader. A choice is allowed if its results lie in the
interval of what it replaces, so any choices can be combined without growing the program anew. The number of
a sibling names its choices (mixed radix over the slots, in a scattered order), so siblings of one program
differ, and each can be made by itself.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from opsieve.gen.declarations.catalogue import first_dtypes, form, operators
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.declarations.instance import Attr, AxisAttr, Draft, Partner
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import LARGEST, LEAST, Attributes, Tensor
from opsieve.gen.graph.encoding import encode_info, encode_node, encode_tensor
from opsieve.gen.graph.graph import BodyGraph, Node
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.writing import BEHIND, EncodedProgram, fill_array

# Draws of each kind for a node; most of them are rejected.
_TRIES: Final = 3
# The number of inner tensors that may become outputs or get a second reader.
_SHOWN: Final = 4
# The added reader: it takes every float type at every opset.
_READER: Final = "Neg"
_FLOATS: Final = ("float32", "float64", "float16")
# Thousandths of the siblings from one to the next: the golden ratio scatters their choices.
_SCATTER: Final = 618
Part = tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class Choice:
    """Encoded parts to put into fields of the graph, each at an index, and the values
    of new inputs.
    """

    parts: Sequence[Part] = ()
    fed: Mapping[str, Any] | None = None


class Template:
    """A finished program with what else could stand in its slots, which is listed when a sibling is made."""

    def __init__(
        self, builder: GraphBuilder, encoded: EncodedProgram, outputs: Sequence[Tensor], model: bytes
    ) -> None:
        self.model = model
        self._builder = builder
        self._encoded = encoded
        self._outputs = {output.name for output in outputs}
        self._rng = Rng(f"siblings {builder.program.count} {len(model)}")

    @functools.cached_property
    def slots(self) -> list[list[Choice]]:
        """The slots with more than one choice; the first choice of each is the program as it is."""
        found = [*self._iter_nodes(), *self._iter_leaves(), *self._iter_results()]
        return [[Choice(), *choices] for choices in found if choices]

    @functools.cached_property
    def count(self) -> int:
        """The number of different siblings, the program itself included."""
        return math.prod(map(len, self.slots))

    def make_sibling(self, number: int) -> tuple[bytes, dict[str, Any]] | None:
        """Return the model and the inputs of a sibling; None if there are not so many. Number 0 is the
        program.
        """
        if number >= self.count:
            return None
        others = self.count - 1
        step = max(1, others * _SCATTER // 1000)
        # A step without a common divisor visits every number once before it repeats.
        while others and math.gcd(step, others) > 1:
            step += 1
        place = 1 + step * number % others if number else 0
        chosen = []
        for choices in self.slots:
            place, which = divmod(place, len(choices))
            chosen.append(choices[which])
        fed = {name: value for each in chosen for name, value in (each.fed or {}).items()}
        return (
            self._encoded.join([part for each in chosen for part in each.parts]),
            {**self._encoded.values, **fed},
        )

    def _iter_nodes(self) -> Iterator[list[Choice]]:
        """Yield the choices of each node that computes data: other nodes for it."""
        nodes = self._builder.nodes
        behind = len(self._encoded.graph.nodes) - len(nodes)
        seen: dict[tuple[str, tuple[int, ...]], list[Tensor]] = {}
        for place, node in enumerate(nodes):
            operator = operators().get(node.op) if not node.domain else None
            plain = operator is not None and not any(
                isinstance(each, BodyGraph) for each in node.attrs.values()
            )
            if plain and operator is not None and all(out.values is None for out in node.outs):
                made = {encode_node(other, set()) for other in self._draw_nodes(node, operator, seen)}
                made.discard(encode_node(node, set()))
                # Sorted, since the order of a set of bytes changes from process to process.
                yield [Choice([("nodes", behind + place, each)]) for each in sorted(made)]
            for out in node.outs:
                if out.values is None and out.name:
                    seen.setdefault((out.dtype, out.shape), []).append(out)

    def _draw_nodes(
        self, node: Node, operator: Operator, seen: Mapping[tuple[str, tuple[int, ...]], list[Tensor]]
    ) -> Iterator[Node]:
        """Draw other nodes for one: another operator, other attributes, another input."""
        rng, first = self._rng, node.ins[0] if node.ins else None
        if first is None:
            return
        family = _list_family(operator.family, self._builder.opset, first.dtype)
        for _ in range(_TRIES):
            for each in (rng.choice(family) if family and len(node.outs) == 1 else operator, operator):
                drawn = self._draw_attributes(each, first, node.ins)
                attrs = {**(node.attrs if each is operator else {}), **(drawn or {})}
                if drawn is not None and self._is_allowed(each, node.ins, attrs, node):
                    yield Node(each.name, "", node.ins, node.outs, attrs, node.name)
        # Not with open sizes: tensors of one shape may have different names of sizes.
        for place, old in enumerate(node.ins if not self._builder.program.opened else ()):
            there = seen.get((old.dtype, old.shape), ()) if old is not None and old.values is None else ()
            for _ in range(min(_TRIES, len(there))):
                new = rng.choice(there)
                ins = [*node.ins[:place], new, *node.ins[place + 1 :]]
                inside = old is not None and old.low <= new.low and new.high <= old.high
                if new is not old and inside and self._is_allowed(operator, ins, node.attrs, node):
                    yield Node(node.op, "", ins, node.outs, node.attrs, node.name)

    def _draw_attributes(
        self, operator: Operator, first: Tensor, ins: Sequence[Tensor | None]
    ) -> Attributes | None:
        """Draw the attributes of an operator on these inputs; None if it has further parts than partners."""
        low, high = operator.ranks
        count = 1 + sum(isinstance(part, Partner) for part in operator.parts)
        if operator.sample is not None or not low <= first.rank <= high or len(ins) != count:
            return None
        if any(each is None or each.dtype != first.dtype for each in ins):
            return None
        draft = Draft(self._builder, first)
        draft.rng = self._rng
        for part in operator.parts:
            if isinstance(part, Attr | AxisAttr):
                try:
                    part(draft)
                except (KeyError, IndexError, ValueError):
                    return None
            elif isinstance(part, Partner):
                domain = part.domain(draft) if callable(part.domain) else part.domain
                if not all(each is first or each is None or each.within(domain) for each in ins):
                    return None
            else:
                return None
        return draft.attrs

    def _is_allowed(
        self, operator: Operator, ins: Sequence[Tensor | None], attrs: Attributes, node: Node
    ) -> bool:
        """Return whether a node gives results of the same types, inside the intervals of what it replaces."""
        program, opset = self._builder.program, self._builder.opset
        named = program.only is None or operator.name in program.only
        if not named or (program.supports is not None and not program.supports(operator, ins, attrs, opset)):
            return False
        for tensor, safe in zip(ins, operator.safe, strict=False):
            if tensor is not None and not tensor.within(safe):
                return False
        try:
            types = list(operator.infer(ins, attrs))[: len(node.outs)]  # type: ignore[arg-type]
            valid = all(operator.requires(ins, attrs))  # type: ignore[arg-type]
            bounds = operator.bounds(ins, attrs)  # type: ignore[arg-type]
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
            return False
        ends = bounds if isinstance(bounds, list) else [bounds] * len(node.outs)
        return (
            valid
            and types
            == [
                (out.dtype, out.shape) if out.name else typed
                for out, typed in zip(node.outs, types, strict=False)
            ]
            and all(_holds(out, *end) for out, end in zip(node.outs, ends, strict=False) if out.name)
        )

    def _iter_leaves(self) -> Iterator[list[Choice]]:
        """Yield the choices of each float parameter: zeros or ones, or an input in its place."""
        varied = any((op := operators().get(node.op)) and op.varied for node in self._builder.nodes)
        for place, leaf in self._encoded.stored:
            held = self._builder.program.held
            if leaf.dtype not in _FLOATS or leaf.values is not None or leaf.name in held:
                continue
            encoded = [
                encode_tensor(np.full(leaf.shape, number, leaf.dtype), leaf.dtype, leaf.name)
                for number in (0, 1)
                if leaf.low <= number <= leaf.high and not varied
            ]
            stored = self._encoded.graph.initializers[place]
            value = fill_array(leaf.dtype, leaf.shape, leaf.low, leaf.high, self._rng.random())
            yield [
                *(Choice([("initializers", place, each)]) for each in encoded if each != stored),
                Choice(
                    [("initializers", place, b""), ("inputs", BEHIND, encode_info(leaf))], {leaf.name: value}
                ),
            ]

    def _iter_results(self) -> Iterator[list[Choice]]:
        """Yield the choices of some inner tensors: an output, or one more reader."""
        inner = [
            out
            for node in self._builder.nodes
            for out in node.outs
            if out.name and out.reads and out.dtype in _FLOATS and out.name not in self._outputs
        ]
        for out in self._rng.some(inner, min(_SHOWN, len(inner))):
            sizes = self._encoded.opened.get(out.name)
            choices = [Choice([("outputs", BEHIND, encode_info(out, sizes))])]
            if self._builder.has(_READER, [out], {}):
                made = Tensor(f"{out.name}_read", out.dtype, out.shape)
                reader = Node(_READER, "", [out], [made], {}, f"{out.name}_reader")
                parts = ("nodes", encode_node(reader, set())), ("outputs", encode_info(made, sizes))
                choices.append(Choice([(name, BEHIND, part) for name, part in parts]))
            yield choices


def _holds(out: Tensor, low: float, high: float) -> bool:
    """Return whether an interval may take the place of a tensor's; if no node reads that, only its type
    counts.
    """
    ends = (out.low, out.high) if out.reads else (LEAST.get(out.dtype, 0.0), LARGEST.get(out.dtype, 0.0))
    return ends[0] <= low and high <= ends[1]


@functools.lru_cache(maxsize=4096)
def _list_family(family: str, opset: int, dtype: str) -> tuple[Operator, ...]:
    """List the operators of a family that take a dtype at an opset."""
    return tuple(
        each
        for each in operators().values()
        if each.family == family
        and not each.domain
        and not each.random
        and not each.excluded
        and each.relation is None
        and form(each.name, opset) is not None
        and dtype in first_dtypes(each, opset)
    )
