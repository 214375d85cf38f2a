"""When two failures are the same one: the one place where that is decided, a level at a time.

| level       | what two failures have in common |
|---|---|
| loose       | the kind of failure and its stage; of a wrong result, whether values or structure are wrong |
| release     | what survives from one release of a compiler to the next: kind, stage and signal, with the
place in the source that the message gives, else the functions on the stack, else the message without its
status code; of a wrong result its kind and class of type | | fingerprint | all that counts in a fingerprint,
but for what reduction changes and what later steps find out | | cure        | as `fingerprint`, and the same
builds of the compiler fail (the reducer runs them) |

The reducer takes `loose`, `fingerprint` or `cure`; bisection takes `release`; clusters have rules of their
own (`clustering`). Whether there is a failure at all is decided by `backends/judge/shown_failure.py`.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Literal

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import STRUCTURE, Verdict
from opsieve.gen.model.program import Program
from opsieve.triage.fingerprint.component import NOTHING, ComponentName
from opsieve.triage.fingerprint.death_signal import list_signal_words
from opsieve.triage.fingerprint.fingerprint import Fingerprint, get_essence, make_fingerprint
from opsieve.triage.fingerprint.program_graph import ProgramNames

Level = Literal["loose", "release", "fingerprint", "cure"]
# Those of a reduction
LEVELS: tuple[Level, ...] = ("loose", "fingerprint", "cure")
# Components that change while a graph is reduced, or that become known after it: no part of "the same
# failure".
_LATER = frozenset(
    [
        ComponentName.OPERATORS,
        ComponentName.EDGES,
        ComponentName.RANKS,
        ComponentName.ATTRIBUTES,
        ComponentName.GUILTY_PASS,
        ComponentName.CURE,
        ComponentName.FIRST_BAD,
    ]
)
# They count in a key until a reduced graph or a pass tells more, and always here.
_UNTIL_KNOWN = frozenset([ComponentName.DTYPE, ComponentName.BLAME])
# The operator at which a checker meets a fault, and a name that a transformer makes of one of the program
_DOWNSTREAM = re.compile(r"(?:op_type|OpType) \w+|\w*_\w*")
# Releases changed the status of some errors and the names that they give nodes, not their words.
_CHANGING = re.compile(r"^[A-Z_]{2,40}: |, node name: [^)]*")


@dataclass(frozen=True)
class Failure:
    """A failure to recognise: its verdict, and its fingerprint."""

    verdict: Verdict
    fingerprint: Fingerprint

    def is_shown_by(
        self, verdict: Verdict, run: Observation, program: Program, level: Level, any_type: bool = False
    ) -> bool:
        """Whether a verdict on another program, or of another run, is this failure; `run` is the target's
        observation.

        A `flaky` verdict is a failure too; an `undecided` one only if this failure was undecided and a user
        named it. With `any_type`, a wrong result of any element type is the same: the parts behind the bug
        only converted it.
        """
        if verdict.verdict not in ("fail", "flaky", self.verdict.verdict):
            return False
        mine = self.verdict.mismatch
        if any_type and mine is not None and verdict.mismatch is not None:
            return verdict.mismatch.what == mine.what
        return is_same(self.fingerprint, make_failure(verdict, run, program).fingerprint, level)


def make_failure(verdict: Verdict, run: Observation, program: Program) -> Failure:
    """Make the failure of a verdict on a program; `run` is the target's observation."""
    operators = sorted(set(program.operators()))
    return Failure(verdict, make_fingerprint(verdict, run, operators, NOTHING, ProgramNames(program)))


def is_same(a: Fingerprint, b: Fingerprint, level: Level = "fingerprint") -> bool:
    """Whether two fingerprints by the same version of the rules are one failure."""
    return a.version == b.version and _COMPARED[level](a) == _COMPARED[level](b)


def get_trait(found: Fingerprint) -> str:
    """Return the part of a failure that survives a new release: no line numbers, status codes and binary
    offsets.
    """
    if mismatch := found.get_value(ComponentName.MISMATCH):
        parts = [found.get_value(ComponentName.KIND), mismatch, found.get_value(ComponentName.DTYPE)]
        return " ".join(filter(None, parts))
    frames, *said = (
        found.get_value(name) for name in (ComponentName.FRAMES, ComponentName.MESSAGE, ComponentName.FOUND)
    )
    # An offset in a library changes with every build.
    place = found.get_value(ComponentName.PLACE) or ("" if "+0x" in frames else frames)
    # Of a broken model not who refuses it, but what is wrong with it, tells two faults apart.
    message = _CHANGING.sub("", ": ".join(filter(None, said)))
    # The name of the signal, which is in the trait already.
    message = "" if message in list_signal_words() else message
    parts = [
        found.get_value(name) for name in (ComponentName.KIND, ComponentName.STAGE, ComponentName.SIGNAL)
    ]
    return " ".join(filter(None, [*parts, place or message]))


def _get_outline(found: Fingerprint) -> Hashable:
    kind, mismatch = found.get_value(ComponentName.KIND), found.get_value(ComponentName.MISMATCH)
    return kind, (mismatch in STRUCTURE) if mismatch else found.get_value(ComponentName.STAGE)


def _get_lasting(found: Fingerprint) -> Hashable:
    return tuple(
        (
            part.name,
            # What is wrong with a broken model, whatever operator and made name shows it
            " ".join(_DOWNSTREAM.sub("", get_essence(part)).split())
            if part.name is ComponentName.FOUND
            else get_essence(part),
        )
        for part in found.components
        # The type counts before reduction and must not change unnoticed during it.
        if (part.kept or part.name in _UNTIL_KNOWN) and part.name not in _LATER
    )


_COMPARED: Mapping[Level, Callable[[Fingerprint], Hashable]] = {
    "loose": _get_outline,
    "release": get_trait,
    "fingerprint": _get_lasting,
    "cure": _get_lasting,
}
