"""`opsieve.given_models`: generated models for a test of somebody's own compiler, and the small one that fails."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from onnx.reference import ReferenceEvaluator

import opsieve
from opsieve.backends.registry import resolve
from opsieve.gen.case.case import Case
from opsieve.tui import given_models

OPERATORS = ["Relu", "Exp", "Clip", "Tanh", "Add", "Neg", "Mul"]
OPTIONS: dict[str, Any] = {"operators": OPERATORS, "dtypes": ["float32"], "nodes": 8, "examples": 20}


def compute(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """A compiler of somebody's own."""
    names = [output.name for output in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(None, inputs), strict=True))


def test_a_failing_model_is_reduced_and_named(tmp_path: Path) -> None:
    sizes = []

    @opsieve.given_models(output=tmp_path / "small", **OPTIONS)
    def check(model: Any, inputs: Any) -> None:
        compute(model, inputs)
        kinds = [node.op_type for node in model.graph.node]
        sizes.append(len(kinds))
        assert not {"Clip", "Tanh"} <= set(kinds), "mine is wrong"

    with pytest.raises(AssertionError, match="mine is wrong") as found:
        check()
    assert sizes[-1] == 2
    assert found.value.__context__ is None
    assert str(tmp_path / "small") in found.value.__notes__[0]
    assert "reduced from" in found.value.__notes__[0]
    assert sorted(opsieve.open_case(tmp_path / "small").program.operators()) == ["Clip", "Tanh"]


@pytest.mark.slow
def test_another_exception_is_another_failure(tmp_path: Path) -> None:
    @opsieve.given_models(output=tmp_path / "small", **OPTIONS)
    def check(case: Case) -> None:
        kinds = case.program.operators()
        if len(kinds) < 3:
            raise ValueError("too small")
        assert "Tanh" not in kinds

    with pytest.raises(AssertionError):
        check()
    assert len(opsieve.open_case(tmp_path / "small").program.operators()) == 3


def test_the_reference_says_what_to_expect() -> None:
    seen = []

    @opsieve.given_models(**OPTIONS)
    def check(model: Any, inputs: Any, expected: Any, tmp_path: Path) -> None:
        seen.append(opsieve.compare(compute(model, inputs), expected).agrees)

    # The parameters that are left are fixtures
    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    check(tmp_path=Path())
    assert len(seen) > 10
    assert all(seen)


def test_a_model_that_the_compiler_does_not_support_is_passed_over() -> None:
    met = []

    @opsieve.given_models(unsupported=NotImplementedError, **OPTIONS)
    def check(case: Case) -> None:
        met.append(case)
        if "Tanh" in case.program.operators():
            raise NotImplementedError

    check()
    assert len(met) == 20

    @opsieve.given_models(unsupported=NotImplementedError, **OPTIONS)
    def refuse(case: Case) -> None:
        raise NotImplementedError

    with pytest.raises(AssertionError, match="ran on none of 20 models: the compiler supports none"):
        refuse()


def test_a_test_that_never_ran_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without expected outputs there is nothing to call it with."""
    monkeypatch.setattr(given_models, "FLOAT64", resolve("fake:unsupported"))

    @opsieve.given_models(**OPTIONS)
    def check(expected: dict[str, Any]) -> None:
        raise AssertionError("it was called")

    with pytest.raises(AssertionError, match="or the reference computes none"):
        check()


@pytest.mark.slow
def test_a_failure_that_comes_once_is_not_reduced() -> None:
    met = []

    @opsieve.given_models(**OPTIONS)
    def check(case: Case) -> None:
        met.append(case)
        assert len(met) > 1

    with pytest.raises(AssertionError) as found:
        check()
    assert "does not always fail" in found.value.__notes__[0]


def test_bad_options_are_refused_where_the_test_is_defined() -> None:
    for options in ({"nodes": "x"}, {"operators": ["Nope"]}, {"dtypes": ["float3"]}, {"strategy": "nope"}):
        with pytest.raises(opsieve.BadInput):
            opsieve.given_models(**options)  # type: ignore[arg-type]
    with pytest.raises(opsieve.BadInput, match="takes one of model"):
        opsieve.given_models()(lambda program: None)


@settings(max_examples=5, deadline=None)
@example(given_models._make_generator(4, ["Relu", "Exp"], (), "mix", "ranged")(18186))
@example(given_models._make_generator(4, ["Relu", "Exp"], (), "mix", "ranged")(268034))
@given(opsieve.models(nodes=4, operators=["Relu", "Exp"]))
def test_hypothesis_draws_models(case: Case) -> None:
    functions = {function.name for function in case.program.proto.functions}
    # A constant is data, and may be written as a node.
    assert {*case.program.operators()} - functions <= {"Relu", "Exp", "Constant"}
    assert case.inputs
