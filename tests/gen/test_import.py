"""`opsieve import` and `opsieve index`: what other tools left, taken; pickles of strangers, never obeyed."""

import contextlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import opsieve
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from import_corpus import BAD, GOOD, HIDDEN, Y, build, feed
from models import X
from stores import CAMPAIGN, done, finding

from opsieve.gen.case.case import load
from opsieve.gen.case.import_folder import Imported, gather, read_polygraphy_inputs
from opsieve.gen.case.plain_pickle import read_oracle
from opsieve.gen.errors import BadInput
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.store import Store


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
    (tmp_path / "oracle.pkl").write_bytes(
        pickle.dumps({"input": {"x": Command(tmp_path / "called")}, "output": {}})
    )
    with pytest.raises(BadInput, match="not an array"):
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
@settings(deadline=None)
def test_a_broken_pickle_is_told_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(pickle.dumps({"input": X, "output": Y}))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "oracle.pkl"
    path.write_bytes(raw)
    with contextlib.suppress(BadInput):  # any other exception fails the test
        read = read_oracle(path)
        assert all(isinstance(value, np.ndarray) for values in read.values() for value in values.values())


def test_each_kind_is_taken_and_the_rest_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    things = build(tmp_path / "mixed")
    assert things == len(GOOD) + len(BAD)
    code, out, _ = opsieve("import", tmp_path / "mixed", "-o", tmp_path / "out", "--json", capsys=capsys)
    told = json.loads(out)
    assert code == 0

    def of(name: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [item for item in items if (tmp_path / "mixed" / f"{name}-0") in Path(item["path"]).parents]

    for name, (kind, many, _) in GOOD.items():
        assert [item["kind"] for item in of(name, told["taken"])] == [kind] * many, name
        assert of(name, told["left"]) == [], name
    for name, (why, _) in BAD.items():
        assert any(why in item["reason"] for item in of(name, told["left"])), (name, of(name, told["left"]))
        # A model beside inputs that are of no use is a model by itself.
        assert [item["kind"] for item in of(name, told["taken"])] in ([], ["model"]), name
    assert not list(tmp_path.rglob("called")), "a pickle was obeyed"
    cases = [load(Path(item["case"])) for item in told["taken"]]
    assert len({item["case"] for item in told["taken"]}) == len(cases)
    assert HIDDEN.digest not in {case.program.digest for case in cases}


def test_what_lay_beside_a_model_is_what_it_is_fed_with(tmp_path: Path) -> None:
    for name, (_, _, make) in GOOD.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name)
    found = {
        name: [one.case for one in gather(tmp_path / name) if isinstance(one, Imported)] for name in GOOD
    }
    for name in (
        "case",
        "onnx_test",
        "onnxruntime_test",
        "nnsmith_mismatch",
        "nnsmith_crash",
        "own_npz",
        "inputs_npz",
    ):
        for case in found[name]:
            assert case.inputs["x"].tolist() == X["x"].tolist(), name
    first, second = found["polygraphy"]
    assert (second.inputs["x"] - first.inputs["x"]).tolist() == np.ones((2, 3)).tolist()
    for name in ("case", "onnx_test", "nnsmith_mismatch", "inputs_npz"):
        expected = found[name][0].expected
        assert expected is not None, name
        assert expected["y"].tolist() == Y["y"].tolist(), name
    for name in ("onnxruntime_test", "nnsmith_crash", "polygraphy", "own_npz", "alone"):
        assert found[name][0].expected is None, name


def test_an_old_scalar_of_numpy_is_an_array(tmp_path: Path) -> None:
    (tmp_path / "oracle.pkl").write_bytes(pickle.dumps({"input": {"x": np.float16(2.5)}, "output": None}))
    read = read_oracle(tmp_path / "oracle.pkl")["input"]["x"]
    assert (read.dtype, read.shape, read.item()) == (np.float16, (), 2.5)


@given(st.data())
def test_a_broken_file_of_polygraphy_is_told_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(json.dumps([feed(**X)]).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "inputs.json"
    path.write_bytes(raw)
    with contextlib.suppress(BadInput):  # any other exception fails the test
        (read,) = read_polygraphy_inputs(path)
        assert all(isinstance(value, np.ndarray) for value in read.values())


@given(
    arrays(
        st.sampled_from([np.float32, np.int64, np.bool_, np.float16, np.uint8]),
        array_shapes(min_dims=0, min_side=0),
    )
)
@settings(max_examples=50)
def test_arrays_come_out_of_polygraphy_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray[Any, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "inputs.json"
    path.write_text(json.dumps([feed(x=array)]))
    (read,) = read_polygraphy_inputs(path)
    assert (read["x"].dtype, read["x"].shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(read["x"], array)


def test_nothing_taken_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = opsieve("import", tmp_path / "nothing", "-o", tmp_path / "out", capsys=capsys)
    assert code == 2
    assert "not imported" in out


def test_a_damaged_index_is_set_aside_and_built_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        store.record_tests(CAMPAIGN, [done(0, finding("no such kernel"))])
        before = store.list_failures()
    (tmp_path / INDEX).write_bytes(b"no database " * 1000)
    code, out, _ = opsieve("index", "--store", tmp_path, "--json", capsys=capsys)
    assert (code, json.loads(out)["added"], json.loads(out)["failures"]) == (0, 1, 1)
    assert Path(json.loads(out)["set_aside"]).exists()
    with Store(tmp_path) as store:
        assert store.list_failures() == before
    assert json.loads(opsieve("index", "--store", tmp_path, "--json", capsys=capsys)[1])["added"] == 0
    assert opsieve("index", "--store", tmp_path / "none", capsys=capsys)[0] == 2
