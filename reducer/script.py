"""The script of a reduced failure, written as every exported one is (opsieve.triage.export.script)."""

from dataclasses import replace

from opsieve.backends.judge.oracles import DERIVING
from opsieve.backends.judge.reasons import describe
from opsieve.backends.judge.shown_failure import compare_runs
from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.program_text import model_text
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.model.program import OnnxProgram
from opsieve.reducer.engine.interestingness import runs_for
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.triage.export.export_input import ORACLES, ExportedFailure, as_given, expected_outputs
from opsieve.triage.export.program_source import text_of
from opsieve.triage.export.script import script as written


def printed(subject: Runnable, workers: Workers) -> str:
    """The program as text; a sentence for a model that onnx cannot print."""
    if not isinstance(subject.program, OnnxProgram):
        return subject.program.text()
    return model_text(subject.program.data, workers).text or "(onnx.printer cannot print it)"


def script(subject: Runnable, premise: Premise, workers: Workers) -> str:
    """The source of `repro.py`. An arbiter whom a user named is believed before the reference.

    BadInput for a failure that no script shows.
    """
    case, lab = Case(subject.program, subject.inputs), ObservationCache(workers)
    seen = lab.observe(premise.target, case.program, case.inputs)
    # of types there are no values
    arbiter = () if premise.arbiter in (None, DERIVING) else (premise.arbiter,)
    oracles = arbiter if premise.named else (*ORACLES, *arbiter)
    verdict = replace(premise.failure.verdict, reason=premise.reason)
    if verdict.kind in WRONG_OUTPUTS and premise.arbiter is not None:
        worst = compare_runs(
            subject.program, seen, lab.observe(premise.arbiter, case.program, case.inputs)
        ).worst
        reason = f"{premise.target.display} differs from {premise.arbiter.display}: {describe(worst)}"
        verdict = replace(verdict, mismatch=worst, reason=reason)
    if verdict.kind == "accepts-invalid":  # nobody can say what its outputs should be
        exported = ExportedFailure(case, premise.target, verdict, seen)
    elif premise.chance < 1:  # this run need not have shown it
        right, source = expected_outputs(case, verdict, None, lab, oracles)
        exported = ExportedFailure(
            case,
            premise.target,
            verdict,
            premise.observation,
            right,
            source,
            premise.replays,
            runs_for(premise.chance),
        )
    else:
        right, source = expected_outputs(case, verdict, seen.outputs, lab, oracles)
        exported = ExportedFailure(case, premise.target, verdict, seen, right, source)
    exported = as_given(exported)
    return written(exported, text_of(exported, workers))
