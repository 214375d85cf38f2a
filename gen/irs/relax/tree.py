"""Modules of Relax as plain trees: frozen, typed, compared by value, without TVM.

A variable is known by its name, which is unique in a module (as symbols are). The form is TVM's own normal
form: the value of a binding is one operation on leaves, and leaves are variables, constants, shapes, scalars,
strings, and tuples of leaves. A kernel of TIR (`PrimFunc`) and what stands in attributes is kept as the nodes
of TVM's JSON. Source: apache-tvm 0.27, `tvm.relax.expr`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class Part(NamedTuple):
    """A field of a kind of node.

    Attributes:
        field: Its name in TVM's JSON.
        name: Its name in the tree.
        how: Its contents: `expr`, `seq`, `type`, ...; with `*` for a list of them, with `?` where it may be
            missing.
    """

    field: str
    name: str
    how: str


class Kind(NamedTuple):
    """A kind of node: its type in TVM, its class in the trees, and its parts in the order of reading."""

    key: str
    tree: type[Any]
    parts: tuple[Part, ...]


def _kind(key: str, tree: type[Any], *parts: str) -> Kind:
    """Return a kind whose parts are written `FIELD NAME HOW`."""
    return Kind(key, tree, tuple(Part(*part.split()) for part in parts))


SEQ = _kind("relax.expr.SeqExpr", Seq, "blocks blocks block*", "body body expr")
FUNCTION = _kind(
    "relax.expr.Function", Function, "params params param*", "body body seq", "is_pure pure flag",
    "ret_ty result type", "attrs attrs dictionary",
)  # fmt: skip
_EXPRESSIONS = (
    FUNCTION,
    _kind("ir.GenericConst", Constant, "value array array"),
    _kind("relax.expr.ShapeExpr", ShapeValue, "values sizes size*"),
    _kind("ir.StringImm", Text, "value value text"),
    _kind("ir.Tuple", Tuple, "fields fields expr*"),
    _kind("ir.TupleGetItem", Projection, "tuple_value tuple expr", "index index integer", "ty type type"),
    _kind("relax.expr.ExternFunc", Extern, "global_symbol name text", "ty type type"),
    _kind(
        "ir.Call", Call,
        "op op op", "args args expr*", "ty type type", "ty_args type_args type*", "attrs attrs attributes?",
    ),
    _kind(
        "relax.expr.If", If,
        "cond condition expr", "true_branch then seq", "false_branch other seq", "ty type type",
    ),
)  # fmt: skip
_TYPES = (
    _kind(
        "relax.TensorType", T.RelaxTensorType,
        "dtype dtype element", "shape shape shape?", "ndim rank integer",
    ),
    _kind("relax.ShapeType", T.ShapeType, "values sizes size*?", "ndim rank integer"),
    _kind("ir.PrimType", T.PrimType, "dtype dtype text"),
    _kind("ir.TupleType", T.TupleType, "fields fields type*"),
    _kind(
        "relax.FuncType", T.FuncType,
        "params params type*?", "ret result type", "purity pure flag", "derive_func derive derivation",
    ),
    _kind("ir.StringType", T.StringType), _kind("relax.AnyType", T.AnyType),
)  # fmt: skip

EXPRESSIONS: Mapping[str, Kind] = {kind.key: kind for kind in _EXPRESSIONS}
TYPES: Mapping[str, Kind] = {kind.key: kind for kind in _TYPES}
BY_CLASS: Mapping[type[Any], Kind] = {kind.tree: kind for kind in (SEQ, *_EXPRESSIONS, *_TYPES)}
