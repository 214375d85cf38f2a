"""A corpus of corrupt and hostile inputs, made the same at every call: each must end in one sentence, whatever reads it."""

import io
import json
import os
import pickle
import random
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.gen.case import Case, save
from opsieve.gen.program import Program
from opsieve.gen.structure import check_structure

FLOAT = TensorProto.FLOAT
Change = Callable[[onnx.ModelProto], object]

_CHECK = """
import json, struct, sys
from opsieve.gen.model import check
data, answers = sys.stdin.buffer, []
while head := data.read(8):
    answers.append(check(data.read(struct.unpack("<Q", head)[0])))
print(json.dumps(answers))
"""


def checker_complaints(models: list[bytes]) -> list[str]:
    """What ONNX's checker says of each model, asked in one process of its own."""
    stream = b"".join(struct.pack("<Q", len(model)) + model for model in models)
    done = subprocess.run([sys.executable, "-c", _CHECK], input=stream, capture_output=True, check=True)
    answers: list[str] = json.loads(done.stdout)
    return answers


def plain() -> onnx.ModelProto:
    """x float[2,3] -> Mul by w -> Relu -> y, and a scale s that is a typed field."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "s"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    weights = [
        helper.make_tensor("w", FLOAT, [2, 3], np.arange(6, dtype=np.float32).tobytes(), raw=True),
        helper.make_tensor("s", FLOAT, [3], [1.0, 2.0, 3.0]),
    ]
    return _model(nodes, weights)


def branching() -> onnx.ModelProto:
    """As `plain`, with an If whose branches use names around them."""
    branches = {}
    for side, operator in (("then", "Relu"), ("else", "Neg")):
        out = helper.make_tensor_value_info(f"{side}_out", FLOAT, [2, 3])
        branches[f"{side}_branch"] = helper.make_graph(
            [helper.make_node(operator, ["x"], [f"{side}_out"])], side, [], [out]
        )
    nodes = [helper.make_node("If", ["c"], ["y"], **branches)]
    return _model(nodes, [helper.make_tensor("c", TensorProto.BOOL, [], [True])])


def functional() -> onnx.ModelProto:
    """y = f(x), f being a function of the model."""
    model = _model([helper.make_node("f", ["x"], ["y"], domain="local")], [])
    model.opset_import.append(helper.make_opsetid("local", 1))
    body = [helper.make_node("Abs", ["p"], ["q"]), helper.make_node("Sqrt", ["q"], ["r"])]
    model.functions.append(helper.make_function("local", "f", ["p"], ["r"], body, [helper.make_opsetid("", 18)]))
    return model


def corpus(folder: Path) -> list[tuple[Path, str]]:
    """Write the corpus under `folder`; paths for a command to be given, each with what is wrong there."""
    made: list[tuple[Path, str]] = []
    for family in (_damaged, _other_formats, _places, _outside, _tensors, _graphs, _archives, _cases):
        home = folder / family.__name__.strip("_")
        home.mkdir(parents=True)
        made += family(home)
    return made


def _model(nodes: list[onnx.NodeProto], weights: list[TensorProto]) -> onnx.ModelProto:
    shape = [2, 3]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _damaged(home: Path) -> Iterator[tuple[Path, str]]:
    """Truncated and bit-flipped models, of which only those count that ONNX refuses: a flipped name can well be valid."""
    bases = [model.SerializeToString() for model in (plain(), branching(), functional())]
    dice = random.Random(20)
    candidates: list[tuple[str, bytes]] = []
    for base in bases:
        candidates += [
            (f"truncated to {size} of {len(base)} bytes", base[:size])
            for size in sorted(dice.sample(range(1, len(base)), 16))
        ]
        for place in sorted(dice.sample(range(len(base) * 8), 120)):
            flipped = bytearray(base)
            flipped[place // 8] ^= 1 << place % 8
            candidates.append((f"bit {place} of {len(base)} bytes flipped", bytes(flipped)))
    doubtful = [data for _, data in candidates if not _broken(data)]
    accepted = {data for data, complaint in zip(doubtful, checker_complaints(doubtful), strict=True) if not complaint}
    invalid = [(why, data) for why, data in candidates if data not in accepted]
    for number, (why, data) in enumerate(invalid):
        yield _file(home / f"{number}.onnx", data), why


def _broken(data: bytes) -> bool:
    try:
        check_structure(onnx.ModelProto.FromString(data))
    except Exception:  # noqa: BLE001 protobuf raises a class of its own that has no type information
        return True
    return False


def _other_formats(home: Path) -> Iterator[tuple[Path, str]]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model.onnx", plain().SerializeToString())
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    dice = random.Random(1)
    contents = {
        "empty": b"",
        "text": b"this is not a model\n" * 20,
        "newline": b"\n",
        "html": b"<!DOCTYPE html><html><body>404: not found</body></html>",
        "json": b'{"ir_version": 8, "graph": {}}',
        "protobuf text": b'ir_version: 8\ngraph { name: "g" }\n',
        "git lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "zip": archive.getvalue(),
        "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(64),
        "elf": b"\x7fELF\x02\x01\x01" + bytes(57),
        "gzip": b"\x1f\x8b\x08\0" + bytes(32),
        "npy": array.getvalue(),
        "pickle": pickle.dumps({"graph": [1, 2, 3]}),
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(64),
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "random kilobyte": dice.randbytes(1024),
        "random megabyte": dice.randbytes(1 << 20),
        "length without end": b"\x3a\xff\xff\xff\xff\x0f",
        "one long field": b"\x3a" + b"\x80" * 11 + b"\x01",
        "deep groups": b"\x0b" * 100_000,
    }
    for number, (why, data) in enumerate(contents.items()):
        yield _file(home / f"{number}.onnx", data), why


def _places(home: Path) -> Iterator[tuple[Path, str]]:
    yield home / "missing.onnx", "nothing there"
    yield home / ("long" * 100), "a name longer than the system takes"
    yield home / "no\nsuch\x1b[31m.onnx", "a name with a line break and a control sequence"
    yield home / "nul\0.onnx", "a name with a NUL"
    for name in ("empty", "folder.onnx", "nested"):
        (home / name).mkdir()
    (home / "nested" / "model.onnx").mkdir()
    yield home / "empty", "an empty folder"
    yield home / "folder.onnx", "a folder with a model's name"
    yield home / "nested", "a folder whose model.onnx is a folder"
    os.mkfifo(home / "pipe.onnx")
    yield home / "pipe.onnx", "a FIFO"
    os.mknod(home / "socket.onnx", stat.S_IFSOCK | 0o600)
    yield home / "socket.onnx", "a socket"
    for name, target in (
        ("zero", "/dev/zero"),
        ("loop", "loop.onnx"),
        ("dangling", "nowhere"),
        ("pipe-link", "pipe.onnx"),
    ):
        (home / f"{name}.onnx").symlink_to(target)
        yield home / f"{name}.onnx", f"a link to {target}"
    yield home / "zero.onnx" / "model.onnx", "a path through a device"
    with (home / "big.onnx").open("wb") as file:
        file.truncate(2**31 + 10)
    yield home / "big.onnx", "a sparse file over 2 GB"
    (home / "piped").mkdir()
    os.mkfifo(home / "piped" / "model.onnx")
    yield home / "piped", "a folder whose model is a FIFO"


def _outside(home: Path) -> Iterator[tuple[Path, str]]:
    """External data that is somewhere else, or not what it should be."""
    (home / "secret").write_bytes(bytes(24))
    locations = {
        "/etc/passwd": {},
        "../secret": {},
        "../../../../../../etc/passwd": {},
        "a/../../secret": {},
        "data/../../secret": {},
        "..": {},
        ".": {},
        "": {},
        "~/secret": {},
        "\\\\host\\share": {},
        "..\\secret": {},
        "missing.bin": {},
        "no/such/folder": {},
        "nul\0": {},
        "long" * 2000: {},
        "link-out": {},
        "folder-out/secret": {},
        "pipe": {},
        "device": {},
        "folder": {},
        "loop": {},
        "data ": {},
        "data": {"offset": "-1"},
        "./data": {"offset": "9223372036854775808"},
        "data?": {"offset": "1" + "0" * 30},
        "short": {},
    }
    numbers = [
        {"offset": "9223372036854775807"},
        {"offset": "18446744073709551615"},
        {"offset": "1" + "0" * 5000},
        {"offset": "1e3"},
        {"offset": " 1"},
        {"offset": "0x10"},
        {"offset": ""},
        {"offset": "٣"},
        {"offset": "1"},
        {"length": "-24"},
        {"length": "23"},
        {"length": "25"},
        {"length": "9223372036854775807"},
        {"offset": "24", "length": "24"},
    ]
    entries = [{"location": location, **more} for location, more in locations.items()] + [
        {"location": "data", **more} for more in numbers
    ]
    for number, entry in enumerate(entries):
        place = _external_home(home, number)
        model = plain()
        _make_external(model.graph.initializer[0], entry)
        yield _model_file(place, model), f"external data {str(entry)[:80]}"
    spots: dict[str, Change] = {
        "in a constant": lambda m: m.graph.node.insert(
            0, helper.make_node("Constant", [], ["k"], value=_external("../../secret"))
        ),
        "in a function": lambda m: m.functions[0].node.insert(
            0, helper.make_node("Constant", [], ["k"], value=_external("../../secret"))
        ),
        "in a branch": lambda m: m.graph.node[0].attribute[0].g.initializer.append(_external("../../secret")),
        "as strings": lambda m: m.graph.initializer.append(_external("data", TensorProto.STRING)),
        "of 3 GB": lambda m: m.graph.initializer.append(_external("sparse", dims=(3 << 28,))),
        "of unknown type": lambda m: m.graph.initializer.append(_external("data", 77)),
        "of negative size": lambda m: m.graph.initializer.append(_external("data", dims=(-6,))),
        "again and again": lambda m: m.graph.initializer.extend(
            _external("sparse", dims=(1 << 26,), name=f"t{n}") for n in range(16)
        ),
        "and inline data": lambda m: m.graph.initializer.append(_external("data", raw=bytes(24))),
    }
    for why, change in spots.items():
        place = _external_home(home, len(list(home.iterdir())))
        model = functional() if "function" in why else branching() if "branch" in why else plain()
        change(model)
        yield _model_file(place, model), f"external data {why}"


def _external_home(home: Path, number: int) -> Path:
    place = home / str(number)
    place.mkdir()
    (place / "data").write_bytes(bytes(24))
    (place / "short").write_bytes(bytes(4))
    (place / "folder").mkdir()
    (place / "link-out").symlink_to("../secret")
    (place / "folder-out").symlink_to("..")
    (place / "device").symlink_to("/dev/zero")
    (place / "loop").symlink_to("loop")
    os.mkfifo(place / "pipe")
    with (place / "sparse").open("wb") as file:
        file.truncate(3 << 30)
    return place


def _make_external(tensor: TensorProto, entries: dict[str, str]) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def _external(
    location: str, data_type: int = FLOAT, dims: tuple[int, ...] = (2, 3), name: str = "e", raw: bytes = b""
) -> TensorProto:
    tensor = TensorProto(name=name, data_type=data_type, dims=dims)
    _make_external(tensor, {"location": location})
    if raw:
        tensor.raw_data = raw
    return tensor


def _tensors(home: Path) -> Iterator[tuple[Path, str]]:
    """Initializers whose declaration and data disagree."""
    giant = 10**9
    tensors = [TensorProto(data_type=number, dims=[giant]) for number in TensorProto.DataType.values() if number]
    tensors += [
        TensorProto(data_type=FLOAT, dims=dims, raw_data=bytes(24))
        for dims in (
            [giant],
            [5],
            [7],
            [-6],
            [-2, -3],
            [1 << 62, 4],
            [1 << 32, 1 << 32],
            [0],
            [2**63 - 1] * 20,
            [1] * 65,
            [1] * 100_000,
        )
    ]
    tensors += [
        TensorProto(data_type=FLOAT, dims=[2], float_data=[1.0]),
        TensorProto(data_type=FLOAT, dims=[2], float_data=[1.0] * 3),
        TensorProto(data_type=FLOAT, dims=[2], int64_data=[1, 2]),
        TensorProto(data_type=FLOAT, dims=[2], float_data=[1.0, 2.0], raw_data=bytes(8)),
        TensorProto(data_type=TensorProto.STRING, dims=[2], string_data=[b"one"]),
        TensorProto(data_type=TensorProto.STRING, dims=[2], raw_data=b"ab"),
        TensorProto(data_type=TensorProto.INT4, dims=[3], raw_data=b"a"),
        TensorProto(data_type=TensorProto.UINT2, dims=[9], raw_data=b"ab"),
        TensorProto(data_type=TensorProto.COMPLEX64, dims=[2], float_data=[1.0, 2.0]),
        TensorProto(data_type=0, dims=[1], raw_data=bytes(4)),
        TensorProto(data_type=99, dims=[1], raw_data=bytes(4)),
        TensorProto(data_type=-1, dims=[1], raw_data=bytes(4)),
        TensorProto(data_type=FLOAT, dims=[1], raw_data=bytes(4), segment=TensorProto.Segment(begin=0, end=10**12)),
    ]
    for number, tensor in enumerate(tensors):
        tensor.name = "t"
        model = plain()
        model.graph.initializer.append(tensor)
        yield (
            _model_file(home, model, f"{number}.onnx"),
            f"an initializer of type {tensor.data_type}, dimensions {str(tensor.dims)[:40]}",
        )
    for number, change in enumerate((_constant, _sparse, _sparse_shape)):
        model = plain()
        change(model)
        yield _model_file(home, model, f"more-{number}.onnx"), f"a tensor of a wrong size, {change.__name__}"


def _constant(model: onnx.ModelProto) -> None:
    model.graph.node.insert(
        0, helper.make_node("Constant", [], ["k"], value=TensorProto(data_type=FLOAT, dims=[10**9]))
    )


def _sparse(model: onnx.ModelProto) -> None:
    values = TensorProto(name="k", data_type=FLOAT, dims=[10**9])
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, dims=[10**9]))


def _sparse_shape(model: onnx.ModelProto) -> None:
    values, indices = helper.make_tensor("k", FLOAT, [1], [1.0]), helper.make_tensor("", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[-5]))


def _graphs(home: Path) -> Iterator[tuple[Path, str]]:
    node = helper.make_node

    def swap(m: onnx.ModelProto) -> None:
        m.graph.node[0].input[0], m.graph.node[2].input[0] = "b", "a"

    def ring(m: onnx.ModelProto) -> None:
        del m.graph.node[:]
        m.graph.node.extend(node("Relu", [f"v{(place - 1) % 5000}"], [f"v{place}"]) for place in range(5000))
        m.graph.node.append(node("Relu", ["v4999"], ["y"]))

    changes: dict[str, Change] = {
        "a cycle of two nodes": swap,
        "a cycle of 5000 nodes": ring,
        "a node that feeds itself": lambda m: m.graph.node[0].input.__setitem__(0, "a"),
        "nodes out of order": lambda m: m.graph.node.insert(0, m.graph.node[2]),
        "a value that nobody makes": lambda m: m.graph.node[1].input.__setitem__(0, "nowhere"),
        "an output that nobody makes": lambda m: m.graph.output.append(helper.make_tensor_value_info("z", FLOAT, [1])),
        "an output without a name": lambda m: m.graph.output[0].ClearField("name"),
        "a node twice": lambda m: m.graph.node.append(m.graph.node[0]),
        "two outputs of one name": lambda m: m.graph.node[0].output.append("a"),
        "an output that is an input": lambda m: m.graph.node[0].output.__setitem__(0, "x"),
        "an output that is an initializer": lambda m: m.graph.node[0].output.__setitem__(0, "w"),
        "an input twice": lambda m: m.graph.input.append(m.graph.input[0]),
        "an initializer twice": lambda m: m.graph.initializer.append(m.graph.initializer[0]),
        "an initializer without a name": lambda m: m.graph.initializer[0].ClearField("name"),
        "an initializer that is no input, under IR 3": lambda m: setattr(m, "ir_version", 3),
        "no graph": lambda m: m.ClearField("graph"),
        "an empty graph": lambda m: m.graph.Clear(),
        "no IR version": lambda m: m.ClearField("ir_version"),
        "a negative IR version": lambda m: setattr(m, "ir_version", -5),
        "no operator set": lambda m: m.ClearField("opset_import"),
        "an operator without a name": lambda m: m.graph.node[0].ClearField("op_type"),
        "an unknown element type of an input": lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99),
        "an unknown element type of an output": lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", -3),
        "an unknown element type of a value": lambda m: m.graph.value_info.append(
            helper.make_tensor_value_info("a", 1000, [1])
        ),
        "an input of 10^18 elements": lambda m: (
            m.graph.input[0].type.tensor_type.shape.dim[0].__setattr__("dim_value", 10**18)
        ),
    }
    for number, (why, change) in enumerate(changes.items()):
        model = plain()
        change(model)
        yield _model_file(home, model, f"{number}.onnx"), why
    inner: dict[str, Change] = {
        "a branch that defines a name around it": lambda m: (
            m.graph.node[0].attribute[0].g.node[0].output.__setitem__(0, "x")
        ),
        "a branch that uses its own output": lambda m: (
            m.graph.node[0].attribute[0].g.node[0].input.__setitem__(0, "then_out")
        ),
        "a branch that uses the other's value": lambda m: (
            m.graph.node[0].attribute[0].g.node[0].input.__setitem__(0, "else_out")
        ),
        "a branch whose output nobody makes": lambda m: setattr(m.graph.node[0].attribute[0].g.output[0], "name", "z"),
    }
    called: dict[str, Change] = {
        "a function that calls itself": lambda m: m.functions[0].node.append(node("f", ["r"], ["t"], domain="local")),
        "functions that call each other": _mutual,
        "a function twice": lambda m: m.functions.append(m.functions[0]),
        "a function that uses a name outside": lambda m: m.functions[0].node[0].input.__setitem__(0, "x"),
        "a function whose output nobody makes": lambda m: m.functions[0].output.__setitem__(0, "z"),
        "a function with an input twice": lambda m: m.functions[0].input.append("p"),
        "a function that defines its input": lambda m: m.functions[0].node[0].output.__setitem__(0, "p"),
    }
    for base, changes in ((branching, inner), (functional, called)):
        for number, (why, change) in enumerate(changes.items()):
            model = base()
            change(model)
            yield _model_file(home, model, f"{base.__name__}-{number}.onnx"), why
    data = plain().SerializeToString()
    for depth in (26, 30, 200, 20_000):
        yield _file(home / f"nested-{depth}.onnx", data + _field(7, _nested(depth))), f"graphs nested {depth} deep"
    for number, name in enumerate((b"Relu", b"x", b"local")):
        source = functional().SerializeToString() if name == b"local" else data
        tag = bytes([len(name)]) + name
        yield (
            _file(home / f"text-{number}.onnx", source.replace(tag, bytes([len(name)]) + b"\xff" * len(name))),
            f"{name!r} no UTF-8",
        )


def _nested(depth: int) -> bytes:
    """A GraphProto, as bytes, with a node that has a graph that has a node, and so on; protobuf's own classes refuse to make it."""
    parts = [b""]
    size = 0
    for _ in range(depth):  # from the innermost outwards: what comes before the inner graph's bytes
        operator = _field(4, b"If") + _field(1, b"x")
        for number, before in ((6, b"\xa0\x01\x05" + _field(1, b"g")), (5, operator), (1, b"")):
            head = before + _length(number, size)
            parts.append(head)
            size += len(head)
    return b"".join(reversed(parts))


