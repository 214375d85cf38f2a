"""The judge: which verdict, for what reason, and whom it asks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from in_process import InProcessLab, TableLab
from onnx import ModelProto, TensorProto, helper, numpy_helper

from opsieve.backends.compare import Policy
from opsieve.backends.judge.acceptance import find_accepted_forbidden
from opsieve.backends.judge.judge import Judged, judge_program
from opsieve.backends.judge.oracles import DERIVING, EXPECTED, VOUCHED
from opsieve.backends.observation import Hazard, Observation, Outcome
from opsieve.backends.reference.forbidden import ILL_TYPED
from opsieve.backends.reference.reference import REFUSED
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

FAKE, BASE, OTHER = "fake", "fake:level=off", "openvino"
REF, NATIVE = "reference:precision=float64", "reference"


def program(nodes: list[Any] | None = None, dtype: int = TensorProto.FLOAT, **weights: Any) -> Program:
    graph = helper.make_graph(
        nodes or [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", dtype, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return OnnxProgram(model.SerializeToString())


def gives(
    *values: float, hazards: tuple[Hazard, ...] = (), kind: Any = np.float32, **more: Any
) -> Observation:
    return Observation("", "1", "ok", "run", {"y": np.array(values, kind)}, hazards=hazards, **more)


def truth(*values: float, hazards: tuple[Hazard, ...] = ()) -> Observation:
    return gives(*values, hazards=hazards, kind=np.float64)


def ends(outcome: Outcome, message: str = "it broke", **more: Any) -> Observation:
    return Observation("", "1", outcome, message=message, **more)


def judged(
    answers: dict[str, Observation | Callable[[int], Observation]], **options: Any
) -> tuple[Judged, TableLab]:
    lab = TableLab(answers)
    return judge_program(program(), {"x": np.float32([1])}, resolve(FAKE), lab, **options), lab


# -- a target whose result another compiler runs

HOSTED, HOST = "onnxsim", "onnxruntime:level=disable_all"


def hosted(
    answers: dict[str, Observation | Callable[[int], Observation]], **options: Any
) -> tuple[Judged, TableLab]:
    lab = TableLab(answers)
    oracles = [resolve(HOST), resolve(OTHER)]
    return judge_program(
        program(), {"x": np.float32([1])}, resolve(HOSTED), lab, oracles=oracles, **options
    ), lab


def test_what_the_host_gets_wrong_on_the_original_too_is_no_fault_of_the_transformer() -> None:
    answers = {
        HOSTED: gives(1, 3),
        REF: truth(1, 2),
        NATIVE: gives(1, 2),
        HOST: gives(1, 3),
        OTHER: gives(1, 2),
    }
    verdict = hosted(dict(answers))[0].verdict
    assert (verdict.verdict, verdict.kind) == ("undecided", "mismatch")
    assert "onnxruntime:disable_all, which runs the output of onnxsim" in verdict.reason
    vouched = hosted(dict(answers), expected={"y": np.float32([1, 2])})[0].verdict
    assert vouched.verdict == "undecided"
    without_reference = {HOSTED: gives(1, 3), HOST: gives(1, 3)}
    assert (
        hosted(dict(without_reference), expected={"y": np.float32([1, 2])})[0].verdict.verdict == "undecided"
    )
    # The host on the original: right, wrong in another way, none.
    for right in (gives(1, 2), gives(1, 4), ends("error")):
        assert hosted({**answers, HOST: right})[0].verdict.verdict == "fail"


def test_an_output_that_the_host_gets_wrong_too_hides_no_other() -> None:
    def both(y: float, z: float, kind: Any = np.float32) -> Observation:
        return Observation("", "1", "ok", "run", {"y": np.array([y], kind), "z": np.array([z], kind)})

    graph = program(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    ).proto
    graph.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    lab = TableLab(
        {
            HOSTED: both(90, 3),
            HOST: both(90, 2),
            OTHER: both(1, 2),
            REF: both(1, 2, np.float64),
            NATIVE: both(1, 2),
        }
    )
    two = OnnxProgram(graph.SerializeToString())
    verdict = judge_program(
        two, {"x": np.float32([1])}, resolve(HOSTED), lab, oracles=[resolve(HOST), resolve(OTHER)]
    ).verdict
    assert verdict.verdict == "fail"
    assert verdict.mismatch is not None
    assert verdict.mismatch.output == "z"  # y is further off, and the host's fault


@pytest.mark.parametrize("outcome", ["crash", "hang", "out-of-memory"])
def test_a_host_that_dies_of_the_original_too_is_to_blame(outcome: Outcome) -> None:
    answers = {HOSTED: ends(outcome), REF: truth(1, 2), NATIVE: gives(1, 2), OTHER: gives(1, 2)}
    assert hosted({**answers, HOST: ends(outcome)})[0].verdict.verdict == "undecided"
    assert hosted({**answers, HOST: gives(1, 2)})[0].verdict.verdict == "fail"


# -- agreement is cheap


def test_agreement_with_the_reference_asks_nobody_else() -> None:
    result, lab = judged({FAKE: gives(1, 2), REF: truth(1, 2)})
    assert result.verdict.verdict == "pass"
    assert lab.asked == [FAKE, REF]
    assert len(result.observations) == 2


@pytest.mark.parametrize("expected", [None, {"y": np.float32([1])}])
def test_a_target_that_only_accepts_programs_owes_no_outputs(expected: Any) -> None:
    lab = TableLab({"checker": Observation("", "1", "ok", "run", {}), REF: truth(1)})
    found = judge_program(program(), {"x": np.float32([1])}, resolve("checker"), lab, expected=expected)
    assert (found.verdict.verdict, found.verdict.reason) == (
        "pass",
        "checker accepts the program; it computes nothing",
    )


def test_a_target_that_only_accepts_programs_is_no_oracle() -> None:
    answers = {FAKE: ends("error"), REF: ends("error"), NATIVE: ends("error"), BASE: ends("error")}
    answers["checker"] = Observation("", "1", "ok", "run", {})
    found = judged(answers, oracles=[resolve("checker"), resolve(BASE)])[0]
    assert found.verdict.verdict != "fail"


def test_the_oracle_itself_is_not_judged() -> None:
    found = judge_program(program(), {"x": np.float32([1])}, resolve(REF), TableLab({REF: truth(1)}))
    assert found.verdict.verdict == "undecided"


def test_agreement_with_expected_outputs_asks_nobody() -> None:
    result, lab = judged({FAKE: gives(1, 2)}, expected={"y": np.float32([1, 2])})
    assert (result.verdict.verdict, lab.asked) == ("pass", [FAKE])
    assert result.verdict.oracles == (EXPECTED,)


# -- a mismatch


def test_the_optimiser_is_blamed_when_the_unoptimised_build_is_right() -> None:
    result, lab = judged({FAKE: gives(1, 3), REF: truth(1, 2), NATIVE: gives(1, 2), BASE: gives(1, 2)})
    verdict = result.verdict
    assert (verdict.verdict, verdict.kind, verdict.blame) == ("fail", "mismatch", "optimiser")
    assert verdict.mismatch is not None
    assert verdict.mismatch.index == (1,)
    assert f"{FAKE} fresh" in lab.asked
    assert set(verdict.oracles) == {"reference:float64", "reference", BASE}
    assert "got 3, expected 2" in verdict.reason


def test_without_a_second_opinion_nobody_is_blamed() -> None:
    answers = {FAKE: gives(1, 3), REF: truth(1, 2), NATIVE: gives(1, 2), BASE: gives(1, 3)}
    assert judged(dict(answers))[0].verdict.verdict == "undecided"
    with_other, _ = judged({**answers, OTHER: gives(1, 2)}, oracles=[resolve(OTHER)])
    assert (with_other.verdict.verdict, with_other.verdict.blame) == ("fail", "compiler")
    with_expected, _ = judged(dict(answers), expected={"y": np.float32([1, 2])})
    assert (with_expected.verdict.verdict, with_expected.verdict.blame) == ("fail", "compiler")
    assert EXPECTED in with_expected.verdict.reason
    assert with_expected.verdict.rules == (VOUCHED,), "a part of the program has no such outputs"
    assert with_other.verdict.rules == ()


def test_other_outputs_for_the_same_inputs_are_nondeterminism() -> None:
    answers = {
        FAKE: lambda turn: gives(1, 3 + turn),
        REF: truth(1, 2),
        NATIVE: gives(1, 2),
        BASE: gives(1, 2),
    }
    assert judged(answers)[0].verdict.kind == "nondeterminism"
    later = {**answers, FAKE: lambda turn: ends("crash") if turn else gives(1, 3)}
    result = judged(later)[0]
    ended = result.verdict
    assert (ended.verdict, ended.kind) == ("flaky", "crash"), "replays show a crash that comes and goes"
    assert result.observations[0].outcome == "crash", "the run that shows the failure comes first"


def test_a_hazard_that_reaches_the_output_makes_it_invalid_and_is_named() -> None:
    hazard = Hazard("cast-of-nan", "c", "Cast", ("y",))
    result, lab = judged({FAKE: gives(1, 3), REF: truth(1, 2, hazards=(hazard,))})
    assert (result.verdict.verdict, result.verdict.rules) == ("invalid", ("cast-of-nan",))
    assert lab.asked == [FAKE, REF]
    elsewhere = replace(hazard, outputs=("z",))
    assert (
        judged({FAKE: gives(1, 3), REF: truth(1, 2, hazards=(elsewhere,)), BASE: gives(1, 2)})[
            0
        ].verdict.verdict
        == "fail"
    )


def test_a_random_operator_is_no_nondeterminism() -> None:
    hazard = Hazard("random-operator", "r", "RandomNormal", ("y",))
    result, _ = judged({FAKE: lambda turn: gives(turn, 3), REF: truth(1, 2, hazards=(hazard,))})
    assert (result.verdict.verdict, result.verdict.rules) == ("invalid", ("random-operator",))


def test_a_hazard_of_the_native_run_counts_too() -> None:
    native = gives(1, 9, hazards=(Hazard("nan-input", "r", "Relu", ("y",)),))
    result, _ = judged({FAKE: gives(1, 3), REF: truth(1, 2), NATIVE: native, BASE: gives(1, 2)})
    assert (result.verdict.verdict, result.verdict.rules) == ("invalid", ("nan-input",))


def test_what_native_precision_gets_as_wrong_is_the_program_s_own_doing() -> None:
    answers = {FAKE: gives(1, 2.01), REF: truth(1, 2), NATIVE: gives(1, 2.002), BASE: gives(1, 2)}
    result, _ = judged(dict(answers))
    assert (result.verdict.verdict, result.verdict.rules) == ("pass", ("peers-share-the-error",))
    assert judged({**answers, NATIVE: gives(1, 2.0005)})[0].verdict.verdict == "fail"


def test_a_remainder_beside_zero_excuses_no_wrong_result() -> None:
    answers = {FAKE: gives(0.3, 0), REF: truth(0, 0), NATIVE: gives(6e-8, 0), BASE: gives(0, 0)}
    assert judged(dict(answers))[0].verdict.verdict == "fail"
    assert judged({**answers, FAKE: gives(3e-7, 0)})[0].verdict.rules == ("peers-share-the-error",)


def test_an_unoptimised_build_with_the_same_fault_excuses_nothing() -> None:
    result, _ = judged({FAKE: gives(1, 3), REF: truth(1, 2), NATIVE: gives(1, 2), BASE: gives(1, 3)})
    assert "peers-share-the-error" not in result.verdict.rules


def test_a_wrong_shape_is_never_rounding() -> None:
    result, _ = judged({FAKE: gives(1, 2, 3), REF: truth(1, 2), NATIVE: gives(1, 2, 3), BASE: gives(1, 2)})
    assert (result.verdict.verdict, result.verdict.mismatch.what) == ("fail", "shape")  # type: ignore[union-attr]


def test_long_sums_widen_the_screen_of_float16() -> None:
    long = Hazard("accumulation:16384", "m", "MatMul", ("y",))
    half = program(dtype=TensorProto.FLOAT16)
    answers = {
        FAKE: gives(1, 1.03, kind=np.float16),
        REF: truth(1, 1),
        NATIVE: gives(1, 1, kind=np.float16),
        BASE: ends("error"),
    }

    def verdict(reference: Observation) -> str:
        lab = TableLab({**answers, REF: reference})
        return judge_program(half, {"x": np.float32([1])}, resolve(FAKE), lab).verdict.verdict

    assert verdict(truth(1, 1, hazards=(long,))) == "pass"
    assert verdict(truth(1, 1)) == "undecided"


def test_a_stated_tolerance_is_the_user_s_word() -> None:
    answers = {FAKE: gives(540, 3e-4), REF: truth(540, 0), NATIVE: gives(540, 1e-6), BASE: gives(540, 3e-4)}
    assert judged(dict(answers))[0].verdict.verdict == "pass"
    strict, _ = judged(
        dict(answers), expected={"y": np.float32([540, 0])}, policy=Policy(tolerance=(1e-3, 1e-4))
    )
    assert (strict.verdict.verdict, strict.verdict.kind) == ("fail", "mismatch")


# -- expected outputs against the reference


def test_expected_outputs_that_nobody_else_gives_are_doubted() -> None:
    answers = {FAKE: gives(1, 2), REF: truth(1, 2), BASE: gives(1, 2)}
    result, _ = judged(dict(answers), expected={"y": np.float32([1, 3])})
    assert result.verdict.verdict == "undecided"
    assert "differs from the expected outputs" in result.verdict.reason


def test_without_a_reference_expected_outputs_are_the_truth_unless_contradicted() -> None:
    answers = {FAKE: gives(1, 3), REF: ends("unsupported"), NATIVE: ends("unsupported"), BASE: gives(1, 2)}
    expected = {"y": np.float32([1, 2])}
    result, _ = judged(dict(answers), expected=expected)
    assert (result.verdict.verdict, result.verdict.blame) == ("fail", "optimiser")
    kernel, _ = judged({**answers, BASE: gives(1, 3)}, expected=expected)
    assert (kernel.verdict.verdict, kernel.verdict.blame) == ("fail", "compiler")
    contradicted, _ = judged({**answers, OTHER: gives(1, 3)}, expected=expected, oracles=[resolve(OTHER)])
    assert contradicted.verdict.verdict == "undecided"


def test_without_a_reference_two_builds_that_differ_are_a_failure_of_the_compiler() -> None:
    answers = {FAKE: gives(1, 3), REF: ends("unsupported"), NATIVE: ends("error"), BASE: gives(1, 2)}
    apart = judged(dict(answers))[0].verdict
    assert (apart.verdict, apart.kind, apart.blame, apart.rules) == (
        "fail",
        "mismatch",
        "",
        ("levels-disagree",),
    )
    unsteady = {**answers, BASE: lambda time: gives(1, 2 + time)}
    assert judged(unsteady)[0].verdict.verdict == "undecided"
    # five times the screen can be rounding that the program magnifies, and nobody measures that
    assert judged({**answers, FAKE: gives(1, 2.001)})[0].verdict.verdict == "undecided"
    drawn = program([helper.make_node("RandomUniformLike", ["x"], ["y"])])
    found = judge_program(drawn, {"x": np.float32([1])}, resolve(FAKE), TableLab(dict(answers)))
    assert found.verdict.verdict == "undecided"
    assert judged({**answers, BASE: ends("error")})[0].verdict.verdict == "undecided"


def test_outputs_of_another_type_than_the_program_has_contradict_nothing() -> None:
    """Another compiler that gives a shape which inference excludes is at fault itself."""
    answers = {FAKE: gives(1, 3), REF: ends("unsupported"), NATIVE: ends("unsupported"), BASE: gives(1, 3)}
    derived = helper.make_tensor_type_proto(TensorProto.FLOAT, [2]).SerializeToString()
    types = Observation(DERIVING.display, "1", "ok", outputs={"y": np.frombuffer(derived, np.uint8)})
    answers = {**answers, OTHER: gives(1, 3, 5), DERIVING.display: types}
    found = judged(answers, oracles=[resolve(OTHER)])[0].verdict
    assert found.verdict == "undecided"
    assert found.mismatch is None


def test_without_a_reference_builds_of_one_compiler_are_no_witnesses_of_each_other() -> None:
    answers = {FAKE: gives(1, 3), REF: ends("unsupported"), NATIVE: ends("unsupported"), BASE: gives(1, 3)}
    alone = judged(dict(answers), oracles=[resolve(BASE), resolve(OTHER)])[0].verdict
    assert alone.verdict == "undecided"
    assert "reference:float64 (unsupported)" in alone.reason
    assert "openvino (unsupported)" in alone.reason
    confirmed, lab = judged({**answers, OTHER: gives(1, 3)}, oracles=[resolve(BASE), resolve(OTHER)])
    assert (confirmed.verdict.verdict, BASE in lab.asked) == ("pass", False)
    contradicted = judged({**answers, OTHER: gives(1, 2)}, oracles=[resolve(BASE), resolve(OTHER)])[0].verdict
    assert (contradicted.verdict, "openvino differs" in contradicted.reason) == ("undecided", True)
    vouched = judged({**answers}, oracles=[resolve(BASE)], expected={"y": np.float32([1, 2])})[0].verdict
    assert vouched.verdict == "fail"


def test_a_refusal_of_the_unoptimised_build_makes_no_program_invalid() -> None:
    answers = {FAKE: ends("error"), BASE: ends("error"), NATIVE: ends("unsupported")}
    alone = judged(dict(answers), oracles=[resolve(BASE), resolve(OTHER)])[0].verdict
    assert alone.verdict == "undecided"
    assert f"{BASE} (error)" in alone.reason
    assert judged({**answers, NATIVE: gives(1)}, oracles=[resolve(BASE)])[0].verdict.verdict == "fail"
    both = judged({**answers, OTHER: ends("error")}, oracles=[resolve(BASE), resolve(OTHER)])[0].verdict
    assert (both.verdict, "openvino (error)" in both.reason) == ("invalid", True)


def test_native_precision_arbitrates_where_float64_cannot() -> None:
    answers = {FAKE: gives(1, 3), REF: ends("unsupported"), NATIVE: gives(1, 2), BASE: gives(1, 2)}
    assert judged(dict(answers))[0].verdict.blame == "optimiser"


# -- it ended badly


def test_what_could_not_be_asked_is_no_failure() -> None:
    result, lab = judged({FAKE: ends("environment")})
    assert (result.verdict.verdict, lab.asked) == ("environment", [FAKE])


# -- a lack: of the compiler, or of its optimiser's own making


def test_what_the_unoptimised_build_lacks_too_is_unsupported() -> None:
    result, lab = judged({FAKE: ends("unsupported"), BASE: ends("unsupported")})
    assert (result.verdict.verdict, lab.asked) == ("unsupported", [FAKE, f"{FAKE} fresh", BASE])


def test_a_lack_that_the_optimiser_made_is_its_error() -> None:
    result, _ = judged({FAKE: ends("unsupported"), BASE: gives(1, 2), NATIVE: gives(1, 2)})
    assert (result.verdict.verdict, result.verdict.kind, result.verdict.blame) == (
        "fail",
        "error",
        "optimiser",
    )


class Whole(TableLab):
    """A compiler without an unoptimised build that takes programs of few nodes only."""

    def __init__(self, most: int, missing: str = "") -> None:
        super().__init__({})
        self.most, self.missing = most, missing

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        if target.name == "reference":
            return InProcessLab().observe(target, program, inputs, fresh=fresh)
        self.asked.append(program.name)
        operators = [node.op_type for node in program.proto.graph.node]
        if len(operators) > self.most or self.missing in operators:
            return ends("unsupported", "Check 'false' failed: it is not supported (Exp)")
        return gives(1)


def chain() -> Program:
    return program([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])])


def test_a_program_whose_operators_are_taken_one_by_one_is_refused_by_mistake() -> None:
    verdict = judge_program(chain(), {"x": np.float32([1])}, resolve("openvino"), Whole(1)).verdict
    assert (verdict.verdict, verdict.kind, verdict.blame) == ("fail", "error", "compiler")
    lab = Whole(1, "Exp")
    verdict = judge_program(chain(), {"x": np.float32([1])}, resolve("openvino"), lab).verdict
    assert verdict.verdict == "unsupported"
    # the operator that the message names is asked first, and settles it
    assert lab.asked[2:] == ["Exp by itself"]


def test_an_error_over_a_type_that_is_refused_everywhere_is_a_lack() -> None:
    wide = program(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["x"], ["y"])],
        c=np.uint16([1]),
    )
    answers = {FAKE: ends("error", "no supported data type: 4"), NATIVE: gives(1), BASE: gives(1)}
    verdict = judge_program(wide, {"x": np.float32([1])}, resolve(FAKE), TableLab(answers)).verdict
    assert verdict.verdict == "unsupported"
    assert "uint16" in verdict.reason
    plain = program(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["x"], ["y"])],
        c=np.int64([1]),
    )
    assert (
        judge_program(plain, {"x": np.float32([1])}, resolve(FAKE), TableLab(answers)).verdict.verdict
        == "fail"
    )


# -- it ended badly


def test_a_crash_is_confirmed_in_a_fresh_process() -> None:
    result, lab = judged({FAKE: ends("crash", signal=11)})
    assert (result.verdict.verdict, result.verdict.kind) == ("fail", "crash")
    assert lab.asked == [FAKE, f"{FAKE} fresh"]
    assert "signal 11" in result.verdict.reason


def test_what_is_not_confirmed_is_flaky_and_says_how_often() -> None:
    result, _ = judged({FAKE: lambda turn: gives(1) if turn else ends("crash")})
    assert (result.verdict.verdict, result.verdict.kind) == ("flaky", "crash")
    assert "1 of 4" in result.verdict.reason


@pytest.mark.parametrize(("outcome", "kind"), [("hang", "hang"), ("out-of-memory", "memory")])
def test_time_and_memory_count_only_when_others_need_less(outcome: Outcome, kind: str) -> None:
    fails, _ = judged({FAKE: ends(outcome), BASE: gives(1)})
    assert (fails.verdict.verdict, fails.verdict.kind, fails.verdict.blame) == ("fail", kind, "optimiser")
    shared, _ = judged({FAKE: ends(outcome), BASE: ends(outcome), NATIVE: ends(outcome)})
    assert shared.verdict.verdict == "undecided"


def test_an_error_is_a_failure_when_somebody_accepts_the_program() -> None:
    by_base, _ = judged({FAKE: ends("error"), NATIVE: ends("unsupported"), BASE: gives(1)})
    assert (by_base.verdict.verdict, by_base.verdict.kind, by_base.verdict.blame) == (
        "fail",
        "error",
        "optimiser",
    )
    by_reference, _ = judged({FAKE: ends("error"), NATIVE: gives(1), BASE: ends("error")})
    assert (by_reference.verdict.verdict, by_reference.verdict.blame) == ("fail", "compiler")
    by_user, _ = judged({FAKE: ends("rejected"), BASE: ends("rejected")}, expected={"y": np.float32([1])})
    assert by_user.verdict.verdict == "fail"


def test_who_refuses_for_the_reason_of_the_reference_is_right() -> None:
    index = "indices element out of data bounds, idx=5 must be within the inclusive range [-3,2]"
    refused = ends("rejected", "index 5 is out of bounds for axis 0 with size 3", exception="IndexError")
    accepts = {FAKE: ends("error", index), NATIVE: refused, BASE: ends("error", index), OTHER: gives(1)}
    assert judged(accepts, oracles=[resolve(OTHER)])[0].verdict.verdict == "invalid"
    other_reason = {**accepts, NATIVE: ends("error", "operands could not be broadcast together")}
    assert judged(other_reason, oracles=[resolve(OTHER)])[0].verdict.verdict == "fail"
    vouched = judged(accepts, expected={"y": np.float32([1])})[0].verdict
    assert vouched.verdict == "fail"


def test_who_accepts_what_the_reference_rejects_is_reported_on_request() -> None:
    answers = {OTHER: gives(1), NATIVE: ends("rejected", "index 5 is out of bounds")}
    found = find_accepted_forbidden(
        program(), {"x": np.float32([1])}, resolve(OTHER), TableLab(dict(answers))
    )
    assert found is not None
    assert (found.verdict, found.kind) == ("fail", "accepts-invalid")
    for otherwise in ({OTHER: ends("error")}, {NATIVE: ends("error")}, {NATIVE: gives(1)}):
        lab = TableLab({**answers, **otherwise})
        assert find_accepted_forbidden(program(), {"x": np.float32([1])}, resolve(OTHER), lab) is None
    lab = TableLab({**answers, OTHER: ends("error", "indices element out of data bounds")})
    refused = find_accepted_forbidden(program(), {"x": np.float32([1])}, resolve(OTHER), lab)
    assert refused is not None
    assert refused.verdict == "pass"


def test_what_nobody_accepts_is_invalid_and_what_nobody_knows_undecided() -> None:
    rejected, _ = judged({FAKE: ends("rejected"), NATIVE: ends("rejected"), BASE: ends("rejected")})
    assert rejected.verdict.verdict == "invalid"
    tolerated = gives(1, notes=(REFUSED + "it has a cycle",))
    assert judged({FAKE: ends("rejected"), NATIVE: tolerated})[0].verdict.verdict == "invalid"
    assert judged({FAKE: ends("error"), BASE: ends("error")})[0].verdict.verdict == "undecided"


def test_a_type_that_the_operator_does_not_have_is_refused_by_right_however_lenient_others_are() -> None:
    ill = gives(1, notes=(ILL_TYPED + "Conv of opset 21 takes no tensor(bfloat16) as input 1",))
    answers = {FAKE: ends("error"), BASE: ends("error"), NATIVE: ill, OTHER: gives(1)}
    verdict = judged(dict(answers), oracles=[resolve(OTHER)])[0].verdict
    assert (verdict.verdict, "takes no tensor(bfloat16)" in verdict.reason) == ("invalid", True)
    assert (
        judged({**answers, NATIVE: ends("unsupported")}, oracles=[resolve(OTHER)])[0].verdict.verdict
        == "fail"
    )


def test_an_exception_where_the_result_is_open_is_nobody_s_fault() -> None:
    native = gives(1, hazards=(Hazard("integer-division-by-zero", "d", "Div", ("y",)),))
    result, _ = judged({FAKE: ends("error"), NATIVE: native})
    assert (result.verdict.verdict, result.verdict.rules) == ("invalid", ("integer-division-by-zero",))
    # a NaN that goes into a Relu is no reason to raise
    other = gives(1, hazards=(Hazard("nan-input", "r", "Relu", ("y",)),))
    assert judged({FAKE: ends("error"), NATIVE: other})[0].verdict.verdict == "fail"


# -- real evaluators


class Broken(InProcessLab):
    """onnxruntime whose optimised build is off by something in one output."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.change = change

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        observation = super().observe(target, program, inputs, fresh=fresh)
        if target.name == "onnxruntime" and target.options["level"] != "disable_all" and observation.outputs:
            observation.outputs["y"] = self.change(observation.outputs["y"])
        return observation


