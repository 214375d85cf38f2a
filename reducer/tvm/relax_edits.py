"""Edits of Relax modules as trees: an earlier result, a binding replaced by what is there, a branch for the whole, what nobody needs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from opsieve.gen.relax.draw import numbers
from opsieve.gen.relax.reading import from_json
from opsieve.gen.relax.tree import Binding, Expr, Function, If, MatchCast, Module, Seq, Tuple, Var
from opsieve.gen.relax.types import TensorType, is_static, symbols
from opsieve.gen.relax.walk import Rebuild, Substitute, all_bindings, called, functions, reads
from opsieve.gen.relax.writing import to_json
from opsieve.gen.tvm_ir.nodes import MalformedGraph
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.tvm.subject import TvmEdit, TvmSubject

Change = Callable[[Module], Module | None]


class Results:
    """What main yields: fewer of it, or something computed earlier."""

    name = "results"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """Each field left out, then each earlier variable as the only result, the first first."""
        module = _module(subject.program.data)
        if module is None:
            return
        result = module.main.body.body
        if isinstance(result, Tuple) and len(result.fields) > 1:
            for place in range(len(result.fields)):
                yield _edit(f"drop result {place}", "results", partial(_without_result, place))
        for binding in module.main.body.bindings():
            if isinstance(binding.var.type, TensorType) and binding.var.name not in _leaf_names(result):
                name = binding.var.name
                yield _edit(f"yield {name}", "results", partial(_yielding, name))


class Bindings:
    """Operations: a variable of the same type, or ones, in the place of what is computed; one branch in the place of both."""

    name = "bindings"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """For each binding of each function, the last first."""
        module = _module(subject.program.data)
        if module is None:
            return
        for _, function in functions(module):
            scope = list(function.params)
            edits: list[list[TvmEdit]] = []
            for outer in function.body.bindings():
                edits += [list(_of_binding(binding, scope)) for binding in (*all_bindings(outer.value), outer)]
                scope.append(outer.var)
            yield from (edit for group in reversed(edits) for edit in group)


def _of_binding(binding: Binding, scope: Sequence[Var]) -> Iterator[TvmEdit]:
    name, kind = binding.var.name, binding.var.type
    if isinstance(binding, MatchCast):
        yield _edit(f"drop the cast {name}", name, partial(_uncast, name))
    if isinstance(binding.value, If):
        for side in ("then", "other"):
            yield _edit(f"{side} branch of {name}", name, partial(_one_branch, name, side))
    other = next((var for var in scope if var.type == kind), None)
    if other is not None:
        yield _edit(f"{other.name} for {name}", name, partial(_substituted, name, other))
    if isinstance(kind, TensorType) and is_static(kind) and kind.dtype:
        yield _edit(f"ones for {name}", name, partial(_constant, name))


class Leftovers:
    """Parameters that nobody reads, and dataflow blocks made plain."""

    name = "leftovers"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """Each parameter of main, then the blocks."""
        module = _module(subject.program.data)
        if module is None:
            return
        for param in module.main.params:
            yield _edit(
                f"drop the parameter {param.name}",
                param.name,
                partial(_unparameterised, param.name),
            )
        yield _edit("drop what is not used", "leftovers", _same)


@lru_cache(maxsize=64)
def _module(data: bytes) -> Module | None:
    """The tree of a module; None where a tree cannot hold it."""
    try:
        return from_json(data.decode("utf-8"))
    except (MalformedGraph, UnicodeDecodeError):
        return None


def _edit(label: str, touches: str, change: Change) -> TvmEdit:
    def apply(subject: TvmSubject) -> TvmSubject | None:
        module = _module(subject.program.data)
        changed = None if module is None else change(module)
        return None if changed is None else subject.with_module(to_json(_tidied(changed)).encode())

    return Edit(label, frozenset([touches]), apply)


def _with_main(module: Module, main: Function) -> Module:
    return replace(module, functions=tuple((n, main if n == "main" else f) for n, f in module.functions))


def _leaf_names(expr: Expr) -> set[str]:
    return {expr.name} if isinstance(expr, Var) else set()


def _without_result(place: int, module: Module) -> Module | None:
    main = module.main
    result = main.body.body
    if not isinstance(result, Tuple) or len(result.fields) < 2 or place >= len(result.fields):
        return None
    left = tuple(item for at, item in enumerate(result.fields) if at != place)
    return _yields(module, Tuple(left) if len(left) > 1 else left[0])


def _yields(module: Module, result: Expr) -> Module:
    main = module.main
    return _with_main(module, replace(main, body=replace(main.body, body=result), result=result.type))


def _yielding(name: str, module: Module) -> Module | None:
    found = next((binding.var for binding in module.main.body.bindings() if binding.var.name == name), None)
    if found is None:
        return None
    exported = replace(found, dataflow=False)
    whole = _Exported(name).module(module)
    return _yields(whole, exported)


class _Exported(Rebuild):
    """A variable of a dataflow block, made one that is seen outside it."""

    def __init__(self, name: str):
        self.name = name

    def var(self, var: Var) -> Var:
        return replace(var, dataflow=False) if var.name == self.name else var


def _same(module: Module) -> Module:
    return module


def _substituted(name: str, by: Expr, module: Module) -> Module | None:
    return Substitute({name: by}).module(module)


def _uncast(name: str, module: Module) -> Module | None:
    every = [binding for _, function in functions(module) for binding in all_bindings(function.body)]
    cast = next((binding for binding in every if binding.var.name == name), None)
    if not isinstance(cast, MatchCast):
        return None
    return Substitute({name: cast.value}).module(_Without(name).module(module))


class _Without(Rebuild):
    """Without one binding."""

    def __init__(self, name: str):
        self.name = name

    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        return () if binding.var.name == self.name else (binding,)


def _constant(name: str, module: Module) -> Module | None:
    kind = next((b.var.type for _, f in functions(module) for b in all_bindings(f.body) if b.var.name == name), None)
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    sizes = [size for size in kind.shape if isinstance(size, int)]
    try:
        ones = numbers(kind.dtype, sizes, np.ones(int(np.prod(sizes))).tolist())
    except (TypeError, ValueError, KeyError):
        return None
    return Substitute({name: ones}).module(module)


def _one_branch(name: str, side: str, module: Module) -> Module | None:
    made = _Branch(name, side)
    changed = made.module(module)
    return Substitute({name: made.result}).module(changed) if made.result is not None else None


class _Branch(Rebuild):
    """A branch's bindings in the place of the binding of an `If`."""

    def __init__(self, name: str, side: str):
        self.name, self.side = name, side
        self.result: Expr | None = None

    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        value = binding.value
        if binding.var.name != self.name or not isinstance(value, If):
            return (binding,)
        branch: Seq = value.then if self.side == "then" else value.other
        self.result = branch.body
        return tuple(branch.bindings())


