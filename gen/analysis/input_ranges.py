"""Find leaf ranges under which every declared domain holds, so that input values are finite everywhere,
without a run.

Where the intervals (gen/analysis/intervals.py) show a violation, the leaves that reach it are narrowed or
moved, one at a time, to the interval of a fixed menu that removes the violation, or comes nearest to it,
without causing one before it: coordinate descent, then all leaves together, then seeded restarts. Points are
the last resort: interval arithmetic is exact for most operators on points. Remaining violations are reported.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from opsieve.gen.analysis.intervals import DomainViolation, first_violation, push
from opsieve.gen.analysis.typed_graph import TypedGraph, movable, read_graph
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import LARGEST, Bounds, Tensor
from opsieve.gen.graph.writing import fill_array
from opsieve.gen.irs.onnx.edits import replace_tensor
from opsieve.gen.model.structure import copied

# Places where usual operators are defined, wide ones first; then points.
_MENU: tuple[Bounds, ...] = (
    (0.2, 2.0),
    (-0.9, 0.9),
    (1.1, 3.0),
    (-2.0, -0.2),
    (0.5, 0.9),
    (2.0, 8.0),
    (-0.5, -0.1),
    (-8.0, -2.0),
    (-0.1, 0.1),
    (10.0, 50.0),
    (-50.0, -10.0),
    (0.9, 1.1),
    (1e-3, 1e-2),
    (100.0, 400.0),
)
# Single values that satisfy most domains: the borders 0 and 1, values of both signs, and values far from
# overflow. Exp and Pow need small ones; Log and Sqrt need positive ones.
_POINTS = (0.0, 0.5, 1.0, -0.5, 1.5, -1.0, 3.0, -3.0, 0.1, 20.0, -20.0, 200.0, -200.0)
# Coordinate descent is restarted, because one leaf often feeds several violations and the first local optimum
# satisfies only some of them.
_ROUNDS = 6
_RESTARTS = 12
# The nearest leaves that reach a violation.
_MOST_LEAVES = 16


@dataclass(frozen=True, slots=True)
class Repair:
    """`ranges` are the leaves that were narrowed or moved, by name; `left` the violations that no choice
    mended, in the graph's order.
    """

    ranges: Mapping[str, Bounds]
    left: tuple[DomainViolation, ...]


def repair(graph: TypedGraph, seed: int, weights: bool = False) -> Repair:
    """Narrow the leaves of a graph until every declared domain holds, as far as it can be done; `weights` may
    move too.

    The graph's tensors hold the new intervals afterwards. Equal seeds give equal repairs.
    """
    search = _Search(graph, movable(graph, weights), Rng(f"repair {seed}"))
    left: list[DomainViolation] = []
    while (violation := first_violation(graph, {item.place for item in left})) is not None:
        if not search.mend(violation, {item.place for item in left}):
            left.append(violation)
    return Repair(search.list_moved(), tuple(left))


class Guesses:
    """Ranges for float leaves, drawn from the menu. Intervals can be too wide to prove that values are sound,
    so a run may show it instead.
    """

    def __init__(self, graph: TypedGraph, seed: int, weights: bool = False) -> None:
        self._search = _Search(graph, movable(graph, weights), Rng(f"guesses {seed}"))
        self._places = {tensor.name: place for place, step in enumerate(graph.nodes) for tensor in step.outs}

    def place(self, output: str) -> int:
        """Return the place of the node that makes a tensor, -1 if there is no such node."""
        return self._places.get(output, -1)

    def around(self, place: int) -> dict[str, Bounds]:
        """Draw ranges for the leaves that reach a node: one for all, one for each, or one for a single leaf;
        {} if no leaf reaches it.
        """
        search = self._search
        names = search.floats(search.reach[place])
        if not names:
            return {}
        way = search.rng.random()
        if way < 1 / 3:
            return dict.fromkeys(names, search.anywhere())
        if way < 2 / 3:
            names = [search.rng.choice(names)]
        return {name: search.anywhere() for name in names}

    def everywhere(self) -> dict[str, Bounds]:
        """Draw a range for each float leaf of the graph."""
        return {name: self._search.anywhere() for name in self._search.floats(list(self._search.tensors))}


def is_unreachable(graph: TypedGraph, output: str, weights: bool = False) -> bool:
    """Return whether the values of movable leaves cannot change a tensor."""
    reach = _reaching(graph, {tensor.name: tensor for tensor in movable(graph, weights)})
    places = [
        place for place, step in enumerate(graph.nodes) if any(tensor.name == output for tensor in step.outs)
    ]
    return bool(places) and not reach[places[0]]


def refill_values(
    model: onnx.ModelProto, inputs: Mapping[str, Any], ranges: Mapping[str, Bounds], seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw new inputs, and weights by name, for the leaves of a model that `ranges` names.

    The other inputs are as they were; other weights are not given.
    """
    rng = Rng(f"refilled {seed}")
    values = dict(inputs)
    for name in [name for name in inputs if name in ranges]:
        array = inputs[name]
        values[name] = fill_array(array.dtype.name, array.shape, *ranges[name], rng.random())
    weights = {
        tensor.name: fill_array(tensor.dtype, tensor.shape, *ranges[tensor.name], rng.random())
        for tensor in read_graph(model).leaves.values()
        if tensor.name in ranges and tensor.name not in inputs and tensor.leaf != "input"
    }
    return values, weights


def with_weights(model: onnx.ModelProto, weights: Mapping[str, "np.ndarray[Any, Any]"]) -> onnx.ModelProto:
    """Return a copy of the model in which initializers and Constant nodes of these names hold these arrays;
    the model itself for none.
    """
    if not weights:
        return model
    made = copied(model)
    for name, array in weights.items():
        replace_tensor(made, (), name, array)
    return made


