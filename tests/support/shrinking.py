"""A tiny greedy driver of reductions, for tests: the first edit that keeps a predicate wins, and every
candidate must be valid.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.structure import all_nodes, check_structure
from opsieve.reducer.problem.order import OnnxPass, simpler


def subject(text: str, **inputs: object) -> Subject:
    model = parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return Subject(model, {name: np.asarray(value) for name, value in inputs.items()}, {})


def valid(candidate: Subject) -> bool:
    check_structure(candidate.model)
    onnx.checker.check_model(candidate.model, full_check=True)
    graph = candidate.model.graph
    fed = {info.name for info in graph.input} - {tensor.name for tensor in graph.initializer}
    assert fed == set(candidate.inputs)
    return True


def runs(candidate: Subject) -> list[np.ndarray]:
    return ReferenceEvaluator(candidate.model).run(None, candidate.inputs)


def reduced(start: Subject, passes: Sequence[OnnxPass], keeps: Callable[[Subject], bool]) -> Subject:
    current, moved = start, True
    while moved:
        moved = False
        for each in passes:
            again = True
            while again:
                again = False
                for edit in each.edits(current):
                    found = edit.apply(current)
                    if found is None or not simpler(found, current):
                        continue
                    valid(found)
                    if keeps(found):
                        current, moved, again = found, True, True
                        break
    return current


def operators(candidate: Subject) -> list[str]:
    return [node.op_type for node in all_nodes(candidate.model.graph.node)]
