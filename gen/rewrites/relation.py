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

# At most four digits: `choose_relation` writes three.
_WRITTEN = re.compile(r"([a-z-]{1,40})(?:@([1-9][0-9]{0,3}))?")


def _load_rewrites(ir: str) -> Mapping[str, Rewriter[Any]]:
    """Load the rewrites of an IR by name."""
    rewrites = ir_named(ir).rewrites
    found: Mapping[str, Rewriter[Any]] = load_named(rewrites) if rewrites else {}
    return found


def list_relations(ir: str) -> tuple[str, ...]:
    """List the names of the rewrites for programs of an IR."""
    return tuple(_load_rewrites(ir))


def check_relation(written: str) -> None:
    """Check that a relation is written so.

    Raises:
        BadInput: If the text is not a relation.
    """
    _parse_relation(written)


def choose_relation(ir: str, number: int) -> str:
    """Return the relation for a test number: all rewrites in turn, first everywhere, then in some places."""
    names = list_relations(ir)
    if not names:
        return ""
    turn, place = divmod(number, len(names))
    # Everywhere in one of three turns; in the others half of the places, so that only some neighbours are
    # separated.
    return names[place] if turn % 3 == 0 else f"{names[place]}@{turn % 1000}"


def rewrite_program(program: Program, inputs: Mapping[str, Value], written: str) -> Rewritten | None:
    """Return the program after a rewrite; None if it fits nowhere, or the program was made invalid on
    purpose.

    Raises:
        BadInput: If the rewrite is unknown.
    """
    name, seed = _parse_relation(written)
    rewrite = _load_rewrites(program.ir).get(name)
    return None if rewrite is None or program.fault is not None else rewrite(program, inputs, seed)


def _parse_relation(written: str) -> tuple[str, str]:
    """Parse a relation into its name and number."""
    found = _WRITTEN.fullmatch(written)
    if found is None or not any(found[1] in list_relations(ir) for ir in ir_names()):
        every = [name for ir in ir_names() for name in list_relations(ir)]
        raise BadInput(
            f"there is no rewrite {shown(written, 60)}; there are {', '.join(every)}, and NAME@N for some"
            " places"
        )
    return found[1], found[2] or ""
