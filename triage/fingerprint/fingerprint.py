"""What makes two failures one bug, as far as one failure alone can tell.

There are two tracks, since what separates bugs differs (measured on seeded faults): a crash, an error or a
hang is identified by where it happened (`failure_components`); a wrong result always surfaces in the same
comparison, so it is identified by what is wrong, and by the operators of the graph once that is small
(`mismatch_components`).

A fingerprint is exact and versioned, and each component says why it counts or not.
"""

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from opsieve.backends.observation import Observation
from opsieve.backends.target import BadTarget, Target
from opsieve.backends.verdict import Verdict
from opsieve.gen.model.printable import printable
from opsieve.triage.fingerprint.component import NOTHING, Component, ComponentName, Evidence, component
from opsieve.triage.fingerprint.failure_components import failure_components
from opsieve.triage.fingerprint.mismatch_components import (
    BROKEN_MODEL,
    broken_model_components,
    mismatch_components,
)
from opsieve.triage.fingerprint.stack import is_of_programs

VERSION = 6
_WORDED = frozenset([ComponentName.MESSAGE, ComponentName.FOUND])
_PLACEHOLDER = re.compile(r"<\w+>")
_CLASS = re.compile(r"(?<![\w.])[\w.]++(?= object (?:has no|is not|does not) )|(?<= got )[\w.]++")
_NO_BRACKETS = str.maketrans(dict.fromkeys(",:;()[]{}", " "))
# alone: an article, or a name that a program or the author gave
_LETTER = re.compile(r"(?<![\w.])[A-Za-z](?!\w|\.\w)")
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`key` names the bug, `onnxruntime-error-3f9a1c2b04`: equal keys of equal versions are one bug."""

    version: int
    key: str
    components: tuple[Component, ...]

    def component(self, name: ComponentName) -> Component | None:
        """The component of a name, None when there is none."""
        return next((part for part in self.components if part.name == name), None)

    def value(self, name: ComponentName) -> str:
        """A component as text, "" when there is none of that name."""
        return next((part.value for part in self.components if part.name == name), "")


def fingerprint(
    verdict: Verdict,
    observation: Observation,
    operators: Sequence[str],
    evidence: Evidence = NOTHING,
    names: Collection[str] = frozenset(),
) -> Fingerprint:
    """The fingerprint of a failure: `observation` is that of the target blamed, `operators` are those of its
    graph.

    `names` are those of the program that was run (`ProgramNames`), which its messages hold; none where there
    is no program.

    `evidence` is what reduction, attribution and bisection found since; each part of it is a component of its
    own. Those never count for `sameness.same`, so a fingerprint can be followed while its graph is reduced.
    """
    kind = verdict.kind or observation.outcome
    try:
        backend = Target.parse(observation.target).backend
    except BadTarget:
        backend = _NOT_A_WORD.sub("-", observation.target[:40].lower()).strip("-")
    if verdict.mismatch:
        parts = mismatch_components(verdict, observation, operators, evidence)
    elif observation.exception.rpartition(".")[2] == BROKEN_MODEL:
        parts = broken_model_components(verdict, observation, operators, evidence, names)
    else:
        parts = failure_components(verdict, observation, operators, evidence, names)
    every = [
        component(ComponentName.KIND, kind, True, "a crash and a wrong result are different failures"),
        component(ComponentName.BACKEND, backend, True, "another compiler's failure is another bug"),
        *parts,
    ]
    components = tuple(part for part in every if part.items)
    kept = [[part.name, essence(part)] for part in components if part.kept]
    digest = hashlib.sha256(json.dumps([VERSION, kept], ensure_ascii=True).encode()).hexdigest()[:10]
    return Fingerprint(VERSION, f"{backend}-{kind}-{digest}", components)


def essence(part: Component) -> str:
    """What of a component is compared. Of a message the constant words: how many dimensions or names it
    lists, and which kind of expression it was about, is the program's matter. A letter alone is no word, so
    that `x` is left out whether or not it was known as a name.
    """
    if part.name not in _WORDED:
        return part.value
    text = _CLASS.sub(lambda match: "" if is_of_programs(match[0]) else match[0], part.value)
    text = _LETTER.sub(" ", _PLACEHOLDER.sub(" ", text))
    return " ".join(text.translate(_NO_BRACKETS).split()) or part.value


_MAX = 120
_WRONG = {
    "nan": "wrong NaNs",
    "inf": "wrong infinities",
    "value": "wrong values",
    "shape": "wrong shape",
    "dtype": "wrong dtype",
    "type": "wrong type",
    "missing": "missing output",
    "sign-of-zero": "wrong sign of zero",
}


def title_of(found: Fingerprint) -> str:
    """A title of at most 120 characters, `ValueError in Split: no value in Constant`: what failed, where, and
    what it said.
    """
    where = _where(found)
    if what := found.value(ComponentName.MISMATCH):
        of = found.value(ComponentName.OPERATORS)
        text = _WRONG.get(what, what) + (f" of {of}" if of else "")
        if dtype := found.value(ComponentName.DTYPE):
            text += f" ({dtype})"
    elif found.value(ComponentName.EXCEPTION) == BROKEN_MODEL:
        graph = found.component(ComponentName.OPERATORS)
        text = "broken model" + (f" of {graph.value}" if graph and graph.kept else "")
        text += f": {found.value(ComponentName.FOUND) or found.value(ComponentName.MESSAGE)}"
    else:
        kind = found.value(ComponentName.KIND)
        what = found.value(ComponentName.SIGNAL) or found.value(ComponentName.EXCEPTION) or kind
        said = found.value(ComponentName.MESSAGE)
        text = what + (f" in {where}" if where else "")
        text += f": {said}" if said and said != what else ""
        if kind not in ("error", "crash"):
            text = f"{kind}: {text}" if text != kind else kind
    text = printable(text)
    return text if len(text) <= _MAX else text[: _MAX - 1].rstrip() + "…"


def _where(found: Fingerprint) -> str:
    """The operator that was converted, else the innermost function."""
    frames = found.component(ComponentName.FRAMES)
    innermost = frames.items[0] if frames else ""
    operator = found.value(ComponentName.OPERATOR)
    return (
        f"{operator} ({innermost})"
        if operator and innermost
        else operator or innermost or found.value(ComponentName.PLACE)
    )
