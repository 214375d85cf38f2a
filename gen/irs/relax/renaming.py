"""Names in use in a module, and copies under other names: a variable or symbol belongs to one function."""

from collections.abc import Mapping
from dataclasses import replace

from opsieve.gen.irs.relax.tree import Expr, Module, Scalar, Seq, ShapeValue, Var
from opsieve.gen.irs.relax.types import SizeOp, Sym, Type, concrete, resized, symbols
from opsieve.gen.irs.relax.walk import Rebuild


class Renamed(Rebuild):
    """Copies in which variables and symbols have other names."""

    def __init__(self, variables: Mapping[str, str], by: Mapping[str, Sym]) -> None:
        self._variables, self._by = variables, by

    def type(self, kind: Type) -> Type:
        """A type with its symbols renamed."""
        return concrete(kind, self._by)

    def var(self, var: Var) -> Var:
        """The variable under its new name."""
        return replace(var, name=self._variables.get(var.name, var.name), type=self.type(var.type))

    def leaf(self, expr: Expr) -> Expr:
        """Sizes as values, with their symbols renamed."""
        if isinstance(expr, ShapeValue):
            return ShapeValue(tuple(resized(size, self._by) for size in expr.sizes))
        if isinstance(expr, Scalar) and isinstance(expr.value, Sym | SizeOp):
            return replace(expr, value=resized(expr.value, self._by))
        return expr


class _Names(Rebuild):
    """Collects the names of variables and symbols, in the order of reading."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.symbols: dict[str, None] = {}

    def var(self, var: Var) -> Var:
        self.variables.add(var.name)
        return super().var(var)

    def type(self, kind: Type) -> Type:
        self.symbols.update(dict.fromkeys(symbols(kind)))
        return kind

    def leaf(self, expr: Expr) -> Expr:
        sizes = (
            expr.sizes if isinstance(expr, ShapeValue) else (expr.value,) if isinstance(expr, Scalar) else ()
        )
        self.symbols.update(dict.fromkeys(symbols(tuple(sizes))))
        return expr


def all_names(module: Module) -> set[str]:
    """Every name in use: of functions, variables and symbols."""
    names = _Names()
    names.module(module)
    return {name for name, _ in module.functions} | names.variables | set(names.symbols)


def symbols_in(root: Expr | Seq) -> list[str]:
    """The symbols that stand anywhere below, in types and as values."""
    names = _Names()
    names.seq(root) if isinstance(root, Seq) else names.expr(root)
    return list(names.symbols)
