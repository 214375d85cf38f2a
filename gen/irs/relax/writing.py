"""A module as the nodes of TVM's JSON."""

from opsieve.gen.irs.relax.tree import (
    Attributes,
    Bind,
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Extern,
    Function,
    GlobalVar,
    If,
    Module,
    Projection,
    RelaxOperator,
    Scalar,
    Seq,
    ShapeValue,
    Text,
    Tuple,
    Var,
)
from opsieve.gen.irs.relax.types import (
    FuncType,
    PrimType,
    RelaxTensorType,
    Shape,
    ShapeType,
    Size,
    StringType,
    Sym,
    TupleType,
    Type,
)
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs, Value, encode, schema
from opsieve.gen.irs.tvm.tensors import to_node


def to_json(module: Module) -> str:
    """TVM's JSON of a module; equal modules give equal text."""
    return encode(_Writer(module).module())


def node(kind: str, /, **fields: Value) -> ObjectNode:
    """A node of TVM's JSON, the fields that are not given left empty."""
    return ObjectNode(kind, fields)


def number(value: int | float | bool, dtype: str) -> ObjectNode:
    """The node of a scalar number."""
    kind = "ir.FloatImm" if dtype.startswith(("float", "bfloat")) else "ir.IntImm"
    return node(
        kind, ty=node("ir.PrimType", dtype=dtype), value=float(value) if kind == "ir.FloatImm" else int(value)
    )


