"""`--values` of run, gen and fuzz: what is chosen, what is told, what is refused."""

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import opsieve
from golden import assert_golden, normalised

from opsieve.gen.case.case import load
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest, to_record
from opsieve.gen.generation.request import from_record
from opsieve.gen.strategies.registry import generate
from opsieve.gen.values.values import KINDS, named_values, special_kinds
from opsieve.triage.campaign.plan import USUAL, CampaignPlan, parse_plan

MODELS = {
    "log": "g (float[4] x) => (float[4] z) { y = Neg(x) w = Log(y) z = Relu(w) }",
    "sound": "g (float[4] x) => (float[4] z) { z = Tanh(x) }",
    "never": "g (float[4] x) => (float[4] z) { y = Sigmoid(x) n = Neg(y) w = Log(n) z = Relu(w) }",
    "fixed": "g (float[4] x) => (float[4] z) <float[4] c = {-1, 1, 1, 1}> { y = Log(c) z = Max(x, y) }",
}


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """A model that is sound for negative inputs, one for any, two for none."""
    for name, body in MODELS.items():
        text = f'<ir_version: 10, opset_import: ["" : 21]>\n{body}'
        (tmp_path / f"{name}.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return [tmp_path / f"{name}.onnx" for name in MODELS]


@pytest.mark.slow
def test_what_run_says_of_a_search(models: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = opsieve("run", *models, "--values", "search", capsys=capsys)
    text = normalised(out + err, MODELS=models[0].parent)
    assert_golden("values.txt", text)
    assert code == 0


def test_inputs_that_are_found_are_saved_with_how(
    models: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "given.npz", x=np.array([1, 2, 3, 4], np.float32))
    options = ("--inputs", tmp_path / "given.npz", "--values", "search", "-t", "fake:wrong@Relu", "--json")
    code, out, _ = opsieve("run", models[0], *options, "--save", tmp_path / "kept", capsys=capsys)
    assert (code, json.loads(out)["results"][0]["inputs"]) == (1, "search: repaired")
    (folder,) = (tmp_path / "kept").iterdir()
    case = load(folder)
    assert case.origin.inputs == "search: repaired"
    assert (case.inputs["x"] < 0).all()
    code, out, _ = opsieve("run", models[1], *options, capsys=capsys)
    assert json.loads(out)["results"][0]["inputs"] == "given.npz, search: given"


@pytest.mark.slow
def test_special_values_are_strewn_by_the_seed(
    models: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = []
    for number, seed in enumerate((5, 5, 6)):
        options = ("--values", "special:inf,zeros", "--seed", str(seed), "-t", "fake:error@Tanh", "--json")
        _, out, _ = opsieve("run", models[1], *options, "--save", tmp_path / str(number), capsys=capsys)
        assert json.loads(out)["results"][0]["inputs"] == "special:zeros,inf"
        (folder,) = (tmp_path / str(number)).iterdir()
        kept.append(load(folder).inputs["x"])
    assert kept[0].tobytes() == kept[1].tobytes() != kept[2].tobytes()
    assert np.isinf(kept[0]).any()
    assert not np.isnan(kept[0]).any()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--values", "huge"), "'huge' is not a choice of values; choose from search, special"),
        (("--values", "ranged"), "'ranged' is not a choice of values; choose from search, special"),
        (("--values", "special:"), "there are no special values ''"),
        (("--values", "search", "--expected", "x.npz"), "pass either --expected or --values"),
    ],
)
def test_run_refuses_in_one_sentence(
    arguments: tuple[str, ...], sentence: str, models: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = opsieve("run", models[0], *arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_generated_programs_get_values_by_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--strategy", "isra", "--dtypes", "float32", "--values", "search")
    code, out, _ = opsieve(
        "gen", "-n", "24", "--seed", "44", *options, "-o", tmp_path / "o", "--json", capsys=capsys
    )
    told = json.loads(out)["values"]
    assert code == 0
    assert sum(told.values()) == 24
    assert told["repaired"] >= 1
    cases = {path.name: load(path) for path in (tmp_path / "o").iterdir()}
    assert {case.origin.wish["values"] for case in cases.values()} == {"search"}
    told_by_cases = [case.origin.inputs.rpartition("search: ")[2].split(" ")[0] for case in cases.values()]
    assert {how: told_by_cases.count(how) for how in told_by_cases} == told
    name = next(name for name, case in cases.items() if case.origin.inputs == "search: repaired")
    code, out, _ = opsieve(
        "gen", "--origin", tmp_path / "o" / name, "-o", tmp_path / "again", "--json", capsys=capsys
    )
    assert (code, json.loads(out)["identical"]) == (0, True)
    again = load(tmp_path / "again" / name).inputs
    assert {key: value.tobytes() for key, value in again.items()} == {
        key: value.tobytes() for key, value in cases[name].inputs.items()
    }


def test_generated_programs_get_special_values() -> None:
    request = GenRequest(values="special:nan")
    cases = [generate("mix", seed, request) for seed in range(24)]
    values = [
        value
        for case in cases
        for value in case.inputs.values()
        if getattr(value, "dtype", None) == np.float32
    ]
    assert sum(bool(np.isnan(value).any()) for value in values) > len(values) / 2
    for case in cases[:6]:
        again = generate(case.origin.generator, case.origin.seed or 0, from_record(case.origin.wish))
        assert again.program.model == case.program.model
        assert all(
            np.array_equal(again.inputs[key], value, equal_nan=value.dtype.kind == "f")
            for key, value in case.inputs.items()
            if isinstance(value, np.ndarray)
        )
        assert case.origin.inputs == "special:nan"


def test_a_campaign_knows_its_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = GenRequest(
        nodes=USUAL.nodes, between=USUAL.between, dynamic=USUAL.dynamic, values="special:zeros,inf"
    )
    plan = CampaignPlan("isra", request)
    assert " values=special:zeros,inf" in plan.generator
    assert parse_plan(plan.generator) == (plan, False)
    code, _, err = opsieve("fuzz", "--values", "search", "--store", tmp_path / "s", capsys=capsys)
    assert code == 2
    assert "'search' is not a choice of values; choose from ranged, special" in err
    options = ("--no-probe", "--store", tmp_path / "s", "-t", "fake", "--seed", "3", "--json")
    opsieve("fuzz", *options, "--values", "special", "--tests", "3", capsys=capsys)
    code, out, _ = opsieve(
        "fuzz", "--no-probe", "--store", tmp_path / "s", "--resume", "--tests", "5", "--json", capsys=capsys
    )
    assert json.loads(out)["tests"] == 5
    code, _, err = opsieve(
        "fuzz", "--store", tmp_path / "s", "--resume", "--values", "special", capsys=capsys
    )
    assert (code, "cannot change --strategy, --nodes, --values" in err) == (2, True)


def test_words() -> None:
    assert named_values("special:nan, zeros") == "special:zeros,nan"
    assert named_values("special:" + ",".join(reversed(KINDS))) == "special"
    assert special_kinds("special") == KINDS
    assert special_kinds("special:zeros,nan") == ("zeros", "nan")
    assert special_kinds("ranged") == special_kinds("search") == ()
    assert "values" not in to_record(GenRequest())
    assert from_record(to_record(GenRequest(values="search"))).values == "search"
    with pytest.raises(BadInput, match="not a choice of values"):
        from_record({"nodes": "3", "values": "best"})


def test_programs_without_ranges_leave_domains() -> None:
    """That is what the search is for; leaves are finite all the same, whatever the strategy."""
    for name in ("isra", "mutate", "function-rewrite", "pattern"):
        for seed in range(12):
            case = generate(name, seed, GenRequest(nodes=8, values="search"))
            for value in case.inputs.values():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                    assert math.isfinite(float(np.abs(value).max(initial=0)))


def test_programs_are_grown_for_a_search() -> None:
    made = [generate("isra", seed, GenRequest(nodes=20, values="search")) for seed in range(40)]
    assert all(case.program.size for case in made)
