"""The outcome of a case in one version: good, bad with a fingerprint, or skipped; and changes in a row of
outcomes.
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
    """The outcome of a case in one version.

    `key` is the failure's fingerprint, `symptom` its short name (`error at run`), `text` one sentence for a
    person. `trait` is the part of the failure that survives from one release to another: line numbers, status
    codes and offsets into a binary do not. `stage` says how far the version got: `done` if it returned
    outputs, even wrong or unexpected ones. `levels_differ`: the unoptimised build gives other outputs while
    the oracles confirm neither build; None if it was not compared. `flaky`: only some runs fail. `message` is
    the compiler's message, bounded, with the functions on its stack. `doubted`: bad because the case expects
    other outputs, although oracles contradict the expected ones.
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
    """Judge a case on a target.

    Only `fail` and `flaky` are failures; undecided, invalid and unsupported ones are skipped. The expected
    outputs of a case define good and bad: a target that returns others is bad, even if the judge is
    undecided.
    """
    judged = judge_case(case, target, lab, policy)
    verdict, observation = judged.verdict, judged.observations[0]
    if case.expected is not None and observation.outputs is not None and not verdict.is_judged:
        worst = compare(observation.outputs, case.expected, case.program.output_dtypes(), policy).worst
        if worst is not None:
            wrong = replace(verdict, verdict="fail", kind="mismatch", stage="run", mismatch=worst)
            return replace(_make_failure(case, wrong, observation, _shorten(verdict.reason)), doubted=True)
    state = _STATES.get(verdict.verdict, "skip")
    text = _shorten(verdict.reason)
    if state == "bad":
        found = _make_failure(case, verdict, observation, text)
        return replace(found, levels_differ=True) if LEVELS_DISAGREE in verdict.rules else found
    if state == "skip" and observation.outputs is not None:
        differ = _compare_levels(case, target, observation, lab, policy)
        return VersionOutcome(state, "", "", verdict.verdict, "done", text, levels_differ=differ)
    return VersionOutcome(state, symptom="ok" if state == "good" else verdict.verdict, text=text)


def _compare_levels(
    case: Case, target: ResolvedTarget, seen: Observation, lab: Lab, policy: Policy
) -> bool | None:
    """Whether the unoptimised build gives other outputs than `seen`; None without outputs."""
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
    """Evaluate a run in which the compiler failed to return outputs, without oracles.

    Returns None if it returned outputs, did not run, or lacks a feature. `blame` goes into the key, and not
    into the trait.
    """
    verdict = judge_run(case.program, case.inputs, target, seen, lab, blame=blame)
    text = _shorten(seen.message)
    return _make_failure(case, verdict, seen, text) if verdict.verdict == "fail" else None


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_TEXT]


def _make_failure(case: Case, verdict: Verdict, observation: Observation, text: str) -> VersionOutcome:
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


def classify_outcome(seen: VersionOutcome, wanted: VersionOutcome | None) -> TestResult:
    """Classify an outcome with respect to the failure `wanted` (any failure for None).

    Another failure at an earlier stage hides the wanted one: skip. One at a later stage proves that the
    wanted one is absent: good.
    """
    if seen.state == "good" or (wanted is not None and lacks_failure(seen, wanted)):
        return TestResult.GOOD
    if seen.state == "skip":
        return TestResult.SKIP
    if wanted is None or seen.trait == wanted.trait:
        return TestResult.BAD
    return TestResult.GOOD if _get_progress(seen) > _get_progress(wanted) else TestResult.SKIP


def lacks_failure(seen: VersionOutcome, wanted: VersionOutcome) -> bool:
    """Whether a version that was not judged still lacks the failure `wanted`.

    It does if it returned outputs where the failure ends a run, or if its levels agree where the failure
    makes them disagree.
    """
    if seen.state != "skip" or seen.stage != "done":
        return False
    return wanted.stage != "done" or (wanted.levels_differ is True and seen.levels_differ is False)


def _get_progress(seen: VersionOutcome) -> int:
    return _PROGRESS.index(seen.stage) if seen.stage in _PROGRESS else len(_PROGRESS)


@dataclass(frozen=True, slots=True)
class Transition:
    """A change between two tested versions; `exact` if all versions between them are known."""

    kind: Literal["regression", "fix", "symptom"]
    last_before: str
    first_after: str
    exact: bool
    before: str
    after: str


def find_transitions(versions: Sequence[str], seen: Sequence[VersionOutcome | None]) -> list[Transition]:
    """Find the changes among `versions`, oldest first; untested and skipped ones are passed over."""
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


def is_monotone(found: Sequence[Transition]) -> bool:
    """Whether the failure came or went only once."""
    return sum(item.kind != "symptom" for item in found) <= 1