class _Writer:
    def __init__(self, module: Module) -> None:
        self._module = module
        self._vars: dict[str, ObjectNode] = {}
        self._types: dict[Type, ObjectNode] = {}
        self._sizes: dict[Size, ObjectNode] = {}
        self._globals = {name: node("ir.GlobalVar", name_hint=name) for name, _ in module.functions}

    def module(self) -> ObjectNode:
        functions: list[tuple[Value, Value]] = []
        for name, function in self._module.functions:
            written = self.function(function) if isinstance(function, Function) else function
            self._globals[name].fields["ty"] = written["ty"]
            functions.append((self._globals[name], written))
        return node(
            "ir.IRModule",
            functions=Pairs(tuple(functions)),
            global_var_map_=Pairs(tuple(self._globals.items())),
            source_map=node("ir.SourceMap", source_map=Pairs()),
            attrs=_dictionary(self._module.attrs),
            global_infos=Pairs(),
        )

    def function(self, function: Function) -> ObjectNode:
        params = tuple(map(self.var, function.params))
        return node(
            "relax.expr.Function",
            ty=self.type(function.type),
            attrs=_dictionary(function.attrs),
            params=params,
            body=self.seq(function.body),
            ret_ty=self.type(function.result),
            is_pure=function.pure,
        )

    def seq(self, seq: Seq) -> ObjectNode:
        blocks = tuple(map(self.block, seq.blocks))
        return node("relax.expr.SeqExpr", ty=self.type(seq.type), blocks=blocks, body=self.expr(seq.body))

    def block(self, block: BindingBlock) -> ObjectNode:
        kind = "relax.expr.DataflowBlock" if block.dataflow else "relax.expr.BindingBlock"
        return node(kind, bindings=tuple(map(self.binding, block.bindings)))

    def binding(self, binding: Binding) -> ObjectNode:
        var, value = self.var(binding.var), self.expr(binding.value)
        if isinstance(binding, Bind):
            return node("relax.expr.VarBinding", var=var, value=value)
        return node("relax.expr.MatchCast", var=var, value=value, ty=self.type(binding.type))

    def var(self, var: Var) -> ObjectNode:
        if var.name not in self._vars:
            kind = "relax.expr.DataflowVar" if var.dataflow else "ir.Var"
            self._vars[var.name] = node(kind, ty=self.type(var.type), name=var.name)
        return self._vars[var.name]

    def expr(self, expr: Expr) -> ObjectNode:
        if isinstance(expr, Var):
            return self.var(expr)
        if isinstance(expr, Constant):
            return node("ir.GenericConst", ty=self.type(expr.type), value=to_node(expr.array))
        if isinstance(expr, Scalar):
            if isinstance(expr.value, int | float):  # a boolean is an int here
                return number(expr.value, expr.dtype)
            return self.size(expr.value)
        if isinstance(expr, ShapeValue):
            return self.shape(expr.sizes)
        if isinstance(expr, Text):
            return node("ir.StringImm", ty=self.type(expr.type), value=expr.value)
        if isinstance(expr, Tuple):
            return node("ir.Tuple", ty=self.type(expr.type), fields=tuple(map(self.expr, expr.fields)))
        if isinstance(expr, GlobalVar):
            return self._globals[expr.name]
        if isinstance(expr, Extern):
            attrs = _dictionary(())
            return node(
                "relax.expr.ExternFunc", ty=self.type(expr.type), attrs=attrs, global_symbol=expr.name
            )
        return self.operation(expr)

    def operation(self, expr: "Projection | Call | If | Function") -> ObjectNode:
        if isinstance(expr, Projection):
            whole = self.expr(expr.tuple)
            return node("ir.TupleGetItem", ty=self.type(expr.type), tuple_value=whole, index=expr.index)
        if isinstance(expr, Function):
            return self.function(expr)
        if isinstance(expr, If):
            condition, kind = self.expr(expr.condition), self.type(expr.type)
            then, other = self.seq(expr.then), self.seq(expr.other)
            return node("relax.expr.If", ty=kind, cond=condition, true_branch=then, false_branch=other)
        op = (
            ObjectNode("ir.Op", raw=expr.op.name)
            if isinstance(expr.op, RelaxOperator)
            else self.expr(expr.op)
        )
        return node(
            "ir.Call",
            ty=self.type(expr.type),
            op=op,
            args=tuple(map(self.expr, expr.args)),
            attrs=None if expr.attrs is None else _attributes(expr.attrs),
            ty_args=tuple(map(self.type, expr.type_args)),
        )

    def type(self, kind: Type) -> ObjectNode:
        if kind not in self._types:
            self._types[kind] = self.new_type(kind)
        return self._types[kind]

    def new_type(self, kind: Type) -> ObjectNode:
        if isinstance(kind, RelaxTensorType):
            shape = None if kind.shape is None else self.shape(kind.shape)
            dtype = self.type(PrimType(kind.dtype)) if kind.dtype else None
            return node("relax.TensorType", shape=shape, dtype=dtype, ndim=kind.rank)
        if isinstance(kind, ShapeType):
            sizes = None if kind.sizes is None else tuple(map(self.size, kind.sizes))
            return node("relax.ShapeType", values=sizes, ndim=kind.rank)
        if isinstance(kind, PrimType):
            return node("ir.PrimType", dtype=kind.dtype)
        if isinstance(kind, TupleType):
            return node("ir.TupleType", fields=tuple(map(self.type, kind.fields)))
        if isinstance(kind, FuncType):
            params = None if kind.params is None else tuple(map(self.type, kind.params))
            derive = ObjectNode("ir.EnvFunc", raw=kind.derive) if kind.derive else None
            return node(
                "relax.FuncType",
                params=params,
                ret=self.type(kind.result),
                derive_func=derive,
                purity=kind.pure,
            )
        return node("ir.StringType" if isinstance(kind, StringType) else "relax.AnyType")

    def shape(self, sizes: Shape) -> ObjectNode:
        kind = self.type(ShapeType(sizes))
        return node("relax.expr.ShapeExpr", ty=kind, values=kind["values"])

    def size(self, size: Size) -> ObjectNode:
        if size not in self._sizes:
            self._sizes[size] = self.new_size(size)
        return self._sizes[size]

    def new_size(self, size: Size) -> ObjectNode:
        if isinstance(size, int):
            return number(size, "int64")
        if isinstance(size, Sym):
            return self.var(Var(size.name, PrimType(size.dtype)))
        left, right = self.size(size.left), self.size(size.right)
        return node(f"prim.{size.op}", ty=self.type(PrimType("int64")), a=left, b=right)


def _dictionary(items: tuple[tuple[str, Value], ...]) -> ObjectNode:
    return node("ir.DictAttrs", __dict__=Pairs(items))


def _attributes(attrs: Attributes) -> ObjectNode:
    declared = schema().get(attrs.kind, {})
    return ObjectNode(
        attrs.kind, {name: _immediate(value, declared.get(name, "")) for name, value in attrs.items}
    )


def _immediate(value: Value, declared: str) -> Value:
    """A plain number as the node that the field wants."""
    if isinstance(value, tuple):
        return tuple(_immediate(item, declared) for item in value)
    if isinstance(value, int | float) and "ir.FloatImm" in declared:
        return number(float(value), "float32")
    # the sections of a split
    if isinstance(value, int) and ("ir.IntImm" in declared or declared == "@ffi.Object"):
        return number(value, "int64")
    return value
