"""Types of a model's inner values, found by onnx's shape inference in workers: it is C++ that a hostile model can bring down."""

from collections.abc import Iterator, Sequence

import onnx

from opsieve.backends.target import Target
from opsieve.backends.workers import Test, Workers
from opsieve.gen.metrics_graph import lacks_types, with_types
from opsieve.gen.program import Program
from opsieve.gen.tensors import decode

_INFERRING = Target.parse("checker:tell=types")


def typed(workers: Workers, programs: Sequence[Program]) -> Iterator[tuple[onnx.ModelProto, str]]:
    """Each program's model with the types of its values, in order, and why they were not found ("" when they were).

    Only models that do not declare all their types are sent to a worker; where that fails, the model is given as it is.
    """
    open_ones = [program for program in programs if lacks_types(program.proto)]
    answers = workers.observe_many(_INFERRING, [Test(program, {}, as_is=True) for program in open_ones])
    for program in programs:
        if not lacks_types(program.proto):
            yield program.proto, ""
            continue
        answer = next(answers)
        if answer.outputs is None:
            yield program.proto, answer.message or answer.outcome
            continue
        told = decode(onnx.ModelProto(), answer.outputs["model"].tobytes())
        if told is None:
            yield program.proto, "the worker's answer is damaged"
        else:
            yield with_types(program.proto, told), ""
