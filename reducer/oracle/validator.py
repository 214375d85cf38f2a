"""Validate an ONNX candidate before it costs a test."""

from collections.abc import Sequence

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.gen.model.detached import as_inputs, tensor_bytes
from opsieve.gen.model.structure import check_structure
from opsieve.gen.model.tensors import graph_inputs
from opsieve.reducer.onnx_edit.quant_scales import bad_scale

CHECKER = resolve("checker")
_LARGE = 64 << 10  # bytes of a tensor that is no shape


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


def structural(subject: Subject) -> str:
    """Return the error in a subject's structure, "" if it is valid; pure Python."""
    try:
        check_structure(subject.model)
    except BadInput as error:
        return str(error)
    wanted = graph_inputs(subject.model).keys()
    return "" if wanted == subject.inputs.keys() else "its inputs and their values disagree"


def _light(subject: Subject) -> OnnxProgram:
    """A subject's model for the checker, which looks at no values: large stored tensors are inputs of their
    type.
    """
    large = {tensor.name for tensor in subject.model.graph.initializer if tensor_bytes(tensor) >= _LARGE}
    return OnnxProgram(as_inputs(subject.model, large).SerializeToString()) if large else subject.program
