"""Inference of declarations from what is accepted and refused: against rules that the test knows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands import opsieve as run

from opsieve.backends.probing.domain_schemas import DomainSchema, SchemaSlot, schemas_of
from opsieve.backends.probing.learning import learn
from opsieve.backends.probing.trials import Trial, TrialAnswer
from opsieve.gen.spec.learned import read_learned

Rule = Callable[[Trial], tuple[tuple[str, tuple[int, ...]], ...] | None]
T = ("float16", "float32")


def schema(
    inputs: int, attributes: dict[str, str] | None = None, required: frozenset[str] = frozenset()
) -> DomainSchema:
    slots = tuple(SchemaSlot(f"x{place}", "T", False, False) for place in range(inputs))
    outputs = (SchemaSlot("y", "T", False, False),)
    return DomainSchema("Op", 1, slots, outputs, {"T": T}, attributes or {}, required, {}, True)


def asked(rule: Rule) -> Callable[[DomainSchema, Sequence[Trial]], list[TrialAnswer]]:
    def answer(trial: Trial) -> TrialAnswer:
        found = rule(trial)
        return TrialAnswer(found, "" if found else "refused")

    return lambda _, trials: [answer(trial) for trial in trials]


def product(trial: Trial) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """A product of matrices of one dtype."""
    a, b = trial.inputs
    assert a is not None
    assert b is not None
    fits = len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0] and a.dtype == b.dtype
    return ((a.dtype, (a.shape[0], b.shape[1])),) if fits else None


def test_the_shape_rule_of_a_product_is_found() -> None:
    found = learn(schema(2), "acme", asked(product)).operator
    assert found is not None
    for form in found.forms:
        a, b = form.inputs
        assert a is not None
        assert b is not None
        assert a.sizes[1] == b.sizes[0]
        assert len({a.sizes[0], a.sizes[1], b.sizes[1]}) == 3
        assert form.outputs[0].sizes == (a.sizes[0], b.sizes[1])
    assert {form.outputs[0].dtype for form in found.forms} == set(T)


def halves(trial: Trial) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """The last size is a multiple of the heads, which have to be given."""
    x, heads = trial.inputs[0], trial.attributes.get("heads", 0)
    assert x is not None
    fits = len(x.shape) == 2 and heads > 1 and x.shape[1] % heads == 0
    return ((x.dtype, (x.shape[0], x.shape[1] // heads)),) if fits else None


def test_a_size_that_is_a_multiple_of_an_attribute_is_one() -> None:
    found = learn(schema(1, {"heads": "INT"}, frozenset(("heads",))), "acme", asked(halves)).operator
    assert found is not None
    for form in found.forms:
        x = form.inputs[0]
        assert x is not None
        (heads,) = form.attributes["heads"]
        assert not x.sizes[1].first or x.sizes[1].factor % heads == 0
        assert x.sizes[0].first


def test_what_is_never_accepted_is_told_with_what_was_said() -> None:
    found = learn(schema(2), "acme", asked(lambda _: None))
    assert found.operator is None
    assert "refused" in found.reason


def test_schemas_of_onnx_and_of_onnxruntime() -> None:
    assert "LabelEncoder" in {each.name for each in schemas_of("ai.onnx.ml")}
    own = {each.name: each for each in schemas_of("com.microsoft")}
    assert own["BiasGelu"].kernel
    assert own["BiasGelu"].types["T"]
    assert own["QLinearAdd"].inputs[2].optional


def test_an_operator_of_onnxruntime_is_learnt_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path))
    file = tmp_path / "contrib.toml"
    for _ in range(2):  # the second time nothing is asked
        code, out, err = run("learn", "com.microsoft", "--ops", "BiasGelu", "-o", str(file), "--json", capsys=capsys)
        assert (code, err) == (0, "")
        facts = json.loads(out)["operators"]["BiasGelu"]
        assert facts["accepted"] >= 0.95 * facts["tried"] > 0
    (learned,) = read_learned(file)
    assert all(
        form.inputs[0] and form.inputs[1] and form.inputs[1].sizes == form.inputs[0].sizes[-1:]
        for form in learned.forms
    )
    assert run("learn", "acme.none", capsys=capsys)[0] == 2
    assert run("learn", "com.microsoft", "--ops", "Nothing", capsys=capsys)[0] == 2
