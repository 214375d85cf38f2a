"""docs/how-to/add-an-ir.md, typed as it stands: a fourth IR in a package of a user's own, from its file to an
exported script. It proves that an IR is one folder and one record.
"""

import json
import subprocess
from pathlib import Path

import pytest
from plugged import blocks, environment, session
from repository import ROOT

PAGE = ROOT / "docs" / "how-to" / "add-an-ir.md"
NAMES = ("program", "meaning", "compiler", "reduction")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = dict(zip(NAMES, blocks(PAGE, "python"), strict=True))
    modules = {f"opsieve_calc/{name}.py": source for name, source in sources.items()}
    return environment(tmp_path_factory.mktemp("calc") / "venv", modules, *blocks(PAGE, "toml"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "faulty.calc").write_text(*blocks(PAGE, "text"))
    return tmp_path


def test_a_program_of_another_ir_is_read_run_and_judged(python: Path, folder: Path) -> None:
    shown, others = session(
        folder,
        "run faulty.calc --target calcc",
        "run faulty.calc --target calcc:off --target onnxruntime --target reference --json",
        python=python,
    )
    assert "output 'e': got 3.3721, expected 0.37852 at [1]" in shown
    assert "the float64 reference and off agree" in shown
    verdicts = [row["verdict"] for row in json.loads(others)["results"]]
    assert verdicts == ["pass", "unsupported", "pass"]


def test_what_cannot_be_read_is_refused_with_a_sentence(python: Path, folder: Path) -> None:
    (folder / "bad.calc").write_text("x = input 4\ny = sin x\n")
    (folder / "invalid.calc").write_text("x = input 4\ny = abs z\n")
    command = [python, "-m", "opsieve", "run", "bad.calc", "invalid.calc", "--target", "calcc"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'bad.calc' has a line that is no calc: 'y = sin x'" in done.stderr
    assert "'invalid.calc' reads a name before it is made: 'y = abs z'" in done.stderr


@pytest.mark.slow
def test_a_failure_is_reduced_and_exported(python: Path, folder: Path) -> None:
    reduced, sheet = session(
        folder, "reduce faulty.calc --target calcc", "export faulty.calc.reduced --as issue", python=python
    )
    small = "x = input 4\nb = neg x\nc = abs b\n"
    assert "1-minimal: no single remaining edit preserves the failure" in reduced
    assert (folder / "faulty.calc.reduced" / "case.reduced.calc").read_text() == small
    assert json.loads((folder / "faulty.calc.reduced" / "case.json").read_text())["form"] == "calc"
    assert "issue.md" in sheet
    assert all(line in (folder / "issue.md").read_text() for line in small.splitlines())
    done = subprocess.run(
        [python, "faulty.calc.reduced/repro.py"], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout[:20]) == (1, "BUG: AssertionError:")
