"""Search inputs under which every intermediate result of a program is finite: the main process's side.

The order of attempts is: the given values; ranges repaired by the declarations' domains
(gen/analysis/input_ranges.py); NNSmith's gradient search, if the research kit and torch are installed, from
the given values and from the repaired ones; guesses, one on top of another as long as the first offending
operator is no earlier. Each runs with every inner tensor as an output,
unoptimised, in a worker, and only finite results are returned. The searches of many programs run side by side
and independently, so that workers get batches.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, names, resolve
from opsieve.backends.workers.questions.programs import INFERRING, add_inferred_types
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.analysis import input_ranges, typed_graph
from opsieve.gen.declarations.tensor import Bounds
from opsieve.gen.irs.onnx.edits import tap_model
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.structure import copied, lacks_types

# The backend of the gradient search, which the research kit brings (benchmarks/research)
GRADIENT = "value-search"
# The fast one first; the reference knows operators that onnxruntime lacks.
RUNNERS = (resolve("onnxruntime:disable_all"), resolve("reference"))
METHODS = ("repaired", "gradient", "guessed")
GUESSES = 48
# Searches that go on side by side
TOGETHER = 32

Question = tuple[ResolvedTarget, Test]
Asking = Generator[Question, Observation, Any]


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a search.

    `weights` lets float initializers and constants change too: for programs of our own. `iterations` limits
    each gradient search, of which there are two at most; `gradient` has more options for it. `methods` are
    those to try.
    """

    weights: bool = False
    iterations: int = 200
    methods: tuple[str, ...] = METHODS
    gradient: str = ""


@dataclass(frozen=True, slots=True)
class FoundValues:
    """A program (with other weights, if allowed) and inputs.

    `how` is `given` (unchanged), `repaired`, `gradient` or `guessed`. With `none` they are the given ones,
    and `broken` is the first operator with a NaN or infinity among its results; with `unchecked` onnxruntime
    and ONNX's evaluator both fail to run the program.
    """

    program: OnnxProgram
    inputs: dict[str, Any]
    how: str
    broken: str = ""


@dataclass(frozen=True, slots=True)
class ValueSearchRequest:
    """The input of a search: it begins with the given values and draws by the seed."""

    program: OnnxProgram
    inputs: Mapping[str, Any]
    seed: int


def search_values(
    wanted: Sequence[ValueSearchRequest], workers: Workers, effort: Effort | None = None
) -> Iterator[FoundValues]:
    """Yield for each program, in order, values that keep everything finite, or the given ones.

    Equal arguments give equal values. Without the research kit or torch the gradient search is left out.
    """
    effort = effort or Effort()
    for start in range(0, len(wanted), TOGETHER):
        group = wanted[start : start + TOGETHER]
        yield from run_generators([_search_one(item, effort) for item in group], workers)


def run_generators(going: Sequence[Asking], workers: Workers) -> list[Any]:
    """Run generators of questions and return their results; in each round all questions to a target run
    together.
    """
    results: list[Any] = [None] * len(going)
    asked: dict[int, Question] = {}

    def advance(place: int, answer: Observation | None) -> None:
        try:
            asked[place] = next(going[place]) if answer is None else going[place].send(answer)
        except StopIteration as end:
            asked.pop(place, None)
            results[place] = end.value

    for place in range(len(going)):
        advance(place, None)
    while asked:
        target = next(iter(asked.values()))[0]
        places = [place for place, question in asked.items() if question[0] == target]
        answers = list(workers.observe_many(target, [asked[place][1] for place in places]))
        for place, answer in zip(places, answers, strict=True):
            advance(place, answer)
    return results


def _search_one(wanted: ValueSearchRequest, effort: Effort) -> Generator[Question, Observation, FoundValues]:
    given = FoundValues(wanted.program, dict(wanted.inputs), "given")
    met = yield from _check_values(given.program, given.inputs)
    if met == "":
        return given
    lost = replace(given, how="unchecked") if met is None else replace(given, how="none", broken=met.op_type)
    model = yield from _concrete(wanted.program, wanted.inputs)
    graph = typed_graph.read_graph(model, wanted.inputs)
    # A NaN of constants alone: no input can change it.
    if isinstance(met, onnx.NodeProto) and input_ranges.is_unreachable(graph, met.output[0], effort.weights):
        return lost
    starts = [(given, model)]
    if "repaired" in effort.methods:
        ranges = input_ranges.repair(graph, wanted.seed, effort.weights).ranges
        if ranges:
            moved, changed = _draw_values(given, model, ranges, wanted.seed, "repaired")
            met_again = yield from _check_values(moved.program, moved.inputs)
            if met_again == "":
                return moved
            if met_again is not None:
                met = met_again
                starts.append((moved, changed))
    if met is None:
        # Without an evaluator, values cannot be compared.
        return lost
    for start, typed in starts if "gradient" in effort.methods else ():
        searched = yield from _gradient(start, typed, wanted.seed, effort)
        if searched is not None and (yield from _check_values(searched.program, searched.inputs)) == "":
            return searched
    if "guessed" in effort.methods:
        guessed = yield from _search_by_guesses(
            *starts[-1], met.output[0], input_ranges.Guesses(graph, wanted.seed, effort.weights), wanted.seed
        )
        return guessed or lost
    return lost