def _unparameterised(name: str, module: Module) -> Module | None:
    main = module.main
    param = next((item for item in main.params if item.name == name), None)
    if param is None or name in reads(main.body):
        return None
    left = tuple(item for item in main.params if item.name != name)
    bound = {symbol for item in left for symbol in symbols(item.type)}
    return _with_main(module, replace(main, params=left)) if set(symbols(param.type)) <= bound else None


def _tidied(module: Module) -> Module:
    """Without bindings that nobody reads and functions that nobody calls."""
    made = Module(tuple((n, _pruned(f) if isinstance(f, Function) else f) for n, f in module.functions), module.attrs)
    table, wanted, pending = dict(made.functions), {"main"}, ["main"]
    while pending:
        function = table.get(pending.pop())
        if isinstance(function, Function):
            new = called(function) - wanted
            wanted |= new
            pending += sorted(new)
    return Module(tuple((n, f) for n, f in made.functions if n in wanted), made.attrs)


def _pruned(function: Function) -> Function:
    while True:
        needed = reads(function.body)
        bound = {symbol for param in function.params for symbol in symbols(param.type)}
        smaller = replace(function, body=_Needed(needed, bound).seq(function.body))
        if smaller == function:
            return function
        function = smaller


class _Needed(Rebuild):
    """Keeps the bindings whose variable is read somewhere, and casts that bind symbols which no parameter has."""

    def __init__(self, needed: set[str], bound: set[str]):
        self.needed, self.bound = needed, bound

    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        casts = isinstance(binding, MatchCast) and not set(symbols(binding.type)) <= self.bound
        return (binding,) if casts or binding.var.name in self.needed else ()
