"""Generate PyTorch programs: arithmetic with promotion, views, writes into views, reductions, indexing,
gradients, conditions.

Every value carries its element type and shape, as torch has them, so each call is valid. A value that may
overlap itself (`expand`) is never written to, because torch leaves the result of that open.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.torch.gradients import BACKWARD, BROADCASTING
from opsieve.gen.irs.torch.graph import CONDITION, Argument, Branch, Ref, TorchCall, TorchGraph, Word
from opsieve.gen.irs.view import Array
from opsieve.gen.model.tensors import TensorType

_FLOATS = ("float32", "float64", "float16")
_INTEGERS = ("int64", "int32", "uint8")
# How often inputs have each type
_INPUT_TYPES = ("float32",) * 8 + ("float64", "float16", "int64", "int64", "int32", "uint8", "bool", "bool")
# Expansions would multiply sizes without this bound.
_MOST_ELEMENTS = 4096
# They take any numbers and give floats between -1 and 1, or none that is far from the operand.
_BOUNDED = ("sigmoid", "tanh", "sin", "cos")
_SIGNED = ("neg", "abs", "relu")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A value of the program. `writable`: no two of its elements share memory; `dense`: it is contiguous;
    `memory`: the value whose memory it is in.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    writable: bool = True
    dense: bool = True
    memory: str = ""

    @property
    def rank(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def category(self) -> int:
        """Return 0 for bool, 1 for integers, 2 for floats: the higher one decides a promotion."""
        return 0 if self.dtype == "bool" else 2 if self.dtype in _FLOATS else 1


def promote_types(a: Drawn, b: Drawn) -> str:
    """Return the element type of what two values make together, by torch's rules."""
    if a.category != b.category:
        return (a if a.category > b.category else b).dtype
    # Within a category a tensor without dimensions does not widen one that has some.
    if (a.rank == 0) != (b.rank == 0):
        return (a if a.rank else b).dtype
    order = (*reversed(_INTEGERS), "float16", "float32", "float64")
    return a.dtype if a.dtype == b.dtype else max(a.dtype, b.dtype, key=order.index)


class NoValue(Exception):
    """A program in which no value fits a call that was chosen."""


@dataclass
class _Draft:
    """A program that grows."""

    rng: Rng
    inputs: list[Drawn] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    calls: list[TorchCall] = field(default_factory=list)
    values: list[Drawn] = field(default_factory=list)

    def pick_value(self, fits: Callable[[Drawn], bool] = lambda value: True) -> Drawn:
        """Return a value that fits, a recent one more often. Raises NoValue."""
        found = [value for value in self.values if fits(value)]
        if not found:
            raise NoValue
        # Recent values make chains, in which passes of inductor meet.
        return self.rng.choice(found[-4:] if self.rng.chance(0.6) else found)

    def add_call(self, operator: str, made: Drawn | None, *args: Argument, **kwargs: Argument) -> None:
        """Add a call; `made` has the type of its result, whose name is chosen here."""
        name = f"v{len(self.calls)}"
        self.calls.append(
            TorchCall(operator, args, tuple(kwargs.items()), (name,), many=operator == CONDITION)
        )
        if made is not None:
            self.values.append(replace(made, name=name, memory=made.memory or name))

    def draw_shape(self) -> tuple[int, ...]:
        """Return a small shape; ranks 2 and 3 are the usual ones."""
        rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        return tuple(self.rng.choice((1, 2, 3, 4, 5, 8, 16)) for _ in range(rank))

    def add_constant(self, array: Array) -> Ref:
        """Add a stored tensor."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return Ref(name)


def generate_graph(rng: Rng, calls: int) -> TorchGraph:
    """Return a program of about so many calls."""
    draft = _Draft(rng)
    for place in range(rng.between(1, 3)):
        shape = draft.draw_shape()
        name = f"x{place}"
        draft.inputs.append(Drawn(name, rng.choice(_INPUT_TYPES), shape, memory=name))
    draft.values += draft.inputs
    # Many draws find no operand that fits; the bound ends a program to which nothing fits any more.
    for _ in range(4 * calls):
        if len(draft.calls) >= calls:
            break
        with suppress(NoValue):
            rng.choice(_WAYS)(draft)
    if not draft.calls:
        _draw_unary(draft)
    read = {name for call in draft.calls for name in call.reads()}
    made = [value for value in draft.values if value not in draft.inputs]
    # Every unread value is returned, since torch would drop it, and some that are read, which keeps them from
    # being fused away.
    outputs = [value.name for value in made if value.name not in read or rng.chance(0.15)]
    types = {value.name: TensorType(value.dtype, value.shape) for value in draft.values}
    strides = {}
    for value in draft.inputs:
        # Compilers choose other code for inputs that are not contiguous.
        if value.rank > 1 and rng.chance(0.2):
            strides[value.name] = _permuted_strides(rng, value.shape)
    names = tuple(value.name for value in draft.inputs)
    graph_outputs = tuple(outputs or [draft.values[-1].name])
    return TorchGraph(names, draft.constants, tuple(draft.calls), graph_outputs, types, strides)


def _permuted_strides(rng: Rng, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor whose dimensions lie in another order."""
    order = rng.shuffle_items(range(len(shape)))
    return np.empty([shape[axis] for axis in order], np.int8).transpose(np.argsort(order)).strides


