"""Stores with made-up failures, for tests of triage and of the terminal app."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from models import X, chain

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.verdict import Kind, Mismatch, Verdict
from opsieve.gen.case.case import Case
from opsieve.triage.fingerprint.fingerprint import make_fingerprint
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure, NonBug
from opsieve.triage.store.store import Store

CAMPAIGN = Campaign("c0ffee", "small-1", 7, ("fake", "onnxruntime"))
NOW = 1_800_000_000.0


def finding(
    message: str,
    *,
    kind: Kind = "error",
    frames: Sequence[str] = (),
    operators: Sequence[str] = ("Relu", "Tanh"),
    target: str = "fake",
    exception: str = "builtins.ValueError",
    verdict: str = "fail",
    signal: int = 0,
) -> FoundFailure:
    """A failure that a message, frames of Python functions and operators tell of."""
    stack = tuple(Frame("python", name, f"/site-packages/fakec/{name}.py", 3) for name in frames)
    outcome = "crash" if kind == "crash" else "ok" if kind == "mismatch" else "error"
    outputs = {"y": np.zeros(1, np.float32)} if kind == "mismatch" else None
    seen = Observation(
        target, "1.0", outcome, "compile", outputs, "" if outcome != "error" else exception, message, stack,
        signal=signal, log="printed\n",
    )  # fmt: skip
    mismatch = Mismatch("y", "value", max_abs=1.0) if kind == "mismatch" else None
    told = Verdict(verdict, "it fails", kind, "compile", message, blame="compiler", mismatch=mismatch)  # type: ignore[arg-type]
    return FoundFailure(target, told, make_fingerprint(told, seen, operators), (seen,))


def done(
    number: int,
    *findings: FoundFailure,
    operators: Sequence[str] = ("Relu", "Tanh"),
    non_bugs: Sequence[NonBug] = (),
) -> FinishedTest:
    """A test with these findings; the other targets pass."""
    failing = {found.target: (found.verdict.verdict, 0.5) for found in findings}
    answers = dict.fromkeys(CAMPAIGN.targets, ("pass", 0.25)) | failing
    return FinishedTest(number, Case(chain(*operators), dict(X)), answers, findings, non_bugs)  # type: ignore[arg-type]


def filled(folder: Path, tests: Sequence[FinishedTest], now: float = NOW) -> Path:
    """A store that holds these tests."""
    with Store(folder, clock=lambda: now) as store:
        store.begin_campaign(CAMPAIGN)
        store.record_tests(CAMPAIGN, tests)
    return folder
