"""Modules of TVM as forms that `opsieve.reducer.sessions.reduction` reduces: Relax modules and TIR functions,
with the passes that belong to them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from opsieve.backends.workers.questions.programs import add_script
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.tvm.program import TvmProgram
from opsieve.reducer.engine import edit, form
from opsieve.reducer.engine.census import Part
from opsieve.reducer.irs.registry import ReducibleForm
from opsieve.reducer.irs.relax.passes import PASSES, relax_parts
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmForm, TvmPass, TvmSubject
from opsieve.reducer.irs.tvm.tir_edits import (
    drop_buffers,
    drop_statements,
    shrink_buffers,
    simplify_expressions,
    simplify_inputs,
    tir_parts,
    unwrap_statements,
)
from opsieve.reducer.oracle.validator import WorkerValidator


def pass_parts(subject: TvmSubject) -> Iterator[Part[TvmSubject]]:
    """Yield each application of a pass, and each argument."""
    passes = subject.program.passes
    for item in dict.fromkeys(passes):
        yield from (Part("passes", f"{item} {turn}") for turn in range(passes.count(item)))
        # `=OPTION:VALUE` is an option of the build, whose value cannot go alone.
        if ":" in item and not item.startswith("="):
            yield Part("arguments", item)


def shorten_passes(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Drop single passes, the last first; then each argument."""
    # The last passes first: those behind the failing one never ran.
    for item in dict.fromkeys(reversed(subject.program.passes)):
        many = subject.program.passes.count(item)
        # Each application by itself, since a pass may fail only the second time.
        for turn in range(many):
            label = f"drop the pass {item}" + (f" ({turn + 1} of {many})" if many > 1 else "")
            yield edit.Edit(label, frozenset([f"{item} {turn}"]), partial(_without, item, turn))
    for item in dict.fromkeys(subject.program.passes):
        if ":" in item and not item.startswith("="):
            yield edit.Edit(f"drop the argument of {item}", frozenset([item]), partial(_plain, item))


def _without(item: str, turn: int, subject: TvmSubject) -> TvmSubject | None:
    """Drop one application of a pass, counted from the end."""
    places = [place for place, name in enumerate(subject.program.passes) if name == item]
    if not places:
        return None
    # Edits that were merged before may have dropped some of the applications.
    gone = places[-1 - min(turn, len(places) - 1)]
    left = tuple(name for place, name in enumerate(subject.program.passes) if place != gone)
    return TvmSubject(replace(subject.program, passes=left), subject.inputs)


def _plain(item: str, subject: TvmSubject) -> TvmSubject | None:
    if item not in subject.program.passes:
        return None
    passes = tuple(name.partition(":")[0] if name == item else name for name in subject.program.passes)
    return TvmSubject(replace(subject.program, passes=passes), subject.inputs)


class TvmReduction(TvmForm, ReducibleForm[TvmSubject]):
    """The common part of both forms. The sequence of passes shrinks first, because a shorter one makes every
    later test cheaper.
    """

    dimensions: tuple[TvmPass, ...] = ()
    parts: Callable[[TvmSubject], Iterator[Part[TvmSubject]]]

    def subject(self, case: Case) -> TvmSubject:
        """Return the module with its inputs."""
        if not isinstance(case.program, TvmProgram):
            raise BadInput(f"this reduction takes modules of TVM, not {case.program.kind}")
        return TvmSubject(case.program, dict(case.inputs))

    def passes(self) -> list[TvmPass]:
        """Return every dimension, in the order of a round."""
        return [edit.ListedPass("pass sequence", shorten_passes), *self.dimensions]

    def validator(self, workers: Workers, start: TvmSubject) -> form.Validator[TvmSubject]:
        """TVM's own check, in a worker."""
        return WorkerValidator(workers, start)

    def finished(self, best: TvmSubject, workers: Workers) -> TvmSubject:
        """Return the result with TVM's printed text of the module."""
        program = add_script(Case(best.program, best.inputs), workers).program
        assert isinstance(program, TvmProgram)
        return TvmSubject(program, best.inputs)

    def census(self, subject: TvmSubject) -> Iterator[Part[TvmSubject]]:
        """Yield the passes and the parts of the module."""
        yield from pass_parts(subject)
        yield from self.parts(subject)


class RelaxReduction(TvmReduction):
    """Relax modules."""

    dimensions = PASSES
    parts = staticmethod(relax_parts)


class TirReduction(TvmReduction):
    """TIR functions."""

    dimensions = (
        edit.ListedPass("statements", drop_statements),
        edit.ListedPass("structure", unwrap_statements),
        edit.ListedPass("expressions", simplify_expressions),
        edit.ListedPass("buffers", drop_buffers),
        edit.ListedPass("dimensions", shrink_buffers),
        edit.ListedPass("values", simplify_inputs),
    )
    parts = staticmethod(tir_parts)
