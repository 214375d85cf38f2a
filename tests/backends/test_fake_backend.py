"""The fake backend: true where it has no fault, wrong exactly where its option says.
tests/backends/test_workers.py has the crashes.
"""

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from hypothesis import given, strategies as st
from models import X, program

from opsieve.backends.compilers.fake import KINDS, VALUE_FAULTS, BadFaults, alter_value, parse
from opsieve.backends.observation import Observation, Outcome
from opsieve.backends.registry import resolve
from opsieve.backends.target import Target
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

FORK = program("""g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {
    a = Relu(x)
    b = Tanh(a)
    y = Exp(b)
    z = Neg(a)
}""")
BRANCHES = program("""g (bool c, float[2, 3] x) => (float[2, 3] y) {
    a = Relu(x)
    y = If (c) <
        then_branch = then_graph () => (float[2, 3] t) { t = Tanh(a) },
        else_branch = else_graph () => (float[2, 3] t) { s = Neg(a) t = Abs(s) }
    >
}""")
FUNCTION = OnnxProgram(
    onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
g (float[2, 3] x) => (float[2, 3] y) { y = own.twice(x) }
<domain: "own", opset_import: ["" : 18]>
twice (a) => (c) { b = Relu(a) c = Tanh(b) }""").SerializeToString()
)
NO_NODES = program("g (float[2, 3] x) => (float[2, 3] x) { }")


def see(
    workers: Workers, faults: str, tested: Program = FORK, condition: bool = True, **more: str
) -> Observation:
    """What `tested` shows; inputs that it does not have are not looked at."""
    options = tuple(sorted({"faults": faults, **more}.items()))
    return workers.observe(resolve(Target("fake", options=options)), tested, {**X, "c": np.array(condition)})


def results(seen: Observation) -> dict[str, np.ndarray]:
    assert seen.outputs is not None, f"{seen.outcome}: {seen.message}"
    return seen.outputs


def struck(workers: Workers, pattern: str, tested: Program) -> bool:
    """Whether an error fault of `pattern` happens while `tested` is compiled."""
    seen = see(workers, f"error@{pattern}", tested)
    assert seen.outcome in ("ok", "error"), seen.message
    return seen.outcome == "error"


def test_without_faults_it_computes_truly(workers: Workers) -> None:
    for seen in (see(workers, ""), see(workers, "wrong@Relu+crash", level="off")):
        np.testing.assert_allclose(results(seen)["y"], np.exp(np.tanh(np.maximum(X["x"], 0))), rtol=1e-6)


@pytest.mark.parametrize("pattern", ["Tanh", "Relu>Tanh", "Relu>Tanh>Exp", "Neg&Exp", "Relu>Neg&Tanh", "*"])
def test_a_pattern_matches_where_it_occurs(workers: Workers, pattern: str) -> None:
    assert struck(workers, pattern, FORK)


@pytest.mark.parametrize(
    "pattern", ["Sigmoid", "Tanh>Relu", "Relu>Exp", "Neg>Tanh>Exp", "Neg&Sigmoid", "Relu>Tanh>Neg"]
)
def test_a_pattern_does_not_match_elsewhere(workers: Workers, pattern: str) -> None:
    assert not struck(workers, pattern, FORK)


def test_a_pattern_matches_in_bodies_and_functions(workers: Workers) -> None:
    assert struck(workers, "Neg>Abs", BRANCHES)
    assert struck(workers, "Relu>Tanh", BRANCHES), "a body reads the value of a node outside"
    assert not struck(workers, "Tanh>Abs", BRANCHES)
    assert struck(workers, "Relu>Tanh", FUNCTION)


def test_any_program_means_one_without_nodes_too(workers: Workers) -> None:
    assert struck(workers, "*", NO_NODES)
    assert np.all(results(see(workers, "nan", NO_NODES))["x"] != X["x"])


def test_only_what_is_downstream_of_a_wrong_node_is_wrong(workers: Workers) -> None:
    true, seen = results(see(workers, "")), results(see(workers, "wrong@Relu>Tanh"))
    assert np.all(true["y"] != seen["y"])
    np.testing.assert_array_equal(true["z"], seen["z"])


def test_branches_with_the_same_names_are_told_apart(workers: Workers) -> None:
    for condition, wrong in ((True, False), (False, True)):
        true, seen = (results(see(workers, faults, BRANCHES, condition)) for faults in ("", "wrong@Neg>Abs"))
        assert (not np.array_equal(true["y"], seen["y"])) == wrong


def test_value_faults(workers: Workers) -> None:
    assert np.isnan(results(see(workers, "nan@Exp"))["y"]).all()
    assert results(see(workers, "shape@Exp"))["y"].shape == (1, 2, 3)
    assert results(see(workers, "dtype@Exp"))["y"].dtype == np.float64
    assert np.isnan(results(see(workers, "wrong@Neg+nan@Neg"))["z"]).all(), "two faults behind one node"


def test_an_error_names_the_place_the_operators_and_the_node(workers: Workers) -> None:
    seen, other = see(workers, "error@Relu>Tanh"), see(workers, "error@Relu>Neg/run")
    assert (seen.outcome, seen.stage) == ("error", "compile")
    assert (other.outcome, other.stage) == ("error", "run")
    assert seen.message.startswith("fake/fusion.cc:")
    assert "fuse Relu_Tanh: node 'b' cannot be merged into 'a'" in seen.message
    assert "fuse Relu_Neg: node 'z'" in other.message, (
        "the name is the model's own, not that of the planted node"
    )
    assert seen.message.split()[0] != see(workers, "error@Tanh").message.split()[0], (
        "one place for each fault"
    )


def test_what_it_refuses_is_not_an_error(workers: Workers) -> None:
    assert see(workers, "unsupported@Tanh/import").outcome == "unsupported"
    assert see(workers, "unsupported@Tanh/import").stage == "import"
    assert see(workers, "rejected@Tanh").outcome == "rejected"
    assert see(workers, "unsupported@Sigmoid").outcome == "ok"


def test_a_seed_makes_the_draws_of_a_worker_repeat(workers: Workers) -> None:
    def draws(seed: str) -> list[Outcome]:
        # A persistent worker for each target: an unmatched pattern makes a new target without changing what
        # is drawn.
        targets = [
            resolve(Target("fake", options=(("faults", f"error@Tanh%0.5+error@No{run}"), ("seed", seed))))
            for run in "AB"
        ]
        seen = [[workers.observe(target, FORK, X).outcome for _ in range(16)] for target in targets]
        assert seen[0] == seen[1]
        return seen[0]

    assert {*draws("one")} == {"ok", "error"}
    assert draws("one") != draws("two")


@pytest.mark.parametrize(
    "text",
    [
        "explode",
        "wrong/compile",
        "crash/late",
        "error@Relu>",
        "error@&Relu",
        "error%1.2.3",
        "error%",
        "@Relu",
        "wrong@",
    ],
)
def test_bad_faults_are_said(text: str) -> None:
    with pytest.raises(BadFaults):
        parse(text, "")


def test_bad_faults_are_no_failure(workers: Workers) -> None:
    seen = see(workers, "explode")
    assert seen.outcome == "environment"
    assert "'explode' is no fault: write KIND" in seen.message


@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(["", "@*", "@Relu", "@A>B", "@A>B&C"])), max_size=4
    )
)
def test_every_fault_that_can_be_written_is_read(faults: list[tuple[str, str]]) -> None:
    read = parse("+".join(f"{kind}{pattern}%0.25" for kind, pattern in faults), "s")
    assert [fault.kind for fault in read] == [kind for kind, _ in faults]
    assert all(
        fault.probability == 0.25 and fault.stage == ("run" if fault.kind in VALUE_FAULTS else "compile")
        for fault in read
    )


DTYPES = ["bool", "int8", "uint8", "int64", "float16", "float32", "float64", "complex64"]
DTYPES += ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 7), max_size=6))
def test_a_wrong_value_differs_in_every_element_and_in_nothing_else(name: str, values: list[int]) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    array = np.array(values).astype(dtype)
    wrong = alter_value("wrong", array)
    assert (wrong.dtype, wrong.shape) == (array.dtype, array.shape)
    assert np.all(wrong != array)


def test_wrong_strings_sequences_and_absent_values() -> None:
    assert alter_value("wrong", np.array(["a", "b"], dtype=object)).tolist() == ["a?", "b?"]
    assert alter_value("wrong", [np.array([True]), None])[0].tolist() == [False]
    assert alter_value("wrong", None) is None
    assert alter_value("nan", np.array([1])).tolist() == [1]
