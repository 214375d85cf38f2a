"""docs/how-to/add-an-operator.md, typed as it stands: an operator of a user's own package is generated, probed, counted and reduced."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from repository import ROOT

PAGE = (ROOT / "docs" / "how-to" / "add-an-operator.md").read_text()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page, as an installer would leave it."""
    folder = tmp_path_factory.mktemp("acme")
    module, project = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE, re.DOTALL)
    (folder / "acme_operators.py").write_text(module)
    group = re.search(r'entry-points\."([\w.]+)"\]\n(\w+ = "[\w:]+")', project)
    assert group is not None
    installed = folder / "acme_operators-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-operators\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[{group[1]}]\n{group[2].replace(chr(34), '')}\n")
    return folder


SESSION = """
import contextlib, io, json, sys
from opsieve.tui.cli import main
told = []
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(words)
    told.append(out.getvalue())
print(json.dumps(told))
"""


def session(package: Path, *commands: str) -> list[str]:
    """The outputs of commands, in one process in which the package is installed."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION, json.dumps([command.split() for command in commands])],
        env={**os.environ, "PYTHONPATH": str(package)},
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
    )
    outputs: list[str] = json.loads(done.stdout)
    return outputs


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
    before, after = (onnx.load(package / path) for path in ("models/isra-3.onnx", "reduced/case.reduced.onnx"))
    assert len(after.graph.node) < len(before.graph.node)
    assert "ScaledSum" in {node.op_type for node in after.graph.node}