def _draw_unary(draft: _Draft) -> None:
    value = draft.pick_value()
    plain = (("logical_not",), ("neg", "abs", "bitwise_not"), _BOUNDED + _SIGNED)[value.category]
    to_float = value.category < 2 and draft.rng.chance(0.3)
    name = draft.rng.choice(_BOUNDED if to_float else plain)
    dtype = "float32" if to_float else value.dtype
    draft.add_call(f"aten.{name}.default", Drawn("", dtype, value.shape), Ref(value.name))


def _draw_binary(draft: _Draft) -> None:
    a = draft.pick_value()
    b = draft.pick_value(lambda each: broadcast(a.shape, each.shape) is not None)
    shape = broadcast(a.shape, b.shape) or ()
    if draft.rng.chance(0.2):
        name = draft.rng.choice(("gt", "le", "eq", "ne"))
        draft.add_call(f"aten.{name}.Tensor", Drawn("", "bool", shape), Ref(a.name), Ref(b.name))
        return
    dtype = promote_types(a, b)
    # torch subtracts no booleans.
    plain = ("mul", "maximum", "minimum", "add")
    name = draft.rng.choice(plain if "bool" in (a.dtype, b.dtype) else (*plain, "sub"))
    overload = "default" if name in ("maximum", "minimum") else "Tensor"
    draft.add_call(f"aten.{name}.{overload}", Drawn("", dtype, shape), Ref(a.name), Ref(b.name))


def _draw_scalar(draft: _Draft) -> None:
    """Add or multiply with a number of Python's, which promotes by its kind alone."""
    value = draft.pick_value()
    number: Argument = draft.rng.choice((1, 2, -1, 0.5, -1.5))
    kind = 2 if isinstance(number, float) else 1
    dtype = value.dtype if value.category >= kind else ("int64", "float32")[kind - 1]
    name = draft.rng.choice(("add", "mul", "sub"))
    # torch subtracts no booleans, not even numbers from them.
    if name == "sub" and value.category == 0:
        return
    draft.add_call(f"aten.{name}.Tensor", Drawn("", dtype, value.shape), Ref(value.name), number)


def _draw_where(draft: _Draft) -> None:
    chosen = draft.pick_value(lambda each: each.dtype == "bool")
    a = draft.pick_value(lambda each: broadcast(chosen.shape, each.shape) is not None)
    shape = broadcast(chosen.shape, a.shape) or ()
    b = draft.pick_value(lambda each: broadcast(shape, each.shape) == shape)
    made = Drawn("", promote_types(a, b), shape)
    draft.add_call("aten.where.self", made, Ref(chosen.name), Ref(a.name), Ref(b.name))


