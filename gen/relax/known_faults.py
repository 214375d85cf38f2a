"""What TVM 0.27 is known to fail at, always and in the same way (docs/explanation/tvm.md): found in a module.

The generator makes none of it unless its policy says so, and the reducer does not lead one failure into another: an edit may not bring in a
pattern that the module did not have.
"""

from opsieve.gen.relax.catalogue import UNBUILDABLE
from opsieve.gen.relax.tree import (
    Bind,
    Call,
    Constant,
    Expr,
    Function,
    If,
    MatchCast,
    Module,
    RelaxOperator,
    Seq,
    Tuple,
    Var,
)
from opsieve.gen.relax.types import TupleType
from opsieve.gen.relax.walk import all_bindings, functions, reads


def patterns(module: Module) -> frozenset[str]:
    """The known patterns that stand in a module, by name."""
    return frozenset(name for _, function in functions(module) for name in _of(function))


def _of(function: Function) -> set[str]:
    values = {b.var.name: b.value for b in all_bindings(function.body) if isinstance(b, Bind)}
    capturing = {name for name, value in values.items() if isinstance(value, Function) and captures(value)}
    found = {"empty-result"} if function.result == TupleType(()) else set()
    for binding in all_bindings(function.body):
        value = binding.value
        if isinstance(value, If) and _is_constant(value.condition, values):
            found.add("constant-condition")
        if isinstance(binding, MatchCast) and _is_constant(value, values):
            found.add("constant-cast")
        if isinstance(value, Function):
            found |= {"empty-result"} if value.result == TupleType(()) else set()
            found |= {"closure-in-closure"} if captures(value) & capturing else set()
        if isinstance(value, Call):
            passed = {arg.name for arg in value.args if isinstance(arg, Var)}
            found |= {"closure-passed"} if passed & capturing else set()
            if isinstance(value.op, RelaxOperator) and value.op.name in UNBUILDABLE:
                found.add(value.op.name)
    return found


def captures(function: Function) -> frozenset[str]:
    """The variables that a local function reads from around it."""
    bound = {param.name for param in function.params}
    for binding in all_bindings(function.body):
        bound.add(binding.var.name)
        if isinstance(binding.value, Function):
            bound.update(param.name for param in binding.value.params)
    return frozenset(reads(function.body) - bound)


def _is_constant(expr: Expr | Seq, values: dict[str, Expr]) -> bool:
    """Whether a leaf is a constant, if need be by way of variables that are bound to nothing else."""
    seen: set[str] = set()
    while isinstance(expr, Var) and expr.name not in seen:
        seen.add(expr.name)
        expr = values.get(expr.name, expr)
    return isinstance(expr, Constant) or (isinstance(expr, Tuple) and any(_is_constant(f, values) for f in expr.fields))
