"""The IRs whose programs can be reduced, and what each of them provides."""

import importlib.metadata
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.registry import ir_of, load_named
from opsieve.gen.model.program import Program
from opsieve.reducer.engine.census import Part
from opsieve.reducer.engine.edit import Pass
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import SubjectKind, Validator
from opsieve.reducer.oracle.target_test import Runnable

S = TypeVar("S", bound=Runnable)


class ReducibleForm(SubjectKind[S], Protocol[S]):
    """A form with all that a whole reduction needs: `opsieve.reducer.irs.onnx` is that of ONNX
    models.
    """

    def subject(self, case: Case) -> S:
        """What is reduced of a case: its program and its inputs."""

    def passes(self, worded: bool = False) -> list[Pass[S]]:
        """Every dimension, in the order of a round; `worded`: the failure says what it is, and is no mere
        wrong result. BadInput for a plug-in that cannot be loaded.
        """

    def validator(self, workers: Workers, start: S) -> Validator[S]:
        """What is said of candidates before they are tested, where `start` is valid itself."""

    def recorded(self, subject: S, source: ResolvedTarget | None, workers: Workers) -> S:
        """The subject with what a run on `source` records, for passes that need values; it may be the subject
        itself.
        """

    def narrow(self, engine: Engine[S], passes: Sequence[Pass[S]], text: str) -> None:
        """The first phase, from a large program to a small one; `text` is what the compiler said. It may do
        nothing.
        """

    def finished(self, best: S, workers: Workers) -> S:
        """The result as it is kept: with its program's text, where that has to be asked of a worker."""

    def twin(self, subject: S) -> str:
        """Equal for subjects that a compiler cannot tell from each other before it runs them; "" where that
        is not known.
        """

    def control(self, best: S, candidate: S) -> S | None:
        """`best` with all that a candidate made of it rewrites besides its edit; None where it is nothing."""

    def census(self, subject: S) -> Iterable[Part[S]]:
        """Every part of a subject."""

    def rest(self, start: S) -> S | None:
        """`start` without what the first phase kept, to see whether it fails elsewhere too; None where that
        cannot be said.
        """


def form_of(program: Program) -> ReducibleForm[Any]:
    """How programs of this IR are reduced, anew for each reduction; BadInput when its record does not say."""
    reduction = ir_of(program).reduction
    if not reduction:
        raise BadInput(f"{shown(program.kind)} cannot be reduced: its IR does not say how")
    form: ReducibleForm[Any] = load_named(reduction)()
    return form


def passes_in(group: str, order: Sequence[str]) -> list[Pass[S]]:
    """The dimensions of an entry point group, those named in `order` first. BadInput for a plug-in that
    cannot be loaded.
    """
    found: list[Pass[S]] = []
    for entry in importlib.metadata.entry_points(group=group):
        try:
            found.append(entry.load())
        except (ImportError, AttributeError, SyntaxError) as error:
            raise BadInput(
                f"the reduction {entry.name} cannot be loaded ({error}): reinstall its package"
            ) from error
    places = {name: place for place, name in enumerate(order)}
    return sorted(found, key=lambda item: (places.get(item.name, len(places)), item.name))