class _Search:
    def __init__(self, graph: TypedGraph, leaves: Sequence[Tensor], rng: Rng) -> None:
        self.graph = graph
        self.rng = rng
        self.first = {tensor.name: (tensor.low, tensor.high) for tensor in leaves}
        self.tensors = {tensor.name: tensor for tensor in leaves}
        self.reach = _reaching(graph, self.tensors)
        # The places that each leaf reaches.
        self.fed: dict[str, set[int]] = {name: set() for name in self.tensors}
        for place, names in enumerate(self.reach):
            for name in names:
                self.fed[name].add(place)
        # Violations by place, up to the one to repair.
        self.met: list[DomainViolation | None] = []

    def list_moved(self) -> dict[str, Bounds]:
        return {
            name: (tensor.low, tensor.high)
            for name, tensor in self.tensors.items()
            if (tensor.low, tensor.high) != self.first[name]
        }

    def mend(self, violation: DomainViolation, excused: set[int]) -> bool:
        """Search leaf ranges without the violation; returns whether it found some, else restores them."""
        names = self.reach[violation.place][-_MOST_LEAVES:]
        before = {name: (self.tensors[name].low, self.tensors[name].high) for name in names}
        starts: Iterator[dict[str, Bounds]] = iter((before, *self.together(names), *self.anyhow(names)))
        for start in starts:
            self.place(start)
            if self.descend(names, violation.place, excused):
                return True
        self.place(before)
        return False

    def descend(self, names: Sequence[str], place: int, excused: set[int]) -> bool:
        self.push(range(place + 1))
        best = self.score("", place, excused)
        for _ in range(_ROUNDS):
            if best[0] > place:
                return True
            found: tuple[tuple[float, float], str, Bounds] | None = None
            for name in reversed(names):
                tensor = self.tensors[name]
                kept = (tensor.low, tensor.high)
                for candidate in self.candidates(name):
                    tensor.low, tensor.high = candidate
                    score = self.score(name, place, excused)
                    if score > best:
                        best, found = score, (score, name, candidate)
                    if score[0] > place:
                        return True
                tensor.low, tensor.high = kept
                self.push(sorted(self.fed[name]))
            if found is None:
                return False
            self.place({found[1]: found[2]})
            self.push(sorted(self.fed[found[1]]))
        return best[0] > place

    def push(self, places: Sequence[int]) -> None:
        """Push intervals anew through the nodes at these places, or the first of them: those up to the one
        that is to be mended.
        """
        if isinstance(places, range):
            self.met = [None] * len(places)
        for place in places:
            if place >= len(self.met):
                return
            self.met[place] = push(self.graph.nodes[place], place)

    def score(self, name: str, place: int, excused: set[int]) -> tuple[float, float]:
        """Return how far the push comes without a violation, and by how little the first one misses; more is
        better.

        Only nodes that the named leaf reaches are pushed again; intervals after the first violation are stale
        until `push`.
        """
        changed = self.fed.get(name, ())
        for at in range(place + 1):
            met = push(self.graph.nodes[at], at) if at in changed else self.met[at]
            if met is not None and at not in excused:
                return at, -met.amount
        return math.inf, 0.0

    def candidates(self, name: str) -> Iterator[Bounds]:
        tensor = self.tensors[name]
        low, high = tensor.low, tensor.high
        whole = "float" not in tensor.dtype
        middle, quarter = (low + high) / 2, (high - low) / 4
        parts = ((middle, high), (low, middle), (middle - quarter, middle + quarter))
        points = ((middle, middle), (low, low), (high, high), *_POINT_RANGES)
        for a, b in (*parts, *(() if whole else _MENU), *points):
            if whole:
                a, b = math.ceil(a), math.floor(b)
                if not self.first[name][0] <= a <= b <= self.first[name][1]:
                    continue
            elif max(-a, b) > LARGEST.get(tensor.dtype, 1.0):
                continue
            if (a, b) != (low, high):
                yield a, b

    def floats(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if "float" in self.tensors[name].dtype]

    def anywhere(self) -> Bounds:
        return self.rng.choice(_MENU if self.rng.random() < 0.5 else _POINT_RANGES)

    def together(self, names: Sequence[str]) -> Iterator[dict[str, Bounds]]:
        """Yield starts with the same range for all leaves."""
        floats = self.floats(names)
        if len(floats) > 1:
            for bounds in (*_MENU[:6], *((point, point) for point in _POINTS[:6])):
                yield dict.fromkeys(floats, bounds)

    def anyhow(self, names: Sequence[str]) -> Iterator[dict[str, Bounds]]:
        floats = self.floats(names)
        for _ in range(_RESTARTS if floats else 0):
            yield {name: self.anywhere() for name in floats}

    def place(self, ranges: Mapping[str, Bounds]) -> None:
        for name, (low, high) in ranges.items():
            self.tensors[name].low, self.tensors[name].high = low, high


_POINT_RANGES = tuple((point, point) for point in _POINTS)


def _reaching(graph: TypedGraph, leaves: Mapping[str, Tensor]) -> list[list[str]]:
    """For each node the names of the leaves that reach it, in the order in which they are met."""
    reach: dict[int, dict[str, None]] = {id(tensor): {name: None} for name, tensor in leaves.items()}
    found: list[list[str]] = []
    for step in graph.nodes:
        met: dict[str, None] = {}
        for tensor in (*step.ins, *(inner for body in step.bodies.values() for inner in body.reads())):
            if tensor is not None:
                met.update(reach.get(id(tensor), {}))
        for tensor in step.outs:
            reach[id(tensor)] = met
        found.append(list(met))
    return found
