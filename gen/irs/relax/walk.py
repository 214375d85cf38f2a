"""Going through trees and rebuilding them; copies of parts of a module under other names, sizes and element
types. A variable or symbol belongs to one function.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.tvm.nodes import Array, ObjectNode, to_numpy
from opsieve.gen.irs.view import FreshNames, list_reachable


def _fields(expr: R.Expr, *hows: str) -> Iterator[Any]:
    """Yield the parts of an expression that hold one of these, by the table of kinds."""
    kind = R.BY_CLASS.get(type(expr))
    for part in kind.parts if kind else ():
        if part.how in hows:
            yield getattr(expr, part.name)


def parts(expr: R.Expr) -> Iterator[R.Expr]:
    """Yield the leaves that an operation reads directly, without those in branches and local functions."""
    for part in _fields(expr, "expr", "expr*", "op"):
        if isinstance(part, tuple):
            yield from part
        elif not isinstance(part, R.RelaxOperator | R.Extern):
            yield part


def bodies(expr: R.Expr) -> tuple[R.Seq, ...]:
    """Return the sequences nested in an expression."""
    return tuple(_fields(expr, "seq"))


def expressions(root: R.Expr | R.Seq | R.Binding) -> Iterator[R.Expr]:
    """Yield every expression below, the root first when it is one, then in order of reading; leaves as often
    as they are read.
    """
    if isinstance(root, R.Seq):
        for binding in root.bindings():
            yield from expressions(binding)
        yield from expressions(root.body)
    elif isinstance(root, R.Bind | R.MatchCast):
        yield from expressions(root.value)
    else:
        yield root
        for part in parts(root):
            yield from expressions(part)
        for body in bodies(root):
            yield from expressions(body)


def all_bindings(root: R.Expr | R.Seq) -> Iterator[R.Binding]:
    """Yield every binding below, those nested in a value before the binding itself."""
    if isinstance(root, R.Seq):
        for binding in root.bindings():
            yield from all_bindings(binding.value)
            yield binding
    else:
        for body in bodies(root):
            yield from all_bindings(body)


def functions(module: R.Module) -> Iterator[tuple[str, R.Function]]:
    """Yield the functions of Relax, by name."""
    for name, function in module.functions:
        if isinstance(function, R.Function):
            yield name, function


def reads(root: R.Expr | R.Seq | R.Binding) -> set[str]:
    """Return the names of the variables that are read below, bound there or not."""
    return {item.name for item in expressions(root) if isinstance(item, R.Var)}


def captures(function: R.Function) -> frozenset[str]:
    """Return the variables that a local function reads from around it."""
    bound = {param.name for param in function.params}
    for binding in all_bindings(function.body):
        bound.add(binding.var.name)
        if isinstance(binding.value, R.Function):
            bound.update(param.name for param in binding.value.params)
    return frozenset(reads(function.body) - bound)


def list_called(root: R.Expr | R.Seq) -> set[str]:
    """Return the names of the module's functions referenced below."""
    return {item.name for item in expressions(root) if isinstance(item, R.GlobalVar)}


def find_callers(table: Mapping[str, "R.Function | ObjectNode"], name: str) -> set[str]:
    """Find the functions that call `name`, directly or through others: itself only if it is recursive."""
    calls = {
        caller: list_called(found.body) for caller, found in table.items() if isinstance(found, R.Function)
    }

    def list_direct(callee: str) -> list[str]:
        return [caller for caller, callees in calls.items() if callee in callees]

    return set(list_reachable(list_direct(name), list_direct))


def is_recursive(table: Mapping[str, "R.Function | ObjectNode"], name: str) -> bool:
    """Return whether a function may call itself, directly or through others."""
    return name in find_callers(table, name)


def count(root: R.Expr | R.Seq) -> int:
    """Return how many bindings there are below."""
    return sum(1 for _ in all_bindings(root))


class Rebuild:
    """Rebuilds a tree bottom up; subclasses override the nodes they change. Unchanged parts stay the same
    object.
    """

    def type(self, kind: T.Type) -> T.Type:
        """Rebuild a type, wherever one occurs."""
        return kind

    def leaf(self, expr: R.Expr) -> R.Expr:
        """Rebuild an expression without parts, or a tuple."""
        return expr

    def value(self, expr: R.Expr) -> R.Expr:
        """Rebuild the value of a binding, whose parts are rebuilt already."""
        return expr

    def binding(self, binding: R.Binding) -> tuple[R.Binding, ...]:
        """Return the bindings that replace one whose value is rebuilt already."""
        return (binding,)

    def var(self, var: R.Var) -> R.Var:
        """Rebuild a variable, where it is bound and where it is read."""
        kind = self.type(var.type)
        return var if kind is var.type else replace(var, type=kind)

    def expr(self, expr: R.Expr) -> R.Expr:
        """Rebuild any expression."""
        if isinstance(expr, R.Var):
            return self.leaf(self.var(expr))
        if isinstance(expr, R.Tuple | R.Projection | R.Call | R.If):
            parts = {
                part.name: self.part(part.how, getattr(expr, part.name))
                for part in R.BY_CLASS[type(expr)].parts
            }
            made: R.Expr = type(expr)(**parts)
            return self.leaf(made) if isinstance(made, R.Tuple) else self.value(made)
        if isinstance(expr, R.Function):
            return self.value(self.function(expr))
        return self.leaf(expr)

    def part(self, how: str, value: Any) -> Any:
        """Rebuild a part of an operation, by the table of kinds."""
        if how.endswith("*"):
            return tuple(self.part(how[:-1], item) for item in value)
        if how == "op":
            return value if isinstance(value, R.RelaxOperator | R.Extern) else self.expr(value)
        ways: dict[str, Callable[[Any], Any]] = {"expr": self.expr, "seq": self.seq, "type": self.type}
        return ways[how](value) if how in ways else value

    def function(self, function: R.Function) -> R.Function:
        """Rebuild the parameters, body and result of a function."""
        params = tuple(map(self.var, function.params))
        return replace(
            function, params=params, body=self.seq(function.body), result=self.type(function.result)
        )

    def seq(self, seq: R.Seq) -> R.Seq:
        """Rebuild a sequence; blocks that end up empty are left out."""
        blocks = []
        for block in seq.blocks:
            bindings: list[R.Binding] = []
            for binding in block.bindings:
                value = self.expr(binding.value)
                var = self.var(binding.var)
                if isinstance(binding, R.MatchCast):
                    bindings += self.binding(R.MatchCast(var, value, self.type(binding.type)))
                else:
                    bindings += self.binding(R.Bind(var, value))
            if bindings:
                blocks.append(R.BindingBlock(tuple(bindings), block.dataflow))
        return R.Seq(tuple(blocks), self.expr(seq.body))

    def module(self, module: R.Module) -> R.Module:
        """Rebuild the Relax functions of a module."""
        made = tuple((n, self.function(f) if isinstance(f, R.Function) else f) for n, f in module.functions)
        return R.Module(made, module.attrs)


