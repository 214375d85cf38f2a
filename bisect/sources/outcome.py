"""What one version shows of a case: fine, failing with which fingerprint, or impossible to ask. And what that means for a search."""

import re
from dataclasses import dataclass
from typing import Literal

from opsieve.backends.compare import POLICY, Policy
from opsieve.backends.judge.judge import judge
from opsieve.backends.judge.oracles import Lab
from opsieve.backends.observation import Observation
from opsieve.backends.target import Target
from opsieve.backends.verdict import Kind, Verdict
from opsieve.bisect.search.search import Answer
from opsieve.gen.case.case import Case
from opsieve.gen.model.structure import all_nodes
from opsieve.triage.fingerprint.evidence import NOTHING
from opsieve.triage.fingerprint.fingerprint import Fingerprint, fingerprint
from opsieve.triage.fingerprint.program_names import given_names

State = Literal["fine", "fails", "untestable"]
_ENDS: dict[str, Kind] = {
    "crash": "crash",
    "hang": "hang",
    "out-of-memory": "memory",
    "error": "error",
    "rejected": "error",
}
_STATES: dict[str, State] = {"pass": "fine", "fail": "fails", "flaky": "fails"}
# How far a failing version got: what fails early hides what would have failed later.
_PROGRESS = ("import", "compile", "run")
_TEXT = 500
_STATUS = re.compile(r"[A-Z_]{2,40}: ")


@dataclass(frozen=True, slots=True)
class Sighting:
    """`key` is the failure's fingerprint, `symptom` its short name (`error at run`), `text` one sentence for a person.

    `trait` is what of the failure survives from one release to another: line numbers, status codes and offsets into a
    binary do not. `stage` tells how far the version got; a wrong result has the stage `done`. `flaky`: it failed in some of its
    runs only.
    """

    state: State
    key: str = ""
    trait: str = ""
    symptom: str = ""
    stage: str = ""
    text: str = ""
    flaky: bool = False


def look(case: Case, target: Target, lab: Lab, policy: Policy = POLICY) -> Sighting:
    """Judge a case on a target. Only `fail` and `flaky` are failures; what is undecided, invalid or unsupported is untestable."""
    judged = judge(case.program, case.inputs, target, lab, expected=case.expected, policy=policy)
    verdict, observation = judged.verdict, judged.observations[0]
    state = _STATES.get(verdict.verdict, "untestable")
    text = " ".join(verdict.reason.split())[:_TEXT]
    if state != "fails":
        return Sighting(state, symptom="ok" if state == "fine" else verdict.verdict, text=text)
    return _failing(case, verdict, observation, text)


def ending(case: Case, seen: Observation, blame: str = "") -> Sighting | None:
    """What one run alone tells of how the compiler ended, nobody else heard; None when it gave outputs or could not be asked.

    `blame` goes into the key, and not into the trait.
    """
    kind = _ENDS.get(seen.outcome)
    if kind is None:
        return None
    text = " ".join(seen.message.split())[:_TEXT]
    return _failing(case, Verdict("fail", text, kind, seen.stage, seen.message, blame=blame), seen, text)


def _failing(case: Case, verdict: Verdict, observation: Observation, text: str) -> Sighting:
    operators = sorted({node.op_type for node in all_nodes(case.program.proto.graph.node)})
    found = fingerprint(verdict, observation, operators, NOTHING, given_names(case.program.proto))
    kind = verdict.kind or "error"
    stage = "done" if kind == "mismatch" else verdict.stage or observation.stage
    what = f"{verdict.mismatch.what} mismatch" if verdict.mismatch else f"{kind} at {stage}"
    return Sighting("fails", found.key, _trait(found), what, stage, text, verdict.verdict == "flaky")


def answer(seen: Sighting, wanted: Sighting | None) -> Answer:
    """What a sighting says of the failure `wanted` (any failure for None).

    Another failure that comes before the wanted one would have hides it: untestable. One that comes after it proves that the
    wanted one is not there: good.
    """
    if seen.state == "fine":
        return Answer.GOOD
    if seen.state == "untestable":
        return Answer.UNTESTABLE
    if wanted is None or seen.trait == wanted.trait:
        return Answer.BAD
    return Answer.GOOD if _reached(seen) > _reached(wanted) else Answer.UNTESTABLE


def _reached(seen: Sighting) -> int:
    return _PROGRESS.index(seen.stage) if seen.stage in _PROGRESS else len(_PROGRESS)


def _trait(found: Fingerprint) -> str:
    """The place in the source that the message tells, else functions on the stack, else the message without its status code."""
    frames = found.value("frames")
    place = found.value("place") or ("" if "+0x" in frames else frames)
    message = found.value("message")
    status = _STATUS.match(message)
    told = place or (message[status.end() :] if status else message)
    parts = [found.value(name) for name in ("kind", "stage", "signal", "mismatch", "dtype")]
    if found.value("mismatch"):
        return " ".join(filter(None, (parts[0], *parts[3:])))
    return " ".join(filter(None, (*parts[:3], told)))
