"""Modules of Relax as plain trees: frozen, typed, compared by value, without TVM.

A variable is known by its name, which is unique in a module (as symbols are). The form is TVM's own normal
form: the value of a binding is one operation on leaves, and leaves are variables, constants, shapes, scalars,
strings, and tuples of leaves. A kernel of TIR (`PrimFunc`) and what stands in attributes is kept as the nodes
of TVM's JSON. Source: apache-tvm 0.27, `tvm.relax.expr`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from opsieve.gen.irs.relax import types as T
from opsieve.gen.irs.tvm.nodes import Array, ObjectNode, Value


@dataclass(frozen=True, slots=True)
class Var:
    """A variable. One of a dataflow block (`dataflow`) is not seen outside it."""

    name: str
    type: T.Type
    dataflow: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that the module holds."""

    array: Array

    @property
    def type(self) -> T.RelaxTensorType:
        """Its type, always static."""
        return T.RelaxTensorType(self.array.dtype, self.array.shape)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar (`R.prim_value`): a number, or arithmetic of symbols."""

    value: T.Size | float | bool
    dtype: str = "int64"

    @property
    def type(self) -> T.PrimType:
        """Its type."""
        return T.PrimType(self.dtype)


@dataclass(frozen=True, slots=True)
class ShapeValue:
    """A shape."""

    sizes: T.Shape

    @property
    def type(self) -> T.ShapeType:
        """Its type."""
        return T.ShapeType(self.sizes)


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str

    @property
    def type(self) -> T.StringType:
        """Its type."""
        return T.StringType()


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of leaves."""

    fields: tuple["Expr", ...]

    @property
    def type(self) -> T.TupleType:
        """Its type."""
        return T.TupleType(tuple(item.type for item in self.fields))


@dataclass(frozen=True, slots=True)
class Projection:
    """A field of a tuple."""

    tuple: "Expr"
    index: int
    type: T.Type


@dataclass(frozen=True, slots=True)
class GlobalVar:
    """A function of the module, by name."""

    name: str
    type: T.Type = field(default_factory=T.AnyType, compare=False)


@dataclass(frozen=True, slots=True)
class RelaxOperator:
    """An operator, `relax.add`."""

    name: str


@dataclass(frozen=True, slots=True)
class Extern:
    """A packed function of the runtime, by its registered name; `type` is that of its node."""

    name: str
    type: T.Type


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of a call: the key of their type and their values, in the order of the schema."""

    kind: str
    items: tuple[tuple[str, Value], ...]

    def get(self, name: str) -> Value:
        """Return a value, or None."""
        return dict(self.items).get(name)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator, a function of the module, a packed function, or a closure (a variable)."""

    op: "RelaxOperator | GlobalVar | Extern | Var"
    args: tuple["Expr", ...]
    type: T.Type
    attrs: Attributes | None = None
    type_args: tuple[T.Type, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """A branch on a boolean scalar tensor. The branches have types that `type` is general enough for."""

    condition: "Expr"
    then: "Seq"
    other: "Seq"
    type: T.Type


@dataclass(frozen=True, slots=True)
class Bind:
    """`var = value`."""

    var: Var
    value: "Expr"


@dataclass(frozen=True, slots=True)
class MatchCast:
    """`var = R.match_cast(value, type)`: the value is checked at run time and the symbols in `type` that are
    new get their values.
    """

    var: Var
    value: "Expr"
    type: T.Type


Binding = Bind | MatchCast


@dataclass(frozen=True, slots=True)
class BindingBlock:
    """Bindings in order; a `dataflow` block is pure and has no branches."""

    bindings: tuple[Binding, ...]
    dataflow: bool = False


@dataclass(frozen=True, slots=True)
class Seq:
    """Blocks of bindings, and the leaf that is the value of the whole."""

    blocks: tuple[BindingBlock, ...]
    body: "Expr"

    @property
    def type(self) -> T.Type:
        """That of its value."""
        return self.body.type

    def bindings(self) -> Iterator[Binding]:
        """Yield the bindings of all blocks, without nested ones."""
        for block in self.blocks:
            yield from block.bindings


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module, or a local one. `attrs` are those that TVM knows by name (`global_symbol`,
    `Primitive`, ...).
    """

    params: tuple[Var, ...]
    body: Seq
    result: T.Type
    pure: bool = True
    attrs: tuple[tuple[str, Value], ...] = ()

    @property
    def type(self) -> T.FuncType:
        """Its type."""
        return T.FuncType(tuple(param.type for param in self.params), self.result, self.pure)


Expr = (
    Var
    | Constant
    | Scalar
    | ShapeValue
    | Text
    | Tuple
    | Projection
    | GlobalVar
    | Extern
    | Call
    | If
    | Function
)


@dataclass(frozen=True, slots=True)
class Module:
    """The functions of a module by name, in order; a kernel of TIR is the `tirx.PrimFunc` node of TVM's
    JSON.
    """

    functions: tuple[tuple[str, "Function | ObjectNode"], ...]
    attrs: tuple[tuple[str, Value], ...] = ()

    def get(self, name: str) -> "Function | ObjectNode | None":
        """Return a function by name."""
        return dict(self.functions).get(name)

    @property
    def main(self) -> Function:
        """The function that is run.

        Raises:
            ValueError: there is none.
        """
        found = self.get("main")
        if not isinstance(found, Function):
            raise ValueError("the module has no function main")
        return found
