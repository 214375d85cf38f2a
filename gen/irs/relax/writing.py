"""A module as the nodes of TVM's JSON."""

from collections.abc import Callable
from typing import Any

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs, Value, encode, schema, to_node


def to_json(module: R.Module) -> str:
    """Return TVM's JSON of a module; equal modules give equal text."""
    return encode(_Writer(module).module())


def node(kind: str, /, **fields: Value) -> ObjectNode:
    """Return a node of TVM's JSON, the fields that are not given left empty."""
    return ObjectNode(kind, fields)


def number(value: int | float | bool, dtype: str) -> ObjectNode:
    """Return the node of a scalar number."""
    kind = "ir.FloatImm" if dtype.startswith(("float", "bfloat")) else "ir.IntImm"
    return node(
        kind, ty=node("ir.PrimType", dtype=dtype), value=float(value) if kind == "ir.FloatImm" else int(value)
    )


class _Writer:
    def __init__(self, module: R.Module) -> None:
        self._module = module
        self._vars: dict[str, ObjectNode] = {}
        self._types: dict[T.Type, ObjectNode] = {}
        self._sizes: dict[T.Size, ObjectNode] = {}
        self._globals = {name: node("ir.GlobalVar", name_hint=name) for name, _ in module.functions}
        # Writers for the parts of the table of kinds; a part without a writer is written as it is.
        self._writers: dict[str, Callable[[Any], Value]] = {
            "expr": self.expr, "seq": self.node, "type": self.type, "size": self.size, "param": self.var,
            "block": self.block, "op": self.op, "array": to_node, "dictionary": _dictionary,
            "attributes": _attributes, "shape": lambda sizes: self.node(R.ShapeValue(sizes)),
            "element": lambda dtype: self.type(T.PrimType(dtype)) if dtype else None,
            "derivation": lambda name: ObjectNode("ir.EnvFunc", raw=name) if name else None,
        }  # fmt: skip

    def part(self, how: str, value: Any) -> Value:
        """Write a part, as the table of kinds says."""
        if how.endswith("?"):
            return None if value is None else self.part(how[:-1], value)
        if how.endswith("*"):
            return tuple(self.part(how[:-1], item) for item in value)
        written: Value = self._writers[how](value) if how in self._writers else value
        return written

    def node(self, item: Any) -> ObjectNode:
        """Write an expression, a sequence or a type that is in the table of kinds."""
        kind = R.BY_CLASS[type(item)]
        fields = {field: self.part(how, getattr(item, name)) for field, name, how in kind.parts}
        if "ty" in schema()[kind.key]:
            fields["ty"] = self.type(item.type)
        return ObjectNode(kind.key, fields)

    def module(self) -> ObjectNode:
        functions: list[tuple[Value, Value]] = []
        for name, function in self._module.functions:
            written = self.node(function) if isinstance(function, R.Function) else function
            # Set afterwards, since a function may refer to itself and to later ones.
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

    def block(self, block: R.BindingBlock) -> ObjectNode:
        kind = "relax.expr.DataflowBlock" if block.dataflow else "relax.expr.BindingBlock"
        return node(kind, bindings=tuple(map(self.binding, block.bindings)))

    def binding(self, binding: R.Binding) -> ObjectNode:
        var, value = self.var(binding.var), self.expr(binding.value)
        if isinstance(binding, R.Bind):
            return node("relax.expr.VarBinding", var=var, value=value)
        return node("relax.expr.MatchCast", var=var, value=value, ty=self.type(binding.type))

    def var(self, var: R.Var) -> ObjectNode:
        # TVM compares variables by identity, so each is one node wherever it occurs.
        if var.name not in self._vars:
            kind = "relax.expr.DataflowVar" if var.dataflow else "ir.Var"
            self._vars[var.name] = node(kind, ty=self.type(var.type), name=var.name)
        return self._vars[var.name]

    def expr(self, expr: R.Expr) -> ObjectNode:
        if isinstance(expr, R.Var):
            return self.var(expr)
        if isinstance(expr, R.GlobalVar):
            return self._globals[expr.name]
        if isinstance(expr, R.Scalar):
            # `bool` is a subclass of `int` in Python, so this covers it.
            if isinstance(expr.value, int | float):
                return number(expr.value, expr.dtype)
            return self.size(expr.value)
        written = self.node(expr)
        if isinstance(expr, R.Extern):
            written.fields["attrs"] = _dictionary(())
        return written

    def op(self, op: "R.RelaxOperator | R.GlobalVar | R.Extern | R.Var") -> ObjectNode:
        return ObjectNode("ir.Op", raw=op.name) if isinstance(op, R.RelaxOperator) else self.expr(op)

    def type(self, kind: T.Type) -> ObjectNode:
        if kind not in self._types:
            self._types[kind] = self.node(kind)
        return self._types[kind]

    def size(self, size: T.Size) -> ObjectNode:
        if size not in self._sizes:
            self._sizes[size] = self.new_size(size)
        return self._sizes[size]

    def new_size(self, size: T.Size) -> ObjectNode:
        if isinstance(size, int):
            return number(size, "int64")
        if isinstance(size, T.Sym):
            return self.var(R.Var(size.name, T.PrimType(size.dtype)))
        left, right = self.size(size.left), self.size(size.right)
        return node(f"prim.{size.op}", ty=self.type(T.PrimType("int64")), a=left, b=right)


def _dictionary(items: tuple[tuple[str, Value], ...]) -> ObjectNode:
    return node("ir.DictAttrs", __dict__=Pairs(items))


def _attributes(attrs: R.Attributes) -> ObjectNode:
    declared = schema().get(attrs.kind, {})
    return ObjectNode(
        attrs.kind, {name: _immediate(value, declared.get(name, "")) for name, value in attrs.items}
    )


def _immediate(value: Value, declared: str) -> Value:
    """Return a plain number as the node that the field wants."""
    if isinstance(value, tuple):
        return tuple(_immediate(item, declared) for item in value)
    if isinstance(value, int | float) and "ir.FloatImm" in declared:
        return number(float(value), "float32")
    # The sections of a split are declared as any object.
    if isinstance(value, int) and ("ir.IntImm" in declared or declared == "@ffi.Object"):
        return number(value, "int64")
    return value
