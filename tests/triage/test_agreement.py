"""Which builds pass a test of a campaign because others give the same: two levels of one compiler are one
witness. And who is asked for that.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from in_process import TableLab
from onnx import TensorProto, helper

from opsieve.backends.observation import Observation, Outcome
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.observe import KNOBS
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.triage.campaign.testing import find_agreeing, run_tests
from opsieve.triage.store.finished_test import Campaign, FinishedTest

ALL, EXTENDED, BASE, TVM = (
    resolve(each) for each in ("onnxruntime", "onnxruntime:extended", "onnxruntime:disable_all", "tvm")
)


def negation(name: str = "g") -> OnnxProgram:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        name,
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    return OnnxProgram(helper.make_model(graph).SerializeToString())


def passed(**values: float) -> set[ResolvedTarget]:
    names = {"full": ALL, "extended": EXTENDED, "base": BASE, "tvm": TVM}
    given: dict[str, Any] = {
        str(names[name]): Observation("", "", "ok", outputs={"y": np.float32([value])})
        for name, value in values.items()
    }
    test = Test(negation(), {"x": np.float32([1])})
    return find_agreeing(test, [names[name] for name in values], TableLab(given))


def test_levels_that_share_a_fault_do_not_pass_each_other() -> None:
    assert passed(full=2, extended=2, base=1) == set()


def test_the_unoptimised_build_and_another_compiler_are_witnesses() -> None:
    assert passed(full=1, extended=2, base=1) == {ALL, BASE}
    assert passed(full=2, base=1, tvm=2) == {ALL, TVM}
    assert passed(full=1, extended=1, base=1) == {ALL, EXTENDED, BASE}


def test_no_build_passes_with_outputs_of_another_type_than_declared() -> None:
    for value in (np.float32([[1]]), np.float32([1, 1]), np.float64([1])):
        given: dict[str, Any] = {
            str(each): Observation("", "", "ok", outputs={"y": value}) for each in (ALL, BASE, TVM)
        }
        assert (
            find_agreeing(Test(negation(), {"x": np.float32([1])}), [ALL, BASE, TVM], TableLab(given))
            == set()
        )


class CountingWorkers(Workers):
    """Answer from a table of one output's values (None: an error), 1 where it says nothing, and count who is
    asked.
    """

    def __init__(self, gives: Mapping[str, float | None]):
        super().__init__()
        self.gives, self.asked = gives, Counter[str]()

    def version(self, target: ResolvedTarget) -> str:
        return f"{target.name} 7"

    def observe_many(
        self, target: ResolvedTarget, tests: Sequence[Test], *, fresh: bool = False, repeat: int = 0
    ) -> Iterator[Observation]:
        given: dict[str, Any] = {"knobs": {**KNOBS, **target.facts.environment}}
        for _ in tests:
            self.asked[target.display] += 1
            value = self.gives.get(target.display, 1.0)
            if value is None:
                given |= {"exception": "E", "message": "no"}
            else:
                given |= {"outputs": {"y": np.float32([value])}}
            outcome: Outcome = "error" if value is None else "ok"
            yield Observation(target.display, self.version(target), outcome, "run", **given)


TRANSFORMERS = ("onnxoptimizer", "onnxsim", "onnxscript", "onnxslim")


def done(
    gives: Mapping[str, float | None], targets: Sequence[str], further: Sequence[str] = ()
) -> tuple[list[FinishedTest], Counter[str]]:
    workers = CountingWorkers(gives)
    cases = {number: Case(negation(f"g{number}"), {"x": np.float32([-1])}) for number in range(3)}
    campaign = Campaign("c", "isra", 1, (*targets, *further))
    asked = dict.fromkeys(cases, further) if further else None
    answered = targets if further else ()
    tests = run_tests(campaign, cases, ObservationCache(workers), asked=asked, answered=answered)
    return tests, workers.asked


def test_transformers_share_one_unoptimised_run_of_a_program() -> None:
    tests, asked = done({}, ["onnxruntime", *TRANSFORMERS])
    assert asked == dict.fromkeys(["onnxruntime", "onnxruntime:disable_all", *TRANSFORMERS], 3)
    assert {verdict for test in tests for verdict, _ in test.answers.values()} == {"pass"}
    _, alone = done({}, ["onnxslim"])  # for one the compiler behind it need not be started
    assert alone == {"onnxslim": 3, "onnxslim:optimise=off": 3}


def test_where_what_they_share_gives_nothing_each_is_asked_itself() -> None:
    _, asked = done({"onnxruntime:disable_all": None}, ["onnxruntime", "onnxslim", "onnxsim"])
    assert asked["onnxslim:optimise=off"] == asked["onnxsim:optimise=off"] == 3


@pytest.mark.parametrize("gives", [{"onnxslim": 2.0, "reference:float64": 1.0}, {"onnxsim": None}])
def test_verdicts_and_what_they_stand_on_are_those_of_builds_that_share_nothing(
    gives: Mapping[str, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tests, _ = done(gives, ["onnxruntime", *TRANSFORMERS])
    monkeypatch.setattr(ResolvedTarget, "stand_in", None)
    alone, asked = done(gives, ["onnxruntime", *TRANSFORMERS])
    assert asked["onnxslim:optimise=off"] == 3
    assert any(test.findings for test in tests)
    assert repr(tests) == repr(alone)


def test_who_has_answered_is_asked_again_only_where_a_further_target_is_in_doubt() -> None:
    tests, asked = done({}, ["onnxruntime"], ["tvm"])
    assert asked == {"tvm": 3, "tvm:opt=0,target=llvm-O0": 3}
    assert [list(test.answers) for test in tests] == [["tvm"]] * 3
    tests, asked = done({"tvm:opt=0,target=llvm-O0": None}, ["onnxruntime"], ["tvm"])
    assert asked["onnxruntime"] == 3
    assert not asked["reference:float64"]
    assert {test.answers["tvm"][0] for test in tests} == {"pass"}
