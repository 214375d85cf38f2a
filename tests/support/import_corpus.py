"""A folder of mixed things, good, broken and hostile, for `opsieve import`: each builder makes one in a
folder of its own.

python tests/support/import_corpus.py FOLDER [ROUNDS]     makes it by hand, every thing ROUNDS times
"""

import base64
import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from models import X, chain, program

from opsieve.gen.case.case import Case, save

MODEL = chain("Relu", "Neg")
Y = {"y": -np.maximum(X["x"], 0)}
TWO = program("g (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }")
HIDDEN = chain("Tanh")
SECRET = "outside.onnx"  # beside the folder: what links lead to must not be taken

Builder = Callable[[Path], None]
GOOD: dict[str, tuple[str, int, Builder]] = {}  # name -> kind, how many cases, builder
BAD: dict[str, tuple[str, Builder]] = {}  # name -> a part of what is told, builder


def good(kind: str, cases: int = 1) -> Callable[[Builder], Builder]:
    def enter(build: Builder) -> Builder:
        GOOD[build.__name__] = (kind, cases, build)
        return build

    return enter


def bad(told: str) -> Callable[[Builder], Builder]:
    def enter(build: Builder) -> Builder:
        BAD[build.__name__] = (told, build)
        return build

    return enter


def model(folder: Path, name: str = "model.onnx", data: bytes = MODEL.model) -> Path:
    (folder / name).write_bytes(data)
    return folder


def npy(array: np.ndarray[Any, Any], pickled: bool = False) -> str:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=pickled)
    return base64.b64encode(file.getvalue()).decode()


def feed(**arrays: np.ndarray[Any, Any]) -> dict[str, Any]:
    """One iteration as Polygraphy writes it."""
    return {name: {"array": npy(array), "polygraphy_class": "ndarray"} for name, array in arrays.items()}