def _draw_view(draft: _Draft) -> None:
    value = draft.pick_value(lambda each: each.rank > 0)
    rng, shape, held = draft.rng, value.shape, Ref(value.name)
    axis = rng.below(value.rank)
    other = rng.below(value.rank)
    size = shape[axis]

    def made(new: Sequence[int], writable: bool = True) -> Drawn:
        return Drawn("", value.dtype, tuple(new), value.writable and writable, False, value.memory)

    before, after = shape[:axis], shape[axis + 1 :]
    way = rng.below(8)
    if way == 0:
        swapped = list(shape)
        swapped[axis], swapped[other] = swapped[other], swapped[axis]
        draft.add_call("aten.transpose.int", made(swapped), held, axis, other)
    elif way == 1:
        start, step = rng.below(size), rng.choice((1, 1, 2))
        draft.add_call(
            "aten.slice.Tensor",
            made((*before, len(range(start, size, step)), *after)),
            *(held, axis, start, size, step),
        )
    elif way == 2:
        draft.add_call("aten.select.int", made((*before, *after)), held, axis, rng.below(size))
    elif way == 3:
        draft.add_call("aten.unsqueeze.default", made((*before, 1, *shape[axis:])), held, axis)
    elif way == 4:
        lead = rng.choice((2, 3))
        grown = tuple(lead if each == 1 else each for each in shape)
        draft.add_call("aten.expand.default", made((lead, *grown), False), held, (lead, *grown))
    elif way == 5:
        draft.add_call("aten.reshape.default", made((int(np.prod(shape)),), value.dense), held, (-1,))
    elif way == 6 and value.rank > 1 and axis != other:
        left = [each for place, each in enumerate(shape) if place not in (axis, other)]
        draft.add_call("aten.diagonal.default", made((*left, min(size, shape[other]))), held, 0, axis, other)
    else:
        draft.add_call("aten.flip.default", Drawn("", value.dtype, shape), held, (axis,))


def _draw_write(draft: _Draft) -> None:
    """Write to a value in place; what is a view of it, or it of, changes too."""
    value = draft.pick_value(lambda each: each.writable and each.rank > 0)
    held, way = Ref(value.name), draft.rng.below(5)

    # torch refuses a source that overlaps what is written.
    def fits(each: Drawn) -> bool:
        same = (each.dtype, each.memory != value.memory) == (value.dtype, True)
        return same and broadcast(value.shape, each.shape) == value.shape

    # The result is the value itself, under another name.
    if way == 0:
        draft.add_call("aten.copy_.default", value, held, Ref(draft.pick_value(fits).name))
    elif way == 1 and value.category > 0:
        name = draft.rng.choice(("aten.add_.Tensor", "aten.mul_.Tensor"))
        draft.add_call(name, value, held, Ref(draft.pick_value(fits).name))
    elif way == 2 and value.category == 2:
        draft.add_call(f"aten.{draft.rng.choice(('sigmoid_', 'relu_', 'neg_'))}.default", value, held)
    elif way == 3 and value.category > 0:
        draft.add_call("aten.clamp_.default", value, held, 0, 2)
    else:
        draft.add_call("aten.fill_.Scalar", value, held, draft.rng.below(2))


def _draw_reduction(draft: _Draft) -> None:
    value = draft.pick_value(lambda each: each.rank > 0)
    axis, keep = draft.rng.below(value.rank), draft.rng.chance(0.5)
    left = (*value.shape[:axis], *([1] if keep else []), *value.shape[axis + 1 :])
    held = Ref(value.name)
    # torch sums integers and booleans in int64.
    summed = value.dtype if value.category == 2 else "int64"
    way = draft.rng.below(4)
    if way == 0:
        draft.add_call("aten.sum.dim_IntList", Drawn("", summed, left), held, (axis,), keep)
    elif way == 1 and value.category == 2:
        draft.add_call("aten.mean.dim", Drawn("", value.dtype, left), held, (axis,), keep)
    elif way == 2:
        name = draft.rng.choice(("amax", "amin"))
        draft.add_call(f"aten.{name}.default", Drawn("", value.dtype, left), held, (axis,), keep)
    else:
        draft.add_call("aten.cumsum.default", Drawn("", summed, value.shape), held, axis)


def _draw_index(draft: _Draft) -> None:
    value = draft.pick_value(lambda each: each.rank > 0)
    rng, held, axis = draft.rng, Ref(value.name), draft.rng.below(value.rank)
    size = value.shape[axis]
    # Repeated indices are meant: gathers allow them, and a fill writes one value.
    index = np.array([rng.below(size) for _ in range(rng.between(1, 4))], np.int64)
    if rng.chance(0.3) and value.writable:
        draft.add_call("aten.index_fill_.int_Scalar", value, held, axis, draft.add_constant(index), 1)
        return
    shape = (*value.shape[:axis], len(index), *value.shape[axis + 1 :])
    draft.add_call(
        "aten.index_select.default", Drawn("", value.dtype, shape), held, axis, draft.add_constant(index)
    )


