"""The second oracle of Relax: what a module does with its inputs, as an ONNX model that onnxruntime runs."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from in_process import TableLab

from opsieve.backends.compare import compare
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import NATIVE, SECOND_ORACLES
from opsieve.backends.observation import Observation
from opsieve.backends.reference.relax.evaluator import ModuleEvaluator
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.relax.body import Body
from opsieve.gen.irs.relax.catalogue import operators, spelling_of
from opsieve.gen.irs.relax.declaration import Draw
from opsieve.gen.irs.relax.generator import Generator
from opsieve.gen.irs.relax.policies import GenerationPolicy
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.tree import Call, Function, Module, RelaxOperator, Var
from opsieve.gen.irs.relax.types import RelaxTensorType
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.irs.view import FreshNames
from opsieve.gen.model.program import Program
from opsieve.gen.strategies.relax import relax, relax_passes

UNOPTIMISED = SECOND_ORACLES[0]
TRANSLATOR = resolve("reference:tell=onnx")


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as each:
        yield each


class Literals(GenerationPolicy):
    fuel = 0


def call_of(name: str, seed: int) -> Module:
    """A module of one call, whose tensors are constants."""
    rng = random.Random(seed)
    kind, solution = operators()[name].sample(Draw(rng))
    generator = Generator(rng, Literals())
    body = Body(generator.names)
    result = generator._call(operators()[name], solution, kind, body, 0)
    return Module((("main", Function((), body.seq(result), kind)),))


def test_every_declared_operator_has_a_spelling_that_onnx_accepts() -> None:
    for name in sorted(operators()):
        assert spelling_of(name) is not None, name
        traced = 0
        for seed in range(4):
            try:
                model = ModuleEvaluator(call_of(name, seed)).trace({})
            except NotImplementedError:  # one choice of attributes
                continue
            traced += 1
            onnx.checker.check_model(model, full_check=True)
        assert traced, name


def answer(program: Program, inputs: dict[str, Any], workers: Workers) -> tuple[str, str]:
    """How the second oracle ends on a program: its outcome and what it says."""
    told = workers.observe(TRANSLATOR, program, inputs)
    if told.outputs is None:
        return told.outcome, told.message
    translation = OnnxProgram(told.outputs["model"].tobytes())
    seen = workers.observe(UNOPTIMISED, translation, {name: inputs[name] for name in translation.inputs()})
    if seen.outputs is not None:
        right = workers.observe(NATIVE, program, inputs)
        assert right.outputs is not None
        found = compare(seen.outputs, right.outputs, program.output_dtypes())
        return ("ok", "") if found.agrees else ("other values", str(found.worst))
    return seen.outcome, seen.message


def measure(count: int, workers: Workers) -> Counter[str]:
    """How the second oracle ends on modules of the strategies `relax` and `relax-passes`."""
    ends: Counter[str] = Counter()
    for seed in range(count):
        case = (relax, relax_passes)[seed % 2](GenRequest(), seed)
        if case.program.fault is not None:
            continue
        outcome, why = answer(case.program, case.inputs, workers)
        ends[outcome] += 1
        if outcome != "ok":
            print(f"seed {seed}: {outcome}: {' '.join(why.split())[:200]}")
    return ends


def test_the_second_oracle_answers_on_nine_of_ten_generated_modules(workers: Workers) -> None:
    """`pytest -s` prints the share."""
    ends = measure(40, workers)
    share = (ends["ok"] + ends["other values"]) / ends.total()
    print(
        f"\nThe second oracle evaluates {share:.1%} of {ends.total()} generated Relax modules: {dict(ends)}"
    )
    assert share >= 0.9


def log_add_exp() -> RelaxProgram:
    kind = RelaxTensorType("float32", (2,))
    x, y = Var("x", kind), Var("y", kind)
    body = Body(FreshNames(), [x, y])
    result = body.bind(Call(RelaxOperator("relax.log_add_exp"), (x, y), kind), kind)
    module = Module((("main", Function((x, y), body.seq(result), kind, True, (("global_symbol", "main"),))),))
    return RelaxProgram(to_json(module).encode())


LARGE: dict[str, Any] = {"x": np.array([100.0, 1.0], np.float32), "y": np.array([100.5, 2.0], np.float32)}


class SharedFault(TableLab):
    """Every build of TVM gives infinity; all others are asked."""

    def __init__(self, workers: Workers) -> None:
        super().__init__({})
        self.workers = workers

    def observe(
        self, target: Any, program: Any, inputs: Any, *, fresh: bool = False, repeat: int = 0
    ) -> Observation:
        if target.name != "tvm":
            return self.workers.observe(target, program, inputs, fresh=fresh)
        wrong = np.array([np.inf, 2.3132617], np.float32)
        return Observation(target.display, "1", "ok", "run", {"output_0": wrong})


def test_a_wrong_value_that_all_builds_of_tvm_share_is_a_failure(workers: Workers) -> None:
    found = judge_program(
        log_add_exp(), LARGE, resolve("tvm"), SharedFault(workers), oracles=list(SECOND_ORACLES)
    ).verdict
    assert (found.verdict, found.kind, found.blame) == ("fail", "mismatch", "compiler")
    assert "onnxruntime" in found.reason


def test_without_a_second_oracle_the_same_is_undecided(workers: Workers) -> None:
    found = judge_program(log_add_exp(), LARGE, resolve("tvm"), SharedFault(workers), oracles=[]).verdict
    assert found.verdict == "undecided"


def test_a_target_of_onnx_alone_does_not_take_a_module(workers: Workers) -> None:
    found = judge_program(
        log_add_exp(), LARGE, resolve("onnxruntime"), workers, oracles=list(SECOND_ORACLES)
    ).verdict
    assert found.verdict == "unsupported"
