"""Read a module from the nodes of TVM's JSON. Content that a tree cannot hold is refused; only source
positions are dropped.
"""

import re
from collections.abc import Callable
from typing import Any

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.tree import EXPRESSIONS, FUNCTION, SEQ, TYPES, Kind
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode, Pairs, Value, decode, from_node

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def from_json(text: str) -> R.Module:
    """Return the module of a JSON graph.

    Raises:
        MalformedGraph: the graph is damaged, hostile, another object, or has what these trees cannot hold;
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
        # Names of variables, by the id of their node.
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self._bound: dict[int, R.Var] = {}
        self._types: dict[int, T.Type] = {}
        self._globals: dict[int, str] = {}
        # How each part of the table of kinds is read.
        self._readers: dict[str, Callable[[Value], Any]] = {
            "expr": self.expr, "seq": self.seq, "type": self.type, "size": self.size, "param": self.param,
            "block": self.block, "op": self.op, "text": _text, "integer": _integer, "flag": bool,
            "array": lambda value: from_node(_expect(value, "ffi.Tensor")), "dictionary": _dictionary,
            "attributes": _attributes, "element": lambda value: "" if value is None else _prim(value),
            "derivation": lambda value: "" if value is None else _text(_expect(value, "ir.EnvFunc").raw),
            "shape": lambda value: self.part("size*", _expect(value, "relax.expr.ShapeExpr")["values"]),
        }  # fmt: skip

    def part(self, how: str, value: Value) -> Any:
        """Read a part, as the table of kinds says."""
        if how.endswith("?"):
            return None if value is None else self.part(how[:-1], value)
        if how.endswith("*"):
            return tuple(self.part(how[:-1], item) for item in _items(value))
        return self._readers[how](value)

    def node(self, kind: Kind, found: ObjectNode) -> Any:
        """Read a node of a kind."""
        return kind.tree(**{name: self.part(how, found.get(field)) for field, name, how in kind.parts})

    def module(self, root: ObjectNode) -> R.Module:
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
        # Inputs are fed by name, so main's parameters take theirs first; equal names elsewhere are changed.
        main = next((value for key, value in pairs if self._globals[id(key)] == "main"), None)
        if isinstance(main, ObjectNode) and main.type == "relax.expr.Function":
            for param in _items(main["params"]):
                self.name(_expect(param, "ir.Var"))
        read: list[tuple[str, R.Function | ObjectNode]] = []
        for key, value in pairs:
            found = _expect(value, "relax.expr.Function", "tirx.PrimFunc")
            made = self.node(FUNCTION, found) if found.type == FUNCTION.key else found
            read.append((self._globals[id(key)], made))
        return R.Module(tuple(read), _dictionary(root.get("attrs")))

    def param(self, value: Value) -> R.Var:
        return self.bind(_expect(value, "ir.Var"))

    def bind(self, found: ObjectNode) -> R.Var:
        if id(found) in self._bound:
            raise MalformedGraph("a variable of the module is bound twice")
        var = R.Var(self.name(found), self.type(found["ty"]), found.type == "relax.expr.DataflowVar")
        self._bound[id(found)] = var
        return var

    def name(self, found: ObjectNode) -> str:
        """Return the name of a variable, made unique in the module."""
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

    def seq(self, value: Value) -> R.Seq:
        seq: R.Seq = self.node(SEQ, _expect(value, SEQ.key))
        return seq

    def block(self, value: Value) -> R.BindingBlock:
        found = _expect(value, "relax.expr.BindingBlock", "relax.expr.DataflowBlock")
        bindings = tuple(self.binding(item) for item in _items(found["bindings"]))
        return R.BindingBlock(bindings, found.type == "relax.expr.DataflowBlock")

    def binding(self, item: Value) -> R.Binding:
        found = _expect(item, "relax.expr.VarBinding", "relax.expr.MatchCast")
        var = _expect(found["var"], "ir.Var", "relax.expr.DataflowVar")
        if found.type == "relax.expr.MatchCast":
            value, kind = self.expr(found["value"]), self.type(found["ty"])
            return R.MatchCast(self.bind(var), value, kind)
        if isinstance(found["value"], ObjectNode) and found["value"].type == "relax.expr.Function":
            # Bound before its body is read, since a local function may call itself.
            return R.Bind(self.bind(var), self.expr(found["value"]))
        value = self.expr(found["value"])
        return R.Bind(self.bind(var), value)

    def expr(self, value: Value) -> R.Expr:
        if not isinstance(value, ObjectNode):
            raise MalformedGraph("the graph has no expression where one is expected")
        if value.type in ("ir.Var", "relax.expr.DataflowVar"):
            if id(value) in self._bound:
                return self._bound[id(value)]
            kind = self.type(value["ty"])
            if not isinstance(kind, T.PrimType):
                raise MalformedGraph(
                    f"the variable {_text(value['name'])[:60]!r} is read where it is not bound"
                )
            return R.Scalar(T.Sym(self.name(value), kind.dtype), kind.dtype)
        if value.type in EXPRESSIONS:
            expr: R.Expr = self.node(EXPRESSIONS[value.type], value)
            return expr
        if value.type in ("ir.IntImm", "ir.FloatImm"):
            return self.number(value)
        if value.type == "ir.GlobalVar":
            return self.function_name(value)
        if value.type.startswith("prim."):
            return R.Scalar(self.size(value))
        raise MalformedGraph(f"an expression of type {value.type[:60]!r} cannot be read")

    def number(self, found: ObjectNode) -> R.Scalar:
        dtype, value = _prim(found["ty"]), found["value"]
        if found.type == "ir.FloatImm":
            return R.Scalar(float(value) if isinstance(value, int | float) else 0.0, dtype)
        return R.Scalar(bool(_integer(value)) if dtype == "bool" else _integer(value), dtype)

    def function_name(self, found: ObjectNode) -> R.GlobalVar:
        if id(found) not in self._globals:
            raise MalformedGraph(
                f"the module has no function {_text(found['name_hint'])[:60]!r} that is called in it"
            )
        type_ = found["ty"]
        is_relax = isinstance(type_, ObjectNode) and type_.type in ("relax.FuncType", "relax.AnyType")
        kind = self.type(type_) if is_relax else T.AnyType()
        return R.GlobalVar(self._globals[id(found)], kind)

    def op(self, callee: Value) -> R.Expr | R.RelaxOperator:
        if isinstance(callee, ObjectNode) and callee.type == "ir.Op":
            return R.RelaxOperator(_text(callee.raw))
        op = self.expr(callee)
        if not isinstance(op, R.GlobalVar | R.Extern | R.Var):
            raise MalformedGraph("something is called that is not an operator, function or variable")
        return op

    def type(self, value: Value) -> T.Type:
        if not isinstance(value, ObjectNode):
            raise MalformedGraph("the graph has no type where one is expected")
        if id(value) not in self._types:
            if value.type not in TYPES:
                raise MalformedGraph(f"a type {value.type[:60]!r} cannot be read")
            if value.get("vdevice") is not None:
                raise MalformedGraph("tensors on a device of their own cannot be read")
            self._types[id(value)] = self.node(TYPES[value.type], value)
        return self._types[id(value)]

    def size(self, value: Value) -> T.Size:
        found = _expect(value, "ir.IntImm", "ir.Var", *(f"prim.{op}" for op in T.SIZE_OPS))
        if found.type == "ir.IntImm":
            return _integer(found["value"])
        if found.type == "ir.Var":
            kind = self.type(found["ty"])
            return T.Sym(self.name(found), kind.dtype if isinstance(kind, T.PrimType) else "int64")
        return T.SizeOp(found.type.removeprefix("prim."), self.size(found["a"]), self.size(found["b"]))


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise MalformedGraph("the graph has no integer where one is expected")
    return int(value)


def _prim(value: Value) -> str:
    return _text(_expect(value, "ir.PrimType")["dtype"])


def _attributes(value: Value) -> R.Attributes:
    found = value if isinstance(value, ObjectNode) else _expect(value, "ir.Attrs")
    return R.Attributes(found.type, tuple((name, _plain(item)) for name, item in found.fields.items()))


def _plain(value: Value) -> Value:
    """Return a number node as the number."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, ObjectNode) and value.type in ("ir.IntImm", "ir.FloatImm"):
        return value["value"]
    return value
