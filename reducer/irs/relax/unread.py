"""What nothing reads, as edits: a failure may need it (a printer prints it, a pass meets it), so it goes
where the failure stays without it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from opsieve.gen.irs.relax.tree import Module
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.irs.relax.cleaning import Unread, cleaned, pruned
from opsieve.reducer.irs.relax.subject import RelaxSubject

_Listed = Callable[[RelaxSubject], Iterator[Edit[RelaxSubject]]]


def unread_parts(subject: RelaxSubject) -> Iterator[Edit[RelaxSubject]]:
    """Each binding, parameter and function that nothing reads is left out, first with all that only it read,
    then alone.
    """
    found = subject.unread
    parts = [(f"function {name}", Unread(functions=frozenset([name]))) for name in sorted(found.functions)]
    parts += [(f"{x} of {f}", Unread(bindings=frozenset([(f, x)]))) for f, x in sorted(found.bindings)]
    parts += [(f"{x} of {f}", Unread(parameters=frozenset([(f, x)]))) for f, x in sorted(found.parameters)]
    for change, how in ((cleaned, ""), (pruned, " alone")):
        for name, part in parts:
            yield Edit(f"drop {name}{how}", frozenset([name]), partial(_without, part=part, change=change))


def _without(
    subject: RelaxSubject, part: Unread, change: Callable[[Module, Unread], Module]
) -> RelaxSubject | None:
    now = subject.unread
    kept = Unread(
        now.bindings - part.bindings, now.parameters - part.parameters, now.functions - part.functions
    )
    return subject.exactly(change(subject.module, kept))


def keeping_parameters(dimensions: Sequence[_Listed]) -> _Listed:
    """The edits of some dimensions that leave a parameter unread, once more: the parameter and its arguments
    stay.
    """

    def listed(subject: RelaxSubject) -> Iterator[Edit[RelaxSubject]]:
        for dimension in dimensions:
            for edit in dimension(subject):
                yield Edit(f"{edit.label}, parameters kept", edit.touches, _keeping(edit), edit.parts)

    return listed


def _keeping(edit: Edit[RelaxSubject]) -> Callable[[RelaxSubject], RelaxSubject | None]:
    def apply(subject: RelaxSubject) -> RelaxSubject | None:
        made = edit.apply(replace(subject, keeps_parameters=True))
        plain = edit.apply(subject)
        if made is None or (plain is not None and plain.module == made.module):
            return None
        return replace(made, keeps_parameters=False)

    return apply
