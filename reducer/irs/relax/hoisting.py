"""Make a function of the module, or a local one, the new main, whole or up to some value in it, possibly in a
branch: a failure there often needs neither a caller nor a condition.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.body import FreshNames
from opsieve.gen.irs.relax.cleaning import plain
from opsieve.gen.irs.relax.edits import make_literal, replace_function
from opsieve.gen.irs.relax.known_faults import captures
from opsieve.gen.irs.relax.renaming import all_names, renew
from opsieve.gen.irs.relax.walk import all_bindings, functions, reads
from opsieve.gen.model.tensors import Value
from opsieve.reducer.irs.relax.edits import RelaxEdits, tree_of
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmSubject

# The size of a symbol in the values that are fed
_SYMBOL = 2


def hoist_functions(edits: RelaxEdits, subject: TvmSubject) -> Iterator[TvmEdit]:
    """Yield each function as main, the smallest first."""
    module = tree_of(subject).module
    found: list[tuple[str, R.Function]] = []
    for name, function in functions(module):
        if name != "main":
            found.append((name, function))
        found += [
            (binding.var.name, binding.value)
            for binding in all_bindings(function.body)
            if isinstance(binding.value, R.Function) and not captures(binding.value)
        ]
    as_main = partial(_as_main, edits)
    for name, function in sorted(found, key=lambda item: sum(1 for _ in all_bindings(item[1].body))):
        yield TvmEdit(f"{name} for main", frozenset(["main"]), partial(as_main, function=function))
    for name, function in [("main", module.main), *found]:
        for place, (var, _, depth) in enumerate(iter_reached(function.body)):
            if isinstance(var.type, T.RelaxTensorType | T.TupleType) and (depth or name != "main"):
                change = partial(as_main, function=function, place=place)
                yield TvmEdit(f"{var.name} of {name} for main", frozenset(["main"]), change)


def iter_reached(
    seq: R.Seq, before: tuple[R.Binding, ...] = (), depth: int = 0
) -> Iterator[tuple[R.Var, tuple[R.Binding, ...], int]]:
    """Yield every variable bound in a sequence or one of its branches, the bindings up to it with its
    branches taken, and their number.
    """
    for binding in plain(seq).bindings():
        if isinstance(binding.value, R.If):
            for side in (binding.value.then, binding.value.other):
                yield from iter_reached(side, before, depth + 1)
        before = (*before, binding)
        yield binding.var, before, depth


def _as_main(
    edits: RelaxEdits, subject: TvmSubject, function: R.Function, place: int | None = None
) -> TvmSubject | None:
    module = tree_of(subject).module
    made = renew(function, FreshNames(all_names(module)))
    assert isinstance(made, R.Function)
    if place is not None:
        var, before, _ = list(iter_reached(made.body))[place]
        made = replace(made, body=R.Seq((R.BindingBlock(before),), var), result=var.type)
    read = reads(made.body)
    params, given, first = [], {}, list[R.Binding]()
    for old, param in zip(function.params, made.params, strict=True):
        kind = param.type
        if isinstance(kind, T.RelaxTensorType) and kind.shape is not None and kind.dtype:
            params.append(param)
            given[param.name] = subject.inputs[old.name] if old in module.main.params else ones(kind)
        elif param.name in read:
            value = make_literal(kind)
            if value is None:
                return None
            first.append(R.Bind(param, value))
    body = R.Seq(((R.BindingBlock(tuple(first)),) if first else ()) + made.body.blocks, made.body.body)
    main = replace(module.main, params=tuple(params), body=body, result=made.result)
    return edits.settle(subject, replace_function(module, "main", main), given)


def ones(kind: T.RelaxTensorType) -> Value:
    """Ones of a tensor type; its symbols are small."""
    known = dict.fromkeys(T.symbols(kind), _SYMBOL)
    shape = [T.size_value(size, known) for size in kind.shape or ()]
    return np.ones(shape, np.dtype(kind.dtype))
