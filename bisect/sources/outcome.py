"""What one version shows of a case: good, bad with which fingerprint, or to be skipped; and the changes in a
row of outcomes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from opsieve.backends.compare import POLICY, Policy, compare
from opsieve.backends.judge.judge import judge_case
from opsieve.backends.judge.levels import RULE as LEVELS_DISAGREE
from opsieve.backends.judge.oracles import Lab
from opsieve.backends.judge.shown_failure import judge_run
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import WRONG_OUTPUTS, Verdict
from opsieve.bisect.search.search import TestResult
from opsieve.gen.case.case import Case
from opsieve.triage.fingerprint.sameness import failure_of, trait
from opsieve.triage.fingerprint.stack import read

State = Literal["good", "bad", "skip"]
_STATES: dict[str, State] = {"pass": "good", "fail": "bad", "flaky": "bad"}
# How far a failing version got: what fails early hides what would have failed later.
_PROGRESS = ("import", "compile", "run")
_TEXT = 500
_MESSAGE = 4_000
_FRAMES = 12


@dataclass(frozen=True, slots=True)
class VersionOutcome:
    """`key` is the failure's fingerprint, `symptom` its short name (`error at run`), `text` one sentence for
    a person.

    `trait` is what of the failure survives from one release to another: line numbers, status codes and
    offsets into a binary do not. `stage` says how far the version got: one that gave outputs, wrong ones or
    where it should not, `done`. `levels_differ`: the unoptimised build gives other outputs, and nobody else
    confirms either; None where that was not asked. `flaky`: it failed in some of its runs only. `message` is
    what the compiler said, whole as far as it is kept, with the functions on its stack. `doubted`: it is bad
    because the expected outputs of the case are others, though oracles contradict them.
    """

    state: State
    key: str = ""
    trait: str = ""
    symptom: str = ""
    stage: str = ""
    text: str = ""
    flaky: bool = False
    message: str = ""
    doubted: bool = False
    levels_differ: bool | None = None


Evaluate = Callable[[Case, ResolvedTarget, Policy], VersionOutcome]


def evaluate(case: Case, target: ResolvedTarget, lab: Lab, policy: Policy = POLICY) -> VersionOutcome:
    """Judge a case on a target. Only `fail` and `flaky` are failures; what is undecided, invalid or
    unsupported is skipped.

    The expected outputs of a case define good and bad: a target that gives others is bad, even where the
    judge leaves open who is right.
    """
    judged = judge_case(case, target, lab, policy)
    verdict, observation = judged.verdict, judged.observations[0]
    if case.expected is not None and observation.outputs is not None and not verdict.is_judged:
        worst = compare(observation.outputs, case.expected, case.program.output_dtypes(), policy).worst
        if worst is not None:
            wrong = replace(verdict, verdict="fail", kind="mismatch", stage="run", mismatch=worst)
            return replace(_failing(case, wrong, observation, _shortened(verdict.reason)), doubted=True)
    state = _STATES.get(verdict.verdict, "skip")
    text = _shortened(verdict.reason)
    if state == "bad":
        found = _failing(case, verdict, observation, text)
        return replace(found, levels_differ=True) if LEVELS_DISAGREE in verdict.rules else found
    if state == "skip" and observation.outputs is not None:
        differ = _levels_differ(case, target, observation, lab, policy)
        return VersionOutcome(state, "", "", verdict.verdict, "done", text, levels_differ=differ)
    return VersionOutcome(state, symptom="ok" if state == "good" else verdict.verdict, text=text)


def _levels_differ(
    case: Case, target: ResolvedTarget, seen: Observation, lab: Lab, policy: Policy
) -> bool | None:
    """Whether the unoptimised build gives other outputs than `seen`; None where it gives none."""
    if target.baseline is None:
        return False
    right = lab.observe(target.baseline, case.program, case.inputs)
    if right.outputs is None:
        return None
    return (
        judge_run(case.program, case.inputs, target, seen, lab, right=right, policy=policy).verdict == "fail"
    )


def evaluate_run(
    case: Case, target: ResolvedTarget, seen: Observation, lab: Lab, blame: str = ""
) -> VersionOutcome | None:
    """What one run shows where the compiler gave no outputs; None where it gave them, could not be asked or
    truly lacks something.

    `blame` goes into the key, and not into the trait.
    """
    verdict = judge_run(case.program, case.inputs, target, seen, lab, blame=blame)
    text = _shortened(seen.message)
    return _failing(case, verdict, seen, text) if verdict.verdict == "fail" else None


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_TEXT]


def _failing(case: Case, verdict: Verdict, observation: Observation, text: str) -> VersionOutcome:
    found = failure_of(verdict, observation, case.program).fingerprint
    kind, ended = verdict.kind or "error", verdict.stage or observation.stage
    wrong = kind in WRONG_OUTPUTS and verdict.mismatch
    what = f"{wrong.what} mismatch" if wrong else f"{kind} at {ended}"
    stage = "done" if observation.outcome == "ok" else ended
    message = "\n".join([observation.message[:_MESSAGE], *read(observation.frames, _FRAMES).names])
    lasting = (
        "other outputs than expected" if case.expected is not None and verdict.mismatch else trait(found)
    )
    return VersionOutcome("bad", found.key, lasting, what, stage, text, verdict.verdict == "flaky", message)


def result_for(seen: VersionOutcome, wanted: VersionOutcome | None) -> TestResult:
    """What an outcome says of the failure `wanted` (any failure for None).

    Another failure that comes before the wanted one would have hides it: skip. One that comes after it proves
    that the wanted one is not there: good.
    """
    if seen.state == "good" or (wanted is not None and is_without(seen, wanted)):
        return TestResult.GOOD
    if seen.state == "skip":
        return TestResult.SKIP
    if wanted is None or seen.trait == wanted.trait:
        return TestResult.BAD
    return TestResult.GOOD if _reached(seen) > _reached(wanted) else TestResult.SKIP


def is_without(seen: VersionOutcome, wanted: VersionOutcome) -> bool:
    """Whether a version that was not judged is without the failure `wanted` all the same: nobody says that
    its outputs are right, but it gave them where the failure ends a run, or its levels agree where they
    disagree.
    """
    if seen.state != "skip" or seen.stage != "done":
        return False
    return wanted.stage != "done" or (wanted.levels_differ is True and seen.levels_differ is False)


def _reached(seen: VersionOutcome) -> int:
    return _PROGRESS.index(seen.stage) if seen.stage in _PROGRESS else len(_PROGRESS)


@dataclass(frozen=True, slots=True)
class Transition:
    """A change between two versions that were looked at; `exact` when no version between them is unknown."""

    kind: Literal["regression", "fix", "symptom"]
    last_before: str
    first_after: str
    exact: bool
    before: str
    after: str


def transitions(versions: Sequence[str], seen: Sequence[VersionOutcome | None]) -> list[Transition]:
    """The changes among `versions`, oldest first; None and skipped ones say nothing."""
    found: list[Transition] = []
    last = -1
    for place, now in enumerate(seen):
        if now is None or now.state == "skip":
            continue
        then = seen[last] if last >= 0 else None
        if then is not None and (then.state, then.trait) != (now.state, now.trait):
            kind: Literal["regression", "fix", "symptom"] = "symptom"
            if then.state != now.state:
                kind = "regression" if now.state == "bad" else "fix"
            exact = place == last + 1
            found.append(Transition(kind, versions[last], versions[place], exact, then.symptom, now.symptom))
        last = place
    return found


def monotone(found: Sequence[Transition]) -> bool:
    """Whether the failure came or went once only."""
    return sum(item.kind != "symptom" for item in found) <= 1
