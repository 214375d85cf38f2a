"""A function under construction: blocks of bindings in normal form, and which variables are in scope."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opsieve.gen.irs.relax import known_faults, tree as R, types as T
from opsieve.gen.irs.view import FreshNames


@dataclass(slots=True)
class Body:
    """The sequence being built. `scope` holds the variables that may be read, in order of binding; `symbols`
    the values of the symbols that shapes may use here; `plain` is true where no branch may stand (in a
    dataflow block); `settled` are the variables that TVM puts a constant in the place of.
    """

    names: FreshNames
    scope: list[R.Var] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    plain: bool = False
    depth: int = 0
    settled: set[str] = field(default_factory=set)
    _blocks: list[R.BindingBlock] = field(default_factory=list)
    _bindings: list[R.Binding] = field(default_factory=list)

    def bind(self, value: R.Expr, kind: T.Type, stem: str = "") -> R.Var:
        """Bind a value to a new variable."""
        var = R.Var(self.names.fresh(stem or ("lv" if self.plain else "gv")), kind, self.plain)
        self._note(var, value)
        return var

    def cast(self, value: R.Expr, kind: T.Type) -> R.Var:
        """Bind a value to a new variable and check its type at run time."""
        var = R.Var(self.names.fresh("lv" if self.plain else "gv"), kind, self.plain)
        self._bindings.append(R.MatchCast(var, value, kind))
        self.scope.append(var)
        return var

    def make_nested(self) -> "Body":
        """Make the body of a branch or of a local function, which sees the variables in scope here."""
        return Body(
            self.names, list(self.scope), dict(self.symbols), False, self.depth + 1, set(self.settled)
        )

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """A dataflow block; call `export` in it for what shall be seen after it."""
        self._close(False)
        before = set(self.symbols)
        self.plain = True
        yield
        self.plain = False
        self._close(True)
        # Relax: a variable of a dataflow block is visible in that block only, except for exported ones.
        self.scope[:] = [var for var in self.scope if not var.dataflow]
        # A symbol that a `match_cast` in the block introduced is gone with it.
        for name in set(self.symbols) - before:
            del self.symbols[name]

    def export(self, value: R.Expr, kind: T.Type) -> R.Var:
        """Bind a variable that outlives the open dataflow block."""
        var = R.Var(self.names.fresh("gv"), kind)
        self._note(var, value)
        return var

    def _note(self, var: R.Var, value: R.Expr) -> None:
        self._bindings.append(R.Bind(var, value))
        self.scope.append(var)
        if known_faults.settles(value, self.settled):
            self.settled.add(var.name)

    def seq(self, result: R.Expr) -> R.Seq:
        """Return everything that was bound, and the result."""
        return R.Seq(self.blocks(), result)

    def blocks(self) -> tuple[R.BindingBlock, ...]:
        """Return everything that was bound."""
        self._close(self.plain)
        return tuple(self._blocks)

    def _close(self, dataflow: bool) -> None:
        if self._bindings:
            self._blocks.append(R.BindingBlock(tuple(self._bindings), dataflow))
            self._bindings = []
