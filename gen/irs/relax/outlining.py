"""Sides of branches as functions of their own: each function has its own plan of memory, so TVM 0.27 builds
what it fails at otherwise.
"""

from collections.abc import Sequence
from dataclasses import replace

from opsieve.gen.irs.relax.body import FreshNames
from opsieve.gen.irs.relax.branch_storage import Side, lending
from opsieve.gen.irs.relax.known_faults import captures
from opsieve.gen.irs.relax.renaming import Renamed, all_names, symbols_in
from opsieve.gen.irs.relax.tree import (
    Bind,
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    Module,
    Seq,
    ShapeValue,
    Var,
)
from opsieve.gen.irs.relax.types import RelaxTensorType, ShapeType, Sym, Type
from opsieve.gen.irs.relax.walk import Rebuild, all_bindings, expressions, functions


def with_own_sides(module: Module) -> Module:
    """The module with every side of a branch that lends storage to what stands outside of it as a function of
    its own.
    """
    waiting = [(name, function) for name, function in functions(module) if lending(function)]
    if not waiting:
        return module
    names = FreshNames(all_names(module))
    table = dict(module.functions)
    while waiting:
        name, function = waiting.pop()
        found = lending(function)
        if not found:
            continue
        made = _Outlining(function, found[0], names)
        changed = made.function(function)
        table = {made.name: made.made, **table, name: changed}
        waiting += [(name, changed), (made.name, made.made)]
    order = {name: place for place, (name, _) in enumerate(module.functions)}
    return Module(tuple(sorted(table.items(), key=lambda item: order.get(item[0], -1))), module.attrs)


class _Outlining(Rebuild):
    """Puts a call in the place of a side; `made` is the function that is called."""

    def __init__(self, function: Function, side: Side, names: FreshNames) -> None:
        self._side, self._names = side, names
        branch = next(item for item in all_bindings(function.body) if item.var.name == side.branch)
        assert isinstance(branch.value, If)
        body = branch.value.then if side.then else branch.value.other
        self.name, kind = names.fresh("side"), branch.value.type
        given: list[Var | ShapeValue] = list(_free(body))
        elsewhere = _symbols_outside(function, body)
        bound = {size.name for var in given for size in _shape(var.type) if isinstance(size, Sym)}
        used = dict.fromkeys(
            [*symbols_in(body), *symbols_in(Var("", kind)), *(s for v in given for s in symbols_in(v))]
        )
        if lacking := [Sym(name) for name in used if name in elsewhere and name not in bound]:
            given.insert(0, ShapeValue(tuple(lacking)))
        self.made = _copy_body(body, given, kind, names)
        self._call = Call(GlobalVar(self.name, self.made.type), tuple(given), kind)

    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        """The branch, its side a call."""
        value = binding.value
        if binding.var.name != self._side.branch or not isinstance(value, If):
            return (binding,)
        result = Var(self._names.fresh("gv"), value.type)
        side = Seq((BindingBlock((Bind(result, self._call),)),), result)
        changed = replace(value, then=side) if self._side.then else replace(value, other=side)
        return (replace(binding, value=changed),)


def _copy_body(body: Seq, given: Sequence[Var | ShapeValue], kind: Type, names: FreshNames) -> Function:
    """Make a function of some parameters that computes the same as a sequence, with fresh names for
    everything in it.
    """
    params = [item if isinstance(item, Var) else Var("s", item.type) for item in given]
    made = Function(tuple(params), body, kind)
    inner = [
        item for expr in (made, *expressions(body)) if isinstance(expr, Function) for item in expr.params
    ]
    bound = {
        var.name: names.fresh(var.name + "_") for var in (*inner, *(item.var for item in all_bindings(body)))
    }
    renamed = Renamed(bound, {name: Sym(names.fresh(name + "_")) for name in symbols_in(made)})
    return renamed.function(made)


def _free(body: Seq) -> list[Var]:
    """The variables that a sequence reads from around it, in order."""
    free = captures(Function((), body, body.type))
    found = {item.name: item for item in expressions(body) if isinstance(item, Var) and item.name in free}
    return list(found.values())


def _symbols_outside(function: Function, side: Seq) -> set[str]:
    """The symbols of a function that stand elsewhere than in one side of its branches alone."""

    class Without(Rebuild):
        def seq(self, seq: Seq) -> Seq:
            return Seq((), _NOTHING) if seq is side else super().seq(seq)

    return set(symbols_in(Without().function(function)))


_NOTHING: Expr = ShapeValue(())


def _shape(kind: Type) -> Sequence[object]:
    if isinstance(kind, RelaxTensorType):
        return kind.shape or ()
    return kind.sizes or () if isinstance(kind, ShapeType) else ()
