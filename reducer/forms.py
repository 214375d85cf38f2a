"""The forms of program that can be reduced, by entry point in the group `opsieve.reduction_forms`."""

import importlib.metadata
from typing import Any

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.program import Program
from opsieve.reducer.reduction import ReducibleForm

GROUP = "opsieve.reduction_forms"


def form_of(program: Program) -> ReducibleForm[Any]:
    """How programs of this form are reduced; BadInput when none of the installed forms is the program's."""
    name = program.form
    for entry in importlib.metadata.entry_points(group=GROUP, name=name):
        try:
            form: ReducibleForm[Any] = entry.load()()
        except (ImportError, AttributeError, SyntaxError) as error:
            raise BadInput(
                f"the form {shown(name)} cannot be loaded ({error}): reinstall its package"
            ) from error
        return form
    raise BadInput(f"a program of the form {shown(name)} cannot be reduced: no installed package says how")
