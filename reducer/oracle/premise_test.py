"""The interestingness test of a premise, by the kind of its failure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.backends.workers.workers import Workers
from opsieve.reducer.engine.interestingness import CheckResult, InterestingnessTest, RepeatedTest, runs_for
from opsieve.reducer.oracle.discover import still
from opsieve.reducer.oracle.nondeterminism_test import NondeterminismTest
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.slowdown_test import MemoryTest, SlowdownTest
from opsieve.reducer.oracle.target_test import Runnable, TargetTest, cure_set, finite
from opsieve.reducer.oracle.validator import AcceptsInvalidTest
from opsieve.triage.fingerprint.normalise import normalise_message
from opsieve.triage.fingerprint.sameness import Level

S = TypeVar("S", bound=Runnable)


@dataclass(frozen=True)
class JudgedTest(Generic[S]):
    """A test whose `same` the judge confirms. The judge is slow, but sees more than one run does, such as
    results that ONNX leaves undefined.
    """

    inner: InterestingnessTest[S]
    premise: Premise
    workers: Workers

    def evaluate(self, subjects: Sequence[S]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        # The judge runs the same target, which is locked until all answers of the batch are read.
        results = list(self.inner.evaluate(subjects))
        for subject, result in zip(subjects, results, strict=True):
            if result.kind == "same" and not still(subject, self.premise, self.workers):
                yield CheckResult("gone", "the judge does not see the failure")
            else:
                yield result


def interestingness_of(
    premise: Premise, workers: Workers, level: Level, start: Runnable
) -> InterestingnessTest[Runnable]:
    """Make the interestingness test of a premise; the level `cure` first runs the other builds on
    `start`.
    """
    if premise.failure.verdict.kind == "accepts-invalid":
        assert premise.arbiter is not None
        assert premise.right is not None
        return AcceptsInvalidTest(
            workers,
            premise.target,
            start.program.fault,
            premise.arbiter,
            normalise_message(premise.right.message),
        )
    if premise.failure.verdict.kind == "nondeterminism":
        runs = runs_for(premise.chance)
        return NondeterminismTest(workers, premise.target, premise.failure, level, runs, premise.apart)
    if premise.failure.verdict.kind == "slowdown":
        assert premise.arbiter is not None
        return SlowdownTest(workers, premise.target, premise.arbiter)
    if "memory" in premise.failure.verdict.rules:
        return MemoryTest(workers, premise.target)
    test = TargetTest(
        workers,
        premise.target,
        premise.failure,
        premise.arbiter,
        level,
        finite=_finite(premise, workers, start),
        apart=premise.apart,
        comes_and_goes=premise.chance < 1,
    )
    # A cure of an intermittent failure cannot be recognised in a few runs.
    if premise.chance < 1:
        return RepeatedTest(test, runs_for(premise.chance))
    if level != "cure":
        return test
    # Runs of the other builds, which the level `cure` compares; only now, since they may take long.
    sick, well = cure_set(test, start)
    return replace(test, sick=sick, well=well)


def confirmed_by_judge(
    premise: Premise, workers: Workers, level: Level, start: Runnable, judged: bool
) -> InterestingnessTest[Runnable]:
    """Return `interestingness_of`, with every `same` confirmed by the judge if `judged`."""
    test = interestingness_of(premise, workers, level, start)
    return JudgedTest(test, premise, workers) if judged else test


def _finite(premise: Premise, workers: Workers, start: Runnable) -> bool:
    """Return whether the right outputs of the whole model are known to be finite; matters for wrong outputs
    only.
    """
    if premise.failure.verdict.kind not in WRONG_OUTPUTS or premise.arbiter is None:
        return False
    right = premise.right or workers.observe(premise.arbiter, start.program, start.inputs)
    return right.outputs is not None and finite(right.outputs.values())


def get_known_result(test: object, premise: Premise, start: Runnable) -> CheckResult | None:
    """Return the test's result for the whole model, from the observations that revealed the failure."""
    if premise.right is None or not isinstance(test, TargetTest) or test.level == "cure":
        return None
    return test.check_known(start, premise.observation, premise.right)


def get_compiler_text(premise: Premise) -> str:
    """Return all text of the compiler; "" for a mismatch, whose words would be our own. For an accepted
    invalid program it is the broken rule.
    """
    seen = premise.observation
    if premise.failure.verdict.kind == "accepts-invalid":
        return premise.reason
    if premise.failure.verdict.kind in (*WRONG_OUTPUTS, "nondeterminism", "slowdown"):
        return ""
    return "\n".join([seen.message, *(frame.function for frame in reversed(seen.frames)), seen.log])
