"""What nothing reads is left out of a module: bindings, functions, parameters."""

from dataclasses import replace

from opsieve.gen.relax.tree import Binding, BindingBlock, Call, Expr, Function, GlobalVar, MatchCast, Module, Seq, Var
from opsieve.gen.relax.types import symbols
from opsieve.gen.relax.walk import Rebuild, all_bindings, called, expressions, functions, reads


def cleaned(module: Module) -> Module:
    """The module without what does not reach main's result. Every operation is pure; a `match_cast` stays while its symbols are used."""
    while True:
        smaller = _without_parameters(_without_functions(_Sweep().module(module)))
        if smaller == module:
            return module
        module = smaller


def is_closed(module: Module) -> bool:
    """Whether every variable that is read is bound in its function, and every function that is called is there."""
    names = {name for name, _ in module.functions}
    for _, function in functions(module):
        bound = {param.name for param in function.params}
        for binding in all_bindings(function.body):
            bound.add(binding.var.name)
            if isinstance(binding.value, Function):
                bound.update(param.name for param in binding.value.params)
        if not reads(function.body) <= bound or not called(function.body) <= names:
            return False
    return True


class _Sweep(Rebuild):
    """Drops bindings that are not read in their function."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._symbols: set[str] = set()
        self._inside = 0

    def function(self, function: Function) -> Function:
        """A function of the module; a local one shares what is read with the one around it."""
        if not self._inside:
            self._read = reads(function.body)
            self._symbols = _used_symbols(function)
        self._inside += 1
        made = super().function(function)
        self._inside -= 1
        return made

    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        """Nothing for a binding that is not read."""
        needed = isinstance(binding, MatchCast) and bool(set(symbols(binding.type)) & self._symbols)
        return (binding,) if binding.var.name in self._read or needed else ()


def _used_symbols(function: Function) -> set[str]:
    """Symbols that stand anywhere but in a match_cast that nobody reads."""
    read = reads(function.body)
    found: set[str] = set(symbols(function.result))
    for binding in all_bindings(function.body):
        if binding.var.name in read:
            found.update(symbols(binding.var.type))
    for expr in expressions(function.body):
        found.update(symbols(expr.type))
        if isinstance(expr, Call):
            found.update(name for kind in expr.type_args for name in symbols(kind))
    return found


def _without_functions(module: Module) -> Module:
    """Without functions that main does not reach."""
    table = dict(functions(module))
    reached, waiting = set[str](), ["main"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += called(table[name].body) if name in table else ()
    return Module(tuple((name, f) for name, f in module.functions if name in reached), module.attrs)


def _without_parameters(module: Module) -> Module:
    """Without parameters that their function does not read, at its calls too. A parameter that gives a symbol its value stays."""
    keep: dict[str, list[int]] = {}
    for name, function in functions(module):
        read, used = reads(function.body), _used_symbols(function)
        others = [set(symbols(param.type)) for param in function.params]
        kept = [n for n, param in enumerate(function.params) if param.name in read or others[n] & used]
        if len(kept) < len(function.params) and not _is_value(module, name):
            keep[name] = kept
    return _Narrow(keep).module(module) if keep else module


def _is_value(module: Module, name: str) -> bool:
    """Whether a function is named other than to be called."""
    return any(
        isinstance(arg, GlobalVar) and arg.name == name
        for _, function in functions(module)
        for expr in expressions(function.body)
        if isinstance(expr, Call)
        for arg in expr.args
    )


class _Narrow(Rebuild):
    def __init__(self, keep: dict[str, list[int]]) -> None:
        self._keep = keep

    def module(self, module: Module) -> Module:
        """Calls first, then the parameters themselves."""
        made = super().module(module)
        return Module(
            tuple(
                (name, replace(f, params=tuple(f.params[n] for n in self._keep[name])))
                if name in self._keep and isinstance(f, Function)
                else (name, f)
                for name, f in made.functions
            ),
            made.attrs,
        )

    def value(self, expr: Expr) -> Expr:
        """A call with the arguments that are left."""
        if isinstance(expr, Call) and isinstance(expr.op, GlobalVar) and expr.op.name in self._keep:
            return replace(expr, args=tuple(expr.args[n] for n in self._keep[expr.op.name]))
        return expr


def plain(seq: Seq) -> Seq:
    """The same bindings without dataflow blocks."""
    return _Plain().seq(seq)


class _Plain(Rebuild):
    def var(self, var: Var) -> Var:
        """A variable that is seen everywhere."""
        return replace(var, dataflow=False)

    def seq(self, seq: Seq) -> Seq:
        """One block."""
        made = super().seq(seq)
        bindings = tuple(binding for block in made.blocks for binding in block.bindings)
        return Seq((BindingBlock(bindings),) if bindings else (), made.body)