def _search_by_guesses(
    best: FoundValues, model: onnx.ModelProto, broken_: str, guesses: input_ranges.Guesses, seed: int
) -> Generator[Question, Observation, FoundValues | None]:
    """Draw inputs that reach the first offending node again; the best result so far is the base of the next
    guess.
    """
    place = guesses.place(broken_)
    for number in range(GUESSES if place >= 0 else 0):
        drawn = guesses.around(place)
        if not drawn:
            return None
        found, changed = _draw_values(best, model, drawn, seed + number, "guessed")
        met = yield from _check_values(found.program, found.inputs)
        if met == "":
            return found
        at = -1 if met is None else guesses.place(met.output[0])
        # A later offending node means that this one is mended.
        if at >= place:
            best, model, place = found, changed, at
    return None


def _check_values(
    program: OnnxProgram, inputs: Mapping[str, Any]
) -> Generator[Question, Observation, onnx.NodeProto | Literal[""] | None]:
    """Return the first node with a result that is not finite; "" if all are finite, None if no runner accepts
    the program.
    """
    shown = Test(expose_results(program), dict(inputs))
    for runner in RUNNERS:
        answer = yield runner, shown
        if answer.outputs is not None:
            return find_broken_node(program.proto.graph.node, answer.outputs) or ""
    return None


def _gradient(
    start: FoundValues, model: onnx.ModelProto, seed: int, effort: Effort
) -> Generator[Question, Observation, FoundValues | None]:
    """Return the result of the gradient search, unchecked; returns `None` if the search fails, lacks an
    operator or is not installed.
    """
    if GRADIENT not in names():
        return None
    weights = "on" if effort.weights else "off"
    target = resolve(f"{GRADIENT}:weights={weights},iterations={effort.iterations}{effort.gradient}")
    # The seed has the name "", which no input of ONNX can have.
    fed = {**start.inputs, "": np.array(seed, np.int64)}
    answer = yield target, Test(OnnxProgram(model.SerializeToString(), start.program.name), fed)
    if not answer.outputs:
        return None
    values = {name: answer.outputs.get(name, value) for name, value in start.inputs.items()}
    changed = {name: value for name, value in answer.outputs.items() if name not in start.inputs}
    return FoundValues(_with_weights(start.program, changed), values, "gradient")


def _concrete(
    program: OnnxProgram, inputs: Mapping[str, Any]
) -> Generator[Question, Observation, onnx.ModelProto]:
    """Return the model with the sizes that these inputs have, and the types of its inner values."""
    model = program.proto
    if any(dim.dim_param for info in model.graph.input for dim in info.type.tensor_type.shape.dim):
        model = copied(program.proto)
        # Their declared sizes may contradict the new ones.
        del model.graph.value_info[:]
        for info in model.graph.input:
            value = inputs.get(info.name)
            if isinstance(value, np.ndarray) and info.type.HasField("tensor_type"):
                del info.type.tensor_type.shape.dim[:]
                # Else a tensor without dimensions would have no shape at all.
                info.type.tensor_type.shape.SetInParent()
                for side in value.shape:
                    info.type.tensor_type.shape.dim.add().dim_value = side
    if not lacks_types(model):
        return model
    bound = _write_program(model, program)
    answer = yield INFERRING, Test(bound, {}, as_is=True)
    return add_inferred_types(bound, answer)[0]


def _draw_values(
    start: FoundValues, model: onnx.ModelProto, ranges: Mapping[str, Bounds], seed: int, how: str
) -> tuple[FoundValues, onnx.ModelProto]:
    """Draw values from ranges in place of those of `start`; return them with the model (the program with all
    types known).
    """
    inputs, weights = input_ranges.refill_values(model, start.inputs, ranges, seed)
    return FoundValues(_with_weights(start.program, weights), inputs, how), input_ranges.with_weights(
        model, weights
    )


def _with_weights(program: OnnxProgram, weights: Mapping[str, Any]) -> OnnxProgram:
    return _write_program(input_ranges.with_weights(program.proto, weights), program) if weights else program


def find_broken_node(nodes: Sequence[onnx.NodeProto], values: Mapping[str, Any]) -> onnx.NodeProto | None:
    """Return the first node with a result that is not finite, or None."""
    for node in nodes:
        if any(not finite(values[name]) for name in node.output if name in values):
            return node
    return None


def finite(value: Any) -> bool:
    """Whether a value has neither NaN nor infinity; sequences by element."""
    if isinstance(value, list):
        return all(map(finite, value))
    if not isinstance(value, np.ndarray):
        return True
    if value.dtype.kind in "fc":
        return bool(np.isfinite(value).all())
    # bfloat16 and float8 of ml_dtypes are of kind V, on which numpy has no isfinite.
    return "float" not in value.dtype.name or bool(np.isfinite(value.astype(np.float32)).all())


def expose_results(program: OnnxProgram) -> OnnxProgram:
    """Return the program with every result of a node of its graph as an output."""
    made = [name for node in program.proto.graph.node for name in node.output if name]
    return _write_program(tap_model(program.proto, made), program)


def _write_program(model: onnx.ModelProto, like: OnnxProgram) -> OnnxProgram:
    return OnnxProgram(model.SerializeToString(deterministic=True), like.name)
