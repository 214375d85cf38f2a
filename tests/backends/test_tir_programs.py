"""TIR step by step, and against TVM: what comes out, and which functions have no defined result."""

import importlib.util
import re

import numpy as np
import pytest

from opsieve.backends.compilers.tvm_relax_preconditions import PassPrecondition
from opsieve.backends.compilers.tvm_tir import preconditions
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.reference.tir import Undefined, Unknown, run
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.arguments import basic, convolution, gather, product, program, values
from opsieve.gen.irs.tvm.nodes import ObjectNode

A, B = N.buffer("A", (4,)), N.buffer("B", (4,))
I = N.variable("i")  # noqa: E741 - the loop's own name
ZERO = N.integer(0)
FED = {"A": np.arange(4, dtype=np.float32), "B": np.zeros(4, np.float32)}
TVM = pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="needs apache-tvm")


def loop(body: ObjectNode, kind: int = N.SERIAL) -> ObjectNode:
    return N.function([A, B], N.loop(I, N.integer(4), body, kind))


def test_a_product_and_a_gather_are_what_numpy_says() -> None:
    fed = values(product(), 1)
    assert np.allclose(run(product(), fed)["C"], fed["A"] @ fed["B"], rtol=1e-5)
    fed = values(gather(), 1)
    assert np.array_equal(run(gather(), fed)["C"], fed["A"][fed["B"] % 8])
    fed = values(convolution(), 1)
    padded = np.concatenate([[0], fed["A"], [0]])
    assert np.array_equal(run(convolution(), fed)["B"], padded[:-2] + padded[1:-1] + padded[2:])


@pytest.mark.parametrize(
    ("function", "why"),
    [(loop(N.store(B, N.load(A, N.binary("Add", I, N.integer(1))), I)), "index 4 outside"), (loop(N.store(B, N.load(A, I), ZERO), N.PARALLEL), "meet in memory"), (loop(N.store(B, N.load(B, N.binary("FloorMod", N.binary("Add", I, N.integer(1)), N.integer(4))), I), N.VECTORIZED), "meet"), (loop(N.store(B, N.cast(N.binary("FloorDiv", I, I), "float32"), I)), "division by zero"), (loop(N.store(B, N.call("tirx.log", "float32", N.load(A, I)), I)), "tirx.log"), (loop(N.store(B, N.cast(N.binary("Mul", I, N.integer(1 << 30)), "float32"), I)), "overflows"), (N.function([A, B], N.sequence(N.allocate(c := N.buffer("C", (1,))), N.store(B, N.load(c, ZERO), ZERO))), "before it is written"), (loop(N.store(B, N.cast(N.call("prim.clz", "int32", I), "float32"), I)), "leading zeros"), (loop(N.evaluate(N.call("tirx.assume", "bool", N.binary("LT", I, N.integer(2))))), "assumption"),],
)  # fmt: skip
def test_a_function_without_a_defined_result_says_why(function: ObjectNode, why: str) -> None:
    with pytest.raises(Undefined, match=why):
        run(function, FED)


@pytest.mark.parametrize("kind", [N.SERIAL, N.PARALLEL, N.VECTORIZED, N.UNROLLED])
def test_iterations_that_keep_apart_are_fine_in_any_loop(kind: int) -> None:
    done = run(loop(N.store(B, N.binary("Add", N.load(B, I), N.load(A, I)), I), kind), FED)
    assert np.array_equal(done["B"], FED["A"])


def test_each_thread_has_what_it_allocates() -> None:
    own = N.buffer("C", (1,))
    body = N.sequence(N.allocate(own), N.store(own, N.load(A, I), ZERO), N.store(B, N.load(own, ZERO), I))
    assert np.array_equal(run(loop(body, N.PARALLEL), FED)["B"], FED["A"])


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(Unknown, match="q_multiply_shift"):
        run(loop(N.evaluate(N.call("tirx.q_multiply_shift", "int32", I, I, I, I))), FED)


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("This pass must be called after MakePackedAPI", "unsupported"),
        ("Check failed: (pb->value != 0) is false: Divide by zero", "unsupported"),
        ("Check failed: lanes > 1 (1 vs. 1) : ", "error"),
    ],
)
def test_what_a_pass_wants_of_a_function_is_no_error(message: str, meaning: str) -> None:
    with pytest.raises((RuntimeError, PassPrecondition), match=re.escape(message)) as seen, preconditions():
        raise RuntimeError(message)
    kind = f"tvm.{type(seen.value).__name__}"
    assert plugin("tvm").backend.classify("compile", kind, str(seen.value)) == meaning


@TVM
def test_tvm_and_the_step_by_step_run_agree_with_passes_and_without(workers: Workers) -> None:
    fed = [values(item, 3) for item in basic()]
    programs = [
        program(item, ("tirx.UnrollLoop", "s_tir.LoopPartition", "tirx.StmtSimplify")) for item in basic()
    ]
    for target in ("tvm", "tvm:opt=0,target=llvm-O0"):
        tests = [Test(item, inputs) for item, inputs in zip(programs, fed, strict=True)]
        for item, inputs, seen in zip(
            programs, fed, workers.observe_many(resolve(target), tests), strict=True
        ):
            assert seen.outcome == "ok", seen.message
            wanted = run(item.entry, inputs)
            assert all(np.allclose(seen.outputs[name], value, rtol=1e-4) for name, value in wanted.items())  # type: ignore[index]


@TVM
def test_a_function_without_a_meaning_is_invalid_whatever_tvm_makes_of_it(workers: Workers) -> None:
    made = program(loop(N.store(B, N.load(A, N.binary("Add", I, N.integer(1))), I)))
    found = judge_program(made, FED, resolve("tvm"), ObservationCache(workers)).verdict
    assert found.verdict in ("invalid", "pass"), found.reason


def test_a_function_tells_the_time_of_many_calls_of_it_alone(workers: Workers) -> None:
    """Feeding it takes longer than it runs: what is told is its own time, and the same for wall and CPU."""
    made = program(loop(N.store(B, N.real(1.0), I)))
    seen = workers.observe(resolve("tvm"), made, values(made.entry, 1), repeat=1)
    assert seen.outcome == "ok"
    assert 0 < seen.seconds["run"] == seen.cpu_seconds
