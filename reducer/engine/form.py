"""The protocol that an IR implements to be reduced: all the engine knows of it.

`docs/explanation/reduction.md` and `reducer/README.md` show how a form plugs in; `problem/order.py` is
the one of ONNX models.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from opsieve.reducer.engine.interestingness import InterestingnessTest

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a subject for people and the journal: nodes outside and inside of bodies, and stored
    bytes.
    """

    nodes: int
    inner_nodes: int
    bytes: int


class SubjectKind(Protocol[S_contra]):
    """A kind of subject: which of two is simpler, when two are equal, how large one is.

    A subject is never changed in place. `simpler` is a strict total order under which every chain ends, so
    that a reduction does.
    """

    def simpler(self, candidate: S_contra, than: S_contra) -> bool:
        """Return whether the candidate stands strictly before the other in the order."""

    def digest(self, subject: S_contra) -> str:
        """`DIGITS` hexadecimal digits that equal subjects share, and no others do."""

    def size(self, subject: S_contra) -> Size:
        """Return the size of a subject."""


class Validator(Protocol[S_contra]):
    """Finds errors in candidates before they cost a test."""

    def complaints(self, subjects: Sequence[S_contra]) -> list[str]:
        """Return one sentence for each invalid subject, "" for a valid one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a reduction: the current step, how many more tests it takes if all of them fail (by the
    bound of the search, for nodes), and the refused candidates by reason.
    """

    dimension: str
    nodes: int
    inner_nodes: int
    # In bytes.
    size: int
    checks: int
    seconds: float
    # An upper bound: each success makes the rest smaller.
    left: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


class BudgetSpent(Exception):
    """Raised where a budget allows no further test."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a reduction: a number of tests, and a moment (of `time.monotonic`) after which no test
    starts.
    """

    checks: float = math.inf
    # Of the monotonic clock, which no change of the system's time moves.
    until: float = math.inf

    def spend(self, checks: int) -> None:
        """Raise BudgetSpent if `checks` tests exhaust the budget, or the time is over."""
        # Before a test, so that the budget is never exceeded by one.
        if checks >= self.checks or time.monotonic() >= self.until:
            raise BudgetSpent


@dataclass(frozen=True)
class Rules(Generic[S]):
    """The parameters of an engine: the form of its subjects, how to test, validate and record values again,
    and listeners for progress.

    Attributes:
        tests: Equal tests, which may run at the same time.
        refresh: Records the values of a new best subject before passes see it.
        accepted: Receives every new best subject.
        shown: Receives every simpler subject that shows the failure, also before a search accepts it.
        twin: Returns a text that subjects share if losing the failure in one means losing it in all; "" if
            that is unknown.
        control: Returns the candidate without its edit, only rewritten; `None` if it is the edit alone.
        budget: Ends the reduction by BudgetSpent before a test.
    """

    form: SubjectKind[S]
    tests: Sequence[InterestingnessTest[S]]
    validator: Validator[S]
    refresh: Callable[[S], S] = lambda subject: subject
    progress: Callable[[Progress], None] = lambda progress: None
    accepted: Callable[[S], None] = lambda subject: None
    shown: Callable[[S], None] = lambda subject: None
    twin: Callable[[S], str] = lambda subject: ""
    control: Callable[[S, S], S | None] = lambda best, candidate: None
    budget: Budget = field(default_factory=Budget)
