"""Local functions with fewer parameters."""

from dataclasses import replace

from opsieve.gen.irs.relax.tree import Bind, Binding, Call, Expr, Function, Module, Var
from opsieve.gen.irs.relax.types import FuncType
from opsieve.gen.irs.relax.walk import Rebuild, all_bindings, expressions, functions


def without_parameter(module: Module, name: str, place: int) -> Module | None:
    """The module with one parameter less of the local function bound to `name`; None where that is passed on
    as a value.
    """
    for _, function in functions(module):
        for binding in all_bindings(function.body):
            for expr in expressions(binding.value):
                args = expr.args if isinstance(expr, Call) else ()
                if any(isinstance(arg, Var) and arg.name == name for arg in args):
                    return None
            if isinstance(binding.value, Var) and binding.value.name == name:
                return None
    return _Shorter(name, place).module(module)


class _Shorter(Rebuild):
    def __init__(self, name: str, place: int) -> None:
        self._name, self._place = name, place

    def var(self, var: Var) -> Var:
        """The function's variable with its new type."""
        if var.name != self._name or not isinstance(var.type, FuncType) or var.type.params is None:
            return var
        params = var.type.params[: self._place] + var.type.params[self._place + 1 :]
        return replace(var, type=replace(var.type, params=params))

    def value(self, expr: Expr) -> Expr:
        """A call without the argument."""
        if isinstance(expr, Call) and isinstance(expr.op, Var) and expr.op.name == self._name:
            return replace(expr, args=expr.args[: self._place] + expr.args[self._place + 1 :])
        return expr

    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        """The function without the parameter."""
        value = binding.value
        if binding.var.name == self._name and isinstance(value, Function):
            shorter = replace(value, params=value.params[: self._place] + value.params[self._place + 1 :])
            return (Bind(binding.var, shorter),)
        return (binding,)
