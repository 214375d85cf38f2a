"""How the values of a program's inputs are chosen, as one word of a request: `ranged`, `search`, `special`,
or `special:zeros,nan`.

`ranged` is how the generator grows programs: every value has an interval, and operators stand only where it
lies in their domain. With `search` it grows them without, and values are looked for afterwards, in workers
(backends/probing/value_search.py). With `special` numbers at which compilers cut corners are strewn into the
values that are there (gen/values/special.py).
"""

from dataclasses import replace

from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.program import onnx_program
from opsieve.gen.values.special import KINDS, check_kinds, special_inputs

RANGED, SEARCH, SPECIAL = "ranged", "search", "special"


def named_values(text: str, choices: tuple[str, ...] = (RANGED, SEARCH, SPECIAL)) -> str:
    """Parse the user's word for values, and put kinds of special values in their usual order. Raises BadInput
    for anything but the choices.
    """
    name, colon, rest = text.partition(":")
    if name not in choices or (colon and name != SPECIAL):
        listed = [f"{each}[:{','.join(KINDS)}]" if each == SPECIAL else each for each in choices]
        raise BadInput(f"{shown(text)} is no choice of values; there are {', '.join(listed)}")
    if not colon:
        return name
    given = [kind.strip() for kind in rest.split(",") if kind.strip()]
    check_kinds(given or [""])
    return (
        name
        if len(set(given)) == len(KINDS)
        else f"{name}:{','.join(kind for kind in KINDS if kind in given)}"
    )


def special_kinds(values: str) -> tuple[str, ...]:
    """Return the kinds of special values that a word names; () for other words."""
    name, colon, rest = values.partition(":")
    return () if name != SPECIAL else tuple(rest.split(",")) if colon else KINDS


def with_special(case: Case, values: str, seed: int) -> Case:
    """The case with special values strewn into its inputs; the case itself when the word asks for none.

    Expected outputs belong to the inputs that there were: they are left out.
    """
    kinds = special_kinds(values)
    if not kinds:
        return case
    inputs = special_inputs(onnx_program(case.program, "--values special").proto, seed, kinds, case.inputs)
    return replace(case, inputs=inputs, expected=None, origin=replace(case.origin, inputs=values))
