"""Inputs under which no intermediate result of a program is NaN or infinite: the main process's side of the value search.

What is tried, in order: the values at hand; ranges repaired by the declarations' domains (gen/repair.py, no torch); NNSmith's gradient
search in a worker with torch (value_search_torch.py), from the values at hand and from the repaired ones; ranges guessed. Each is run with every inner
tensor as an output, unoptimised, in a worker, and only what comes out finite is given back.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import onnx

from opsieve.backends.inference import typed
from opsieve.backends.target import Target
from opsieve.backends.workers import Workers
from opsieve.gen.metrics_graph import lacks_types
from opsieve.gen.program import Program
from opsieve.gen.repair import guesses, refilled, repaired, with_weights
from opsieve.gen.steps import outline

RUNNERS = (Target.parse("onnxruntime:disable_all"), Target.parse("reference"))
GRADIENT = "value-search:weights={weights},iterations={iterations}"
ITERATIONS = 200
GUESSES = 24


@dataclass(frozen=True, slots=True)
class Found:
    """A program (with other weights, where those were asked for) and inputs; `how` is `given`, `repaired`, `gradient` or `guessed`."""

    program: Program
    inputs: dict[str, Any]
    how: str


def search_values(
    program: Program,
    inputs: Mapping[str, Any],
    seed: int,
    workers: Workers,
    weights: bool = False,
    iterations: int = ITERATIONS,
) -> Found | None:
    """Values near those given under which nothing in the program is NaN or infinite; None when none were found.

    `weights` lets float initializers and constants change too: for programs that are ours. `iterations` limits each gradient
    search. Equal arguments give equal values. Without torch the gradient search is left out.
    """
    for found in candidates(program, inputs, seed, workers, weights, iterations):
        if first_broken(found.program, found.inputs, workers) == "":
            return found
    return None


def candidates(
    program: Program,
    inputs: Mapping[str, Any],
    seed: int,
    workers: Workers,
    weights: bool,
    iterations: int = ITERATIONS,
    gradients: bool = True,
) -> Iterator[Found]:
    """What is tried, in order; nothing is run before it is asked for."""
    yield Found(program, dict(inputs), "given")
    model = concrete(program, inputs, workers)
    graph = outline(model, inputs)
    repair = repaired(graph, seed, weights)
    ranges = repair.ranges
    moved = _changed(program, *refilled(model, inputs, ranges, seed), ranges, "repaired") if ranges else None
    if moved is not None:
        yield moved
    for start in (Found(program, dict(inputs), "given"), moved):
        if gradients and start is not None:
            searched = by_gradient(start.program, start.inputs, seed, workers, weights, iterations)
            if searched is not None:
                yield searched
    for number, guess in enumerate(islice(guesses(graph, repair.left, seed, weights), GUESSES)):
        drawn = {**ranges, **guess}
        yield _changed(program, *refilled(model, inputs, drawn, seed + number), drawn, "guessed")


def by_gradient(
    program: Program,
    inputs: Mapping[str, Any],
    seed: int,
    workers: Workers,
    weights: bool = False,
    iterations: int = ITERATIONS,
    more: str = "",
) -> Found | None:
    """What the gradient search finds, unchecked; None where it finds nothing, lacks an operator, or torch is not there."""
    wanted = GRADIENT.format(weights="on" if weights else "off", iterations=iterations) + more
    model = concrete(program, inputs, workers)
    fed = {**inputs, "": np.array(seed, np.int64)}
    answer = workers.observe(Target.parse(wanted), Program(model.SerializeToString(), program.name), fed)
    if not answer.outputs:
        return None
    values = {name: answer.outputs.get(name, value) for name, value in inputs.items()}
    changed = {name: value for name, value in answer.outputs.items() if name not in inputs}
    made = with_weights(program.proto, changed)
    return Found(program if made is program.proto else _written(made, program), values, "gradient")


def first_broken(program: Program, inputs: Mapping[str, Any], workers: Workers) -> str | None:
    """The first operator, in the graph's order, with a NaN or an infinity among its results; "" for none.

    None when neither onnxruntime nor ONNX's evaluator runs the program. Bodies count as their node.
    """
    shown = exposed(program)
    for runner in RUNNERS:
        answer = workers.observe(runner, shown, dict(inputs))
        if answer.outputs is not None:
            return broken(program.proto.graph.node, answer.outputs)
    return None


def broken(nodes: Sequence[onnx.NodeProto], values: Mapping[str, Any]) -> str:
    """The operator of the first node with a value that is not finite; "" for none."""
    for node in nodes:
        if any(not finite(values[name]) for name in node.output if name in values):
            return node.op_type
    return ""


def finite(value: Any) -> bool:
    """Whether a value has neither NaN nor infinity; sequences by element."""
    if isinstance(value, list):
        return all(map(finite, value))
    if not isinstance(value, np.ndarray):
        return True
    if value.dtype.kind in "fc":
        return bool(np.isfinite(value).all())
    return "float" not in value.dtype.name or bool(np.isfinite(value.astype(np.float32)).all())


def exposed(program: Program) -> Program:
    """The program with every result of a node of its graph as an output."""
    model = onnx.ModelProto()
    model.CopyFrom(program.proto)
    graph = model.graph
    known = {info.name: info for info in graph.value_info}
    given = {info.name for info in graph.output}
    for node in graph.node:
        for name in node.output:
            if name and name not in given:
                given.add(name)
                graph.output.add().CopyFrom(known.get(name) or onnx.ValueInfoProto(name=name))
    return _written(model, program)


def concrete(program: Program, inputs: Mapping[str, Any], workers: Workers) -> onnx.ModelProto:
    """The model with the sizes that these inputs have, and the types of its inner values."""
    if not lacks_types(program.proto) and not _open(program.proto):
        return program.proto
    model = onnx.ModelProto()
    model.CopyFrom(program.proto)
    if _open(model):
        del model.graph.value_info[:]
        for info in model.graph.input:
            value = inputs.get(info.name)
            if isinstance(value, np.ndarray) and info.type.HasField("tensor_type"):
                del info.type.tensor_type.shape.dim[:]
                info.type.tensor_type.shape.SetInParent()
                for side in value.shape:
                    info.type.tensor_type.shape.dim.add().dim_value = side
    return next(typed(workers, [_written(model, program)]))[0]


def _open(model: onnx.ModelProto) -> bool:
    return any(dim.dim_param for info in model.graph.input for dim in info.type.tensor_type.shape.dim)


def _changed(
    program: Program,
    model: onnx.ModelProto,
    inputs: dict[str, Any],
    ranges: Mapping[str, Any],
    how: str,
) -> Found:
    """The program itself where only inputs changed, so that declared types stay as they were written."""
    own = any(name not in inputs for name in ranges)
    return Found(_written(model, program) if own else program, inputs, how)


def _written(model: onnx.ModelProto, like: Program) -> Program:
    return Program(model.SerializeToString(deterministic=True), like.name)
