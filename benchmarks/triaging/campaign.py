"""Programs run on compilers with faults, what fails judged as a campaign does, and reduced as triage does."""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx
from triaging.drawing_faults import TARGETS, Seed
from triaging.failure import Failure

from opsieve.backends.compare import compare
from opsieve.backends.judge.judge import judge_case
from opsieve.backends.judge.oracles import NATIVE
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.bisect.passes.pass_source import blame_passes
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, NoFailure
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.strategies.registry import generate
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure
from opsieve.triage.fingerprint.component import Evidence
from opsieve.triage.fingerprint.program_graph import ProgramNames, make_signature

BATCH = 8  # faults whose workers are alive at once
# what removes nodes; the others change their values
DIMENSIONS = ("bodies", "nodes", "outputs", "bypass")
FIRST = 16  # programs after which a fault that never showed is given up


def programs(seed: int, generated: int) -> list[Case]:
    """Conformance models, at most six for each operator, and generated ones of 5 to 15 nodes."""
    from onnx.backend.test.loader import load_node_model_tests

    draw = random.Random(seed)
    tests = [
        (test.model, test.data_sets[0][0])
        for test in load_node_model_tests()
        if test.data_sets and test.model and "_expanded" not in test.name
    ]
    draw.shuffle(tests)
    many: dict[str, int] = {}
    found: list[Case] = []
    for model, values in tests:
        operator = model.graph.node[0].op_type
        inputs = dict(zip([item.name for item in model.graph.input], values, strict=False))
        plain = all(getattr(value, "dtype", None) in _DTYPES for value in inputs.values())
        if plain and inputs and many.setdefault(operator, 0) < 6:
            many[operator] += 1
            found.append(Case(OnnxProgram(model.SerializeToString()), inputs))
    request = GenRequest(between=(5, 15), dtypes=frozenset(["float32", "int64", "bool"]))
    return found + [
        generate(("isra", "pattern")[at % 2], seed * 1000 + at, request) for at in range(generated)
    ]


_DTYPES = ("float32", "float64", "int64", "int32", "bool")


def operators(case: Case) -> list[str]:
    """The different operators of a program."""
    return sorted(set(case.program.operators()))


def frozen(case: Case) -> Case:
    """A program with all inputs but the first as constants, which optimisers fold."""
    model, inputs = onnx.load_model_from_string(case.program.data), dict(case.inputs)
    for item in list(model.graph.input)[1:]:
        value = inputs.pop(item.name, None)
        if isinstance(value, np.ndarray):
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, item.name))
            model.graph.input.remove(item)
    return Case(OnnxProgram(model.SerializeToString()), inputs)


def explored(layer: str, cases: Sequence[Case]) -> list[tuple[Case, frozenset[str]]]:
    """The programs that a compiler without faults gets right, each with the functions that it runs (of
    `fake`: its operators).
    """
    target = resolve(TARGETS[layer] if layer == "fake" else f"{TARGETS[layer]}:fault=none")
    tests = [Test(case.program, case.inputs) for case in cases]
    found = []
    with Workers() as workers:
        answers = zip(
            cases, workers.observe_many(target, tests), workers.observe_many(NATIVE, tests), strict=True
        )
        for case, seen, right in answers:
            if seen.outputs is not None and right.outputs is not None and _agree(case, seen, right):
                ran = (
                    operators(case)
                    if layer == "fake"
                    else [note[4:] for note in seen.notes if note.startswith("ran ")]
                )
                found.append((case, frozenset(ran)))
    return found


def _agree(case: Case, seen: Observation, right: Observation) -> bool:
    if seen.outputs is None:
        return False
    return compare(seen.outputs, right.outputs or {}, case.program.output_dtypes()).agrees


def failing(seeds: Sequence[Seed], known: Sequence[tuple[Case, frozenset[str]]], most: int) -> list[Failure]:
    """Up to `most` failures of every fault, on programs that the compiler without faults gets right."""
    found: list[Failure] = []
    for start in range(0, len(seeds), BATCH):
        with Workers() as workers:
            for seed in seeds[start : start + BATCH]:
                found += _shown(seed, [case for case, ran in known if seed.function in ran], most, workers)
    return found


def _shown(seed: Seed, cases: list[Case], most: int, workers: Workers) -> Iterator[Failure]:
    target, lab = resolve(seed.target), ObservationCache(workers)
    random.Random(seed.target).shuffle(cases)
    shown = 0
    for turn, case in enumerate(cases[: 3 * FIRST]):
        if shown == most or (turn >= FIRST and not shown):
            return
        seen, right = (lab.observe(place, case.program, case.inputs) for place in (target, NATIVE))
        if _agree(case, seen, right):
            continue
        judged = judge_case(case, target, lab)
        if judged.verdict.verdict == "fail":
            shown += 1
            names = tuple(sorted(ProgramNames(case.program)))
            yield Failure(
                seed, judged.verdict, judged.observations[0], tuple(operators(case)), case, names=names
            )
        lab.forget_all()


def reduced(failures: Sequence[Failure], seconds: float) -> list[Failure]:
    """Each failure whose graph counts, or would if it were smaller, reduced and attributed, until the time is
    spent; others as they are.

    In turn one of every fingerprint, as `triage --reduce` does.
    """
    end = time.monotonic() + seconds
    turns: dict[str, int] = {}
    order = []
    for at, one in enumerate(failures):
        key = one.before.key
        turns[key] = turns.get(key, 0) + 1
        order.append((turns[key], at))
    done = dict(enumerate(failures))
    waiting = [at for _, at in sorted(order) if _counts_graph(failures[at])]
    for start in range(0, len(waiting), 3 * BATCH):
        with Workers() as workers:
            for at in waiting[start : start + 3 * BATCH]:
                if time.monotonic() < end:
                    done[at] = _reduced(failures[at], workers)
    return [done[at] for at in range(len(failures))]


def _counts_graph(one: Failure) -> bool:
    return any(
        part.needs_reduction or (part.name == "operators" and part.kept) for part in one.before.components
    )


def _reduced(one: Failure, workers: Workers) -> Failure:
    assert one.case is not None
    target = resolve(one.seed.target)
    form, case = OnnxReduction(), one.case
    best = form.subject(case).model
    dimensions = [each for each in form.passes() if each.name in DIMENSIONS]
    if len(best.graph.node) > 1:
        try:
            premise = find(one.case, [target], None, workers)
            start = form.subject(one.case)
            result = reduce_failure(
                form, start, premise, [workers], "fingerprint", Journal(""), Listeners(), dimensions
            )
        except NoFailure as error:
            print(f"not reduced: {one.seed.target}: {error}", file=sys.stderr)
            return one
        if not result.same:
            print(
                f"not reduced: {one.seed.target}: the judge does not see the same failure at the end",
                file=sys.stderr,
            )
            return one
        best = result.best.model
        case = Case(OnnxProgram(best.SerializeToString()), result.best.inputs)
    guilty: tuple[str, ...] = ()
    if one.seed.layer == "onnxscript":
        try:
            guilty = blame_passes(case, target, ObservationCache(workers)).attribution.passes
        except BadInput:  # it does not fail any more: nothing to attribute
            guilty = ()
    evidence = Evidence(signature=make_signature(OnnxProgram.of(best)), guilty_passes=guilty)
    return replace(one, evidence=evidence, reduced=len(best.graph.node), left=tuple(operators(case)))
