"""A function of the module, or a local one, in the place of main, whole or up to something that is computed
in it, in a branch perhaps: what fails there needs nobody who calls it, and no condition.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from opsieve.gen.irs.relax.known_faults import captures
from opsieve.gen.irs.relax.tree import (
    Bind,
    Binding,
    BindingBlock,
    Expr,
    Function,
    If,
    Module,
    Scalar,
    Seq,
    ShapeValue,
    Tuple,
    Var,
)
from opsieve.gen.irs.relax.types import (
    PrimType,
    RelaxTensorType,
    ShapeType,
    TupleType,
    Type,
    concrete,
    is_static,
    size_value,
    symbols,
)
from opsieve.gen.irs.relax.walk import all_bindings, functions, reads
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.irs.relax.cleaning import plain
from opsieve.reducer.irs.relax.leaves import constant, renewed
from opsieve.reducer.irs.relax.subject import RelaxSubject

_SYMBOL = 2  # the size of a symbol in the values that are fed


def hoisted(subject: RelaxSubject) -> Iterator[Edit[RelaxSubject]]:
    """Each function as main, the smallest first."""
    found: list[tuple[str, Function]] = []
    for name, function in functions(subject.module):
        if name != "main":
            found.append((name, function))
        found += [
            (binding.var.name, binding.value)
            for binding in all_bindings(function.body)
            if isinstance(binding.value, Function) and not captures(binding.value)
        ]
    for name, function in sorted(found, key=lambda item: sum(1 for _ in all_bindings(item[1].body))):
        yield Edit(f"{name} for main", frozenset(["main"]), partial(_as_main, function=function))
    for name, function in [("main", subject.module.main), *found]:
        for place, (var, _, depth) in enumerate(reached(function.body)):
            if isinstance(var.type, RelaxTensorType | TupleType) and (depth or name != "main"):
                change = partial(_as_main, function=function, place=place)
                yield Edit(f"{var.name} of {name} for main", frozenset(["main"]), change)


def reached(
    seq: Seq, before: tuple[Binding, ...] = (), depth: int = 0
) -> Iterator[tuple[Var, tuple[Binding, ...], int]]:
    """Every variable bound in a sequence or in a branch of it, the bindings up to it as if its branches were
    taken, and how many those are.
    """
    for binding in plain(seq).bindings():
        if isinstance(binding.value, If):
            for side in (binding.value.then, binding.value.other):
                yield from reached(side, before, depth + 1)
        before = (*before, binding)
        yield binding.var, before, depth


def _as_main(subject: RelaxSubject, function: Function, place: int | None = None) -> RelaxSubject | None:
    made = renewed(function, subject.module)
    if place is not None:
        var, before, _ = list(reached(made.body))[place]
        made = replace(made, body=Seq((BindingBlock(before),), var), result=var.type)
    read = reads(made.body)
    params, given, first = [], {}, list[Binding]()
    for old, param in zip(function.params, made.params, strict=True):
        kind = param.type
        if isinstance(kind, RelaxTensorType) and kind.shape is not None and kind.dtype:
            params.append(param)
            given[param.name] = subject.inputs[old.name] if old in subject.module.main.params else ones(kind)
        elif param.name in read:
            value = literal(kind)
            if value is None:
                return None
            first.append(Bind(param, value))
    body = Seq(((BindingBlock(tuple(first)),) if first else ()) + made.body.blocks, made.body.body)
    main = replace(subject.module.main, params=tuple(params), body=body, result=made.result)
    table = tuple((n, main if n == "main" else f) for n, f in subject.module.functions)
    return replace(subject, inputs=given).having(Module(table, subject.module.attrs))


def ones(kind: RelaxTensorType) -> Value:
    """Ones of a tensor type; its symbols are small."""
    known = dict.fromkeys(symbols(kind), _SYMBOL)
    shape = [size_value(size, known) for size in kind.shape or ()]
    return np.ones(shape, np.dtype(kind.dtype))


def literal(kind: Type) -> Expr | None:
    """A literal of a type without symbols; None where there is none."""
    if isinstance(kind, TupleType):
        fields = [literal(field) for field in kind.fields]
        return Tuple(tuple(field for field in fields if field is not None)) if None not in fields else None
    if isinstance(kind, ShapeType) and kind.sizes is not None and is_static(concrete(kind, {})):
        return ShapeValue(kind.sizes)
    if isinstance(kind, PrimType):
        return Scalar(1, kind.dtype) if "int" in kind.dtype else None
    return constant(kind) if isinstance(kind, RelaxTensorType) else None
