"""A fault of opsieve on one item costs the others nothing, ends in exit code 70 and leaves a report."""

from pathlib import Path

import pytest
from commands import opsieve
from models import chain

from opsieve.gen.case import import_folder
from opsieve.triage import judging


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    places = [tmp_path / "models" / f"{name}.onnx" for name in ("a", "bad", "c")]
    for place in places:
        place.write_bytes(chain("Relu").model)
    return places


def test_run_goes_on(
    models: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = judging.open_case

    def opened(path: Path, *rest: object) -> object:
        if path.name == "bad.onnx":
            raise ZeroDivisionError("ours")
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(judging, "open_case", opened)
    code, out, err = opsieve("run", "-t", "reference", *models, capsys=capsys)
    assert (code, out.count("pass")) == (70, 2)
    assert "bad.onnx: opsieve failed to read it" in err
    assert "this is a fault of opsieve (ZeroDivisionError); a report is in" in err


def test_a_fault_while_judging_costs_that_model_alone(
    models: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, seen = judging.judge_case, []

    def judged(*given: object, **named: object) -> object:
        seen.append(given)
        if len(seen) == 2:
            raise RecursionError("ours")
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(judging, "judge_case", judged)
    code, out, err = opsieve("run", "-t", "reference", *models, capsys=capsys)
    assert (code, out.count("pass")) == (70, 2)
    assert "bad.onnx: opsieve failed to judge it" in err


def test_import_goes_on(
    models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(import_folder, "open_case", _failing(import_folder.open_case))
    code, out, err = opsieve("import", models[0].parent, "-o", tmp_path / "out", capsys=capsys)
    assert (code, out.count(" -> ")) == (70, 2)
    assert "not imported" in out
    assert "a report is in" in err


def _failing(real: object) -> object:
    def opened(path: Path, *rest: object) -> object:
        if path.name == "bad.onnx":
            raise ZeroDivisionError("ours")
        return real(path, *rest)  # type: ignore[operator]

    return opened
