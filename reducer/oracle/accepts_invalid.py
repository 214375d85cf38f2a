"""The question of a reduction where the failure is that a target runs a program which it should refuse."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opsieve.backends.judge.shown_failure import is_acceptance, is_refusal
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import shown
from opsieve.gen.model.program import Broken
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.triage.fingerprint.normalise import normalise_message


@dataclass(frozen=True)
class AcceptsInvalidTest:
    """`same` while the target runs a program that still states its `fault` and has the operator at fault, and
    the `objector` still objects in the same words. A program that breaks a rule by its inputs alone states no
    fault.

    `objection` is what he said of the whole program, normalised: a candidate that breaks another rule on the
    way is another failure.
    """

    workers: Workers
    target: ResolvedTarget
    fault: Broken | None
    objector: ResolvedTarget
    objection: str

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        tests = [Test(subject.program, subject.inputs) for subject in subjects]
        answers = self.workers.observe_many(self.target, tests)
        for subject, test, got in zip(subjects, tests, answers, strict=True):
            fault = self.fault
            if fault is not None and (
                subject.program.fault != fault or fault.operator not in subject.program.operators()
            ):
                yield CheckResult("gone", "it no longer has the fault that it states")
            elif not is_acceptance(got):
                yield CheckResult("gone", got.outcome)
            else:
                said = self.workers.observe(self.objector, test.program, test.inputs)
                if not is_refusal(said):
                    yield CheckResult("gone", f"{self.objector} does not object")
                elif normalise_message(said.message) != self.objection:
                    yield CheckResult(
                        "slippage", f"{self.objector} objects otherwise: {shown(said.message, 200)}"
                    )
                else:
                    yield CheckResult("same")
