"""Edits that drop parts without a reader. A failure may need them (a printer prints them, a pass visits
them), so each is tried.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from opsieve.gen.irs.relax.cleaning import Unread, clean_module, prune_module
from opsieve.gen.irs.relax.tree import Module
from opsieve.reducer.irs.relax.edits import put_module, tree_of
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmPass, TvmSubject


def unread_parts(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Drop each unread binding, parameter and function, first with everything that only it read, then alone."""
    found = tree_of(subject).unread
    parts = [("the module", name, Unread(functions=frozenset([name]))) for name in sorted(found.functions)]
    parts += [(f, x, Unread(bindings=frozenset([(f, x)]))) for f, x in sorted(found.bindings)]
    parts += [(f, x, Unread(parameters=frozenset([(f, x)]))) for f, x in sorted(found.parameters)]
    for change, how in ((clean_module, ""), (prune_module, " alone")):
        for owner, name, part in parts:
            apply = partial(_without, part=part, change=change)
            # A local function without one of its parameters is simpler too.
            simplified = frozenset([name, owner])
            yield TvmEdit(
                f"drop {name} of {owner}{how}", frozenset([f"{name} of {owner}"]), apply, simplified
            )


def _without(
    subject: TvmSubject, part: Unread, change: Callable[[Module, Unread], Module]
) -> TvmSubject | None:
    tree = tree_of(subject)
    now = tree.unread
    kept = Unread(
        now.bindings - part.bindings, now.parameters - part.parameters, now.functions - part.functions
    )
    return put_module(subject, change(tree.module, kept))


@dataclass
class Signatures:
    """Dimensions whose edits keep the parameters that they leave unread, and their arguments."""

    keeping: Sequence[TvmPass]
    name: str = "signatures"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """All that they propose."""
        for dimension in self.keeping:
            for edit in dimension.edits(subject):
                yield replace(edit, label=f"{edit.label}, parameters kept")
