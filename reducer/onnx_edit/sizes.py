"""Propagate the new size of one class of dimensions to all others, to a fixpoint.

A class gets its new size; each node that touches a changed class then says what its other dimensions must be:
forwards by ONNX's own inference of that one node, backwards where a rule knows how (Reshape, Concat, Split),
else by trying sizes of the first input. Classes that hold a stored tensor or an input only ever shrink. Two
demands that differ end the attempt.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import TensorProto, helper

from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.irs.onnx.edits import set_attribute
from opsieve.gen.irs.onnx.view import attribute_of
from opsieve.gen.model.structure import copied
from opsieve.reducer.onnx_edit import onnx_subprocess
from opsieve.reducer.onnx_edit.dimension_classes import Classes, Dim, Shape, factors, integer
from opsieve.reducer.onnx_edit.typed_view import ABSENT, Step

# At most this many sizes are tried to find an input that gives a wanted output: each costs an inference.
_PULLED = 64
_FILTERED = (declaration.SizeRule.FILTERED, declaration.SizeRule.FILTERED_BACK)
# Inputs that list sizes follow the sizes, not the other way round.
_LISTED = (
    declaration.SizeRule.GROWN,
    declaration.SizeRule.FILLED,
)


class Sizes:
    """The classes of a view, with the nodes and the stored tensors that each has a part in."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.members: dict[Dim, list[Dim]] = {}
        self._steps: dict[Dim, list[int]] = {}
        tensors = classes.view.tensors
        for number, tensor in enumerate(tensors):
            for axis, size in enumerate(tensor.shape or ()):
                if size > 1:
                    self.members.setdefault(classes.root((number, axis)), []).append((number, axis))
        self._held = {
            root for root, dims in self.members.items() if any(tensors[number].source for number, _ in dims)
        }
        for place, step in enumerate(classes.view.steps):
            for number in {*step.inputs, *step.outputs} - {ABSENT}:
                for axis in range(len(tensors[number].shape or ())):
                    self._steps.setdefault(classes.root((number, axis)), []).append(place)

    def solve(self, seeds: Mapping[Dim, int]) -> dict[Dim, int] | None:
        """Return new sizes by the root of each changed class, given these roots' sizes; `None` if that is
        impossible.
        """
        return _Propagation(self, seeds).run()

    def is_held(self, root: Dim) -> bool:
        """Return whether a class has a dimension of an input or of a stored tensor."""
        return root in self._held

    def steps(self, roots: Iterable[Dim]) -> list[int]:
        """Return the places of the nodes that these classes touch, ascending."""
        return sorted({place for root in roots for place in self._steps.get(root, ())})

    def shape(self, number: int, new: Mapping[Dim, int]) -> Shape | None:
        """Return a tensor's shape under new sizes."""
        old = self.classes.shape(number)
        if old is None:
            return None
        return tuple(new.get(self.classes.root((number, axis)), size) for axis, size in enumerate(old))