def _field(number: int, data: bytes) -> bytes:
    return _length(number, len(data)) + data


def _length(number: int, size: int) -> bytes:
    varint = bytearray([number << 3 | 2])
    while size > 127:
        varint.append(size & 127 | 128)
        size >>= 7
    return bytes([*varint, size])


def _mutual(model: onnx.ModelProto) -> None:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    for here, there in (("g", "h"), ("h", "g")):
        body = [helper.make_node(there, ["p"], ["r"], domain="local")]
        model.functions.append(helper.make_function("local", here, ["p"], ["r"], body, imports))


def _archives(home: Path) -> Iterator[tuple[Path, str]]:
    """Folders with a sound model and an inputs.npz that is not."""
    good = np.zeros((2, 3), np.float32)
    header = _npy(good)
    sound = _npz({"x": header})
    archives: dict[str, bytes] = {
        "empty": b"",
        "text": b"not a zip",
        "an .npy": header,
        "truncated": sound[: len(sound) // 2],
        "the end cut off": sound[:-10],
        "a flipped bit in the data": _npz({"x": header}, method=zipfile.ZIP_STORED).replace(
            bytes(24), bytes(23) + b"\1"
        ),
        "nothing in it": _npz({}),
        "another name": _npz({"z": header}),
        "an entry too many": _npz({"x": header, "z": header}),
        "a position too many": _npz({"i0": header, "i1": header}),
        "a wrong position": _npz({"i7": header}),
        "a path as a name": _npz({"../../x": header}),
        "an entry that is no array": _npz({"x": b"hello"}),
        "an entry cut short": _npz({"x": header[:-4]}),
        "data too long": _npz({"x": header + bytes(8)}),
        "no .npy at all": _npz({"x": header}, suffix=".txt"),
        "two entries of one name": _npz({"x": header}, twice=True),
        "float64": _npz({"x": _npy(good.astype(np.float64))}),
        "int32": _npz({"x": _npy(good.astype(np.int32))}),
        "raw void": _npz({"x": _npy(good.view("V4"))}),
        "records": _npz({"x": _npy(np.zeros(6, [("a", "f4")]))}),
        "dates": _npz({"x": _npy(np.zeros((2, 3), "M8[s]"))}),
        "strings": _npz({"x": _npy(np.full((2, 3), "text"))}),
        "shape [3, 2]": _npz({"x": _npy(good.T.copy())}),
        "shape [6]": _npz({"x": _npy(good.ravel())}),
        "no shape": _npz({"x": _npy(np.float32(1))}),
        "pickled objects": _npz({"x": _npy(np.array([[print] * 3] * 2, dtype=object))}),
        "a shape of 10^12": _npz({"x": _header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}")}),
        "a negative shape": _npz(
            {"x": _header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}") + bytes(24)}
        ),
        "a header that is code": _npz({"x": _header("__import__('os').system('true')")}),
        "a header of brackets": _npz({"x": _header("(" * 5000)}),
        "a header of signs": _npz({"x": _header("-" * 9000 + "1")}),
        "a header of 60 kB": _npz({"x": _header(" " * 60000)}),
        "a descr of objects": _npz(
            {"x": _header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}") + bytes(24)}
        ),
        "version 9 of the format": _npz({"x": header.replace(b"NUMPY\1", b"NUMPY\x09")}),
        "packed with LZMA": _npz({"x": header}, method=zipfile.ZIP_LZMA),
        "packed with bzip2": _npz({"x": header}, method=zipfile.ZIP_BZIP2),
        "a bomb of 10 entries of 1 GB": _npz({f"x{n}": header for n in range(10)}, claim=1 << 30),
        "an entry that claims 3 GB": _npz({"x": header}, claim=3 << 30),
        "an entry that claims less than it holds": _npz({"x": header}, claim=len(header) - 4),
        "a megabyte per byte": _npz(
            {"x": _header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}") + bytes(64 << 20)}
        ),
        "20000 entries": _npz({f"x{n}": b"" for n in range(20_000)}),
        "encrypted": _encrypted(sound),
    }
    for number, (why, data) in enumerate(archives.items()):
        place = home / str(number)
        place.mkdir()
        _model_file(place, plain())
        _file(place / "inputs.npz", data)
        yield place, f"inputs.npz: {why}"
    for number, (name, data) in enumerate((("expected.npz", b"junk"), ("expected.npz", _npz({"y": _npy(good[:1])})))):
        place = home / f"expected-{number}"
        place.mkdir()
        _model_file(place, plain())
        _file(place / "inputs.npz", sound)
        _file(place / name, data)
        yield place, f"{name}: {len(data)} bytes that do not fit"
    place = home / "pipe"
    place.mkdir()
    _model_file(place, plain())
    os.mkfifo(place / "inputs.npz")
    yield place, "inputs.npz is a FIFO"


def _npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n"


def _npz(
    entries: dict[str, bytes],
    suffix: str = ".npy",
    method: int = zipfile.ZIP_DEFLATED,
    claim: int | None = None,
    twice: bool = False,
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name + suffix), data, method)
        for info in archive.infolist() if claim is not None else ():
            info.file_size = claim or 0
        if twice:
            archive.filelist.append(archive.filelist[0])
    return file.getvalue()


def _encrypted(archive: bytes) -> bytes:
    """The same archive with the bit set that says that its entries are encrypted, in both places."""
    data = bytearray(archive)
    data[6] |= 1
    data[archive.index(b"PK\1\2") + 8] |= 1
    return bytes(data)


def _cases(home: Path) -> Iterator[tuple[Path, str]]:
    """Saved cases, damaged afterwards."""
    program = Program(plain().SerializeToString(), "plain")
    x = np.ones((2, 3), np.float32)
    case = Case(program, {"x": x}, {"y": x})
    whole = (
        '{"format": 1, "name": "n", "origin": {"generator": "g", "seed": 1, "versions": {}, "inputs": ""}, "knobs": {}}'
    )
    texts = {
        "empty": "",
        "no JSON": "format = 1",
        "cut short": whole[:50],
        "a list": "[1]",
        "null": "null",
        "a newer format": whole.replace('"format": 1', '"format": 2'),
        "a far newer format with other fields": '{"format": 999, "what": "ever"}',
        "format 0": whole.replace('"format": 1', '"format": 0'),
        "format as text": whole.replace('"format": 1', '"format": "1"'),
        "a giant format": whole.replace('"format": 1', '"format": 1' + "0" * 400),
        "no format": whole.replace('"format": 1, ', ""),
        "no origin": '{"format": 1, "name": "n", "knobs": {}}',
        "an unknown field": whole[:-1] + ', "extra": 1}',
        "a number as name": whole.replace('"n"', "7"),
        "a knob that is no text": whole.replace('"knobs": {}', '"knobs": {"threads": 1}'),
        "100,000 brackets": "[" * 100_000,
        "nested objects": '{"format": 1, "name": ' + '{"a":' * 50_000,
        "two values": whole + whole,
        "a seed that is no number": whole.replace('"seed": 1', '"seed": 1.5'),
    }
    for number, (why, text) in enumerate(texts.items()):
        place = home / f"json-{number}"
        save(case, place)
        (place / "case.json").write_text(text)
        yield place, f"case.json: {why}"
    giant = TensorProto(data_type=FLOAT, dims=[10**9]).SerializeToString()
    files: dict[str, tuple[str, bytes | None]] = {
        "no model": ("model.onnx", None),
        "an empty model": ("model.onnx", b""),
        "no input": ("test_data_set_0/input_0.pb", None),
        "an empty input": ("test_data_set_0/input_0.pb", b""),
        "an input that is text": ("test_data_set_0/input_0.pb", b"hello"),
        "an input of 10^9 elements": ("test_data_set_0/input_0.pb", giant),
        "an input of another type": ("test_data_set_0/input_0.pb", _pb(x.astype(np.float64))),
        "an input of another shape": ("test_data_set_0/input_0.pb", _pb(x[:1])),
        "an input from another file": ("test_data_set_0/input_0.pb", _external("../../../secret").SerializeToString()),
        "an input too many": ("test_data_set_0/input_1.pb", _pb(x)),
        "an output too many": ("test_data_set_0/output_1.pb", _pb(x)),
        "an output of another shape": ("test_data_set_0/output_0.pb", _pb(x[:1])),
        "no UTF-8 in case.json": ("case.json", b'{"format": 1, "name": "\xff"}'),
    }
    for number, (why, (name, data)) in enumerate(files.items()):
        place = home / f"file-{number}"
        save(case, place)
        (place / name).unlink(missing_ok=True)
        if data is not None:
            (place / name).write_bytes(data)
        yield place, f"a case with {why}"
    for name in ("case.json", "model.onnx", "test_data_set_0/input_0.pb"):
        place = home / f"pipe-{Path(name).stem}"
        save(case, place)
        (place / name).unlink()
        os.mkfifo(place / name)
        yield place, f"a case whose {name} is a FIFO"


def _pb(array: np.ndarray) -> bytes:  # type: ignore[type-arg]
    data: bytes = onnx.numpy_helper.from_array(array).SerializeToString()
    return data


def _file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _model_file(place: Path, model: onnx.ModelProto, name: str = "model.onnx") -> Path:
    return _file(place / name, model.SerializeToString())


if __name__ == "__main__":  # write the corpus for a person or a command: python tests/hostile.py FOLDER
    for path, why in corpus(Path(sys.argv[1])):
        print(f"{path!s:70.70} {why}")
