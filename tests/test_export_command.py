"""`opsieve export` as a user types it."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from stores import done, filled, finding
from tests.exhibited import X, model

from opsieve.gen.bad_input import BadInput
from opsieve.gen.case import Case, save
from opsieve.gen.program import Program
from opsieve.tui.export_command import command, folder_of


def exported(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, [str(item) for item in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout, result.stderr


@pytest.fixture
def case(tmp_path: Path) -> Path:
    made = Case(Program(model().SerializeToString()), {"x": X}, knobs={"target": "fake:wrong@Relu"})
    save(made, tmp_path / "case")
    return tmp_path / "case"


def test_a_case_is_exported_with_what_is_known_of_its_culprit(case: Path, tmp_path: Path) -> None:
    change = {"kind": "regression", "last_before": "1.2", "first_after": "1.3"}
    (case / "culprit.json").write_text(
        json.dumps({"releases": {"transitions": [change, 7, {"kind": []}], "guilty_passes": ["Fuse`It"]}})
    )
    code, out, _ = exported(case, "--as", "issue", "-o", tmp_path, "--json")
    told = json.loads(out)
    assert code == 0
    assert set(told) == {"kind", "output", "bytes", "target", "version", "failure", "message"}
    assert (told["kind"], told["failure"], told["output"]) == ("issue", "mismatch", str(tmp_path / "issue.md"))
    text = (tmp_path / "issue.md").read_text()
    assert len(text) == told["bytes"]
    assert "Fails from 1.3 (last without it: 1.2)." in text
    assert "`Fuse?It`" in text


def test_what_does_not_fail_is_not_exported(case: Path, tmp_path: Path) -> None:
    code, out, talk = exported(case, "-t", "fake", "-o", tmp_path / "repro.py", "--json")
    assert code == 3
    assert "pass: " in json.loads(out)["message"]
    assert "does not fail" in talk
    assert not (tmp_path / "repro.py").exists()


def test_the_values_asked_for_are_those_of_the_reference(case: Path, tmp_path: Path) -> None:
    exported(case, "-o", tmp_path / "shown.py")
    source = (tmp_path / "shown.py").read_text()
    space: dict[str, object] = {}
    exec(compile(source.partition("def run(")[0], "repro.py", "exec"), space)  # noqa: S102  written by the code under test
    want, dtype, within = space["EXPECTED"]["y"]  # type: ignore[index]
    assert (dtype, want.dtype.name) == ("float32", "float64")
    assert np.array_equal(want, np.maximum(X, 0))
    assert 0 < within < 1e-3


def test_a_cluster_means_the_case_that_stands_for_it(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", [done(1, finding("no such kernel"))])
    found = folder_of("c1", store)
    assert (found / "model.onnx").is_file()
    for what in ("c99", "nothing"):
        with pytest.raises(BadInput):
            folder_of(what, store)
    with pytest.raises(BadInput, match="--store"):
        folder_of("c1", tmp_path / "none")


def test_bad_places_are_told(case: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write"):
        exported(case, "-o", tmp_path / "no" / "such" / "folder.py")
    with pytest.raises(BadInput):
        exported(tmp_path / "no" / "case")
