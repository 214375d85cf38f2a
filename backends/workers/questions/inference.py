"""Types of a model's inner values, found by onnx's shape inference in workers: it is C++ that a hostile model
can bring down.
"""

from collections.abc import Iterator, Sequence

import onnx

from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.declared_types import lacks_types, with_types
from opsieve.gen.model.tensors import decode

INFERRING = resolve("checker:tell=types")


def typed(workers: Workers, programs: Sequence[OnnxProgram]) -> Iterator[tuple[onnx.ModelProto, str]]:
    """Each program's model with the types of its values, in order, and why they were not found ("" when they
    were).

    Only models that do not declare all their types are sent to a worker; where that fails, the model is given
    as it is.
    """
    open_ones = [program for program in programs if lacks_types(program.proto)]
    answers = workers.observe_many(INFERRING, [Test(program, {}, as_is=True) for program in open_ones])
    for program in programs:
        if not lacks_types(program.proto):
            yield program.proto, ""
            continue
        yield with_inferred_types(program, next(answers))


def with_inferred_types(program: OnnxProgram, answer: Observation) -> tuple[onnx.ModelProto, str]:
    """The model with the types that a worker's answer to INFERRING holds, or the model itself and why there
    are none.
    """
    if answer.outputs is None:
        return program.proto, answer.message or answer.outcome
    annotated = decode(onnx.ModelProto(), answer.outputs["model"].tobytes())
    if annotated is None:
        return program.proto, "the worker's answer is damaged"
    return with_types(program.proto, annotated), ""
