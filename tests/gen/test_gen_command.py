"""`opsieve gen`: what it writes, tells and refuses."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import opsieve
from waiting import wait_until

from opsieve.gen.case.case import load

KEYS = {
    "models",
    "nodes",
    "seconds_cpu",
    "seconds_wall",
    "models_per_cpu_second",
    "valid",
    "strategies",
    "values",
    "out",
}


def test_cases_are_written_checked_and_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code, text, _ = opsieve("gen", "-n", "6", "--nodes", "3-9", "--check", "-o", out, "--json", capsys=capsys)
    told = json.loads(text)
    assert code == 0
    assert set(told) == KEYS
    assert (told["models"], told["valid"], sum(told["strategies"].values())) == (6, 6, 6)
    assert sorted(path.name for path in out.iterdir()) == [f"mix-{seed}" for seed in range(6)]
    case = load(out / "mix-3")
    assert case.origin.wish == {"nodes": "3-9"}
    assert case.origin.versions["onnx"]
    for place in (out / "mix-3", out / "mix-3" / "case.json"):
        code, text, _ = opsieve("gen", "--origin", place, "--json", capsys=capsys)
        assert (code, json.loads(text)["identical"]) == (0, True)
    (out / "mix-3" / "model.onnx").write_bytes((out / "mix-4" / "model.onnx").read_bytes())
    for old in (out / "mix-3" / "test_data_set_0").iterdir():
        old.unlink()
    for new in (out / "mix-4" / "test_data_set_0").iterdir():
        new.rename(out / "mix-3" / "test_data_set_0" / new.name)
    code, text, _ = opsieve(
        "gen", "--origin", out / "mix-3", "-o", tmp_path / "again", "--json", capsys=capsys
    )
    assert (code, json.loads(text)["identical"]) == (1, False)
    assert len(list((tmp_path / "again").glob("*/model.onnx"))) == 1


def test_flat_files_of_some_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--strategy",
        "isra",
        "--ops",
        "Re*,-Reduce*",
        "--dtypes",
        "float32",
        "--opset",
        "18",
        "--seed",
        "7",
    )
    code, text, _ = opsieve("gen", "-n", "3", *arguments, "--flat", "-o", tmp_path / "o", capsys=capsys)
    assert code == 0
    assert "3 models" in text
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [
        f"isra-{seed}.onnx" for seed in (7, 8, 9)
    ]


def test_a_target_is_probed_once_explained_and_told_by_the_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "store"))
    given = ("--target", "fake:unsupported@Erf", "--ops", "Erf,Relu", "--dtypes", "float32")
    code, text, err = opsieve("gen", *given, "--explain-support", capsys=capsys)
    assert code == 0
    assert "Erf-" in text
    assert "Relu-" not in text
    assert "probing" in err
    code, text, err = opsieve("gen", *given, "-n", "4", "-o", tmp_path / "o", capsys=capsys)
    assert code == 0
    assert "probing" not in err
    case = load(tmp_path / "o" / "mix-0")
    assert case.origin.wish["target"].startswith("fake:unsupported@Erf ")
    assert {node.op_type for node in case.program.proto.graph.node} <= {
        "Relu",
        "Constant",
        "Cast",
        "Reshape",
        "Unsqueeze",
    }
    code, text, _ = opsieve("gen", "--origin", tmp_path / "o" / "mix-0", capsys=capsys)
    assert code == 0
    assert "identical to the case" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--nodes", "0"), "is not a number of nodes"),
        (("--nodes", "9-3"), "is not a number of nodes"),
        (("--nodes", "999999"), "is not a number of nodes"),
        (("--ops", "Foo*"), "no operator matches"),
        (("--dtypes", "float31"), "is not an element type"),
        (("--opset", "3"), "cannot be generated"),
        (("--values", "huge"), "'huge' is not a choice of values; choose from ranged, search, special"),
        (("--values", "special:huge"), "there are no special values 'huge'; there are zeros"),
        (("--values", "search:zeros"), "is not a choice of values"),
        (("--strategy", "nothing"), "there is no strategy"),
        (("--strategy", "randoop", "--opset", "18"), "baseline"),
        (("--target", "nothing"), "nothing"),
        (("--explain-support",), "needs a --target"),
        (("--origin", "/nowhere/case.json"), "case.json"),
        (("-o", "/dev/null"), "not empty"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = opsieve("gen", *arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_case_that_nobody_generated_cannot_be_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opsieve("gen", "-n", "1", "-o", tmp_path / "o", capsys=capsys)
    told = json.loads((tmp_path / "o" / "mix-0" / "case.json").read_text())
    told["origin"]["generator"] = "user"
    (tmp_path / "o" / "mix-0" / "case.json").write_text(json.dumps(told))
    code, _, err = opsieve("gen", "--origin", tmp_path / "o" / "mix-0", capsys=capsys)
    assert code == 2
    assert "no generator and seed" in err


def test_an_interrupt_leaves_whole_cases(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "opsieve", "gen", "-n", "100000", "-o", str(tmp_path / "o"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "o" / "mix-20" / "case.json").exists, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert json.loads(out)["models"] > 0
    folders = list((tmp_path / "o").iterdir())
    assert all(load(folder).program.model for folder in folders)
