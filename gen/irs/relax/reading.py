"""A module from the nodes of TVM's JSON. What a tree cannot hold is refused, nothing is dropped but places in
source files.
"""

import re

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
    MatchCast,
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
    SIZE_OPS,
    AnyType,
    FuncType,
    PrimType,
    RelaxTensorType,
    Shape,
    ShapeType,
    Size,
    SizeOp,
    StringType,
    Sym,
    TupleType,
    Type,
)
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode, Pairs, Value, decode
from opsieve.gen.irs.tvm.tensors import from_node

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def from_json(text: str) -> Module:
    """The module of a JSON graph.

    Raises:
        MalformedGraph: the graph is damaged or hostile, is no module, or has what these trees cannot hold;
            the message says what.
    """
    root = _expect(decode(text), "ir.IRModule")
    return _Reader().module(root)


def _expect(value: Value, *kinds: str) -> ObjectNode:
    if not isinstance(value, ObjectNode) or value.type not in kinds:
        found = value.type if isinstance(value, ObjectNode) else type(value).__name__
        raise MalformedGraph(f"{kinds[0]} expected where the graph has {found[:60]!r}")
    return value


def _items(value: Value) -> tuple[Value, ...]:
    if not isinstance(value, tuple):
        raise MalformedGraph("the graph has no list where one is expected")
    return value


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise MalformedGraph("the graph has no string where one is expected")
    return value


def _dictionary(value: Value) -> tuple[tuple[str, Value], ...]:
    found = None if value is None else _expect(value, "ir.DictAttrs")["__dict__"]
    if found is None:
        return ()
    if not isinstance(found, Pairs):
        raise MalformedGraph("the graph has no map where one is expected")
    return tuple((_text(name), item) for name, item in found.items)


