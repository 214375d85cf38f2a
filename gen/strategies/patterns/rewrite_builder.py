"""Add the nodes of a rewrite to a program, with all of its conditions met or one of them broken."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from opsieve.gen.declarations.catalogue import OpChoice, form, operators
from opsieve.gen.declarations.tensor import ANY, NUMBER, Domain, Tensor, is_float
from opsieve.gen.generation.pattern_builder import Misfit, PatternBuilder
from opsieve.gen.graph.adapters import is_within
from opsieve.gen.graph.graph import Shape
from opsieve.gen.graph.graph_builder import GraphBuilder
from opsieve.gen.graph.parameters import feed_numbers

PROPERTIES: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType({
    "rank": lambda x: len(x.shape),
    "shape": lambda x: x.shape,
    "size": lambda x: math.prod(x.shape),
    "dtype": lambda x: x.dtype,
    # All sizes but the last one or two, and all but the first one or two
    "head": lambda x: x.shape[:-1],
    "batch": lambda x: x.shape[:-2],
    "tail": lambda x: x.shape[1:],
    "sides": lambda x: x.shape[2:],
})  # fmt: skip
# Functions of rewrites beside operators. Those of lists come first.
_LISTS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType({
    "inverse": lambda order: tuple(order.index(axis) for axis in range(len(order))),
    "swapped": lambda rank, a, b: tuple(
        {a % rank: b % rank, b % rank: a % rank}.get(at, at) for at in range(rank)
    ),
    "ranged": lambda *ends: tuple(range(*ends)),
    "replaced": lambda shape, axis, side: tuple(
        side if at == axis % len(shape) else size for at, size in enumerate(shape)
    ),
    "least": min,
    "most": max,
})  # fmt: skip
FUNCTIONS: Final = frozenset(
    ("data", "tensor", "weight", "input", "const", "ints", "fed", "partner", "shuffled", *_LISTS)
)
_PARAMETERS: Final = ("initializer", "initializer", "constant")
# A condition on uses is broken by an output or by a second reader.
_READER_SHARE: Final = 0.5
_TURNED_SHARE: Final = 0.05


class RewriteBuilder(PatternBuilder):
    """Evaluates a rewrite. `state` is the number of the state that breaks a condition (0: all are met).

    `onto` is the tensor at which the rewrite begins, unchanged. Afterwards `inner` holds tensors inside of
    it.
    """

    def __init__(self, builder: GraphBuilder, state: int = 0, onto: Tensor | None = None) -> None:
        super().__init__(builder)
        self.rng = builder.rng
        self.state = state
        self.onto = onto
        # Values by the names of their lines
        self.values: dict[str, Any] = {}
        self.inner: list[Tensor] = []
        self._made: list[Tensor] = []
        # The number of outputs that the line at hand names
        self._outputs = 1

    def name_values(self, names: Sequence[str], value: Callable[["RewriteBuilder"], Any]) -> Any:
        """Evaluate a line and give its value a name; several names are those of a node's outputs."""
        self._outputs = len(names)
        made = value(self)
        self.values.update(zip(names, self._made if len(names) > 1 else [made], strict=False))
        return made

    def limit_uses(self, name: str, state: int) -> Tensor:
        """Note an inner tensor that the rewrite requires to have one reader; in that state it has another."""
        tensor: Tensor = self.values[name]
        self.inner.append(tensor)
        if self.state == state:
            if is_float(tensor.dtype) and self.rng.chance(_READER_SHARE):
                self.op("Neg", tensor)
            else:
                self.builder.program.exposed.append(tensor)
        return tensor

    def call(self, name: str, inputs: list[Any], named: dict[str, Any]) -> Any:
        """Return a new tensor or list: of a function, or the first output of an operator."""
        if name in _LISTS:
            return _LISTS[name](*inputs)
        if name in FUNCTIONS:
            method: Callable[..., Any] = getattr(self, f"make_{name}")
            return method(*inputs, **named)
        # An input at the end that is left out is not written.
        while inputs and inputs[-1] is None:
            inputs.pop()
        # Later opsets have an input in place of these attributes.
        had = form(name, self.builder.opset)
        late = [key for key in ("axes", "split") if key in named and had and key not in had.attributes]
        inputs += [self.make_ints(named.pop(key)) for key in late]
        if "to" in named:
            named["to"] = NUMBER[named["to"]]
        if had is not None and not named.keys() <= had.attributes.keys():
            raise Misfit
        least = 1 if had is None else sum(not each.optional for each in had.outputs)
        self._made = self.ops(name, *inputs, outputs=max(least, self._outputs), **named)
        return self._made[0]

    def size_of(self, tensor: Any, axis: int) -> Any:
        """Return a size of a tensor, or an element of a list.

        Raises:
            Misfit: If there is no such axis.
        """
        shape = tensor.shape if isinstance(tensor, Tensor) else tensor
        if not -len(shape) <= axis < len(shape):
            raise Misfit
        return shape[axis]

    # Functions

    def make_data(
        self, kind: str, low: int, high: int = 0, least: float = -math.inf, most: float = math.inf
    ) -> Tensor:
        """Return a tensor at which a rewrite begins, chosen like an operator's first input."""
        high, domain = high or low, _bound(least, most)
        if self.onto is not None:
            # Only the first tensor of a rewrite is linked.
            found, self.onto = self.onto, None
            typed = is_float(found.dtype) if kind == "float" else found.dtype == kind
            if typed and low <= found.rank <= high and is_within(self.builder, found, domain):
                return found
            raise Misfit
        wanted = self._name_dtype(kind)
        return self.builder.first(
            OpChoice(operators()["Identity"], frozenset((wanted,)), (wanted,), low, high, domain)
        )

    def make_tensor(
        self, like: Any, shape: Shape, least: float = -math.inf, most: float = math.inf
    ) -> Tensor:
        """Return a tensor of a shape, existing or new."""
        return self.builder.match(self._name_dtype(like), shape, _bound(least, most))

    def make_partner(self, x: Tensor, least: float = -math.inf, most: float = math.inf) -> Tensor:
        """Return a tensor that broadcasts to the shape of another."""
        return self.builder.partner(x, _bound(least, most), oneway=True)

    def make_weight(self, like: Any, shape: Shape, least: float = -1, most: float = 1) -> Tensor:
        """Return a parameter that the program holds, at times transposed by a node: one more rewrite meets
        this one.
        """
        turned = len(shape) > 1 and self.rng.chance(_TURNED_SHARE)
        made = self.builder.leaf(
            self._name_dtype(like), shape[::-1] if turned else shape, _bound(least, most), _PARAMETERS
        )
        return self.op("Transpose", made) if turned else made

    def make_input(self, like: Any, shape: Shape, least: float = -1, most: float = 1) -> Tensor:
        """Return a parameter that is an input of the program."""
        return self.builder.leaf(self._name_dtype(like), shape, _bound(least, most), ("input",))

    def make_const(self, like: Any, value: Any, shape: Shape | None = None) -> Tensor:
        """Return a constant: of a number, a scalar unless a shape is given; of a list, a vector."""
        sides = (len(value),) if type(value) is tuple else shape or ()
        values = value if type(value) is tuple else (value,) * math.prod(sides)
        return self.builder.constant(values, self._name_dtype(like), sides)

    def make_ints(self, *values: Any) -> Tensor:
        """Return a constant vector of int64."""
        return self.builder.constant(values[0] if type(values[0]) is tuple else values)

    def make_fed(self, *values: Any) -> Tensor:
        """Return a vector of int64 that is an input of the program, with these elements."""
        numbers = values[0] if type(values[0]) is tuple else values
        return feed_numbers(self.builder.program, numbers, "int64", (len(numbers),))

    def make_shuffled(self, rank: int) -> Shape:
        """Return a permutation of axes."""
        return tuple(self.rng.shuffle_items(range(rank)))

    def _name_dtype(self, like: Any) -> str:
        """Return the dtype of a tensor or of a name; `float` is a float dtype of the palette."""
        if isinstance(like, Tensor):
            return like.dtype
        if like != "float":
            return str(like)
        floats = [dtype for dtype in self.builder.style.palette if is_float(dtype)]
        return self.rng.choice(floats) if floats else "float32"


def _bound(least: float, most: float) -> Domain:
    """Return the domain between two numbers."""
    return ANY if math.isinf(least) and math.isinf(most) else Domain(least, most)
