"""What a form of program has to say of itself to be reduced. The engine knows nothing else of it.

`docs/explanation/reduction.md` and `reducer/README.md` show how a form plugs in; `problem/onnx_form.py` is
the one of ONNX models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from opsieve.reducer.engine.interestingness import InterestingnessTest

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a subject is, for people and for the journal: nodes outside and inside of bodies, bytes when
    stored.
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
        """Whether the candidate stands strictly before the other in the order."""

    def digest(self, subject: S_contra) -> str:
        """`DIGITS` hexadecimal digits that equal subjects share, and no others do."""

    def size(self, subject: S_contra) -> Size:
        """How large a subject is."""


class Validator(Protocol[S_contra]):
    """Says of candidates, before they cost a test, what is wrong with them."""

    def complaints(self, subjects: Sequence[S_contra]) -> list[str]:
        """One sentence for each subject, "" for a valid one."""


@dataclass(frozen=True)
class Progress:
    """Where a reduction stands."""

    dimension: str
    nodes: int
    inner_nodes: int
    size: int  # bytes
    checks: int
    seconds: float


@dataclass(frozen=True)
class Rules(Generic[S]):
    """What an engine is given: the form of its subjects, how to test, validate and record values anew, and
    who hears of progress.

    `tests` are equal and may run at the same time. `twin` gives equal texts for subjects of which the failure
    is lost in all when it is lost in one, "" where that cannot be said. `refresh` is called of a new best
    subject before passes see it. `accepted` hears of every new best subject. `control`
    makes of the best subject what a candidate is without its edit, None where the edit is all that it is.
    """

    form: SubjectKind[S]
    tests: Sequence[InterestingnessTest[S]]
    validator: Validator[S]
    refresh: Callable[[S], S] = lambda subject: subject
    progress: Callable[[Progress], None] = lambda progress: None
    accepted: Callable[[S], None] = lambda subject: None
    twin: Callable[[S], str] = lambda subject: ""
    control: Callable[[S, S], S | None] = lambda best, candidate: None