def adjust_attributes(step: Step, shapes: Sequence[Shape | None]) -> onnx.NodeProto:
    """Return the node with the attributes that repeat its inputs' sizes brought in line with the new ones."""
    node = step.node
    rule = catalogue.size_rule(node.domain, node.op_type)
    if rule not in _FILTERED or len(shapes) < 2 or shapes[0] is None or shapes[1] is None:
        return node
    changed = copied(node)
    x, w = shapes[0], shapes[1]
    if attribute_of(node, "kernel_shape") is not None:
        set_attribute(changed, "kernel_shape", list(w[2:]))
    # A convolution demands C = w.shape[1] * group; a transposed one has C = w.shape[0], which the group must
    # divide.
    if integer(step, "group", 1) != 1:
        group = (
            math.gcd(x[1], w[0])
            if rule is declaration.SizeRule.FILTERED_BACK
            else max(1, x[1] // max(1, w[1]))
        )
        set_attribute(changed, "group", min(group, integer(step, "group", 1)))
    return changed


class _Propagation:
    def __init__(self, sizes: Sizes, seeds: Mapping[Dim, int]) -> None:
        self.sizes = sizes
        self.classes = sizes.classes
        self.view = sizes.classes.view
        self.seeds = seeds
        self.new: dict[Dim, int] = {}
        self.queue: list[int] = []
        self.queued: set[int] = set()

    def run(self) -> dict[Dim, int] | None:
        for root, size in self.seeds.items():
            if not self._set(root, size):
                return None
        # Bounds the work on a large model: the attempt fails if one change revisits too many nodes.
        budget = 64 + 8 * len(self.view.steps)
        while self.queue and budget:
            budget -= 1
            # In the order of the graph, so that a node is visited after its producers and the result is
            # reproducible.
            place = heapq.heappop(self.queue)
            self.queued.discard(place)
            if not self._visit(self.view.steps[place]):
                return None
        return None if self.queue else self.new

    def _set(self, root: Dim, size: int) -> bool:
        root = self.classes.root(root)
        old = self.classes.size(root)
        if self.new.get(root, old) == size:
            return True
        # A stored or fed tensor has no elements from which it could grow.
        if size < 1 or (size > old and self.sizes.is_held(root)):
            return False
        # A class may shrink again but never grows back, so that the propagation ends.
        if root in self.new and (root in self.seeds or size > self.new[root]):
            return False
        self.new[root] = size
        for place in self.sizes.steps([root]):
            if place not in self.queued:
                self.queued.add(place)
                heapq.heappush(self.queue, place)
        return True

    def _visit(self, step: Step) -> bool:
        if step.bodies or not step.outputs or step.outputs[0] == ABSENT:
            return True
        rule = catalogue.size_rule(step.node.domain, step.node.op_type)
        if rule is declaration.SizeRule.REGROUPED:
            return self._visit_groups(step)
        if rule is declaration.SizeRule.JOINED:
            return self._visit_sum(step, list(step.inputs), step.outputs[0])
        if rule is declaration.SizeRule.PARTED:
            return self._visit_sum(step, list(step.outputs), step.inputs[0])
        if rule in _LISTED or step.node.op_type == "Constant":
            return True
        return self._visit_forwards(step)

    def _axis(self, number: int, axis: int) -> int:
        root = self.classes.root((number, axis))
        return self.new.get(root, self.classes.size((number, axis)))

    def _fit(self, dims: list[Dim], wanted: int) -> bool:
        """Give dimensions sizes with a wanted product, each at most its old size."""
        chosen = _find_factors([self.classes.size(dim) for dim in dims], wanted)
        return chosen is not None and all(
            self._set(dim, size) for dim, size in zip(dims, chosen, strict=True)
        )

    def _visit_groups(self, step: Step) -> bool:
        x, out = step.inputs[0], step.outputs[0]
        left, right = self.classes.shape(x), self.classes.shape(out)
        if left is None or right is None:
            return True
        for ins, outs in factors(left, right):
            sides = [[(x, axis) for axis in ins], [(out, axis) for axis in outs]]
            have = [math.prod(self._axis(*dim) for dim in side) for side in sides]
            if have[0] != have[1] and not self._balance(sides, have):
                return False
        return True

    def _balance(self, sides: list[list[Dim]], have: list[int]) -> bool:
        for side, other in ((1, 0), (0, 1)):
            free = [dim for dim in sides[side] if self.classes.root(dim) not in self.new]
            fixed = have[side] // math.prod(self.classes.size(dim) for dim in free)
            if free and have[other] % fixed == 0:
                return self._fit(free, have[other] // fixed)
        return False

    def _visit_sum(self, step: Step, parts: list[int], whole: int) -> bool:
        shape = self.classes.shape(whole)
        if shape is None or any(self.classes.shape(part) is None for part in parts):
            return True
        axis = integer(step, "axis", 0) % max(1, len(shape))
        total, wanted = sum(self._axis(part, axis) for part in parts), self._axis(whole, axis)
        if total == wanted:
            return True
        root = self.classes.root((whole, axis))
        if root not in self.new or (total < wanted and root not in self.seeds):
            return self._set(root, total)
        for part in sorted(parts, key=lambda part: -self._axis(part, axis)):
            have = self._axis(part, axis)
            if total > wanted and self.classes.root((part, axis)) not in self.new and have > 1:
                less = max(1, have - (total - wanted))
                if not self._set((part, axis), less):
                    return False
                total = sum(self._axis(other, axis) for other in parts)
        return total == wanted

    def _visit_forwards(self, step: Step) -> bool:
        shapes = [self.sizes.shape(number, self.new) if number != ABSENT else None for number in step.inputs]
        outputs = self._infer(step, shapes)
        if outputs is None:
            # The operator is unknown; the inference of the whole model decides.
            return True
        for place, (number, shape) in enumerate(zip(step.outputs, outputs, strict=False)):
            old = self.classes.shape(number) if number != ABSENT else None
            if shape is None or old is None or len(shape) != len(old):
                continue
            for axis, size in enumerate(shape):
                have = self._axis(number, axis)
                if have == size or self._set((number, axis), size):
                    continue
                if not self._pull(step, shapes, place, axis, have):
                    return False
        return True

    def _pull(self, step: Step, shapes: list[Shape | None], output: int, axis: int, wanted: int) -> bool:
        """Find a size of the first input's same axis that makes the output's axis the wanted size."""
        x = shapes[0]
        if x is None or axis >= len(x) or self.classes.root((step.inputs[0], axis)) in self.new:
            return False
        for size in range(1, min(x[axis], _PULLED) + 1):
            outputs = self._infer(step, [(*x[:axis], size, *x[axis + 1 :]), *shapes[1:]])
            if outputs and (found := outputs[output]) is not None and found[axis] == wanted:
                return self._set((step.inputs[0], axis), size)
        return False

    def _infer(self, step: Step, shapes: Sequence[Shape | None]) -> list[Shape | None] | None:
        node = copied(adjust_attributes(step, shapes))
        types: dict[str, onnx.TypeProto] = {}
        known: list[TensorProto] = []
        for place, (number, shape) in enumerate(zip(step.inputs, shapes, strict=True)):
            if number == ABSENT:
                continue
            name = f"i{place}"
            node.input[place] = name
            types[name] = helper.make_tensor_type_proto(self.view.tensors[number].dtype, shape)
            if number in self.view.known:
                known.append(onnx.numpy_helper.from_array(self.view.known[number], name))
        found = onnx_subprocess.outputs(node, types, known, step.version)
        if found is None:
            return None
        return [_static(found.get(name)) for name in node.output]


def _find_factors(limits: list[int], wanted: int) -> list[int] | None:
    """Factor a number, each factor within its limit, the first as large as possible; returns `None` if that
    is impossible.
    """
    if not limits:
        return [] if wanted == 1 else None
    if wanted > math.prod(limits):
        return None
    for factor in range(min(limits[0], wanted), 0, -1):
        if wanted % factor == 0:
            rest = _find_factors(limits[1:], wanted // factor)
            if rest is not None:
                return [factor, *rest]
    return None


def _static(type_: onnx.TypeProto | None) -> Shape | None:
    if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return None
    dims = type_.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None