def test_real_evaluators_agree_on_a_small_network() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    small = program(nodes, w=np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))
    feeds = {"x": np.ones((2, 4), np.float32)}
    assert judge_program(small, feeds, resolve("onnxruntime"), InProcessLab()).verdict.verdict == "pass"
    verdict = judge_program(
        small, feeds, resolve("onnxruntime"), Broken(lambda y: y * np.float32(1.01))
    ).verdict
    assert (verdict.verdict, verdict.blame) == ("fail", "optimiser")


def test_a_flipped_jump_passes_by_its_rule_on_real_evaluators() -> None:
    # The candidate multiplies a little lower at a boundary of Floor, the peers do not.
    nodes = [helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Floor", ["m"], ["y"])]
    tie = program(nodes, k=np.float32(1.0000001))
    feeds = {"x": np.float32([3.0, 2.9999998])}

    def lower(y: Any) -> Any:
        return y if y.ndim != 1 or y[0] != 3 else np.float32([2, y[1]])

    verdict = judge_program(tie, feeds, resolve("onnxruntime"), Broken(lower)).verdict
    assert (verdict.verdict, verdict.rules) == ("pass", ("jump",))
    verdict = judge_program(tie, feeds, resolve("onnxruntime"), Broken(lambda y: y - 2)).verdict
    assert verdict.verdict == "fail"


CANCELLED = program(
    [
        helper.make_node("Mul", ["x", "k"], ["a"]),
        helper.make_node("Mul", ["k", "x"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ],
    k=np.float32([0.1, 0.7]),
)


def test_a_witness_that_leaves_a_remainder_where_all_cancels_confirms_zeros() -> None:
    class Remainder(Broken):
        """The unoptimised build leaves what rounding may, the optimised one what `change` says."""

        def observe(self, target: ResolvedTarget, *asked: Any, **options: Any) -> Observation:
            observation = super().observe(target, *asked, **options)
            if (
                observation.outputs
                and target.name == "onnxruntime"
                and target.options["level"] == "disable_all"
            ):
                observation.outputs["y"] = np.float32([1e-8, 0])
            return observation

    feeds = {"x": np.float32([0.3, 0.9])}
    for off, wanted in ((0.5, "fail"), (3e-8, "pass")):
        verdict = judge_program(
            CANCELLED, feeds, resolve("onnxruntime"), Remainder(lambda y, off=off: y + np.float32(off))
        ).verdict
        assert verdict.verdict == wanted
