"""The interestingness test of a Python caller: a function, called in the caller's own process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opsieve.gen.case.case import Case
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.oracle.target_test import Runnable


@dataclass(frozen=True)
class FunctionTest:
    """A subject is interesting if the function returns True for it; its exceptions end the reduction."""

    is_failing: Callable[[Case], bool]

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            failing = self.is_failing(Case(subject.program, subject.inputs))
            yield CheckResult("same" if failing else "gone")
