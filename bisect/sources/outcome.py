"""The outcome of a case in one version: good, bad with a fingerprint, or skipped; changes in a row of
outcomes.

The probes of a search are kept on disk: a finished search costs nothing to repeat, a killed one loses one
probe.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from opsieve.backends.compare import POLICY, Policy, compare
from opsieve.backends.judge import judge, levels, oracle_names, oracles, shown_failure
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import WRONG_OUTPUTS, Verdict
from opsieve.backends.workers.inside import wire
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.search.search import TestResult
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model import durable, files
from opsieve.triage.fingerprint import component, fingerprint, sameness, stack
from opsieve.triage.store.failure_record import get_verdict, parse_components, read_failure
from opsieve.version import VERSION as OPSIEVE_VERSION

State = Literal["good", "bad", "skip"]
_STATES: dict[str, State] = {"pass": "good", "fail": "bad", "flaky": "bad"}
# How far a failing version got: what fails early hides what would have failed later.
_PROGRESS = ("import", "compile", "run")
# A reason is one line of a table, a message is evidence: the latter keeps what the ranking of commits reads.
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


# What Python says where a package beside the compiler lacks what this release asks it for.
_LACKS = re.compile(
    r"module '(\w+)[\w.]*' has no attribute |`(np)\.\w+` was removed |No module named '(\w+)"
    r"|cannot import name '\w+' from (?:partially initialized module )?'(\w+)"
)

Evaluate = Callable[[Case, ResolvedTarget, Policy], VersionOutcome]


def evaluate(case: Case, target: ResolvedTarget, lab: oracles.Lab, policy: Policy = POLICY) -> VersionOutcome:
    """Judge a case on a target.

    Only `fail` and `flaky` are failures; undecided, invalid and unsupported ones are skipped. The expected
    outputs of a case define good and bad: a target that returns others is bad, even if the judge is
    undecided.
    """
    judged = judge.judge_case(case, target, lab, policy)
    verdict, observation = judged.verdict, judged.observations[0]
    if case.expected is not None and observation.outputs is not None and not verdict.is_judged:
        worst = compare(observation.outputs, case.expected, case.program.output_dtypes(), policy).worst
        if worst is not None:
            wrong = replace(verdict, verdict="fail", kind="mismatch", stage="run", mismatch=worst)
            return replace(_make_failure(case, wrong, observation, _shorten(verdict.reason)), doubted=True)
    state = _STATES.get(verdict.verdict, "skip")
    text = _shorten(verdict.reason)
    # Otherwise every old release beside a newer package would look bad, and the first one installable the
    # culprit.
    if state == "bad" and (missing := _find_incompatible_package(observation, target)):
        state, text = "skip", f"{missing} lacks what this release needs: {text}"
    if state == "bad":
        found = _make_failure(case, verdict, observation, text)
        return replace(found, levels_differ=True) if levels.RULE in verdict.rules else found
    # Outputs that nobody can judge still tell whether the failure of the other version is there.
    if state == "skip" and observation.outputs is not None:
        differ = _compare_levels(case, target, observation, lab, policy)
        return VersionOutcome(state, "", "", verdict.verdict, "done", text, levels_differ=differ)
    # What the environment breaks says nothing of the release.
    stage = observation.stage if verdict.verdict == "unsupported" else ""
    return VersionOutcome(state, symptom="ok" if state == "good" else verdict.verdict, stage=stage, text=text)


def _find_incompatible_package(observation: Observation, target: ResolvedTarget) -> str:
    """Return the package beside the compiler that lacks what the release uses, "" for none.

    An old release beside a newer onnx (`module 'onnx' has no attribute 'mapping'`) fails on every case, which
    says nothing about this one.
    """
    # Only at the start: a longer message that quotes such a sentence has another cause.
    found = _LACKS.match(observation.message)
    package = next(filter(None, found.groups())) if found else ""
    innermost = next((frame.file for frame in reversed(observation.frames) if frame.language == "python"), "")
    # A name that the compiler itself lacks is its own fault.
    own = package in (target.name, target.facts.package.replace("-", "_")) or f"/{package}/" in innermost
    return "" if own else package


def _compare_levels(
    case: Case, target: ResolvedTarget, seen: Observation, lab: oracles.Lab, policy: Policy
) -> bool | None:
    """Whether the unoptimised build gives other outputs than `seen`; None without outputs."""
    # Without an unoptimised build the two cannot differ.
    if target.baseline is None:
        return False
    right = lab.observe(target.baseline, case.program, case.inputs)
    if right.outputs is None:
        return None
    return (
        shown_failure.judge_run(
            case.program, case.inputs, target, seen, lab, right=right, policy=policy
        ).verdict
        == "fail"
    )


def evaluate_run(
    case: Case, target: ResolvedTarget, seen: Observation, lab: oracles.Lab, blame: str = ""
) -> VersionOutcome | None:
    """Evaluate a run in which the compiler failed to return outputs, without oracles.

    Returns None if it returned outputs, did not run, or lacks a feature. `blame` goes into the key, and not
    into the trait.
    """
    verdict = shown_failure.judge_run(case.program, case.inputs, target, seen, lab, blame=blame)
    text = _shorten(seen.message)
    return _make_failure(case, verdict, seen, text) if verdict.verdict == "fail" else None


def read_recorded_failure(folder: Path | None, case: Case, target: ResolvedTarget) -> VersionOutcome | None:
    """Read the failure that a store keeps in the folder of a case; None if it is another compiler's, or one
    of other rules.
    """
    # A plain model has no record; the search then follows the failure of its bad end.
    if folder is None:
        return None
    try:
        record = read_failure(folder)
        verdict = get_verdict(record)
    except BadInput:
        return None
    parts = parse_components(record.components)
    found = fingerprint.Fingerprint(record.fingerprint_version, record.fingerprint, parts)
    # Fingerprints of other rules cannot be compared.
    if (
        found.version != fingerprint.VERSION
        or found.get_value(component.ComponentName.BACKEND) != target.name
    ):
        return None
    stage = "done" if verdict.mismatch else record.stage
    lasting = _lasting_trait(case, verdict, found)
    return VersionOutcome(
        "bad", found.key, lasting, _name_symptom(verdict, record.stage), stage, record.message
    )


def _lasting_trait(case: Case, verdict: Verdict, found: fingerprint.Fingerprint) -> str:
    return (
        "other outputs than expected"
        if case.expected is not None and verdict.mismatch
        else sameness.get_trait(found)
    )


def _name_symptom(verdict: Verdict, ended: str) -> str:
    kind = verdict.kind or "error"
    wrong = kind in WRONG_OUTPUTS and verdict.mismatch
    return f"{wrong.what} mismatch" if wrong else f"{kind} at {verdict.stage or ended}"


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_TEXT]


def _make_failure(case: Case, verdict: Verdict, observation: Observation, text: str) -> VersionOutcome:
    found = sameness.make_failure(verdict, observation, case.program).fingerprint
    what = _name_symptom(verdict, observation.stage)
    stage = "done" if observation.outcome == "ok" else verdict.stage or observation.stage
    # With the functions, whose names lead to the commits that changed them.
    message = "\n".join(
        [observation.message[:_MESSAGE], *stack.read_stack(observation.frames, _FRAMES).names]
    )
    lasting = _lasting_trait(case, verdict, found)
    flaky = verdict.verdict == "flaky" or verdict.kind == "nondeterminism"
    return VersionOutcome("bad", found.key, lasting, what, stage, text, flaky, message)


def classify_outcome(seen: VersionOutcome, wanted: VersionOutcome | None) -> TestResult:
    """Classify an outcome with respect to the failure `wanted` (any failure for None).

    Another failure at an earlier stage hides the wanted one: skip. One at a later stage proves that the
    wanted one is absent: good.
    """
    if seen.state == "good" or (wanted is not None and lacks_failure(seen, wanted)):
        return TestResult.GOOD
    if seen.state == "skip":
        return TestResult.SKIP
    if wanted is None or is_same_trait(seen, wanted):
        return TestResult.BAD
    return TestResult.GOOD if _get_progress(seen) > _get_progress(wanted) else TestResult.SKIP


def is_same_trait(seen: VersionOutcome, wanted: VersionOutcome | None) -> bool:
    """Whether a failure is the wanted one; a crash without a named stack is any of its signal and stage."""
    short, long = sorted((seen.trait, wanted.trait if wanted else seen.trait), key=len)
    return short == long or (short.startswith("crash ") and long.startswith(f"{short} "))


def lacks_failure(seen: VersionOutcome, wanted: VersionOutcome) -> bool:
    """Whether a version that was not judged still lacks the failure `wanted`.

    It does if it got beyond the stage in which the failure ends a run, as one that compiles what the host
    cannot run, or if its levels agree where the failure makes them disagree.
    """
    if seen.state != "skip" or not seen.stage:
        return False
    return _get_progress(seen) > _get_progress(wanted) or (
        wanted.levels_differ is True and seen.levels_differ is False
    )


def _get_progress(seen: VersionOutcome) -> int:
    # Any other stage comes after the last one: the program ran to its end.
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

    @property
    def bad_end(self) -> str:
        """The version that fails."""
        return self.last_before if self.kind == "fix" else self.first_after


def find_transitions(
    versions: Sequence[str], seen: Sequence[VersionOutcome | None], wanted: VersionOutcome | None = None
) -> list[Transition]:
    """Find the changes among `versions`, oldest first, without the untested and skipped ones.

    Where another failure than `wanted` begins or ends, the symptom changes.
    """
    found: list[Transition] = []
    last = -1
    for place, now in enumerate(seen):
        if now is None or now.state == "skip":
            continue
        then = seen[last] if last >= 0 else None
        # A version that keeps state and trait may still word its message anew; that is no change.
        if then is not None and (then.state, then.trait) != (now.state, now.trait):
            kind: Literal["regression", "fix", "symptom"] = "symptom"
            failing = now if now.state == "bad" else then
            if then.state != now.state and is_same_trait(failing, wanted):
                kind = "regression" if failing is now else "fix"
            exact = place == last + 1
            found.append(Transition(kind, versions[last], versions[place], exact, then.symptom, now.symptom))
        last = place
    return found


def is_monotone(found: Sequence[Transition]) -> bool:
    """Return whether the failure came or went only once."""
    return sum(item.kind != "symptom" for item in found) <= 1


# 3: a journal instead of a file for each probe
_FORMAT = 3


class _Probe(msgspec.Struct):
    version: str
    turn: int
    seconds: float
    outcome: VersionOutcome


class _Conclusion(msgspec.Struct):
    name: str
    answer: dict[str, Any]


class ProbeJournal:
    """The probes of one question: a folder `root/<digest>` with `question.json` and journals of outcomes."""

    def __init__(self, root: Path, question: Mapping[str, Any], fresh: bool = False):
        """Open the journal; with `fresh`, earlier probes are ignored, since a check may depend on more than
        its own text.
        """
        # The version of opsieve is part of the question, because other rules may judge otherwise.
        text = json.dumps(
            {**question, "opsieve": OPSIEVE_VERSION, "format": _FORMAT}, indent=2, sort_keys=True
        )
        self.folder = root / hashlib.sha256(text.encode()).hexdigest()[:24]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # For people: the folder's name is a hash.
            (self.folder / "question.json").write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"probes cannot be kept in {shown(root, 200)}: {files.reason(error)}") from None
        self._probes = durable.Journal(self.folder / "probes.jsonl", _Probe)
        self._conclusions = durable.Journal(self.folder / "conclusions.jsonl", _Conclusion)
        probes = () if fresh else self._probes.read()
        self._outcomes = {(probe.version, probe.turn): probe.outcome for probe in probes}
        self._answers = {each.name: each.answer for each in self._conclusions.read()}

    def get_probe(self, version: str, turn: int = 0) -> VersionOutcome | None:
        """Return the outcome of the `turn`-th probe of a version, if it was made."""
        return self._outcomes.get((version, turn))

    def add_probe(self, version: str, outcome: VersionOutcome, seconds: float, turn: int = 0) -> None:
        """Keep one probe."""
        self._outcomes[version, turn] = outcome
        self._append_record(self._probes, _Probe(version, turn, seconds, outcome))

    def get_conclusion(self, name: str) -> dict[str, Any] | None:
        """Return the conclusion kept under a name, if any."""
        return self._answers.get(name)

    def add_conclusion(self, name: str, answer: dict[str, Any]) -> None:
        """Keep a conclusion from many unrecorded probes under a name."""
        self._answers[name] = answer
        self._append_record(self._conclusions, _Conclusion(name, answer))

    def _append_record(self, journal: durable.Journal[Any], record: msgspec.Struct) -> None:
        try:
            journal.add([record])
        except OSError as error:
            raise BadInput(
                f"a probe cannot be kept in {shown(self.folder, 200)}: {files.reason(error)}"
            ) from None


def describe_limits(limits: Limits) -> dict[str, object]:
    """Return the limits of a run as part of a question; {} for the usual ones, as in old
    journals.
    """
    # An old journal has no limits in its question, and would be asked again in vain.
    usual = (limits.seconds, limits.memory) == (Limits().seconds, Limits().memory)
    return {} if usual else {"limits": [limits.seconds, limits.memory]}


def hash_case(case: Case) -> str:
    """Return the SHA-256 of model, inputs, expected outputs and chosen oracle in hexadecimal."""
    total = hashlib.sha256(case.program.data)
    for values in (case.inputs, case.expected):
        chunks: list[bytes] = []
        header = wire.pack_values(values, chunks) if values is not None else None
        total.update(json.dumps(header, sort_keys=True).encode())
        for chunk in chunks:
            total.update(chunk)
    # Appended only if it is set, so that all other cases keep the digests of earlier journals.
    if oracle := case.parameters.get(oracle_names.ORACLE):
        total.update(oracle.encode())
    if case.expected is not None:
        # which probes of before 2026-11-24 did not know
        total.update(b"expected outputs define good and bad")
    return total.hexdigest()


def get_default_root() -> Path:
    """Return `bisect` in the user's cache, or the folder in OPSIEVE_PROBES."""
    if named := os.environ.get("OPSIEVE_PROBES"):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / "bisect"
