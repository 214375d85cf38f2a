"""Classes of dimensions (tensor, axis) that must stay equal, found by running the operators' declarations
(gen/analysis/size_ties.py).

Two dimensions are in one class if changing one alone would make the model invalid or change a type that is
not computed from it. A rule only tells which sizes are equal *at the current sizes*: dimensions of size 1 are
left out, because they neither shrink nor hold a broadcast partner. An operator whose declaration does not
cover a node is treated as elementwise if its inputs broadcast to its output, otherwise as one that keeps the
shape of its first input if it does; the inference of the shrunk model checks all of this.
"""

from collections.abc import Callable, Iterator, Sequence

from onnx import helper

from opsieve.gen.analysis.size_ties import Tie, size_ties
from opsieve.gen.analysis.validity import read_attributes
from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.irs.onnx.view import attribute_of, schema_of
from opsieve.gen.model.structure import Ports, ports_of
from opsieve.gen.model.tensors import DTYPES
from opsieve.reducer.onnx_edit.typed_view import ABSENT, Step, UnionFind, View

_INTEGERS = {"", "tensor(int32)", "tensor(int64)"}
# Tensor number, axis
Dim = tuple[int, int]
Shape = tuple[int, ...]


class Classes(UnionFind[Dim]):
    """The classes of the dimensions of a view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        for step in view.steps:
            _unify(self, step)
        self._couple_targets()

    def _couple_targets(self) -> None:
        """Outputs whose sizes one shared constant tells shrink together."""
        users: dict[int, int] = {}
        for step in self.view.steps:
            listed = catalogue.shape_input(step.node.domain, step.node.op_type)
            if listed is None or listed >= len(step.inputs) or not step.outputs:
                continue
            target, out = step.inputs[listed], step.outputs[0]
            sizes = self.view.known.get(target)
            # All outputs are coupled to the first one that the constant tells the sizes of.
            first = users.setdefault(target, out)
            shape = self.shape(out)
            if first == out or sizes is None or shape is None or sizes.ndim != 1:
                continue
            for back, size in enumerate(sizes[::-1].tolist(), 1):
                if size > 1:
                    self.join((first, len(self.shape(first) or ()) - back), (out, len(shape) - back))

    def join(self, a: Dim, b: Dim) -> None:
        """Put two dimensions into one class, if they have one size and it is not 1."""
        size = self.size(a)
        if size != 1 and size == self.size(b):
            self.unite(a, b)

    def size(self, dim: Dim) -> int:
        """Return the size of a dimension; 1 if its tensor's shape is unknown."""
        shape = self.view.tensors[dim[0]].shape
        return shape[dim[1]] if shape is not None and 0 <= dim[1] < len(shape) else 1

    def shape(self, number: int) -> Shape | None:
        """Return the shape of a tensor; `None` if it is absent or unknown."""
        return None if number == ABSENT else self.view.tensors[number].shape


def integer(step: Step, name: str, default: int) -> int:
    """Return an integer attribute of a node."""
    attribute = attribute_of(step.node, name)
    return default if attribute is None else attribute.i


def integers(step: Step, name: str) -> list[int] | None:
    """Return a list attribute of a node; `None` if it is absent."""
    attribute = attribute_of(step.node, name)
    return None if attribute is None else list(helper.get_attribute_value(attribute))


def is_counted(view: View, number: int) -> bool:
    """Return whether a node reads a tensor as a vector of axes, sizes or places.

    The operator takes only integers there, and does not call them indices of any rank (a single `Tind`;
    where several inputs are of that type, they are vectors).
    """
    tensor = view.tensors[number]
    if DTYPES.get(tensor.dtype) not in ("int64", "int32") or len(tensor.shape or ()) != 1:
        return False
    for step in view.steps:
        if number in step.inputs:
            schema = schema_of(step.node.op_type, step.node.domain, step.version)
            if schema is None or not schema.inputs:
                return True
            kind = schema.inputs[min(step.inputs.index(number), len(schema.inputs) - 1)].type_str
            allowed = {each.type_param_str: set(each.allowed_type_strs) for each in schema.type_constraints}
            vectors = kind != "Tind" or sum(each.type_str == kind for each in schema.inputs) > 1
            if vectors and allowed.get(kind, {kind}) <= _INTEGERS:
                return True
    return False


