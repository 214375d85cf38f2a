"""`opsieve import` and `opsieve index`: what other tools left, taken; pickles of strangers, never obeyed."""

import contextlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import X, chain
from test_cli import opsieve
from test_store import CAMPAIGN, done

from opsieve.gen.bad_input import BadInput
from opsieve.gen.case import Case, load, save
from opsieve.gen.plain_pickle import read_oracle
from opsieve.triage.index_file import INDEX
from opsieve.triage.store import Store

MODEL = chain("Relu", "Neg")
Y = {"y": -np.maximum(X["x"], 0)}


def nnsmith(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(MODEL.model)
    oracle = {"input": X, "output": Y, "provider": "onnxruntime"}
    (folder / "oracle.pkl").write_bytes(pickle.dumps(oracle))
    (folder / "err.log").write_text("Mismatched elements")
    return folder


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1)[2:])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.array(True),
        np.zeros((0, 4), np.float16),
        np.arange(3, dtype=">i4"),
    ],
)
def test_arrays_come_out_of_a_pickle_as_they_went_in(
    tmp_path: Path, protocol: int, array: np.ndarray[Any, Any]
) -> None:
    (tmp_path / "oracle.pkl").write_bytes(pickle.dumps({"input": {"x": array}, "output": None}, protocol))
    read = read_oracle(tmp_path / "oracle.pkl")
    assert list(read) == ["input"]
    assert read["input"]["x"].dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(read["input"]["x"], array)


class Command:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "oracle.pkl").write_bytes(pickle.dumps({"input": {"x": Command(tmp_path / "called")}, "output": {}}))
    with pytest.raises(BadInput, match="no array"):
        read_oracle(tmp_path / "oracle.pkl")
    assert not (tmp_path / "called").exists()


def test_a_pickle_of_objects_or_of_too_few_bytes_is_refused(tmp_path: Path) -> None:
    for value in (np.array([print], object), np.zeros(2, [("a", "f4")]), "text", [1, 2]):
        (tmp_path / "oracle.pkl").write_bytes(pickle.dumps({"input": {"x": value}}))
        with pytest.raises(BadInput):
            read_oracle(tmp_path / "oracle.pkl")
    whole = pickle.dumps({"input": {"x": np.zeros(1000, np.int8)}}, 2)
    assert b"M\xe8\x03" in whole  # the shape, (1000,)
    (tmp_path / "oracle.pkl").write_bytes(whole.replace(b"M\xe8\x03", b"J\xff\xff\xff\x7f", 1))
    with pytest.raises(BadInput, match="fill"):
        read_oracle(tmp_path / "oracle.pkl")


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_a_broken_pickle_is_told_in_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = bytearray(pickle.dumps({"input": X, "output": Y}))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "oracle.pkl"
    path.write_bytes(raw)
    with contextlib.suppress(BadInput):  # any other exception fails the test
        read = read_oracle(path)
        assert all(isinstance(value, np.ndarray) for values in read.values() for value in values.values())


def test_each_kind_is_taken_and_the_rest_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = tmp_path / "mixed"
    nnsmith(mixed / "bugs" / "bug-1")
    save(Case(MODEL, X, Y), mixed / "case")
    save(Case(MODEL, X, Y), mixed / "onnx-test")
    (mixed / "onnx-test" / "case.json").unlink()
    shutil.copytree(mixed / "onnx-test" / "test_data_set_0", mixed / "onnx-test" / "test_data_set_1")
    (mixed / "npz").mkdir()
    (mixed / "npz" / "net.onnx").write_bytes(MODEL.model)
    np.savez(mixed / "npz" / "net.npz", **X)
    (mixed / "plain.onnx").write_bytes(MODEL.model)
    (mixed / "broken").mkdir()
    (mixed / "broken" / "broken.onnx").write_bytes(b"no model")
    (mixed / "notes").mkdir()
    (mixed / "notes" / "weights.h5").write_bytes(b"x")
    code, out, _ = opsieve("import", mixed, "-o", tmp_path / "out", "--json", capsys=capsys)
    told = json.loads(out)
    assert code == 0
    kinds = sorted(item["kind"] for item in told["taken"])
    assert kinds == ["NNSmith bug", "ONNX data set", "ONNX data set", "case", "model", "model with .npz"]
    assert {Path(item["path"]).name for item in told["left"]} == {"broken.onnx", "weights.h5"}
    assert len({item["case"] for item in told["taken"]}) == 6
    for item in told["taken"]:
        case = load(Path(item["case"]))
        assert case.program.digest == MODEL.digest
        assert (case.expected is not None) == item["expected"]
        if item["kind"] == "NNSmith bug":
            np.testing.assert_array_equal(np.asarray(case.inputs["x"]), X["x"])
            np.testing.assert_array_equal(np.asarray((case.expected or {})["y"]), Y["y"])


def test_nothing_taken_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = opsieve("import", tmp_path / "nothing", "-o", tmp_path / "out", capsys=capsys)
    assert code == 2
    assert "not taken" in out


def test_a_damaged_index_is_set_aside_and_built_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path) as store:
        store.begin(CAMPAIGN)
        store.record(CAMPAIGN, [done(0, "no such kernel")])
        before = store.failures()
    (tmp_path / INDEX).write_bytes(b"no database " * 1000)
    code, out, _ = opsieve("index", "--store", tmp_path, "--json", capsys=capsys)
    assert (code, json.loads(out)["added"], json.loads(out)["failures"]) == (0, 1, 1)
    assert Path(json.loads(out)["set_aside"]).exists()
    with Store(tmp_path) as store:
        assert store.failures() == before
    assert json.loads(opsieve("index", "--store", tmp_path, "--json", capsys=capsys)[1])["added"] == 0
    assert opsieve("index", "--store", tmp_path / "none", capsys=capsys)[0] == 2
