"""Infer types of a model's inner values with onnx's shape inference in workers: a hostile model can crash its
C++.
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


def infer_types(workers: Workers, programs: Sequence[OnnxProgram]) -> Iterator[tuple[onnx.ModelProto, str]]:
    """Yield each program's model with the types of its values, and why they are missing ("" if they are
    there).

    Only models with undeclared types are sent to a worker; on failure the model is returned unchanged.
    """
    open_ones = [program for program in programs if lacks_types(program.proto)]
    answers = workers.observe_many(INFERRING, [Test(program, {}, as_is=True) for program in open_ones])
    for program in programs:
        if not lacks_types(program.proto):
            yield program.proto, ""
            continue
        yield add_inferred_types(program, next(answers))


def add_inferred_types(program: OnnxProgram, answer: Observation) -> tuple[onnx.ModelProto, str]:
    """Add the types in a worker's answer to INFERRING, or return the model unchanged with the reason."""
    if answer.outputs is None:
        return program.proto, answer.message or answer.outcome
    annotated = decode(onnx.ModelProto(), answer.outputs["model"].tobytes())
    if annotated is None:
        return program.proto, "the worker's answer is damaged"
    return with_types(program.proto, annotated), ""
