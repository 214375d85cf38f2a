"""Oracles of a user's own: the page as it is written, and what becomes of one that is absent, slow, broken or not named."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from models import program
from plugged import blocks, environment, session
from repository import ROOT

PAGE = ROOT / "docs" / "how-to" / "write-an-oracle.md"
OTHERS = """

def broken(model, inputs, outputs):
    raise ValueError("of mine")


def slow(model, inputs, outputs):
    while True:
        pass
"""
TEXT = "soft (float[2, 3] x) => (float[2, 3] y) { a = Relu(x)  b = Add(a, a)  y = LAST(b) }"
WRONG = "fake:wrong@Softmax"


@pytest.fixture
def package(tmp_path: Path) -> tuple[Path, Path]:
    source, project = blocks(PAGE, "python")[0], blocks(PAGE, "toml")[0]
    project += 'slow = "probability:slow"\n'
    project = project.replace("slow =", '[project.entry-points."opsieve.oracles"]\nslow =')
    project += '[project.entry-points."opsieve.oracles"]\nbroken = "probability:broken"\n'
    python = environment(tmp_path / "python", {"probability.py": source + OTHERS}, project)
    for last in ("Softmax", "Tanh"):
        text = TEXT.replace("LAST", last)
        (tmp_path / f"{last}.onnx").write_bytes(program(text).model)
    return python, tmp_path


def ask(package: tuple[Path, Path], *commands: str) -> list[Any]:
    return [json.loads(out) for out in session(package[1], *commands, python=package[0])]


def test_the_oracle_of_the_page_decides(package: tuple[Path, Path]) -> None:
    ran, invalid, error = ask(
        package,
        f"run Softmax.onnx -t fake -t {WRONG} --oracle probability --json",
        "run Tanh.onnx -t fake --oracle probability --json",
        "run Tanh.onnx -t fake:error@Relu --oracle probability --json",
    )
    good, bad = ran["results"]
    assert (good["verdict"], bad["verdict"], bad["kind"]) == ("pass", "fail", "error")
    assert bad["message"] == "oracle probability: y is no probability"
    assert invalid["results"][0]["verdict"] == "invalid"
    # Compilers that are not installed, and runs without the oracle, did not object.
    reason = invalid["results"][0]["reason"]
    assert reason.startswith("the model itself breaks the rule, in ")
    assert "environment" not in reason
    # An error of the compiler itself is judged by those that run the program, whatever their outputs.
    assert error["results"][0]["verdict"] == "fail"


@pytest.mark.slow
def test_a_reduction_keeps_the_objection(
    package: tuple[Path, Path],
) -> None:
    (small,) = ask(package, f"reduce Softmax.onnx -t {WRONG},oracle=probability -o small --json")
    assert (small["nodes_after"], small["same"], small["minimal"], small["script"]) == (1, True, True, "")


@pytest.mark.slow
def test_commands_consult_the_named_oracle(package: tuple[Path, Path]) -> None:
    again = f"-t {WRONG} --oracle probability --json"
    added, ran, plain, small, made = ask(
        package,
        f"corpus add corpus Softmax.onnx {again}",
        "corpus run corpus --oracle probability --json",
        f"corpus run corpus -t {WRONG} --json",
        f"reduce Softmax.onnx -o small {again}",
        f"export Softmax.onnx --as case {again}",
    )
    (seen,) = added["added"][0]["targets"].values()
    assert (seen["verdict"], seen["kind"]) == ("fail", "error")
    assert [result["state"] for result in ran["results"]] == ["still-failing"]
    assert plain["results"][0]["after"]["kind"] == "mismatch"
    assert (small["nodes_after"], made["failure"]) == (1, "error")


@pytest.mark.slow(seconds=3)
def test_an_oracle_that_is_not_heard_leaves_the_verdict_open(package: tuple[Path, Path]) -> None:
    (package[1] / "opsieve.toml").write_text('[run]\noracle = ["probability"]\n')
    answers = ask(
        package,
        "run Softmax.onnx -t fake:oracle=absent --json",
        "run Softmax.onnx -t fake --oracle broken --json",
        "run Softmax.onnx -t fake --json",
    )
    reasons = [answer["results"][0]["reason"] for answer in answers]
    assert {answer["results"][0]["verdict"] for answer in answers} == {"undecided"}
    assert "is not installed" in reasons[0]
    assert "of mine" in reasons[1]
    assert "--oracle probability" in reasons[2]


@pytest.mark.slow(seconds=30)
def test_an_oracle_has_ten_seconds(package: tuple[Path, Path]) -> None:
    (answer,) = ask(package, "run Softmax.onnx -t fake --oracle slow --json")
    assert "no answer within 10 s" in answer["results"][0]["reason"]
    assert "OPSIEVE_ORACLES" not in os.environ