def _draw_convert(draft: _Draft) -> None:
    value = draft.pick_value()
    # What a float outside the range of an integer becomes differs between compilers.
    allowed = (*_FLOATS, "bool") if value.category == 2 else (*_FLOATS, "int64", "int32")
    dtype = draft.rng.choice(allowed)
    if draft.rng.chance(0.3):
        draft.add_call("aten.clone.default", Drawn("", value.dtype, value.shape), Ref(value.name))
    else:
        made, word = Drawn("", dtype, value.shape), Word("dtype", dtype)
        draft.add_call("aten._to_copy.default", made, Ref(value.name), dtype=word)


def _draw_join(draft: _Draft) -> None:
    a = draft.pick_value(lambda each: each.rank > 0)
    b = draft.pick_value(lambda each: (each.dtype, each.shape) == (a.dtype, a.shape))
    if 2 * int(np.prod(a.shape)) > _MOST_ELEMENTS:
        return
    axis = draft.rng.below(a.rank)
    shape = (*a.shape[:axis], 2 * a.shape[axis], *a.shape[axis + 1 :])
    draft.add_call("aten.cat.default", Drawn("", a.dtype, shape), (Ref(a.name), Ref(b.name)), axis)


def _draw_product(draft: _Draft) -> None:
    a = draft.pick_value(lambda each: each.rank == 2 and each.category == 2)
    other = Drawn("", a.dtype, (a.shape[1], draft.rng.choice((1, 2, 4, 8))))
    # Quarters from -1 to 1 are exact in every float type.
    array = np.array([draft.rng.below(9) - 4 for _ in range(int(np.prod(other.shape)))]) / 4
    weight = draft.add_constant(array.reshape(other.shape).astype(a.dtype))
    draft.add_call("aten.mm.default", Drawn("", a.dtype, (a.shape[0], other.shape[1])), Ref(a.name), weight)


def _draw_backward(draft: _Draft) -> None:
    """Add the gradient of a value along one path, as the graph of a backward pass has it."""
    made = {call.key: call for call in draft.calls}
    value = draft.pick_value(
        lambda each: each.category == 2 and each.name in made and made[each.name].operator in BACKWARD
    )
    draft.add_call("aten.ones_like.default", replace(value, memory="", writable=False), Ref(value.name))
    types = {each.name: each for each in draft.values}
    while value.name in made and (call := made[value.name]).operator in BACKWARD:
        operand = next(call.reads())
        if operand not in types or types[operand].dtype != value.dtype:
            return
        if call.operator in BROADCASTING and types[operand].shape != value.shape:
            return
        value = types[operand]
        operator, *args = BACKWARD[call.operator](Ref(draft.calls[-1].key), call, value.shape)
        draft.add_call(operator, Drawn("", value.dtype, value.shape, False, False), *args)


def _draw_condition(draft: _Draft) -> None:
    """Compute one of two values by `torch.cond`, whose branches write to nothing."""
    value = draft.pick_value(lambda each: each.category == 2)
    draft.add_call("aten.any.default", Drawn("", "bool", ()), Ref(value.name))
    types = {name: TensorType(value.dtype, value.shape) for name in "ay"}
    calls = (
        TorchCall(f"aten.{name}.default", (Ref("a"),), (), ("y",))
        for name in draft.rng.shuffle_items(_BOUNDED + _SIGNED)[:2]
    )
    sides = [Branch(TorchGraph(("a",), {}, (call,), ("y",), types)) for call in calls]
    made = Drawn("", value.dtype, value.shape)
    draft.add_call(CONDITION, made, Ref(draft.calls[-1].key), *sides, (Ref(value.name),))


_WAYS: tuple[Callable[[_Draft], None], ...] = (
    *(_draw_unary, _draw_binary, _draw_binary, _draw_scalar, _draw_where),
    *(_draw_view, _draw_view, _draw_view, _draw_write, _draw_write),
    *(_draw_reduction, _draw_index, _draw_convert, _draw_join, _draw_product, _draw_backward),
    _draw_condition,
)


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape that two shapes broadcast to; `None` if they do not fit, or it is large."""
    try:
        found = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        return None
    return found if np.prod(found, dtype=np.int64) <= _MOST_ELEMENTS else None
