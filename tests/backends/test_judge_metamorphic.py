"""A target against itself: what a rewritten program tells of it, and of the program as it is."""

import numpy as np
import pytest
from in_process import TableLab
from onnx import TensorProto, helper

from opsieve.backends.judge.judge import Judged, judge_program
from opsieve.backends.judge.oracles import SECOND_ORACLES
from opsieve.backends.observation import Hazard, Observation, Outcome
from opsieve.backends.registry import resolve
from opsieve.backends.target import BadTarget
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

PLAIN, SELF, BASE = "fake", "fake:rewrite=duplicate", "fake:level=off,rewrite=duplicate"
REF, NATIVE = "reference:precision=float64", "reference"
X = {"x": np.float32([[-1, 0.5, 2]])}


def program(*operators: str) -> OnnxProgram:
    names = ["x", *(f"v{place}" for place in range(1, len(operators))), "y"]
    nodes = [helper.make_node(op, [names[place]], [names[place + 1]]) for place, op in enumerate(operators)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return OnnxProgram(model.SerializeToString())


def gives(*values: float, hazards: tuple[Hazard, ...] = ()) -> Observation:
    return Observation("", "1", "ok", "run", {"y": np.float32(values)}, hazards=hazards)


def ends(outcome: Outcome) -> Observation:
    return Observation("", "1", outcome, message="it broke")


def judged(answers: dict[str, Observation], target: str = SELF) -> Judged:
    return judge_program(program("Relu"), {"x": np.float32([1])}, resolve(target), TableLab({**answers}))


def test_equal_outputs_pass_and_nobody_else_is_asked() -> None:
    lab = TableLab({SELF: gives(1), PLAIN: gives(1)})
    assert judge_program(program("Relu"), X, resolve(SELF), lab).verdict.verdict == "pass"
    assert set(lab.asked) == {SELF, PLAIN}


def test_a_target_that_contradicts_what_it_gave_rightly_is_wrong() -> None:
    found = judged({SELF: gives(2), PLAIN: gives(1), REF: gives(1), NATIVE: gives(1)}).verdict
    assert (found.verdict, found.kind, found.blame) == ("fail", "metamorphic", "compiler")
    assert found.mismatch is not None
    assert "an equivalent program" in found.reason


def test_the_optimiser_is_to_blame_where_the_unoptimised_build_bears_the_rewrite() -> None:
    answers = {SELF: gives(2), PLAIN: gives(1), BASE: gives(1), REF: gives(1), NATIVE: gives(1)}
    assert judged(answers).verdict.blame == "optimiser"


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        # the program itself is judged without a rewrite
        ({SELF: gives(1), PLAIN: gives(2), REF: gives(1)}, "pass"),
        ({SELF: gives(3), PLAIN: gives(2), REF: gives(1), NATIVE: gives(1)}, "undecided"),
        ({SELF: gives(2), PLAIN: gives(1)}, "undecided"),  # no reference
        ({SELF: gives(2), PLAIN: gives(1), NATIVE: ends("rejected")}, "invalid"),
        ({SELF: gives(2), PLAIN: ends("error")}, "undecided"),
        ({SELF: gives(2), PLAIN: gives(1), REF: gives(1, hazards=(Hazard("nan-input", "n", "Relu", ("y",)),))}, "invalid"),
        # rounding is magnified
        ({SELF: gives(1.3), PLAIN: gives(1), REF: gives(1), NATIVE: gives(1.1)}, "pass"),
    ],
)  # fmt: skip
def test_what_is_no_contradiction(answers: dict[str, Observation], verdict: str) -> None:
    assert judged(answers).verdict.verdict == verdict


def test_a_target_that_only_the_reference_accuses_is_asked_about_programs_that_mean_the_same() -> None:
    found = judged({PLAIN: gives(2), SELF: gives(1), REF: gives(1), NATIVE: gives(1)}, PLAIN).verdict
    assert (found.verdict, found.kind, found.rules) == ("fail", "mismatch", ("self-contradiction",))
    assert "fake:rewrite=duplicate" in found.reason
    alone = judged({PLAIN: gives(2), SELF: gives(2), REF: gives(1), NATIVE: gives(1)}, PLAIN).verdict
    assert alone.verdict == "undecided"


@pytest.mark.parametrize(
    ("others", "verdict"), [(("torch", "openvino"), "pass"), (("torch",), "undecided"), ((), "undecided")]
)
def test_a_reference_that_stands_alone_against_three_compilers_is_outvoted(
    others: tuple[str, ...], verdict: str
) -> None:
    answers = {PLAIN: gives(2), REF: gives(1), NATIVE: gives(1), **{other: gives(2) for other in others}}
    lab = TableLab({**answers})
    oracles = [resolve(other) for other in ("torch", "openvino")]
    found = judge_program(
        program("Relu", "Neg"), {"x": np.float32([1])}, resolve(PLAIN), lab, oracles=oracles
    ).verdict
    assert (found.verdict, "reference-outvoted" in found.rules) == (verdict, verdict == "pass")


def test_workers_give_the_compiler_the_rewritten_program(workers: Workers) -> None:
    plain, target = (
        resolve("fake:wrong@Identity>Relu"),
        resolve("fake:wrong@Identity>Relu,rewrite=insert-identities"),
    )
    seen = [workers.observe(each, program("Relu"), X) for each in (plain, target)]
    assert [each.target for each in seen] == [plain.display, target.display]
    right, wrong = (each.outputs for each in seen)
    assert right is not None
    assert wrong is not None
    assert not np.array_equal(right["y"], wrong["y"])
    more = workers.observe(resolve("fake:rewrite=add-outputs"), program("Relu", "Neg"), X)
    assert list(more.outputs or {}) == ["y"]


def test_a_fault_that_a_rewrite_brings_out_is_found(workers: Workers) -> None:
    target = resolve("fake:wrong@Identity>Relu,rewrite=insert-identities")
    found = judge_program(
        program("Relu"), X, target, ObservationCache(workers), oracles=SECOND_ORACLES
    ).verdict
    assert (found.verdict, found.kind, found.blame) == ("fail", "metamorphic", "optimiser")


@pytest.mark.parametrize("name", ["insert-identities", "freeze-inputs", "add-outputs", "reorder"])
def test_a_sound_program_stays_so_on_onnxruntime(workers: Workers, name: str) -> None:
    target = resolve(f"onnxruntime:rewrite={name}")
    found = judge_program(program("Relu", "Sigmoid", "Neg"), X, target, ObservationCache(workers)).verdict
    assert found.verdict == "pass"


def test_the_option_belongs_to_every_backend_and_is_checked() -> None:
    target = resolve("onnxruntime:extended,rewrite=duplicate@3")
    assert (target.rewrite, str(target.unrewritten)) == ("duplicate@3", "onnxruntime:level=extended")
    assert "rewrite" not in target.options
    assert target.baseline == resolve("onnxruntime:disable_all,rewrite=duplicate@3")
    with pytest.raises(BadTarget, match="there is no rewrite"):
        resolve("onnxruntime:rewrite=nothing")