class Command:
    """A pickle of it makes a folder when it is obeyed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@good("case")
def case(folder: Path) -> None:
    save(Case(MODEL, X, Y), folder / "case")


@good("ONNX data set", 2)
def onnx_test(folder: Path) -> None:
    save(Case(MODEL, X, Y), folder / "test_relu_neg")
    (folder / "test_relu_neg" / "case.json").unlink()
    shutil.copytree(
        folder / "test_relu_neg" / "test_data_set_0", folder / "test_relu_neg" / "test_data_set_1"
    )


@good("ONNX data set")
def onnxruntime_test(folder: Path) -> None:
    onnx_test(folder)
    (folder / "test_relu_neg" / "model.onnx").rename(folder / "test_relu_neg" / "relu_neg_opset18.onnx")
    shutil.rmtree(folder / "test_relu_neg" / "test_data_set_1")
    (folder / "test_relu_neg" / "test_data_set_0" / "output_0.pb").unlink()


def nnsmith(folder: Path, oracle: Any) -> Path:
    """All that NNSmith leaves in a bug folder; its own graph is a pickle of objects, which nobody may
    read.
    """
    bug = folder / "bug-Symptom.INCONSISTENCY-Stage.VERIFICATION-0"
    bug.mkdir(parents=True)
    model(bug)
    (bug / "oracle.pkl").write_bytes(pickle.dumps(oracle))
    (bug / "gir.pkl").write_bytes(pickle.dumps(Command(folder / "called")))
    (bug / "model.pth").write_bytes(b"PK\x03\x04")
    (bug / "err.log").write_text("AssertionError: Not equal to tolerance rtol=0.01, atol=0.01")
    told = {
        "system": "onnxruntime",
        "symptom": "Symptom.INCONSISTENCY",
        "stage": "Stage.VERIFICATION",
        "version": "1",
    }
    (bug / "meta.json").write_text(json.dumps(told))
    return bug


@good("NNSmith bug")
def nnsmith_mismatch(folder: Path) -> None:
    nnsmith(folder, {"input": X, "output": Y, "provider": "torch[cpu] eager"})


@good("NNSmith bug")
def nnsmith_crash(folder: Path) -> None:
    nnsmith(folder, {"input": OrderedDict(X), "output": None, "provider": None})


@good("Polygraphy inputs", 2)
def polygraphy(folder: Path) -> None:
    model(folder, "net.onnx")
    (folder / "inputs.json").write_text(json.dumps([feed(**X), feed(x=X["x"] + 1)], indent=4))


@good("model with .npz")
def own_npz(folder: Path) -> None:
    np.savez(model(folder, "net.onnx") / "net.npz", **X)


@good("model with .npz")
def inputs_npz(folder: Path) -> None:
    model(folder, "net.onnx")
    np.savez(folder / "inputs.npz", **X)
    np.savez(folder / "expected.npz", **Y)


@good("model")
def alone(folder: Path) -> None:
    model(folder, "net.onnx")


@good("model", 2)
def linked_inside(folder: Path) -> None:
    model(folder, "net.onnx")
    (folder / "same.onnx").symlink_to("net.onnx")


@good("model")
def strange_name(folder: Path) -> None:
    model(folder, "a\x1b[31m b\n;rm -rf.onnx")


@bad("not an ONNX model")
def cut_model(folder: Path) -> None:
    model(folder, data=MODEL.model[:-7])


@bad("not an ONNX model")
def noise(folder: Path) -> None:
    model(folder, data=bytes(range(256)))


@bad("is empty")
def empty_model(folder: Path) -> None:
    model(folder, data=b"")


@bad("over the 2 GB")
def huge_model(folder: Path) -> None:
    with open(folder / "model.onnx", "wb") as file:
        file.truncate(5 << 30)  # a hole


@bad("a FIFO")
def fifo(folder: Path) -> None:
    os.mkfifo(folder / "model.onnx")


@bad("external data")
def external_data(folder: Path) -> None:
    proto = onnx.ModelProto.FromString(TWO.model)
    weight = proto.graph.initializer.add(name="b", data_type=1, dims=[2], data_location=1)
    weight.external_data.add(key="location", value=f"../../{SECRET}")
    model(folder, data=proto.SerializeToString())


@bad("no value for the input 'b'")
def missing_input(folder: Path) -> None:
    np.savez(model(folder, data=TWO.model) / "inputs.npz", a=np.zeros(2, np.float32))


@bad("cannot read")
def missing_file(folder: Path) -> None:
    save(Case(TWO, {name: np.zeros(2, np.float32) for name in "ab"}), folder / "test")
    (folder / "test" / "case.json").unlink()
    (folder / "test" / "test_data_set_0" / "input_1.pb").unlink()


@bad("pickled objects")
def pickled_npz(folder: Path) -> None:
    np.savez(
        model(folder) / "inputs.npz", x=np.array([Command(folder / "called")], object), allow_pickle=True
    )


@bad("declares")
def bomb_npz(folder: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(1, np.float32))
    with zipfile.ZipFile(model(folder) / "inputs.npz", "w") as archive:
        archive.writestr(
            "x.npy", file.getvalue().replace(b"(1,), ", b"(9999999999,), ").replace(b" " * 9 + b"\n", b"\n")
        )


@bad("not an array")
def hostile_oracle(folder: Path) -> None:
    nnsmith(folder, {"input": {"x": Command(folder / "called")}, "output": None})


@bad("not an oracle of arrays")
def cut_oracle(folder: Path) -> None:
    path = nnsmith(folder, {"input": X, "output": Y}) / "oracle.pkl"
    path.write_bytes(path.read_bytes()[:-9])


@bad("which may be wrong")
def polygraphy_outputs(folder: Path) -> None:
    results = [["onnxrt", [{"outputs": feed(**Y), "polygraphy_class": "IterationResult"}]]]
    (model(folder) / "out.json").write_text(json.dumps({"lst": results, "polygraphy_class": "RunResults"}))


@bad("is 'Tensor' instead of an array")
def polygraphy_torch(folder: Path) -> None:
    (model(folder) / "in.json").write_text(
        json.dumps([{"x": {"tensor": "UEsDBA==", "polygraphy_class": "Tensor"}}])
    )


@bad("pickled objects")
def polygraphy_pickle(folder: Path) -> None:
    array = npy(np.array([Command(folder / "called")], object), pickled=True)
    (model(folder) / "in.json").write_text(
        json.dumps([{"x": {"array": array, "polygraphy_class": "ndarray"}}])
    )


@bad("JSON")
def deep_json(folder: Path) -> None:
    (model(folder) / "in.json").write_text('{"polygraphy_class":' + "[" * 100_000)


@bad("case.json")
def broken_case(folder: Path) -> None:
    case(folder)
    (folder / "case" / "case.json").write_text('{"format": 1')


@bad("format")
def future_case(folder: Path) -> None:
    case(folder)
    (folder / "case" / "case.json").write_text('{"format": 99}')


@bad("a link out of the folder")
def link_out(folder: Path) -> None:
    (folder / "model.onnx").symlink_to(folder.parent.parent / SECRET)


@bad("a link out of the folder")
def link_out_of_a_data_set(folder: Path) -> None:
    onnxruntime_test(folder)
    path = folder / "test_relu_neg" / "test_data_set_0" / "input_0.pb"
    path.unlink()
    path.symlink_to(folder.parent.parent / SECRET)


@bad("leads nowhere")
def dangling(folder: Path) -> None:
    (folder / "model.onnx").symlink_to("none.onnx")


@bad("leads nowhere")
def circle(folder: Path) -> None:
    (folder / "model.onnx").symlink_to("model.onnx")


@bad("a link to a folder")
def loop(folder: Path) -> None:
    (folder / "again").symlink_to("..")


@bad("too deep")
def deep(folder: Path) -> None:
    inner = folder.joinpath(*"abcdefghij")
    inner.mkdir(parents=True)
    model(inner)


@bad("an archive")
def archive(folder: Path) -> None:
    (folder / "resnet.tar.gz").write_bytes(b"\x1f\x8b")


@bad("another format")
def torch_model(folder: Path) -> None:
    (folder / "model.pt").write_bytes(b"PK")


@bad("holds values")
def values(folder: Path) -> None:
    np.savez(folder / "inputs.npz", **X)


@bad("a pickle")
def lone_pickle(folder: Path) -> None:
    (folder / "oracle.pkl").write_bytes(pickle.dumps(Command(folder / "called")))


def build(folder: Path, rounds: int = 1) -> int:
    """Make every thing `rounds` times in `folder`, which gets a neighbour; how many things."""
    folder.mkdir(parents=True)
    model(folder.parent, SECRET, HIDDEN.model)
    makers = {**{name: one[-1] for name, one in GOOD.items()}, **{name: one[-1] for name, one in BAD.items()}}
    for number in range(rounds):
        for name, make in makers.items():
            place = folder / f"{name}-{number}"
            place.mkdir()
            make(place)
    return rounds * len(makers)


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), int((sys.argv[2:] or ["1"])[0])))
