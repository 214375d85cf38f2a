"""Remove unread bindings, functions and parameters from modules."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.walk import (
    Rebuild,
    all_bindings,
    captures,
    expressions,
    functions,
    list_called,
    reads,
)
from opsieve.gen.irs.view import list_reachable

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Unread:
    """Unread parts: bindings and parameters, each after the name of its function, and functions that
    main does not reach.
    """

    bindings: frozenset[tuple[str, str]] = frozenset()
    parameters: frozenset[tuple[str, str]] = frozenset()
    functions: frozenset[str] = frozenset()


def unread(module: R.Module) -> Unread:
    """Return the unread parts of a module. A part that only an unread one reads does not count: it goes with
    it.
    """
    bindings, parameters = set[tuple[str, str]](), set[tuple[str, str]]()
    for name, function in functions(module):
        read, used = reads(function.body), _used_symbols(function)
        bindings |= {(name, b.var.name) for b in all_bindings(function.body) if not _is_needed(b, read, used)}
    for name, function in _callables(module):
        parameters |= {(name, param.name) for param in function.params} - _wanted_parameters(name, function)
    names = {name for name, _ in module.functions}
    return Unread(
        frozenset(bindings), frozenset(parameters), frozenset(names - _list_reached(module, ["main"]))
    )


def clean_module(module: R.Module, kept: Unread | None = None, parameters: bool = True) -> R.Module:
    """Remove everything that main's result does not depend on, except `kept` items; keeps all parameters
    unless `parameters`. Every operation is pure; a `match_cast` stays while its symbols are used.
    """
    kept = kept or Unread()
    # A removed part may have been the last reader of another one.
    while True:
        smaller = prune_module(module, kept, parameters)
        if smaller == module:
            return module
        module = smaller


def prune_module(module: R.Module, kept: Unread, parameters: bool = True) -> R.Module:
    """Remove items without a reader once, as `clean_module` does; items that only those read stay."""
    # Bindings last: a function or parameter that only a removed binding reads has its reader until then.
    smaller = _without_parameters(module, kept.parameters) if parameters else module
    reached = _list_reached(smaller, ["main", *kept.functions])
    return _swept(
        R.Module(tuple((name, f) for name, f in smaller.functions if name in reached), smaller.attrs),
        kept.bindings,
    )


def is_closed(module: R.Module) -> bool:
    """Return whether the module defines every variable and function that it reads."""
    names = {name for name, _ in module.functions}
    return all(
        not captures(function) and list_called(function.body) <= names for _, function in functions(module)
    )


def _is_needed(binding: R.Binding, read: set[str], used: set[str]) -> bool:
    return binding.var.name in read or (
        # A match_cast is where its symbols get their values.
        isinstance(binding, R.MatchCast) and not used.isdisjoint(T.symbols(binding.type))
    )


def _callables(module: R.Module) -> Iterator[tuple[str, R.Function]]:
    """Yield the functions of the module, and local ones by the variables that they are bound to."""
    for name, function in functions(module):
        yield name, function
        for binding in all_bindings(function.body):
            if isinstance(binding.value, R.Function):
                yield binding.var.name, binding.value


def _wanted_parameters(name: str, function: R.Function) -> set[tuple[str, str]]:
    """Return the parameters that are read, or give a symbol its value, after the name of their function."""
    read, used = reads(function.body), _used_symbols(function)
    return {
        (name, param.name)
        for param in function.params
        if param.name in read or not used.isdisjoint(T.symbols(param.type))
    }


def _swept(module: R.Module, kept: Collection[tuple[str, str]]) -> R.Module:
    """Remove unread bindings from each function; a local function shares its reads with the enclosing one."""
    return R.Module(
        tuple(
            (name, _Sweep(function, {binding for owner, binding in kept if owner == name}).function(function))
            if isinstance(function, R.Function)
            else (name, function)
            for name, function in module.functions
        ),
        module.attrs,
    )


class _Sweep(Rebuild):
    """Drops bindings that are not read in a function of the module."""

    def __init__(self, function: R.Function, kept: set[str]) -> None:
        self._read = reads(function.body) | kept
        self._symbols = _used_symbols(function)

    def binding(self, binding: R.Binding) -> tuple[R.Binding, ...]:
        """Drop a binding without readers."""
        return (binding,) if _is_needed(binding, self._read, self._symbols) else ()


def _used_symbols(function: R.Function) -> set[str]:
    """Return the symbols that occur anywhere but in an unread match_cast."""
    read = reads(function.body)
    found: set[str] = set(T.symbols(function.result))
    for binding in all_bindings(function.body):
        if binding.var.name in read:
            found.update(T.symbols(binding.var.type))
    for expr in expressions(function.body):
        found.update(T.symbols(expr.type))
        # Type arguments, such as the output type of `call_tir`, are no operands, and so not among the
        # expressions.
        if isinstance(expr, R.Call):
            found.update(name for kind in expr.type_args for name in T.symbols(kind))
    return found


def _list_reached(module: R.Module, roots: Iterable[str]) -> set[str]:
    """Return the functions reachable from some, including those."""
    table = dict(functions(module))
    return set(list_reachable(roots, lambda name: list_called(table[name].body) if name in table else ()))


def _without_parameters(module: R.Module, kept: Collection[tuple[str, str]]) -> R.Module:
    """Remove unread parameters from functions and their calls. A parameter that gives a symbol its value
    stays.
    """
    # Names are unique in a module, so one table serves functions of the module and local ones.
    keep: dict[str, list[int]] = {}
    for name, function in _callables(module):
        wanted = _wanted_parameters(name, function).union(kept)
        left = [n for n, param in enumerate(function.params) if (name, param.name) in wanted]
        # A function that is passed as a value must keep its type, since callers elsewhere rely on it.
        if len(left) < len(function.params) and not _is_passed_on(module, name):
            keep[name] = left
    return _Narrow(keep).module(module) if keep else module


def _is_passed_on(module: R.Module, name: str) -> bool:
    """Return whether a function is used as a value, not only called."""
    for _, function in functions(module):
        args = [arg for expr in expressions(function.body) if isinstance(expr, R.Call) for arg in expr.args]
        args += [binding.value for binding in all_bindings(function.body)]
        if any(isinstance(arg, R.GlobalVar | R.Var) and arg.name == name for arg in args):
            return True
    return False


class _Narrow(Rebuild):
    """Functions, of the module or local ones, with some of their parameters, at their calls too."""

    def __init__(self, keep: Mapping[str, Sequence[int]]) -> None:
        self._keep = keep

    def module(self, module: R.Module) -> R.Module:
        """Calls first, then the functions themselves."""
        made = super().module(module)
        table = tuple(
            (n, self._narrow_function(n, f) if isinstance(f, R.Function) else f) for n, f in made.functions
        )
        return R.Module(table, made.attrs)

    def _narrow_function(self, name: str, function: R.Function) -> R.Function:
        return replace(function, params=self._keep_items(name, function.params))

    def _keep_items(self, name: str, items: tuple[_T, ...]) -> tuple[_T, ...]:
        return tuple(items[n] for n in self._keep[name]) if name in self._keep else items

    def var(self, var: R.Var) -> R.Var:
        """Return the variable of a local function with its new type."""
        if not isinstance(var.type, T.FuncType) or var.type.params is None:
            return var
        return replace(var, type=replace(var.type, params=self._keep_items(var.name, var.type.params)))

    def value(self, expr: R.Expr) -> R.Expr:
        """Remove the arguments of removed parameters from a call."""
        if isinstance(expr, R.Call) and isinstance(expr.op, R.GlobalVar | R.Var):
            return replace(expr, args=self._keep_items(expr.op.name, expr.args))
        return expr

    def binding(self, binding: R.Binding) -> tuple[R.Binding, ...]:
        """Remove parameters of a local function."""
        if isinstance(binding.value, R.Function):
            return (replace(binding, value=self._narrow_function(binding.var.name, binding.value)),)
        return (binding,)


def plain(seq: R.Seq) -> R.Seq:
    """Return the same bindings without dataflow blocks."""
    return _Plain().seq(seq)


class _Plain(Rebuild):
    def var(self, var: R.Var) -> R.Var:
        """Return a variable that can be read everywhere in its function."""
        return replace(var, dataflow=False)

    def seq(self, seq: R.Seq) -> R.Seq:
        """One block."""
        made = super().seq(seq)
        bindings = tuple(binding for block in made.blocks for binding in block.bindings)
        return R.Seq((R.BindingBlock(bindings),) if bindings else (), made.body)
