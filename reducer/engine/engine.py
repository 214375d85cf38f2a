"""The engine: tries what passes propose, and keeps the simplest subject that still shows the failure.

A candidate is looked up by its digest, must be simpler than the best so far, must be a valid model, and only then costs a check.
Edits that do not touch each other are tried together first, then in halves, then one by one. Which candidate is accepted depends
on their order alone, never on timing: answers that are at hand early, from a journal or from a test beside, are not looked at before
their turn, so that any number of workers and any interruption give the same result.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from opsieve.reducer.engine.journal import Attempt, Journal
from opsieve.reducer.oracle.interestingness import CheckResult, InterestingnessTest, Validator
from opsieve.reducer.problem.edit import Edit, Pass
from opsieve.reducer.problem.order import count_nodes, simpler
from opsieve.reducer.problem.subject import Subject

DIGITS = 32  # of a digest
_SLOW = 0.1  # seconds that a check takes on average before workers beside the first are started
_SINGLES = 3  # groups of this size are not halved but tried one by one
_FILTERED_BYTES = 64 << 20  # serialised candidates that may be made only to see which were tried before


@dataclass(frozen=True)
class Progress:
    """Where a reduction stands."""

    dimension: str
    nodes: int
    inner_nodes: int
    size: int  # bytes of the model
    checks: int
    seconds: float


@dataclass(frozen=True)
class Rules:
    """What an engine is given: how to test, how to validate, how to record values anew, and who hears of progress.

    `tests` are equal and may run at the same time. `accepted` hears of every new best subject.
    """

    tests: Sequence[InterestingnessTest]
    validator: Validator
    refresh: Callable[[Subject], Subject]
    progress: Callable[[Progress], None] = lambda progress: None
    accepted: Callable[[Subject], None] = lambda subject: None


class Engine:
    """One reduction under way. `checks` counts the tests that were run, `invalid` the candidates that never were."""

    def __init__(self, start: Subject, rules: Rules, journal: Journal, mark: str = ""):
        """`mark` tells the answers of one kind of question in a journal from those of others."""
        self.best = start
        self.rules = rules
        self.journal = journal
        self.checks = 0
        self.invalid = 0
        self.slippage: dict[str, Subject] = {}
        self.answer = CheckResult("gone")  # what the check said last of a subject that is now the best, or of the start
        self.dimension = "start"
        self._known: dict[
            str, CheckResult
        ] = {}  # what was asked so far, in order: what is tried next depends on this alone
        self._cached = {  # what is at hand: from an earlier call, or prefetched
            attempt.digest.removeprefix(mark): attempt.result()
            for attempt in journal.attempts
            if len(attempt.digest) == len(mark) + DIGITS and attempt.digest.startswith(mark)
        }
        self._mark = mark
        self._stale = False
        self._since = time.monotonic()
        self._testing = 0.0  # seconds spent on checks
        self._hashes = _Hashes()
        self._sized, self._size = start, start.model.ByteSize()

    def evaluate(self, candidate: Subject | None, label: str) -> CheckResult:
        """What the check says of a candidate, whether or not it is simpler; tested once. None is no model."""
        if candidate is None:
            return CheckResult("invalid", "a value that it needs is unknown")
        digest = self._hashes.subject(candidate)
        if digest not in self._known:
            if digest not in self._cached:
                self._run_tests({digest: (candidate, label)})
            self._known[digest] = self._cached[digest]
        answer = self._known[digest]
        if answer.kind == "slippage" and answer.key:
            held = self.slippage.get(answer.key)
            if held is None or simpler(candidate, held):
                self.slippage[answer.key] = candidate
        return answer

    def prefetch(self, candidates: Iterable[tuple[Callable[[], Subject | None], str]]) -> None:
        """Ask, at the same time, what will probably be asked next. It changes what is known early, and nothing else.

        Only where checks are slow enough for it to pay, and there are several workers.
        """
        if len(self.rules.tests) < 2 or self._testing < _SLOW * max(1, self.checks):
            return
        wave: dict[str, tuple[Subject, str]] = {}
        for make, label in candidates:
            candidate = make()
            if candidate is not None:
                wave.setdefault(self._hashes.subject(candidate), (candidate, label))
            if len(wave) == len(self.rules.tests):
                break
        self._run_tests({digest: item for digest, item in wave.items() if digest not in self._cached})

    def improve(self, candidate: Subject | None, label: str) -> bool:
        """Take a candidate for the best when it is simpler and shows the failure."""
        if candidate is None or not simpler(candidate, self.best):
            return False
        answer = self.evaluate(candidate, label)
        if answer.kind != "same":
            return False
        self._accept(candidate, answer)
        return True

    def begin(self, known: CheckResult | None = None) -> CheckResult:
        """Ask the premise: whether the subject that it starts from shows the failure; `known` is an answer already given."""
        digest = self._hashes.subject(self.best)
        if known is not None and digest not in self._cached:
            self.checks += 1
            self._remember(digest, self.best, "the whole model", known)
        self.answer = self.evaluate(self.best, "the whole model")
        return self.answer

    def _accept(self, candidate: Subject, answer: CheckResult) -> None:
        self.best, self.answer = candidate, answer
        self._stale = True
        self.rules.accepted(candidate)
        self._report()

    def refresh(self) -> None:
        """Record the values of the best subject anew when it has changed."""
        if self._stale:
            self.best = self.rules.refresh(self.best)
            self._stale = False

    def sweep(self, dimension: Pass, together: bool = True) -> bool:
        """Try all that a pass proposes, again and again until nothing more is gained; whether anything was.

        `together` tries edits that do not touch each other at once first: it pays where several are likely to hold.
        """
        self.dimension = dimension.name
        gained = False
        while True:
            self.refresh()
            edits = self._untried(list(dimension.edits(self.best)))
            if not edits or not self._round([edits] if together else [[edit] for edit in edits]):
                return gained
            gained = True

    def single(self, edit: Edit) -> CheckResult | None:
        """What becomes of one edit alone on the best subject; None when it does not apply or makes nothing simpler."""
        candidate = edit.apply(self.best)
        if candidate is None or not simpler(candidate, self.best):
            return None
        return self.evaluate(candidate, edit.label)

    def _round(self, groups: list[list[Edit]]) -> bool:
        gained = False
        while groups:
            if all(len(each) == 1 for each in groups[: len(self.rules.tests)]):
                self.prefetch((partial(each[0].apply, self.best), each[0].label) for each in groups)
            group = groups.pop(0)
            merged, used, left = _merged(self.best, group)
            if left:
                groups.insert(0, left)
            if not used:
                continue
            label = used[0].label if len(used) == 1 else f"{len(used)} edits: {used[0].label} ... {used[-1].label}"
            if self.improve(merged, label):
                gained = True
            elif len(used) > 1:
                groups[:0] = _split(used)
        return gained

    def _untried(self, edits: list[Edit]) -> list[Edit]:
        """The edits whose candidates are not known to be useless; they are validated ahead, all in one go."""
        if len(edits) * self.best.model.ByteSize() > _FILTERED_BYTES:
            return edits
        left: list[tuple[str, Edit]] = []
        fresh: dict[str, tuple[Subject, str]] = {}
        for edit in edits:
            candidate = edit.apply(self.best)
            if candidate is None or not simpler(candidate, self.best):
                continue
            digest = self._hashes.subject(candidate)
            if digest not in self._known:
                fresh.setdefault(digest, (candidate, edit.label))
            elif self._known[digest].kind != "same":
                continue
            left.append((digest, edit))
        self._validate(fresh)
        refused = {digest for digest in fresh if digest in self._cached and self._cached[digest].kind == "invalid"}
        self._known.update((digest, self._cached[digest]) for digest in refused)
        return [edit for digest, edit in left if digest not in refused]

    def _validate(self, wave: dict[str, tuple[Subject, str]]) -> None:
        """Remember what is invalid in a wave, as far as that is not known."""
        wave = {
            digest: item
            for digest, item in wave.items()
            if digest not in self._cached and digest not in self._hashes.valid
        }
        complaints = self.rules.validator.complaints([subject for subject, _ in wave.values()])
        for (digest, (subject, label)), complaint in zip(wave.items(), complaints, strict=True):
            if complaint:
                self.invalid += 1
                self._remember(digest, subject, label, CheckResult("invalid", complaint))
            else:
                self._hashes.valid.add(digest)

    def _run_tests(self, wave: dict[str, tuple[Subject, str]]) -> None:
        self._validate(wave)
        valid = [(digest, *item) for digest, item in wave.items() if digest not in self._cached]
        if not valid:
            return
        since = time.monotonic()
        if len(valid) == 1:
            answers = [next(iter(self.rules.tests[0].evaluate([valid[0][1]])))]
        else:
            with ThreadPoolExecutor(len(self.rules.tests)) as pool:
                answers = list(
                    pool.map(
                        lambda pair: next(iter(pair[0].evaluate([pair[1][1]]))),
                        zip(self.rules.tests, valid, strict=False),
                    )
                )
        self._testing += time.monotonic() - since
        for (digest, subject, label), answer in zip(valid, answers, strict=True):
            self.checks += 1
            self._remember(digest, subject, label, answer)
        self._report()

    def _remember(self, digest: str, subject: Subject, label: str, answer: CheckResult) -> None:
        self._cached[digest] = answer
        nodes = sum(count_nodes(subject.model))
        self.journal.add(
            Attempt(
                self._mark + digest, self.dimension, label, nodes, answer.kind, answer.why, answer.key, answer.wrong
            )
        )

    def _report(self) -> None:
        outer, inner = count_nodes(self.best.model)
        if self._sized is not self.best:  # protobuf serialises a model to tell its size
            self._sized, self._size = self.best, self.best.model.ByteSize()
        size = self._size
        self.rules.progress(Progress(self.dimension, outer, inner, size, self.checks, time.monotonic() - self._since))


def digest(subject: Subject) -> str:
    """A hexadecimal digest that subjects of equal models and equal inputs share."""
    return _Hashes().subject(subject)


class _Hashes:
    """Digests of subjects: of the model's bytes and of the values fed, which are hashed once an array."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, bytes]] = {}  # holds the array, so that its id stays its own
        self.valid: set[str] = set()

    def subject(self, subject: Subject) -> str:
        """A hexadecimal digest that equal subjects share."""
        state = hashlib.sha256(subject.model.SerializeToString(deterministic=True))
        for name, value in sorted(subject.inputs.items()):
            state.update(name.encode("utf-8", "surrogateescape") + b"\0" + self._value(value))
        return state.hexdigest()[:DIGITS]

    def _value(self, value: Any) -> bytes:
        if value is None:
            return b"-"
        if isinstance(value, list):
            return b"[" + b"".join(map(self._value, value)) + b"]"
        held = self._arrays.get(id(value))
        if held is None:
            array = np.asarray(value)
            data = repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes()
            text = f"{array.dtype.name}{array.shape}".encode()
            held = self._arrays[id(value)] = (value, hashlib.sha256(text + data).digest())
        return held[1]


def _merged(start: Subject, edits: Sequence[Edit]) -> tuple[Subject | None, list[Edit], list[Edit]]:
    """The edits applied one upon the other as far as they do not touch each other; those that were, and those left over."""
    subject: Subject | None = None
    touched: set[str] = set()
    used: list[Edit] = []
    left: list[Edit] = []
    for edit in edits:
        if not touched.isdisjoint(edit.touches):
            left.append(edit)
            continue
        result = edit.apply(start if subject is None else subject)
        if result is not None:
            subject = result
            touched |= edit.touches
            used.append(edit)
    return subject, used, left


def _split(edits: list[Edit]) -> list[list[Edit]]:
    if len(edits) <= _SINGLES:
        return [[edit] for edit in edits]
    middle = len(edits) // 2
    return [edits[:middle], edits[middle:]]
