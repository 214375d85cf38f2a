"""The vocabulary of metamorphic relations: rewrites by name, of programs of every IR.

A relation is written `NAME` (wherever it fits) or `NAME@N` (in about half of the places, others for each N;
which ones depends on the names of values there, so that most stay chosen while a program is reduced). Equal
relations make equal programs of equal programs.
"""

import re
from collections.abc import Mapping
from typing import Any

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.ir import Rewriter, Rewritten
from opsieve.gen.irs.registry import ir_named, ir_names, load_named
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import Value

_WRITTEN = re.compile(r"([a-z-]{1,40})(?:@([1-9][0-9]{0,3}))?")


def _rewrites(ir: str) -> Mapping[str, Rewriter[Any]]:
    rewrites = ir_named(ir).rewrites
    found: Mapping[str, Rewriter[Any]] = load_named(rewrites) if rewrites else {}
    return found


def names_for(ir: str) -> tuple[str, ...]:
    """The names of the rewrites of programs of an IR; () where there are none."""
    return tuple(_rewrites(ir))


def check_relation(written: str) -> None:
    """BadInput where no relation is written so."""
    _parsed(written)


def relation_of(ir: str, number: int) -> str:
    """The relation that the test of a number is put to: all rewrites in turn, everywhere first, then in
    places.
    """
    names = names_for(ir)
    if not names:
        return ""
    turn, place = divmod(number, len(names))
    return names[place] if turn % 3 == 0 else f"{names[place]}@{turn % 1000}"


def rewritten(program: Program, inputs: Mapping[str, Value], written: str) -> Rewritten | None:
    """The program after a rewrite; None where it fits nowhere, or the program was made to be wrong. BadInput
    for an unknown one.
    """
    name, seed = _parsed(written)
    rewrite = _rewrites(program.ir).get(name)
    return None if rewrite is None or program.fault is not None else rewrite(program, inputs, seed)


def _parsed(written: str) -> tuple[str, str]:
    found = _WRITTEN.fullmatch(written)
    if found is None or not any(found[1] in names_for(ir) for ir in ir_names()):
        every = [name for ir in ir_names() for name in names_for(ir)]
        raise BadInput(
            f"there is no rewrite {shown(written, 60)}; there are {', '.join(every)}, and NAME@N for some"
            " places"
        )
    return found[1], found[2] or ""
