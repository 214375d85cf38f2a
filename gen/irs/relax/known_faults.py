"""Patterns in a module at which TVM 0.27 always fails in the same way (docs/explanation/tvm.md).

The generator avoids them unless its policy allows them, and the reducer does not lead one failure into
another: an edit may not introduce a pattern that the module did not have.
"""

from collections.abc import Collection

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.branch_storage import lending
from opsieve.gen.irs.relax.catalogue import UNBUILDABLE
from opsieve.gen.irs.relax.walk import all_bindings, functions, reads


def patterns(module: R.Module) -> frozenset[str]:
    """Return the names of the known patterns that occur in a module."""
    return frozenset(name for _, function in functions(module) for name in _of(function))


def _of(function: R.Function) -> set[str]:
    values = {b.var.name: b.value for b in all_bindings(function.body) if isinstance(b, R.Bind)}
    capturing = {name for name, value in values.items() if isinstance(value, R.Function) and captures(value)}
    # A `match_cast` of a constant that is used does not build: "argument produced VM instruction of type
    # kConstIdx".
    constant = list_settled(function.body)
    found = {"empty-result"} if function.result == T.TupleType(()) else set()
    found |= {"branch-storage"} if lending(function) else set()
    for binding in all_bindings(function.body):
        value = binding.value
        if isinstance(value, R.If) and _is_constant(value.condition, values):
            found.add("constant-condition")
        if isinstance(binding, R.MatchCast) and settles(value, constant):
            found.add("constant-cast")
        if isinstance(value, R.Function):
            found |= {"empty-result"} if value.result == T.TupleType(()) else set()
            found |= {"closure-in-closure"} if captures(value) & capturing else set()
        if isinstance(value, R.Call):
            passed = {arg.name for arg in value.args if isinstance(arg, R.Var)}
            found |= {"closure-passed"} if passed & capturing else set()
            if isinstance(value.op, R.RelaxOperator):
                found |= {fault_of(value.op.name, value.type, value.attrs)} - {""}
    return found


def fault_of(name: str, kind: T.Type, attrs: R.Attributes | None) -> str:
    """Return the pattern that the call of an operator is by itself, "" for none."""
    if name in UNBUILDABLE:
        return name
    axes = attrs.get("axes") if attrs is not None and name == "relax.nn.rms_norm" else None
    # `rms_norm` over every axis does not build: "Tensor dimension mismatch in read".
    every = isinstance(axes, tuple) and isinstance(kind, T.RelaxTensorType) and len(axes) == kind.rank
    return "rms-norm-axes" if every else ""


def list_settled(body: R.Seq) -> set[str]:
    """Return the variables that TVM replaces by constants before it reaches `match_cast`."""
    found: set[str] = set()
    for binding in all_bindings(body):
        if settles(binding.value, found):
            found.add(binding.var.name)
    return found


def settles(value: R.Expr, known: Collection[str]) -> bool:
    """Return whether a value is such a constant: by way of variables, tuples and casts of its elements, which
    the lowering computes itself.
    """
    if isinstance(value, R.Tuple):
        return any(settles(field, known) for field in value.fields)
    if isinstance(value, R.Projection):
        return settles(value.tuple, known)
    if isinstance(value, R.Call) and isinstance(value.op, R.RelaxOperator):
        return value.op.name == "relax.astype" and settles(value.args[0], known)
    return isinstance(value, R.Constant) or (isinstance(value, R.Var) and value.name in known)


def captures(function: R.Function) -> frozenset[str]:
    """Return the variables that a local function reads from around it."""
    bound = {param.name for param in function.params}
    for binding in all_bindings(function.body):
        bound.add(binding.var.name)
        if isinstance(binding.value, R.Function):
            bound.update(param.name for param in binding.value.params)
    return frozenset(reads(function.body) - bound)


def _is_constant(expr: R.Expr | R.Seq, values: dict[str, R.Expr]) -> bool:
    """Return whether a leaf is a constant, directly or through variables bound to one."""
    seen: set[str] = set()
    while isinstance(expr, R.Var) and expr.name not in seen:
        seen.add(expr.name)
        expr = values.get(expr.name, expr)
    return isinstance(expr, R.Constant) or (
        isinstance(expr, R.Tuple) and any(_is_constant(f, values) for f in expr.fields)
    )
