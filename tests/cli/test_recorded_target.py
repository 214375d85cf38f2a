"""Without --target, `run` judges a case on the target that it names, as every other command does."""

from pathlib import Path

import numpy as np
import pytest
from commands import opsieve
from models import chain

from opsieve.gen.case.case import Case, save

X = {"x": np.ones((2, 3), np.float32)}


def write_case(folder: Path, target: str) -> None:
    save(Case(chain("Relu"), dict(X), parameters={"target": target}), folder)


def test_a_case_runs_on_the_target_that_it_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_case(tmp_path / "cases" / "a", "fake:wrong@Relu")
    write_case(tmp_path / "cases" / "b", "fake:crash@Relu")
    write_case(tmp_path / "cases" / "c", "reference")
    code, out, _ = opsieve("run", tmp_path / "cases", capsys=capsys)
    assert code == 1
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["fail", "fake:wrong@Relu"],
        ["fail", "fake:crash@Relu"],
        ["pass", "reference"],
    ]
    code, out, _ = opsieve("run", "-t", "reference", tmp_path / "cases" / "a", capsys=capsys)
    assert (code, out.split()[:2]) == (0, ["pass", "reference"])


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "onnxruntime==1.2.3",
            "the case names onnxruntime==1.2.3, which is not installed here: --yes installs",
        ),
        ("no-such-compiler", "no-such-compiler"),
        ("onnxruntime@/somewhere", "/somewhere"),
    ],
)
def test_a_target_that_cannot_be_used_costs_the_other_cases_nothing(
    target: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_case(tmp_path / "cases" / "a", target)
    write_case(tmp_path / "cases" / "b", "reference")
    code, out, err = opsieve("run", tmp_path / "cases", capsys=capsys)
    assert (code, out.split()[:2]) == (2, ["pass", "reference"])
    assert said in err
