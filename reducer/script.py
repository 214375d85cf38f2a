"""The script of a reduced failure, written as every exported one is (opsieve.triage.export_script)."""

from dataclasses import replace

from opsieve.backends.lab import Lab
from opsieve.backends.registry import display
from opsieve.backends.trial import told
from opsieve.backends.workers import Workers
from opsieve.gen.case import Case
from opsieve.reducer.check import compared, program, runs_for
from opsieve.reducer.discover import Premise
from opsieve.reducer.subject import Subject
from opsieve.triage.exhibit import VOICES, Exhibit, right_outputs
from opsieve.triage.export_script import script as written
from opsieve.triage.export_text import model_text


def script(subject: Subject, premise: Premise, workers: Workers, named: bool) -> str:
    """The source of `repro.py`. `named` says that a user named the arbiter, who is then believed before the reference.

    BadInput for a failure that no script shows.
    """
    case, lab = Case(program(subject), subject.inputs), Lab(workers)
    seen = lab.observe(premise.target, case.program, case.inputs)
    arbiter = () if premise.arbiter is None else (premise.arbiter,)
    voices = arbiter if named else (*VOICES, *arbiter)
    verdict = replace(premise.failure.verdict, reason=premise.reason)
    if verdict.kind == "mismatch" and premise.arbiter is not None:
        worst = compared(subject, seen, lab.observe(premise.arbiter, case.program, case.inputs)).worst
        reason = f"{display(premise.target)} differs from {display(premise.arbiter)}: {told(worst)}"
        verdict = replace(verdict, mismatch=worst, reason=reason)
    if premise.chance < 1:  # this run need not have shown it
        right, source = right_outputs(case, verdict, None, lab, voices)
        exhibit = Exhibit(case, premise.target, verdict, premise.observation, right, source, runs_for(premise.chance))
    else:
        right, source = right_outputs(case, verdict, seen.outputs, lab, voices)
        exhibit = Exhibit(case, premise.target, verdict, seen, right, source)
    return written(exhibit, model_text(exhibit.model))


def printed(subject: Subject) -> str:
    """The model as text; a sentence for one that onnx cannot print."""
    return model_text(program(subject).model).text or "(onnx.printer cannot print it)"
