"""Sides of branches as functions of their own: each function has its own plan of memory, so TVM 0.27 builds
what it fails at otherwise.
"""

from collections.abc import Sequence
from dataclasses import replace

from opsieve.gen.irs.edits import FreshNames
from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.branch_storage import Side, lending
from opsieve.gen.irs.relax.known_faults import captures
from opsieve.gen.irs.relax.walk import (
    Rebuild,
    Renamed,
    all_bindings,
    all_names,
    expressions,
    functions,
    symbols_in,
)


def with_own_sides(module: R.Module) -> R.Module:
    """Return the module with every side of a branch that lends storage to what stands outside of it as a
    function of its own.
    """
    waiting = [(name, function) for name, function in functions(module) if lending(function)]
    if not waiting:
        return module
    names = FreshNames(all_names(module))
    table = dict(module.functions)
    while waiting:
        name, function = waiting.pop()
        # A function may have changed since it was queued, and each move can end or create other cases.
        found = lending(function)
        if not found:
            continue
        made = _Outlining(function, found[0], names)
        changed = made.function(function)
        table = {made.name: made.made, **table, name: changed}
        waiting += [(name, changed), (made.name, made.made)]
    order = {name: place for place, (name, _) in enumerate(module.functions)}
    return R.Module(tuple(sorted(table.items(), key=lambda item: order.get(item[0], -1))), module.attrs)


class _Outlining(Rebuild):
    """Puts a call in the place of a side; `made` is the function that is called."""

    def __init__(self, function: R.Function, side: Side, names: FreshNames) -> None:
        self._side, self._names = side, names
        branch = next(item for item in all_bindings(function.body) if item.var.name == side.branch)
        assert isinstance(branch.value, R.If)
        body = branch.value.then if side.then else branch.value.other
        self.name, kind = names.fresh("side"), branch.value.type
        # A function of a module sees nothing around it, so everything that the side reads becomes a
        # parameter.
        given: list[R.Var | R.ShapeValue] = list(_free(body))
        elsewhere = _symbols_outside(function, body)
        bound = {size.name for var in given for size in _shape(var.type) if isinstance(size, T.Sym)}
        used = dict.fromkeys(
            [*symbols_in(body), *symbols_in(R.Var("", kind)), *(s for v in given for s in symbols_in(v))]
        )
        # Symbols that no tensor parameter binds are passed by value, in one shape parameter.
        if lacking := [T.Sym(name) for name in used if name in elsewhere and name not in bound]:
            given.insert(0, R.ShapeValue(tuple(lacking)))
        self.made = _copy_body(body, given, kind, names)
        self._call = R.Call(R.GlobalVar(self.name, self.made.type), tuple(given), kind)

    def binding(self, binding: R.Binding) -> tuple[R.Binding, ...]:
        """Replace the side of the branch by a call."""
        value = binding.value
        if binding.var.name != self._side.branch or not isinstance(value, R.If):
            return (binding,)
        result = R.Var(self._names.fresh("gv"), value.type)
        side = R.Seq((R.BindingBlock((R.Bind(result, self._call),)),), result)
        changed = replace(value, then=side) if self._side.then else replace(value, other=side)
        return (replace(binding, value=changed),)


def _copy_body(
    body: R.Seq, given: Sequence[R.Var | R.ShapeValue], kind: T.Type, names: FreshNames
) -> R.Function:
    """Make a function of some parameters that computes the same as a sequence, with fresh names for
    everything in it.
    """
    params = [item if isinstance(item, R.Var) else R.Var("s", item.type) for item in given]
    made = R.Function(tuple(params), body, kind)
    inner = [
        item for expr in (made, *expressions(body)) if isinstance(expr, R.Function) for item in expr.params
    ]
    bound = {
        var.name: names.fresh(var.name + "_") for var in (*inner, *(item.var for item in all_bindings(body)))
    }
    # Symbols belong to one function, so the copy gets its own.
    renamed = Renamed(bound, {name: T.Sym(names.fresh(name + "_")) for name in symbols_in(made)})
    return renamed.function(made)


def _free(body: R.Seq) -> list[R.Var]:
    """Return the variables that a sequence reads from around it, in order."""
    free = captures(R.Function((), body, body.type))
    found = {item.name: item for item in expressions(body) if isinstance(item, R.Var) and item.name in free}
    return list(found.values())


def _symbols_outside(function: R.Function, side: R.Seq) -> set[str]:
    """Return the symbols of a function that occur outside one side of its branches."""

    class Without(Rebuild):
        def seq(self, seq: R.Seq) -> R.Seq:
            return R.Seq((), _NOTHING) if seq is side else super().seq(seq)

    return set(symbols_in(Without().function(function)))


_NOTHING: R.Expr = R.ShapeValue(())


def _shape(kind: T.Type) -> Sequence[object]:
    if isinstance(kind, T.RelaxTensorType):
        return kind.shape or ()
    return kind.sizes or () if isinstance(kind, T.ShapeType) else ()
