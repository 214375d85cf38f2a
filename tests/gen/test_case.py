import itertools
import json
import os
import subprocess
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest
import valid_models
from onnx import TensorProto, helper, numpy_helper
from repository import ROOT

from opsieve.gen.case.case import Case, Origin, load, open_case, save
from opsieve.gen.data import data_set
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.tensors import DTYPES, NUMBERS, write_tensor

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def plain_case(**fields):
    program = OnnxProgram(valid_models.plain().SerializeToString(), "plain")
    return Case(program, {"x": X}, **{"expected": {"y": X + 1}, **fields})


def wide_model():
    """One input of every dtype, beside scalars, empty tensors, sequences and optionals."""
    infos = [
        helper.make_tensor_value_info(f"in_{name}", number, [2, "n"]) for name, number in NUMBERS.items()
    ]
    tensor = helper.make_tensor_type_proto(TensorProto.BFLOAT16, ["n"])
    infos += [
        helper.make_tensor_value_info("scalar", TensorProto.INT4, []),
        helper.make_tensor_value_info("empty", TensorProto.FLOAT8E4M3FN, [0, 3]),
        helper.make_value_info("sequence", helper.make_sequence_type_proto(tensor)),
        helper.make_value_info("present", helper.make_optional_type_proto(tensor)),
        helper.make_value_info("absent", helper.make_optional_type_proto(tensor)),
    ]
    nodes = [helper.make_node("Identity", [info.name], [f"{info.name}_out"]) for info in infos]
    outputs = []
    for info in infos:
        output = type(info)()
        output.CopyFrom(info)
        output.name += "_out"
        outputs.append(output)
    return helper.make_model(helper.make_graph(nodes, "g", infos, outputs))


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def equal(one, two):
    if isinstance(one, list):
        return isinstance(two, list) and len(one) == len(two) and all(map(equal, one, two))
    if one is None:
        return two is None
    return (
        one.dtype == two.dtype
        and one.shape == two.shape
        and (one.tolist() == two.tolist() or one.tobytes() == two.tobytes())
    )


def test_a_case_of_every_type_comes_back(tmp_path):
    model = wide_model()
    inputs = {**seeded_inputs(model, 1), "absent": None}
    outputs = {f"{name}_out": value for name, value in inputs.items()}
    origin = Origin("walk", 7, {"onnx": "1.2"}, "seeded")
    case = Case(OnnxProgram(model.SerializeToString(), "wide"), inputs, outputs, origin, {"threads": "1"})
    save(case, tmp_path / "case")
    back = load(tmp_path / "case")
    assert (back.program, back.program.name, back.origin, back.parameters) == (
        case.program,
        "wide",
        origin,
        case.parameters,
    )
    assert list(back.inputs) == list(inputs)
    assert all(equal(value, back.inputs[name]) for name, value in inputs.items())
    assert back.expected is not None
    assert all(equal(value, back.expected[name]) for name, value in outputs.items())


def test_equal_cases_give_equal_bytes(tmp_path):
    one = plain_case(origin=Origin("g", 1, {"a": "1", "b": "2"}), parameters={"x": "1", "y": "2"})
    two = plain_case(origin=Origin("g", 1, {"b": "2", "a": "1"}), parameters={"y": "2", "x": "1"})
    save(one, tmp_path / "one")
    save(two, tmp_path / "two")
    save(load(tmp_path / "one"), tmp_path / "three")
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "three")


def test_the_folder_has_onnx_own_layout(tmp_path):
    save(plain_case(), tmp_path / "a" / "case")
    assert sorted(files(tmp_path / "a" / "case")) == [
        "case.json",
        "model.onnx",
        "test_data_set_0/input_0.pb",
        "test_data_set_0/output_0.pb",
    ]
    data = (tmp_path / "a" / "case" / "test_data_set_0" / "input_0.pb").read_bytes()
    assert np.array_equal(numpy_helper.to_array(TensorProto.FromString(data)), X)
    assert json.loads((tmp_path / "a" / "case" / "case.json").read_text())["format"] == 1
    assert os.listdir(tmp_path / "a") == ["case"]


def test_without_expected_outputs_there_are_none(tmp_path):
    save(plain_case(expected=None), tmp_path / "case")
    assert load(tmp_path / "case").expected is None


def test_saving_again_replaces_the_case_and_keeps_what_others_put_there(tmp_path):
    place = tmp_path / "case"
    save(plain_case(), place)
    (place / "observations").mkdir()
    (place / "observations" / "1.json").write_text("{}")
    (place / "notes.md").write_text("mine")
    save(plain_case(expected=None), place)
    assert load(place).expected is None
    assert (place / "observations" / "1.json").read_text() == "{}"
    assert (place / "notes.md").read_text() == "mine"
    assert os.listdir(tmp_path) == ["case"]


