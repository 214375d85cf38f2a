"""Copies of parts of a module under other names, sizes and element types. A variable or symbol belongs to one
function.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from opsieve.gen.irs.edits import FreshNames
from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.walk import Rebuild, all_bindings, expressions
from opsieve.gen.irs.tvm.tensors import Array, to_numpy


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
    found += [param for expr in expressions(value) if isinstance(expr, R.Function) for param in expr.params]
    return Renamed({var.name: names.fresh(var.name + "_") for var in found}, {}).expr(value)
