"""The passes that remove most: they drop operations and outputs, read another value for a result, and put
bodies in the place of operations.
"""

from collections.abc import Iterator
from functools import partial
from typing import TypeVar

from opsieve.gen.irs.view import Operation, ProgramEdits, ProgramView
from opsieve.reducer.engine.edit import Edit

S = TypeVar("S")
# The number of values that the operation does not read which are tried in its place.
_OTHERS = 2
# Up to this many operations, such values are tried even if an operand would do.
_FEW = 4


def drop_operations(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Drop an operation, the last ones first: inputs or constants stand for its results."""
    for operation in reversed(edits.view(subject).operations()):
        change = partial(edits.remove, operation=operation)
        yield Edit(f"drop {operation.label}", operation.touches, change, frozenset([operation.key]))


def bypass_operations(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Replace an operation by a value of the type of its result: one that it reads, or another that is there
    before it. Among few operations, values of other types are tried as well.
    """
    view = edits.view(subject)
    operations = view.operations()
    few = len(operations) <= _FEW
    for operation in operations:
        fits = _stand_ins(view, operation, few) if operation.result else []
        others = [name for name in operation.reads if name not in fits] if few and operation.result else []
        for name in (*fits, *others):
            # Dropping the operation already puts an equally good value in the place of its result, so a
            # bypass by an input that only it reads adds nothing.
            if name in operation.spare and view.type_of(operation.result) is not None:
                continue
            yield Edit(
                f"bypass {operation.label} by {name}",
                operation.touches | {name},
                partial(edits.replace, result=operation.result, by=name, retype=name in others),
                frozenset([operation.key]),
            )


def _stand_ins(view: ProgramView, operation: Operation, few: bool) -> list[str]:
    """List the values that could take the place of a result.

    What lies further up is reached by several steps of its own; values that the operation does not read are
    tried only where that way is closed, or among few operations.
    """
    wanted = view.type_of(operation.result)
    if wanted is None:
        return []
    fits = [name for name in operation.reads if view.type_of(name) == wanted]
    if fits and not few:
        return fits
    scope = (name for name in view.scope(operation) if name not in operation.reads)
    return fits + [name for name in scope if view.type_of(name) == wanted][:_OTHERS]


def drop_outputs(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Drop an output, with all that only it needs, as long as there are several."""
    names = edits.view(subject).outputs()
    for name in reversed(names) if len(names) > 1 else ():
        change = partial(edits.drop_output, name=name)
        yield Edit(f"drop output {name}", frozenset([name]), change, frozenset([name + ">"]))


def open_bodies(edits: ProgramEdits[S], subject: S) -> Iterator[Edit[S]]:
    """Put a body in the place of the operation that owns or calls it: the side of a branch, a turn of a loop,
    a function. It is the one step that leaves few of the others to be tried.
    """
    for opening in edits.view(subject).openings():
        change = partial(edits.open, opening=opening)
        yield Edit(opening.label, opening.touches, change, opening.parts)