class Substitute(Rebuild):
    """Replaces variables by leaves, by name."""

    def __init__(self, by: dict[str, R.Expr]) -> None:
        self.by = by

    def leaf(self, expr: R.Expr) -> R.Expr:
        """Return the leaf that replaces a variable."""
        return self.by.get(expr.name, expr) if isinstance(expr, R.Var) else expr


class Retyped(Rebuild):
    """Copies in which sizes and element types are others wherever they stand, in constants and attributes
    too.
    """

    def __init__(self, size: Callable[[T.Size], T.Size], dtype: Callable[[str], str] = str) -> None:
        self._size, self._dtype = size, dtype

    def type(self, kind: T.Type) -> T.Type:
        """Return a type."""
        return T.replace_sizes(kind, self._size, self._dtype)

    def leaf(self, expr: R.Expr) -> R.Expr:
        """Return a shape, a scalar of symbols, or a constant, whose elements are cut or repeated to fit."""
        if isinstance(expr, R.ShapeValue):
            return R.ShapeValue(tuple(map(self._size, expr.sizes)))
        if isinstance(expr, R.Constant):
            kind, old = self.type(expr.type), to_numpy(expr.array)
            if kind == expr.type or old is None or not isinstance(kind, T.RelaxTensorType):
                return expr
            shape = [size for size in kind.shape or () if isinstance(size, int)]
            return make_constant(np.resize(old, shape), kind.dtype)
        if isinstance(expr, R.Scalar) and isinstance(expr.value, T.Sym | T.SizeOp):
            return replace(expr, value=self._size(expr.value))
        return expr

    def value(self, expr: R.Expr) -> R.Expr:
        """Return a call, with the element types among its attributes."""
        if isinstance(expr, R.Call) and expr.attrs is not None:
            # Attributes such as `dtype` and `out_dtype` name element types.
            items = tuple(
                (name, type(v)(self._dtype(v)) if isinstance(v, str) and "dtype" in name else v)
                for name, v in expr.attrs.items
            )
            return replace(expr, attrs=R.Attributes(expr.attrs.kind, items))
        return expr


def make_constant(value: "np.ndarray[Any, Any]", dtype: str) -> R.Constant:
    """Return a constant with the elements of an array, as another element type."""
    return R.Constant(Array(dtype, value.shape, value.astype(np.dtype(dtype)).tobytes()))


class Renamed(Retyped):
    """Copies in which variables and symbols have other names."""

    def __init__(self, variables: Mapping[str, str], by: Mapping[str, T.Sym]) -> None:
        super().__init__(lambda size: T.resolve_size(size, by))
        self._variables = variables

    def var(self, var: R.Var) -> R.Var:
        """Return the variable under its new name."""
        return replace(var, name=self._variables.get(var.name, var.name), type=self.type(var.type))


class _Names(Rebuild):
    """Collects the names of variables and symbols, in the order of reading."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        # A dict, since a set would lose the order of reading.
        self.symbols: dict[str, None] = {}

    def var(self, var: R.Var) -> R.Var:
        self.variables.add(var.name)
        return super().var(var)

    def type(self, kind: T.Type) -> T.Type:
        self.symbols.update(dict.fromkeys(T.symbols(kind)))
        return kind

    def leaf(self, expr: R.Expr) -> R.Expr:
        sizes = (
            expr.sizes
            if isinstance(expr, R.ShapeValue)
            else (expr.value,)
            if isinstance(expr, R.Scalar)
            else ()
        )
        self.symbols.update(dict.fromkeys(T.symbols(tuple(sizes))))
        return expr


def all_names(module: R.Module) -> set[str]:
    """Return every name in use: of functions, variables and symbols."""
    names = _Names()
    names.module(module)
    return {name for name, _ in module.functions} | names.variables | set(names.symbols)


def symbols_in(root: R.Expr | R.Seq) -> list[str]:
    """Return the symbols in a tree, in its types and its values."""
    names = _Names()
    names.seq(root) if isinstance(root, R.Seq) else names.expr(root)
    return list(names.symbols)


def renew(value: R.Expr, names: FreshNames) -> R.Expr:
    """Copy an expression, with new names for the variables bound inside it."""
    found = [binding.var for binding in all_bindings(value)]
    # Local functions bind their parameters too.
    found += [param for expr in expressions(value) if isinstance(expr, R.Function) for param in expr.params]
    return Renamed({var.name: names.fresh(var.name + "_") for var in found}, {}).expr(value)