class _Reader:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # of variables, by node
        self._taken: set[str] = set()
        self._bound: dict[int, Var] = {}
        self._types: dict[int, Type] = {}
        self._globals: dict[int, str] = {}

    def module(self, root: ObjectNode) -> Module:
        infos = root.get("global_infos")
        if isinstance(infos, Pairs) and infos.items:
            raise MalformedGraph("modules with devices or meshes among their global infos cannot be read")
        functions = root.get("functions")
        if not isinstance(functions, Pairs):
            raise MalformedGraph("the module has no map of functions")
        pairs = [(_expect(key, "ir.GlobalVar"), value) for key, value in functions.items]
        self._globals = {id(key): _text(key["name_hint"]) for key, _ in pairs}
        if len(set(self._globals.values())) < len(pairs):
            raise MalformedGraph("two functions of the module have one name")
        # What main takes is fed by name: another function with such a name is the one that gets a new one.
        main = next((value for key, value in pairs if self._globals[id(key)] == "main"), None)
        if isinstance(main, ObjectNode) and main.type == "relax.expr.Function":
            for param in _items(main["params"]):
                self.name(_expect(param, "ir.Var"))
        read: list[tuple[str, Function | ObjectNode]] = []
        for key, value in pairs:
            found = _expect(value, "relax.expr.Function", "tirx.PrimFunc")
            made = self.function(found) if found.type == "relax.expr.Function" else found
            read.append((self._globals[id(key)], made))
        return Module(tuple(read), _dictionary(root.get("attrs")))

    def function(self, found: ObjectNode) -> Function:
        params = tuple(self.bind(_expect(item, "ir.Var")) for item in _items(found["params"]))
        body = self.seq(found["body"])
        pure = bool(found["is_pure"])
        return Function(params, body, self.type(found["ret_ty"]), pure, _dictionary(found.get("attrs")))

    def bind(self, found: ObjectNode) -> Var:
        if id(found) in self._bound:
            raise MalformedGraph("a variable of the module is bound twice")
        var = Var(self.name(found), self.type(found["ty"]), found.type == "relax.expr.DataflowVar")
        self._bound[id(found)] = var
        return var

    def name(self, found: ObjectNode) -> str:
        """The name of a variable, made unique in the module."""
        if id(found) not in self._names:
            wanted = _text(found["name"])
            base = wanted if _NAME.fullmatch(wanted) else "v"
            name, number = base, 0
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._taken.add(name)
            self._names[id(found)] = name
        return self._names[id(found)]

    def seq(self, value: Value) -> Seq:
        found = _expect(value, "relax.expr.SeqExpr")
        blocks = tuple(self.block(item) for item in _items(found["blocks"]))
        return Seq(blocks, self.expr(found["body"]))

    def block(self, value: Value) -> BindingBlock:
        found = _expect(value, "relax.expr.BindingBlock", "relax.expr.DataflowBlock")
        bindings = tuple(self.binding(item) for item in _items(found["bindings"]))
        return BindingBlock(bindings, found.type == "relax.expr.DataflowBlock")

    def binding(self, item: Value) -> Binding:
        found = _expect(item, "relax.expr.VarBinding", "relax.expr.MatchCast")
        var = _expect(found["var"], "ir.Var", "relax.expr.DataflowVar")
        if found.type == "relax.expr.MatchCast":
            value, kind = self.expr(found["value"]), self.type(found["ty"])
            return MatchCast(self.bind(var), value, kind)
        if isinstance(found["value"], ObjectNode) and found["value"].type == "relax.expr.Function":
            bound = self.bind(var)  # a local function may call itself
            return Bind(bound, self.expr(found["value"]))
        value = self.expr(found["value"])
        return Bind(self.bind(var), value)

    def expr(self, value: Value) -> Expr:
        if not isinstance(value, ObjectNode):
            raise MalformedGraph("the graph has no expression where one is expected")
        if value.type in ("ir.Var", "relax.expr.DataflowVar"):
            if id(value) in self._bound:
                return self._bound[id(value)]
            kind = self.type(value["ty"])
            if not isinstance(kind, PrimType):
                raise MalformedGraph(
                    f"the variable {_text(value['name'])[:60]!r} is read where it is not bound"
                )
            return Scalar(Sym(self.name(value), kind.dtype), kind.dtype)
        reader = getattr(self, "_" + value.type.rpartition(".")[2].lower(), None)
        if reader is None or value.type not in _EXPRESSIONS:
            if value.type.startswith("prim."):
                return Scalar(self.size(value))
            raise MalformedGraph(f"an expression of type {value.type[:60]!r} cannot be read")
        read: Expr = reader(value)
        return read

    def _genericconst(self, found: ObjectNode) -> Expr:
        return Constant(from_node(_expect(found["value"], "ffi.Tensor")))

    def _intimm(self, found: ObjectNode) -> Expr:
        dtype = _prim(found)
        return Scalar(bool(_integer(found["value"])) if dtype == "bool" else _integer(found["value"]), dtype)

    def _floatimm(self, found: ObjectNode) -> Expr:
        value = found["value"]
        return Scalar(float(value) if isinstance(value, int | float) else 0.0, _prim(found))

    def _shapeexpr(self, found: ObjectNode) -> Expr:
        return ShapeValue(self.shape(found))

    def _stringimm(self, found: ObjectNode) -> Expr:
        return Text(_text(found["value"]))

    def _tuple(self, found: ObjectNode) -> Expr:
        return Tuple(tuple(map(self.expr, _items(found["fields"]))))

    def _tuplegetitem(self, found: ObjectNode) -> Expr:
        return Projection(self.expr(found["tuple_value"]), _integer(found["index"]), self.type(found["ty"]))

    def _globalvar(self, found: ObjectNode) -> Expr:
        if id(found) not in self._globals:
            raise MalformedGraph(
                f"the module has no function {_text(found['name_hint'])[:60]!r} that is called in it"
            )
        return GlobalVar(
            self._globals[id(found)], self.type(found["ty"]) if _is_relax(found["ty"]) else AnyType()
        )

    def _externfunc(self, found: ObjectNode) -> Expr:
        return Extern(_text(found["global_symbol"]), self.type(found["ty"]))

    def _function(self, found: ObjectNode) -> Expr:
        return self.function(found)

    def _if(self, found: ObjectNode) -> Expr:
        condition = self.expr(found["cond"])
        return If(
            condition, self.seq(found["true_branch"]), self.seq(found["false_branch"]), self.type(found["ty"])
        )

    def _call(self, found: ObjectNode) -> Expr:
        callee = found["op"]
        named = isinstance(callee, ObjectNode) and callee.type == "ir.Op"
        op = RelaxOperator(_text(callee.raw)) if named else self.expr(callee)  # type: ignore[union-attr]
        if not isinstance(op, RelaxOperator | GlobalVar | Extern | Var):
            raise MalformedGraph("something is called that is no operator, function or variable")
        args = tuple(map(self.expr, _items(found["args"])))
        type_args = tuple(map(self.type, _items(found["ty_args"])))
        return Call(op, args, self.type(found["ty"]), _attributes(found.get("attrs")), type_args)

    def type(self, value: Value) -> Type:
        if not isinstance(value, ObjectNode):
            raise MalformedGraph("the graph has no type where one is expected")
        if id(value) not in self._types:
            self._types[id(value)] = self.new_type(value)
        return self._types[id(value)]

    def new_type(self, found: ObjectNode) -> Type:
        if found.type == "relax.TensorType":
            if found.get("vdevice") is not None:
                raise MalformedGraph("tensors on a device of their own cannot be read")
            dtype = "" if found["dtype"] is None else _text(_expect(found["dtype"], "ir.PrimType")["dtype"])
            shape = (
                None
                if found["shape"] is None
                else self.shape(_expect(found["shape"], "relax.expr.ShapeExpr"))
            )
            return RelaxTensorType(dtype, shape, _integer(found["ndim"]))
        if found.type == "relax.ShapeType":
            sizes = None if found["values"] is None else self.shape(found)
            return ShapeType(sizes, _integer(found["ndim"]))
        if found.type == "ir.PrimType":
            return PrimType(_text(found["dtype"]))
        if found.type == "ir.TupleType":
            return TupleType(tuple(map(self.type, _items(found["fields"]))))
        if found.type == "relax.FuncType":
            params = None if found["params"] is None else tuple(map(self.type, _items(found["params"])))
            derive = found.get("derive_func")
            name = _text(_expect(derive, "ir.EnvFunc").raw) if derive is not None else ""
            return FuncType(params, self.type(found["ret"]), bool(found["purity"]), name)
        if found.type in ("ir.StringType", "relax.AnyType"):
            return StringType() if found.type == "ir.StringType" else AnyType()
        raise MalformedGraph(f"a type {found.type[:60]!r} cannot be read")

    def shape(self, found: ObjectNode) -> Shape:
        return tuple(map(self.size, _items(found["values"])))

    def size(self, value: Value) -> Size:
        found = _expect(value, "ir.IntImm", "ir.Var", *(f"prim.{op}" for op in SIZE_OPS))
        if found.type == "ir.IntImm":
            return _integer(found["value"])
        if found.type == "ir.Var":
            kind = self.type(found["ty"])
            return Sym(self.name(found), kind.dtype if isinstance(kind, PrimType) else "int64")
        return SizeOp(found.type.removeprefix("prim."), self.size(found["a"]), self.size(found["b"]))


_EXPRESSIONS = frozenset(
    [
        "ir.GenericConst",
        "ir.IntImm",
        "ir.FloatImm",
        "relax.expr.ShapeExpr",
        "ir.StringImm",
        "ir.Tuple",
        "ir.Call",
        "ir.TupleGetItem",
        "ir.GlobalVar",
        "relax.expr.ExternFunc",
        "relax.expr.Function",
        "relax.expr.If",
    ]
)


def _is_relax(value: Value) -> bool:
    return isinstance(value, ObjectNode) and value.type in ("relax.FuncType", "relax.AnyType")


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise MalformedGraph("the graph has no integer where one is expected")
    return int(value)


def _prim(found: ObjectNode) -> str:
    return _text(_expect(found["ty"], "ir.PrimType")["dtype"])


def _attributes(value: Value) -> Attributes | None:
    if value is None:
        return None
    found = value if isinstance(value, ObjectNode) else _expect(value, "ir.Attrs")
    return Attributes(found.type, tuple((name, _plain(item)) for name, item in found.fields.items()))


def _plain(value: Value) -> Value:
    """A number node as the number."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, ObjectNode) and value.type in ("ir.IntImm", "ir.FloatImm"):
        return value["value"]
    return value
