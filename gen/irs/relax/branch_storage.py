"""Where TVM 0.27 gives a value the storage of another one inside a branch that may not have been taken (its
memory planner keeps one pool for a whole function): the values that are planned, as far as it shows before
lowering.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.walk import all_bindings, bodies, reads

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
    left = list(reads(side.body) | {name for binding in bound.values() for name in _handed_on(binding)})
    kept: set[str] = set()
    while left:
        name = left.pop()
        if name not in kept:
            kept.add(name)
            left += _same_storage(bound[name]) if name in bound else ()
    return {dtype for name, binding in bound.items() if name not in kept for dtype in _results(binding)}


def _results(binding: R.Binding) -> Iterator[str]:
    if isinstance(binding, R.Bind) and _is_planned(binding.value):
        yield from _dtypes(binding.value.type)


def _is_planned(value: R.Expr) -> bool:
    """Return whether an operator of TVM computes a value."""
    return (
        isinstance(value, R.Call) and isinstance(value.op, R.RelaxOperator) and value.op.name not in _PACKED
    )


def _dtypes(kind: T.Type) -> Iterator[str]:
    if isinstance(kind, T.RelaxTensorType):
        yield kind.dtype
    elif isinstance(kind, T.TupleType):
        for field in kind.fields:
            yield from _dtypes(field)


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
