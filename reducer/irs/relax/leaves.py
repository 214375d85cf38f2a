"""What edits put in the place of something: constants, and copies under new names."""

from dataclasses import replace

import numpy as np

from opsieve.gen.irs.relax.body import FreshNames
from opsieve.gen.irs.relax.draw import numbers
from opsieve.gen.irs.relax.renaming import all_names
from opsieve.gen.irs.relax.tree import Constant, Expr, Function, Module, Var
from opsieve.gen.irs.relax.types import RelaxTensorType, is_static
from opsieve.gen.irs.relax.walk import Rebuild, all_bindings, expressions

_LARGEST_CONSTANT = 64  # elements


def constant(kind: RelaxTensorType) -> Constant | None:
    """Ones of a static type that is not large."""
    if not is_static(kind) or not kind.dtype:
        return None
    shape = [size for size in kind.shape or () if isinstance(size, int)]
    count = int(np.prod(shape, dtype=np.int64))
    return numbers(kind.dtype, shape, [1] * count) if count <= _LARGEST_CONSTANT else None


def fresh(value: Expr, names: FreshNames) -> Expr:
    """A copy in which what is bound inside has new names."""
    found = [b.var for b in all_bindings(value)]
    found += [p for e in expressions(value) if isinstance(e, Function) for p in e.params]
    return _Rename({var.name: names.fresh(var.name + "_") for var in found}).expr(value)


class _Rename(Rebuild):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def var(self, var: Var) -> Var:
        """The variable under its new name."""
        return replace(var, name=self._names.get(var.name, var.name))


def renewed(function: Function, module: Module) -> Function:
    """A copy of a function, its parameters and all that is bound in it under names that the module has
    not.
    """
    made = fresh(function, FreshNames(all_names(module)))
    assert isinstance(made, Function)
    return made