def axes_of(classes: Classes, step: Step, rank: int) -> set[int] | None:
    """Return the axes that a node names by attribute or by a known second input, possibly an empty set;
    `None` if unknown.
    """
    found = integers(step, "axes")
    if found is None and len(step.inputs) > 1 and step.inputs[1] != ABSENT:
        array = classes.view.known.get(step.inputs[1])
        if array is None:
            return None
        found = [int(item) for item in array.ravel()]
    return {axis % rank if rank else 0 for axis in found or ()}


def factors(left: Shape, right: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Group the axes of two shapes with one product into minimal groups of equal product, without axes of
    size 1.
    """
    a = [axis for axis, size in enumerate(left) if size != 1]
    b = [axis for axis, size in enumerate(right) if size != 1]
    i = j = 0
    while i < len(a) and j < len(b):
        ins, outs = [a[i]], [b[j]]
        have, want = left[a[i]], right[b[j]]
        i, j = i + 1, j + 1
        while have != want:
            if have < want and i < len(a):
                have *= left[a[i]]
                ins.append(a[i])
                i += 1
            elif want < have and j < len(b):
                want *= right[b[j]]
                outs.append(b[j])
                j += 1
            else:
                return
        yield ins, outs


def _unify(classes: Classes, step: Step) -> None:
    for body in step.bodies:
        _unify_body(classes, step, body.inputs, body.outputs)
    if step.bodies:
        return
    by_value = _BY_VALUE.get(catalogue.size_rule(step.node.domain, step.node.op_type))
    if by_value is not None:
        by_value(classes, step)
    operator = catalogue.operators().get(catalogue.qualified_name(step.node.domain, step.node.op_type))
    ties = None if operator is None else _declared_ties(classes, step, operator)
    # A declaration without relations says nothing about sizes.
    if operator is None or ties is None or operator.requires is declaration.nothing:
        _default(classes, step)
    if ties is None:
        return
    numbers = (*step.inputs, *step.outputs)
    for (a, axis), (b, other) in ties:
        classes.join((numbers[a], axis), (numbers[b], other))


def _declared_ties(classes: Classes, step: Step, operator: declaration.Operator) -> list[Tie] | None:
    """Return the ties of a declaration; `None` if it does not cover this node."""
    attrs = read_attributes(step.node.attribute)
    ins = [None if number == ABSENT else _make_tensor(classes, number) for number in step.inputs]
    known = all(
        tensor is not None for tensor, number in zip(ins, step.inputs, strict=True) if number != ABSENT
    )
    if attrs is None or not known:
        return None
    return size_ties(operator, ins, attrs, [classes.shape(number) for number in step.outputs])


def _make_tensor(classes: Classes, number: int) -> Tensor | None:
    tensor, values = classes.view.tensors[number], classes.view.known.get(number)
    if tensor.shape is None or tensor.dtype not in DTYPES:
        return None
    elements = None if values is None else tuple(values.ravel().tolist())
    return Tensor(tensor.name, DTYPES[tensor.dtype], tensor.shape, values=elements)


def _unify_body(classes: Classes, step: Step, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """Unify the dimensions of bodies. If: outputs equal the body's. Loop and Scan: carried values keep their
    shape; scanned axes are left to inference.
    """
    count = len(step.inputs)
    # A SequenceMap hands tensors on as they are.
    ports = Ports(0, 0, 0, count) if step.node.op_type == "SequenceMap" else ports_of(step.node)
    given, inner = step.inputs[ports.operands :], inputs[ports.inputs :]
    made = outputs[ports.results :]
    for one, other in (
        *zip(given[: ports.states], inner, strict=False),
        *zip(inner[: ports.states], made, strict=False),
        *zip(step.outputs, made, strict=False),
    ):
        _same(classes, one, other)
    # An If stacks nothing, and its body is given no operand.
    for outer, one in (
        *zip(given[ports.states :], inner[ports.states :], strict=False),
        *(zip(step.outputs[ports.states :], made[ports.states :], strict=False) if inputs else ()),
    ):
        # The outer tensor has one more leading axis.
        for axis in range(len(classes.shape(one) or ())):
            classes.join((outer, axis + 1), (one, axis))


def _same(classes: Classes, a: int, b: int) -> None:
    left, right = classes.shape(a), classes.shape(b)
    if left is not None and right is not None and len(left) == len(right):
        for axis in range(len(left)):
            classes.join((a, axis), (b, axis))


def _join_trailing(classes: Classes, number: int, onto: int) -> None:
    """Join the last axes of one tensor with the last of another, as broadcasting does."""
    small, large = classes.shape(number), classes.shape(onto)
    if small is None or large is None:
        return
    for back in range(1, min(len(small), len(large)) + 1):
        classes.join((number, len(small) - back), (onto, len(large) - back))


def _elementwise(classes: Classes, step: Step) -> None:
    for output in step.outputs:
        for number in step.inputs:
            if output != ABSENT and number != ABSENT:
                _join_trailing(classes, number, output)


def _default(classes: Classes, step: Step) -> None:
    shapes = [classes.shape(number) for number in step.inputs if number != ABSENT]
    out = classes.shape(step.outputs[0]) if step.outputs else None
    if out is None or not shapes or shapes[0] is None:
        return
    if all(shape is not None and _broadcasts(shape, out) for shape in shapes):
        _elementwise(classes, step)
        return
    for output in step.outputs:
        if output != ABSENT and classes.shape(output) == shapes[0]:
            _same(classes, output, step.inputs[0])


def _broadcasts(shape: Shape, onto: Shape) -> bool:
    tail = onto[len(onto) - len(shape) :] if len(shape) <= len(onto) else None
    return tail is not None and all(size in (1, want) for size, want in zip(shape, tail, strict=True))


def _join_regrouped(classes: Classes, step: Step) -> None:
    """Join axes that stand alone on both sides of a group (Reshape, Flatten, Squeeze, Unsqueeze)."""
    x, out = step.inputs[0], step.outputs[0]
    for ins, outs in factors(classes.shape(x) or (), classes.shape(out) or ()):
        if len(ins) == len(outs) == 1:
            classes.join((x, ins[0]), (out, outs[0]))


def _join_equal(classes: Classes, step: Step) -> None:
    """Join axes whose size is equal on both sides (Slice, Pad, Resize, Tile, TopK, CumSum and the like)."""
    for output in step.outputs:
        left, right = classes.shape(step.inputs[0]) or (), classes.shape(output) or ()
        if len(left) == len(right):
            for axis in range(len(left)):
                classes.join((step.inputs[0], axis), (output, axis))


def _cut(classes: Classes, step: Step) -> None:
    """Join the vectors of bounds, whose common length is the number of sliced axes."""
    _join_equal(classes, step)
    for number in step.inputs[2:]:
        if number != ABSENT:
            classes.join((step.inputs[1], 0), (number, 0))


# Rules for sizes that depend on the values of an input, which relations between sizes cannot express.
_BY_VALUE: dict[declaration.SizeRule, Callable[[Classes, Step], None]] = {
    declaration.SizeRule.REGROUPED: _join_regrouped,
    declaration.SizeRule.RESCALED: _join_equal,
    declaration.SizeRule.CUT: _cut,
    # The sizes of an Expand equal those of its input except where these are 1.
    declaration.SizeRule.GROWN: lambda classes, step: _join_trailing(
        classes, step.inputs[0], step.outputs[0]
    ),
}
