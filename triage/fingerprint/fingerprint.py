"""Decide which failures are one bug, as far as a single failure shows.

There are two tracks, since different properties separate bugs (measured on seeded faults): a crash, an error
or a hang is identified by the place of the failure (`failure_components`); a wrong result always surfaces in
the same comparison, so it is identified by the kind of difference, and by the operators of the graph once
that is small (`mismatch_components`).

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
from opsieve.triage.fingerprint import failure_components, mismatch_components, stack
from opsieve.triage.fingerprint.component import NOTHING, Component, ComponentName, Evidence, make_component

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

    def find_component(self, name: ComponentName) -> Component | None:
        """Return the component with a name, if there is one."""
        return next((part for part in self.components if part.name == name), None)

    def get_value(self, name: ComponentName) -> str:
        """Return a component as text, or ""."""
        return next((part.value for part in self.components if part.name == name), "")


def make_fingerprint(
    verdict: Verdict,
    observation: Observation,
    operators: Sequence[str],
    evidence: Evidence = NOTHING,
    names: Collection[str] = frozenset(),
) -> Fingerprint:
    """Make the fingerprint of a failure.

    `observation` is that of the blamed target, `operators` are those of its graph. `names` are those of the
    program that was run (`ProgramNames`), which its messages contain. `evidence` is from later reduction,
    attribution and bisection; each part of it is a component of its own. Those never count for
    `sameness.is_same`, so that a fingerprint can be followed while its graph is reduced.
    """
    kind = verdict.kind or observation.outcome
    try:
        backend = Target.parse(observation.target).backend
    except BadTarget:
        # Logs of others name compilers that opsieve does not know.
        backend = _NOT_A_WORD.sub("-", observation.target[:40].lower()).strip("-")
    if verdict.mismatch:
        parts = mismatch_components.make_mismatch_components(verdict, observation, operators, evidence)
    # Such an error is a wrong result of the transformer, only noticed by a reader.
    elif observation.exception.rpartition(".")[2] == mismatch_components.BROKEN_MODEL:
        parts = mismatch_components.make_broken_model_components(
            verdict, observation, operators, evidence, names
        )
    else:
        parts = failure_components.make_failure_components(
            backend, verdict, observation, operators, evidence, names
        )
    every = [
        make_component(ComponentName.KIND, kind, True, "a crash and a wrong result are different failures"),
        make_component(ComponentName.BACKEND, backend, True, "another compiler's failure is another bug"),
        *parts,
    ]
    # An unknown fact has no component, so that learning it later is seen as a change.
    components = tuple(part for part in every if part.items)
    kept = [[part.name, get_essence(part)] for part in components if part.kept]
    # With the version in it, keys of two versions of the rules never meet by chance.
    digest = hashlib.sha256(json.dumps([VERSION, kept], ensure_ascii=True).encode()).hexdigest()[:10]
    return Fingerprint(VERSION, f"{backend}-{kind}-{digest}", components)


def get_essence(part: Component) -> str:
    """Return the compared part of a component.

    For a message that is its constant words: the number of dimensions or names, and the kind of expression,
    depend on the program. A single letter is not a word, so that `x` is left out whether or not it was known
    as a name.
    """
    if part.name not in _WORDED:
        return part.value
    text = _CLASS.sub(lambda match: "" if stack.is_program_class(match[0]) else match[0], part.value)
    text = _LETTER.sub(" ", _PLACEHOLDER.sub(" ", text))
    return " ".join(text.translate(_NO_BRACKETS).split()) or part.value


# Operators of a program that is not reduced, to be named in a title
_FEW = 3
# A title of an issue is cut at about that length in most trackers' lists.
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


# What onnxruntime writes before the reason: the name of the status, which the exception's class repeats.
_STATUS = re.compile(
    r"\A(?:\[ONNXRuntimeError\] : \d{1,4} : )?"
    r"(?:FAIL|RUNTIME_EXCEPTION|INVALID_\w+|NOT_IMPLEMENTED|EP_FAIL) ?: "
    r"(?:Non-zero status code returned while running \w+ node\. Name:\S* Status Message: "
    r"|Exception during initialization: |This is an invalid model\. ){0,4}(?=.)"
)


def remove_status(message: str) -> str:
    """Return a message without what onnxruntime writes before the reason."""
    return _STATUS.sub("", message, count=1)


def make_title(found: Fingerprint) -> str:
    """Make a title of at most 120 characters: `ValueError in Split: no value in Constant` (failure, place,
    message).
    """
    # Describe the operator that was converted, or the innermost function.
    frames = found.find_component(ComponentName.FRAMES)
    innermost = frames.items[0] if frames else ""
    operator = found.get_value(ComponentName.OPERATOR)
    where = (
        f"{operator} ({innermost})"
        if operator and innermost
        else operator or innermost or found.get_value(ComponentName.PLACE)
    )
    of, guilty = (found.get_value(name) for name in (ComponentName.OPERATORS, ComponentName.GUILTY_PASS))
    graph = found.find_component(ComponentName.OPERATORS)
    if what := found.get_value(ComponentName.MISMATCH):
        if guilty and not (graph and graph.kept):
            of = ""
        by = guilty and not found.find_component(ComponentName.EDGES)
        text = _WRONG.get(what, what) + (f" of {of}" if of else "") + (f" by pass {guilty}" if by else "")
        if dtype := found.get_value(ComponentName.DTYPE):
            text += f" ({dtype})"
    elif found.get_value(ComponentName.EXCEPTION) == mismatch_components.BROKEN_MODEL:
        text = "broken model"
        if graph and (graph.kept or len(graph.items) <= _FEW):
            text += f" of {of}"
        text += f" by pass {guilty}" if guilty else ""
        said = found.get_value(ComponentName.FOUND) or found.get_value(ComponentName.MESSAGE)
        text += f": {remove_status(said)}"
    else:
        kind = found.get_value(ComponentName.KIND)
        what = found.get_value(ComponentName.SIGNAL) or found.get_value(ComponentName.EXCEPTION) or kind
        said = remove_status(found.get_value(ComponentName.MESSAGE))
        text = what
        # Neither a function that serves many operators nor a bare message says which one to look at, and
        # operators that count distinguish this failure from others with the same signal.
        if graph and (graph.kept or len(graph.items) == 1) and not operator and of not in said:
            text += f" with {of}"
        text += f" in {where}" if where else ""
        # The template of a key that was looked up in vain: `<name>`, `(<n>, <name>)`
        if what == "KeyError" and not any(map(str.isalpha, _PLACEHOLDER.sub("", said))):
            said = "a key is missing"
        text += f": {said}" if said and said != what else ""
        if kind not in ("error", "crash"):
            text = f"{kind}: {text}" if text != kind else kind
    text = printable(text)
    return text if len(text) <= _MAX else text[: _MAX - 1].rstrip() + "…"
