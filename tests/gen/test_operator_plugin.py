"""The pages of docs/how-to on plug-ins of the generator, typed as they stand: an operator and a strategy of a
user's own package.
"""

import json
from pathlib import Path

import onnx
import pytest
from plugged import blocks, installed, session
from repository import ROOT

PAGES = ROOT / "docs" / "how-to"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page on operators."""
    page = PAGES / "add-an-operator.md"
    return installed(tmp_path_factory.mktemp("acme"), *blocks(page, "python"), blocks(page, "toml")[0])


GENERATE = "gen -n 6 --seed 3 --nodes 3 --strategy isra --flat -o models --ops acme.nn::* --ops Add,Relu"


def test_an_operator_of_a_users_package_is_generated_probed_and_counted(package: Path) -> None:
    _, counted, told = session(
        package, GENERATE, "metrics models --json", "gen --ops acme.nn::* -t fake:none --explain-support"
    )
    assert json.loads(counted)["frequencies"]["acme.nn::ScaledSum"] > 3
    assert "acme.nn::ScaledSum" in told  # the stand-in for a compiler lacks it


@pytest.mark.slow
def test_a_model_with_it_is_reduced(package: Path) -> None:
    session(package, GENERATE, "reduce models/isra-3.onnx -t fake:crash@ScaledSum -o reduced")
    before, after = (
        onnx.load(package / path) for path in ("models/isra-3.onnx", "reduced/case.reduced.onnx")
    )
    assert len(after.graph.node) < len(before.graph.node)
    assert "ScaledSum" in {node.op_type for node in after.graph.node}


def test_a_strategy_of_a_users_package_gives_valid_programs_the_same_for_a_seed(tmp_path: Path) -> None:
    page = PAGES / "write-a-strategy.md"
    package = installed(tmp_path, *blocks(page, "python"), *blocks(page, "toml"))
    generate = "gen --strategy towers -n 20 --nodes 5-30 --flat -o"
    session(package, f"{generate} one", f"{generate} other")
    made = {path.name: path.read_bytes() for path in (package / "one").glob("*.onnx")}
    assert len(made) == 20
    assert made == {path.name: path.read_bytes() for path in (package / "other").glob("*.onnx")}
    for data in made.values():
        onnx.checker.check_model(data, full_check=True)
    operators = [node.op_type for data in made.values() for node in onnx.load_from_string(data).graph.node]
    assert operators.count("MatMul") >= 20
