"""Edits of Relax modules: replace reads, bindings, calls and results, without checking that TVM accepts the
module.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from opsieve.gen.irs.relax import cleaning, declaration, tree as R, types as T
from opsieve.gen.irs.relax.walk import (
    Rebuild,
    Substitute,
    all_bindings,
    all_names,
    expressions,
    functions,
    list_called,
    renew,
)
from opsieve.gen.irs.tvm.nodes import Dtype
from opsieve.gen.irs.view import FreshNames

# The most elements of a literal.
_LARGEST_CONSTANT = 64


def bindings_of(module: R.Module) -> Iterator[tuple[str, R.Binding]]:
    """Yield every binding, nested ones too, with the name of its function."""
    for name, function in functions(module):
        for binding in all_bindings(function.body):
            yield name, binding


def replace_function(module: R.Module, name: str, function: R.Function) -> R.Module:
    """Put another function in the place of the one of this name."""
    return R.Module(tuple((n, function if n == name else f) for n, f in module.functions), module.attrs)


def replace_binding(module: R.Module, name: str, *bindings: R.Binding) -> R.Module:
    """Put other bindings in the place of the one of a variable."""
    return _Replace(name, bindings).module(module)


class _Replace(Rebuild):
    def __init__(self, name: str, by: tuple[R.Binding, ...]) -> None:
        self._name, self._by = name, by

    def binding(self, binding: R.Binding) -> tuple[R.Binding, ...]:
        """Return the bindings that stand for the one named."""
        return self._by if binding.var.name == self._name else (binding,)


def replace_reads(module: R.Module, name: str, leaf: R.Expr) -> R.Module:
    """Read another leaf wherever a variable is read; where it is bound stays as it is."""
    return Substitute({name: leaf}).module(module)


def calls_of(module: R.Module) -> Iterator[tuple[R.Binding, R.Function]]:
    """Yield the calls of functions of the module that do not call themselves, and of local functions."""
    table = dict(functions(module))
    local = {b.var.name: b.value for _, b in bindings_of(module) if isinstance(b.value, R.Function)}
    for _, binding in bindings_of(module):
        op = binding.value.op if isinstance(binding.value, R.Call) else None
        callee = table.get(op.name) if isinstance(op, R.GlobalVar) else None
        # A function that calls itself would come back with every inlining.
        if callee is not None and isinstance(op, R.GlobalVar) and op.name in list_called(callee.body):
            continue
        callee = local.get(op.name) if isinstance(op, R.Var) else callee
        if callee is not None:
            yield binding, callee


def yield_leaf(module: R.Module, leaf: R.Expr) -> R.Module | None:
    """Make main return another leaf; returns `None` for a variable that main does not bind."""
    main = module.main
    bound = {param.name for param in main.params} | {binding.var.name for binding in main.body.bindings()}
    if isinstance(leaf, R.Var) and leaf.name not in bound:
        return None
    # A variable of a dataflow block is not visible behind it, so main's blocks become plain.
    if isinstance(leaf, R.Var) and leaf.dataflow:
        main, leaf = replace(main, body=cleaning.plain(main.body)), replace(leaf, dataflow=False)
    return replace_function(
        module, "main", replace(main, body=R.Seq(main.body.blocks, leaf), result=leaf.type)
    )


def inline_seq(module: R.Module, var: R.Var, seq: R.Seq) -> R.Module:
    """Put the bindings of a sequence in the place of a variable's, its value for the variable."""
    return replace_binding(module, var.name, *cleaning.plain(seq).bindings(), R.Bind(var, seq.body))


def inline_call(module: R.Module, binding: R.Binding, function: R.Function) -> R.Module | None:
    """Replace a call by the body of its function; returns `None` if they do not match."""
    call = binding.value
    if not isinstance(call, R.Call) or len(call.args) != len(function.params):
        return None
    # The body keeps its own names in the function, which other calls may still use.
    names = FreshNames(all_names(module))
    by: dict[str, R.Expr] = {param.name: arg for param, arg in zip(function.params, call.args, strict=True)}
    flat: list[R.Binding] = []
    for inner in cleaning.plain(function.body).bindings():
        value = Substitute(by).expr(renew(inner.value, names))
        var = replace(inner.var, name=names.fresh(inner.var.name + "_"))
        by[inner.var.name] = var
        flat.append(
            R.MatchCast(var, value, inner.type) if isinstance(inner, R.MatchCast) else R.Bind(var, value)
        )
    # Last, under the name that the readers of the call know.
    flat.append(R.Bind(binding.var, Substitute(by).expr(function.body.body)))
    return replace_binding(module, binding.var.name, *flat)


def make_literal(kind: T.Type) -> R.Expr | None:
    """Make a small literal of ones of a type without symbols; returns `None` for other types."""
    if isinstance(kind, T.TupleType):
        fields = [make_literal(field) for field in kind.fields]
        return R.Tuple(tuple(field for field in fields if field is not None)) if None not in fields else None
    if isinstance(kind, T.ShapeType) and kind.sizes is not None and T.is_static(T.concrete(kind, {})):
        return R.ShapeValue(kind.sizes)
    if isinstance(kind, T.PrimType):
        return R.Scalar(1, kind.dtype) if "int" in kind.dtype else None
    if not isinstance(kind, T.RelaxTensorType) or not T.is_static(kind) or not kind.dtype:
        return None
    shape = [size for size in kind.shape or () if isinstance(size, int)]
    count = int(np.prod(shape, dtype=np.int64))
    # TVM infers negative sizes of a slice that is empty.
    fits = count <= _LARGEST_CONSTANT and min(shape, default=0) >= 0
    return declaration.numbers(kind.dtype, shape, [1] * count) if fits else None


def make_ones(kind: T.RelaxTensorType) -> R.Call | None:
    """Make a call that yields ones of a type; returns `None` if its shape is unknown."""
    if kind.shape is None:
        return None
    attrs = declaration.attributes("InitAttrs", dtype=Dtype(kind.dtype))
    return R.Call(R.RelaxOperator("relax.ones"), (R.ShapeValue(kind.shape),), kind, attrs)


def constants_of(module: R.Module) -> list[R.Constant]:
    """Return the constants that a module holds, each once."""
    found = (
        expr for _, f in functions(module) for expr in expressions(f.body) if isinstance(expr, R.Constant)
    )
    return list(dict.fromkeys(found))


def replace_constant(module: R.Module, old: R.Constant, new: R.Constant) -> R.Module:
    """Put another constant in the place of one, wherever it stands."""
    return _Exchange(old, new).module(module)


class _Exchange(Rebuild):
    def __init__(self, old: R.Constant, new: R.Constant) -> None:
        self._old, self._new = old, new

    def leaf(self, expr: R.Expr) -> R.Expr:
        """Return the new constant for the old one."""
        return self._new if expr == self._old else expr
