"""The IRs whose programs can be reduced, and what each of them provides."""

import importlib.metadata
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, load_plugin, shown
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
        """Return the part of a case to reduce: its program and its inputs."""

    def passes(self) -> list[Pass[S]]:
        """Return every dimension, in the order of a round. Raises BadInput for a plug-in that cannot be
        loaded.
        """

    def validator(self, workers: Workers, start: S) -> Validator[S]:
        """Make the validator for candidates, given that `start` is valid itself."""

    def recorded(self, subject: S, source: ResolvedTarget | None, workers: Workers) -> S:
        """Return the subject with the values that a run on `source` records, for passes that need values; it
        is the subject itself without such passes.
        """
        return subject

    def narrow(self, engine: Engine[S], passes: Sequence[Pass[S]], text: str) -> None:
        """Run the first phase, from a large program to a small one; `text` is the compiler's message. None is
        needed where the rounds begin with the passes that remove most.
        """
        return

    def finished(self, best: S, workers: Workers) -> S:
        """Return the result as it is stored, with its program's text if only a worker can print it."""
        return best

    def twin(self, subject: S) -> str:
        """Return a text that is equal for subjects which look the same to a compiler before it runs them; ""
        if that is unknown.
        """
        return ""

    def control(self, best: S, candidate: S) -> S | None:
        """Return `best` with the side effects of a candidate but without its edit; `None` if there are no
        side effects.
        """
        return None

    def census(self, subject: S) -> Iterable[Part[S]]:
        """Return every part of a subject."""

    def rest(self, start: S) -> S | None:
        """Return `start` without the parts that the first phase kept, to see whether it fails elsewhere too;
        `None` if that is impossible.
        """
        return None


def form_of(program: Program) -> ReducibleForm[Any]:
    """Make the form of a program's IR, anew for each reduction, since it caches.

    Raises:
        BadInput: If the IR declares no reduction.
    """
    reduction = ir_of(program).reduction
    if not reduction:
        raise BadInput(f"{shown(program.kind)} cannot be reduced: its IR does not say how")
    form: ReducibleForm[Any] = load_named(reduction)()
    return form


def passes_in(group: str, order: Sequence[str]) -> list[Pass[S]]:
    """Return the dimensions of an entry point group, those named in `order` first. BadInput for a plug-in
    that cannot be loaded.
    """
    entries = importlib.metadata.entry_points(group=group)
    found: list[Pass[S]] = [load_plugin(entry, "reduction") for entry in entries]
    # Entry points have no order of their own; names decide among plug-ins, so that every installation gives
    # the same rounds.
    places = {name: place for place, name in enumerate(order)}
    return sorted(found, key=lambda item: (places.get(item.name, len(places)), item.name))
