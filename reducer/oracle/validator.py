"""Validate an ONNX candidate before it costs a test; the test for a target that runs an invalid program."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from opsieve.backends.judge.shown_failure import is_acceptance, is_refusal
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.programs import get_validator
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.catalogue import find_operator
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.detached import as_inputs, tensor_bytes
from opsieve.gen.model.program import Broken
from opsieve.gen.model.structure import all_nodes, check_structure
from opsieve.gen.model.tensors import graph_inputs
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.onnx_edit.typed_view import stored_tensors
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.triage.fingerprint.normalise import normalise_message

CHECKER = resolve("checker")
# Bytes of a tensor that is no shape
_LARGE = 64 << 10


class OnnxValidator:
    """Finds errors in a candidate before it costs a test."""

    def __init__(self, workers: Workers, start: Subject):
        self._workers = workers
        self._scaled = not bad_scale(start)
        # A model that ONNX's checker refuses can be a failing model all the same; then structure is all that
        # can be asked for.
        answer = self._workers.observe(CHECKER, _light(start), {})
        self.strict = not ("" if answer.outcome in ("ok", "environment") else answer.message or "refused")

    def complaints(self, subjects: Sequence[Subject]) -> list[str]:
        """Return the error of each subject, "" for a valid one."""
        found = [structural(subject) or self._degenerate(subject) for subject in subjects]
        if not self.strict:
            return found
        sound = [index for index, complaint in enumerate(found) if not complaint]
        tests = [Test(_light(subjects[index]), {}, as_is=True) for index in sound]
        for index, answer in zip(sound, self._workers.observe_many(CHECKER, tests), strict=True):
            found[index] = (
                "" if answer.outcome in ("ok", "environment") else shown(answer.message, 200) or "refused"
            )
        return found

    def _degenerate(self, subject: Subject) -> str:
        operator = bad_scale(subject) if self._scaled else ""
        return f"a scale of {operator} is not positive and finite" if operator else ""


class WorkerValidator:
    """The own check of an IR of programs (TVM's, or eager torch) in a worker; skipped if it refuses the
    start, since that is then the failure.
    """

    def __init__(self, workers: Workers, start: Runnable):
        self._workers = workers
        self._strict = not self._ask([start])[0]

    def complaints(self, subjects: Sequence[Runnable]) -> list[str]:
        """Return the error of each subject, "" for a valid one."""
        return self._ask(subjects) if self._strict else [""] * len(subjects)

    def _ask(self, subjects: Sequence[Runnable]) -> list[str]:
        tests = [Test(subject.program, subject.inputs) for subject in subjects]
        seen = self._workers.observe_many(get_validator(subjects[0].program), tests) if tests else ()
        # Where the compiler is not installed, nothing is known, and every candidate goes to the target.
        fine = ("ok", "environment")
        return ["" if each.outcome in fine else shown(each.message, 200) or "refused" for each in seen]


def structural(subject: Subject) -> str:
    """Return the error in a subject's structure, "" if it is valid; pure Python."""
    try:
        check_structure(subject.model)
    except BadInput as error:
        return str(error)
    wanted = graph_inputs(subject.model).keys()
    return "" if wanted == subject.inputs.keys() else "its inputs and their values disagree"


def _light(subject: Subject) -> OnnxProgram:
    """Return a subject's model for the checker, which looks at no values: large stored tensors are inputs of
    their type.
    """
    large = {tensor.name for tensor in subject.model.graph.initializer if tensor_bytes(tensor) >= _LARGE}
    return OnnxProgram(as_inputs(subject.model, large).SerializeToString()) if large else subject.program


def bad_scale(subject: Subject) -> str:
    """Return the operator whose scale, an input or a stored tensor, is not positive and finite everywhere; ""
    without one.
    """
    nodes = [(node, found) for node in all_nodes(subject.model.graph.node) if (found := _scales(node))]
    if not nodes:
        return ""
    known = {tensor.name: tensor.array for tensor in stored_tensors(subject)}
    for node, scales in nodes:
        for place in scales:
            value = known.get(node.input[place]) if place < len(node.input) else None
            if value is not None:
                with np.errstate(all="ignore"):
                    wide = value.astype(np.float64)
                if not (np.isfinite(wide) & (wide > 0)).all():
                    return str(node.op_type)
    return ""


def _scales(node: onnx.NodeProto) -> tuple[int, ...]:
    """Return which inputs of a node are scales."""
    operator = find_operator(node.domain, node.op_type)
    return () if operator is None else operator.scales


# The test of a reduction whose failure is that a target runs a program that it should refuse.


@dataclass(frozen=True)
class AcceptsInvalidTest:
    """`same` while the target runs a program that still states its `fault` and has the operator at fault, and
    the `objector` still objects in the same words. A program that breaks a rule by its inputs alone states no
    fault.

    `objection` is the objector's message for the whole program, normalised, because a candidate that breaks
    another rule is another failure.
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
