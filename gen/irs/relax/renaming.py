"""Names in use in a module, and copies under other names: a variable or symbol belongs to one function."""

from collections.abc import Mapping
from dataclasses import replace

from opsieve.gen.irs.relax.tree import Expr, Function, MatchCast, Module, Scalar, Seq, ShapeValue, Var
from opsieve.gen.irs.relax.types import Size, SizeOp, Sym, Type, symbols, with_sizes
from opsieve.gen.irs.relax.walk import Rebuild, all_bindings, functions


def all_names(module: Module) -> set[str]:
    """Every name in use: of functions, variables and symbols."""
    found = {name for name, _ in module.functions}
    for _, function in functions(module):
        variables = [*function.params, *(binding.var for binding in all_bindings(function.body))]
        variables += [
            p for b in all_bindings(function.body) if isinstance(b.value, Function) for p in b.value.params
        ]
        for var in variables:
            found.add(var.name)
            found.update(symbols(var.type))
        for binding in all_bindings(function.body):
            if isinstance(binding, MatchCast):
                found.update(symbols(binding.type))
    return found


def renamed_size(size: Size, by: Mapping[str, Sym]) -> Size:
    """A size with symbols replaced."""
    if isinstance(size, Sym):
        return by.get(size.name, size)
    if isinstance(size, SizeOp):
        return SizeOp(size.op, renamed_size(size.left, by), renamed_size(size.right, by))
    return size


def renamed_type(kind: Type, by: Mapping[str, Sym]) -> Type:
    """A type with symbols replaced."""
    return with_sizes(kind, lambda size: renamed_size(size, by))


class Renamed(Rebuild):
    """Copies in which variables and symbols have other names."""

    def __init__(self, variables: Mapping[str, str], by: Mapping[str, Sym]) -> None:
        self._variables, self._by = variables, by

    def type(self, kind: Type) -> Type:
        """A type with its symbols renamed."""
        return renamed_type(kind, self._by)

    def var(self, var: Var) -> Var:
        """The variable under its new name."""
        return replace(var, name=self._variables.get(var.name, var.name), type=self.type(var.type))

    def leaf(self, expr: Expr) -> Expr:
        """Sizes as values, with their symbols renamed."""
        if isinstance(expr, ShapeValue):
            return ShapeValue(tuple(renamed_size(size, self._by) for size in expr.sizes))
        if isinstance(expr, Scalar) and isinstance(expr.value, Sym | SizeOp):
            return replace(expr, value=renamed_size(expr.value, self._by))
        return expr


class _Symbols(Rebuild):
    def __init__(self) -> None:
        self.found: dict[str, None] = {}

    def type(self, kind: Type) -> Type:
        self.found.update(dict.fromkeys(symbols(kind)))
        return kind

    def leaf(self, expr: Expr) -> Expr:
        sizes = (
            expr.sizes if isinstance(expr, ShapeValue) else (expr.value,) if isinstance(expr, Scalar) else ()
        )
        self.found.update(dict.fromkeys(symbols(tuple(sizes))))
        return expr


def symbols_in(root: Expr | Seq) -> list[str]:
    """The symbols that stand anywhere below, in types and as values."""
    walk = _Symbols()
    if isinstance(root, Seq):
        walk.seq(root)
    else:
        walk.expr(root)
    return list(walk.found)