def test_nothing_that_is_no_case_is_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(BadInput, match="not a case"):
        save(plain_case(), tmp_path / "mine")
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "case"):
        with pytest.raises(BadInput):
            save(plain_case(), place)
    (tmp_path / "empty").mkdir()
    save(plain_case(), tmp_path / "empty")
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "mine"]


def test_a_full_disk_leaves_the_old_case_whole(tmp_path):
    """A limit on file size stands in for the disk: the write fails half-way through."""
    save(plain_case(), tmp_path / "case")
    before = files(tmp_path / "case")
    program = (
        "import resource, signal, sys; sys.path[:0] = ['tests/gen', 'tests/support'];"
        " signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nimport test_case\nfrom pathlib import Path\ncase ="
        " test_case.plain_case(parameters={str(number): 'x' * 100 for number in"
        " range(100)})\nresource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\nfor name in ('case',"
        " 'new'):\n    try: test_case.save(case, Path(sys.argv[1]) / name)\n    except test_case.BadInput as"
        " error: print(error)\n"
    )
    root = ROOT
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    assert done.stdout.count("cannot write the case") == 2, done
    assert files(tmp_path / "case") == before
    assert os.listdir(tmp_path) == ["case"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"inputs": {}}, "no value for the input 'x'"),
        ({"inputs": {"x": X, "z": X}}, "'z'"),
        ({"inputs": {"x": X.astype(np.float64)}}, "float64"),
        ({"expected": {"y": X[:1]}}, "shape"),
        ({"expected": {}}, "output 'y'"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_not_saved(tmp_path, fields, said):
    case = plain_case()
    broken = Case(case.program, fields.get("inputs", case.inputs), fields.get("expected", case.expected))
    with pytest.raises(BadInput, match=said):
        save(broken, tmp_path / "case")
    assert os.listdir(tmp_path) == []


def write(folder, *parts):
    """A model with any of: npz, expected, set, outputs, position, other."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(valid_models.plain().SerializeToString())
    if "npz" in parts:
        np.savez(folder / "inputs.npz", **({"i0": X} if "position" in parts else {"x": X}))
    if "expected" in parts:
        np.savez(folder / "expected.npz", **({"o0": X + 1} if "position" in parts else {"y": X + 1}))
    if "set" in parts:
        (folder / "test_data_set_0").mkdir()
        (folder / "test_data_set_0" / "input_0.pb").write_bytes(write_tensor(X).SerializeToString())
    if "outputs" in parts:
        (folder / "test_data_set_0" / "output_0.pb").write_bytes(write_tensor(X + 1).SerializeToString())
    if "other" in parts:
        np.savez(folder / "inputs.npz", another=X)
    return folder


@pytest.mark.parametrize(
    ("parts", "source", "expected"),
    [
        ([], "seeded", False),
        (["npz"], "inputs.npz", False),
        (["npz", "expected"], "inputs.npz", True),
        (["npz", "expected", "position"], "inputs.npz", True),
        (["set"], "test_data_set_0", False),
        (["set", "outputs"], "test_data_set_0", True),
    ],
    ids=str,
)
def test_a_folder_and_the_model_in_it_are_the_same_case(tmp_path, parts, source, expected):
    folder = write(tmp_path / "f", *parts)
    for path in (folder, folder / "model.onnx"):
        case = open_case(path)
        assert case.origin.inputs == source
        assert (case.expected is not None) == expected
        assert np.array_equal(case.inputs["x"], X) == (source != "seeded")
        if case.expected:
            assert np.array_equal(case.expected["y"], X + 1)


def test_values_of_something_else_beside_a_model_are_passed_by(tmp_path):
    folder = write(tmp_path, "other")
    assert open_case(folder / "model.onnx").origin.inputs == "seeded"
    with pytest.raises(BadInput, match="another"):
        open_case(folder)


def test_inputs_are_seeded_by_the_seed(tmp_path):
    folder = write(tmp_path)
    one, two = open_case(folder, seed=1), open_case(folder, seed=2)
    assert (one.origin.seed, two.origin.seed) == (1, 2)
    assert not np.array_equal(one.inputs["x"], two.inputs["x"])
    assert np.array_equal(one.inputs["x"], open_case(folder, seed=1).inputs["x"])


def test_inputs_that_were_named_win(tmp_path):
    other = write(tmp_path / "other", "npz", "expected")
    data = write(tmp_path / "data", "set", "outputs")
    save(Case(plain_case().program, {"x": X - 7}, {"y": X}), tmp_path / "case")
    for path in (tmp_path / "case", write(tmp_path / "bare"), tmp_path / "bare" / "model.onnx"):
        for inputs, has_expected in (
            (other, True),
            (other / "inputs.npz", False),
            (data, True),
            (data / "test_data_set_0", True),
        ):
            case = open_case(path, inputs)
            assert np.array_equal(case.inputs["x"], X)
            assert (case.expected is not None) == has_expected, inputs
        for expected in (other, other / "expected.npz", data, data / "test_data_set_0"):
            assert np.array_equal(open_case(path, None, expected).expected["y"], X + 1)
    for wrong in (tmp_path / "bare", tmp_path / "nowhere"):
        with pytest.raises(BadInput):
            open_case(tmp_path / "case", wrong)
        with pytest.raises(BadInput):
            open_case(tmp_path / "case", None, wrong)


@pytest.mark.parametrize("compressed", [False, True])
def test_every_dtype_goes_through_an_npz(tmp_path, compressed):
    shape = [2, 3]
    for dtype in sorted(set(DTYPES.values())):
        info = helper.make_tensor_value_info("x", NUMBERS[dtype], shape)
        model = helper.make_model(helper.make_graph([], "g", [info], [info]))
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        value = seeded_inputs(model, 0)["x"]
        stored = value.astype(str) if dtype == "string" else value
        (np.savez_compressed if compressed else np.savez)(tmp_path / "inputs.npz", x=stored)
        assert equal(open_case(tmp_path).inputs["x"], value), dtype


@pytest.mark.parametrize(
    "array",
    [np.float32(3), np.zeros((0, 2), np.float32), np.asfortranarray(X), X[::-1, ::2], X.astype(">f4")],
    ids=["scalar", "empty", "by columns", "strided", "big-endian"],
)
def test_arrays_of_every_layout_go_through_an_npz(tmp_path, array):
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, np.shape(array))
    model = helper.make_model(helper.make_graph([], "g", [info], [info]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "inputs.npz", x=array)
    assert equal(open_case(tmp_path).inputs["x"], np.asarray(array, dtype=np.float32))


def test_raw_bytes_are_taken_for_no_ordinary_dtype(tmp_path):
    folder = write(tmp_path)
    np.savez(folder / "inputs.npz", x=X.view("V4"))
    with pytest.raises(BadInput, match="void32"):
        open_case(folder)
    np.savez(folder / "inputs.npz", x=X.astype(ml_dtypes.bfloat16))
    with pytest.raises(BadInput, match="float32 is wanted"):
        open_case(folder)


def test_pickles_are_called_pickles(tmp_path):
    folder = write(tmp_path)
    np.savez(folder / "inputs.npz", x=np.array([[print] * 3] * 2, dtype=object))
    with pytest.raises(BadInput, match="pickled objects"):
        open_case(folder)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("<f4", "True, 2"), ("<U1", "2,"), (">U2", "1,"), ("<f4", "1, " * 70 + "2")]
)
def test_an_array_that_numpy_cannot_make_is_refused(tmp_path, dtype, shape):
    """A size that is no number, a character that is none, and more dimensions than numpy has."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}\n".encode()
    folder = write(tmp_path, "npz")
    with zipfile.ZipFile(folder / "inputs.npz", "w") as archive:
        archive.writestr(
            "x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\xff" * 8
        )
    with pytest.raises(BadInput, match=r"inputs\.npz"):
        open_case(folder)


def test_what_an_npz_unpacks_to_is_bounded(tmp_path, monkeypatch):
    """Sound in every other respect: the bound is lowered, for a bomb would take seconds to make."""
    folder = write(tmp_path, "npz")
    size = sum(entry.file_size for entry in zipfile.ZipFile(folder / "inputs.npz").infolist())
    monkeypatch.setattr(data_set, "LIMIT", size)
    open_case(folder)
    monkeypatch.setattr(data_set, "LIMIT", size - 1)
    with pytest.raises(BadInput, match="unpacks to over"):
        open_case(folder)


def test_an_optional_without_an_entry_is_absent(tmp_path):
    type_ = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    infos = [helper.make_value_info(name, type_) for name in ("a", "b")]
    model = helper.make_model(helper.make_graph([], "g", infos, infos))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for inputs, present in itertools.product(("npz", "set"), ("a", "b")):
        data = tmp_path / inputs / present
        data.mkdir(parents=True)
        if inputs == "npz":
            np.savez(data / "inputs.npz", **{present: np.float32([1, 2])})
        else:
            save(
                Case(
                    OnnxProgram(model.SerializeToString()),
                    {"a": None, "b": None, present: np.float32([1, 2])},
                ),
                data,
            )
            (data / "test_data_set_0" / f"input_{'ab'.index('b' if present == 'a' else 'a')}.pb").unlink()
        found = open_case(tmp_path, data).inputs
        assert list(found) == ["a", "b"]
        assert {name for name, value in found.items() if value is not None} == {present}
