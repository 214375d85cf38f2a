"""Patterns in a module at which TVM 0.27 always fails in the same way (docs/explanation/tvm.md), among them
sides of branches that lend storage to what stands outside of them: its memory planner keeps one pool for a
whole function, and gives a value storage that a branch may not have taken.

The generator avoids them unless its policy allows them: such a side becomes a function of its own, for each
function has its own plan of memory. The reducer does not lead one failure into another: an edit may not
introduce a pattern that the module did not have.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from opsieve.gen.irs.relax import catalogue, tree as R, types as T
from opsieve.gen.irs.relax.walk import (
    Rebuild,
    Renamed,
    all_bindings,
    all_names,
    bodies,
    captures,
    expressions,
    functions,
    reads,
    symbols_in,
)
from opsieve.gen.irs.view import FreshNames, list_reachable

_PACKED = frozenset(["relax.call_pure_packed", "relax.call_dps_packed"])


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a branch: the variable that the branch is bound to, and which side."""

    branch: str
    then: bool


def lending(function: R.Function) -> tuple[Side, ...]:
    """Return the sides of branches that give storage back which something outside of them, behind in the
    text, may be given; outer ones first.
    """
    return tuple(dict.fromkeys(_lending(function.body, [])))


def _lending(seq: R.Seq, behind: list[set[str]]) -> Iterator[Side]:
    """Yield the branches that could reuse storage; `behind` are the element types planned after the sequence,
    outside of it.
    """
    bindings = list(seq.bindings())
    for place, binding in enumerate(bindings):
        value = binding.value
        # A local function becomes a function of the module, with a plan of its own.
        if isinstance(value, R.Function):
            yield from _lending(value.body, [])
        if not isinstance(value, R.If):
            continue
        after = set().union(*behind, *(list_planned_dtypes(item) for item in bindings[place + 1 :]))
        others = set().union(*(list_planned_dtypes(item) for item in value.other.bindings()))
        # In the text the other side follows the first, so it may be given the storage of the first.
        for side, wanted in ((value.then, after | others), (value.other, after)):
            if given_back(side) & wanted:
                yield Side(binding.var.name, side is value.then)
            yield from _lending(side, [wanted])


def list_planned_dtypes(binding: R.Binding) -> set[str]:
    """Return the element types for which storage is planned where a binding is computed, including its
    branches.
    """
    # A local function is skipped: its values belong to its own plan.
    found = set(_results(binding))
    for body in bodies(binding.value) if isinstance(binding.value, R.If) else ():
        found.update(*(list_planned_dtypes(item) for item in body.bindings()))
    return found


def given_back(side: R.Seq) -> set[str]:
    """Return the element types of values that operators compute in a branch and that stay inside it, so that
    their storage is freed.
    """
    bound = {binding.var.name: binding for binding in all_bindings(side)}
    left = reads(side.body) | {name for binding in bound.values() for name in _handed_on(binding)}
    kept = set(list_reachable(left, lambda name: _same_storage(bound[name]) if name in bound else ()))
    return {dtype for name, binding in bound.items() if name not in kept for dtype in _results(binding)}


def _results(binding: R.Binding) -> Iterator[str]:
    if isinstance(binding, R.Bind) and _is_planned(binding.value):
        yield from (tensor.dtype for tensor in T.tensors(binding.value.type))


def _is_planned(value: R.Expr) -> bool:
    """Return whether an operator of TVM computes a value."""
    return (
        isinstance(value, R.Call) and isinstance(value.op, R.RelaxOperator) and value.op.name not in _PACKED
    )


def _handed_on(binding: R.Binding) -> set[str]:
    """Return the variables that a binding reads as a condition, or passes to something other than an
    operator.
    """
    value = binding.value
    if isinstance(value, R.If):
        return reads(value.condition)
    return reads(value) if isinstance(value, R.Call) and not _is_planned(value) else set()


def _same_storage(binding: R.Binding) -> set[str]:
    """Return the variables whose storage the variable of a binding has: it is another name of theirs, or a
    tuple of them.
    """
    value = binding.value
    if isinstance(value, R.If):
        return reads(value.then.body) | reads(value.other.body)
    return reads(value) if isinstance(value, R.Var | R.Tuple | R.Projection) else set()


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
    if name in catalogue.UNBUILDABLE:
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


def _is_constant(expr: R.Expr | R.Seq, values: dict[str, R.Expr]) -> bool:
    """Return whether a leaf is a constant, directly or through variables bound to one."""
    seen: set[str] = set()
    while isinstance(expr, R.Var) and expr.name not in seen:
        seen.add(expr.name)
        expr = values.get(expr.name, expr)
    return isinstance(expr, R.Constant) or (
        isinstance(expr, R.Tuple) and any(_is_constant(f, values) for f in expr.fields)
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
        free = captures(R.Function((), body, body.type))
        found = {
            item.name: item for item in expressions(body) if isinstance(item, R.Var) and item.name in free
        }
        given: list[R.Var | R.ShapeValue] = list(found.values())
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
