"""Every tensor of a subject's main graph, recorded in an unoptimised run, so that any of them can become an input."""

from dataclasses import replace

import onnx

from opsieve.backends.target import Target
from opsieve.backends.trial import NATIVE
from opsieve.backends.workers import Workers
from opsieve.gen.program import Program
from opsieve.gen.tensors import Value
from opsieve.reducer.subject import Subject


def recorded(subject: Subject, source: Target | None, workers: Workers) -> Subject:
    """The subject with the values of all its tensors, as far as they can be had.

    They come from `source`, the unoptimised build of the compiler under test; what it cannot give comes from the reference
    evaluator, and what that cannot give stays as it was. Float results of optional outputs that a compiler leaves out stay unknown.
    """
    wanted = [name for node in subject.model.graph.node for name in node.output if name]
    values: dict[str, Value] = {}
    for target in dict.fromkeys([source, NATIVE]):
        missing = [name for name in wanted if name not in values]
        if target is None or not missing:
            continue
        answer = workers.observe(target, Program(_exposed(subject.model, missing)), subject.inputs)
        found = answer.outputs or {}
        values.update((name, found[name]) for name in missing if found.get(name) is not None)
    for name, value in subject.values.items():
        values.setdefault(name, value)
    return replace(subject, values=values)


def complete(subject: Subject) -> bool:
    """Whether every tensor of the main graph has a recorded value."""
    return all(name in subject.values for node in subject.model.graph.node for name in node.output if name)


def _exposed(model: onnx.ModelProto, names: list[str]) -> bytes:
    """The model with these values as further outputs; their types are left to the compiler."""
    told = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(told.get(name, onnx.ValueInfoProto(name=name)) for name in names)
    data: bytes = exposed.SerializeToString()
    return data
