"""A corpus of corrupt and hostile inputs, made the same at every call: each must end in one sentence,
whatever reads it.
"""

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
import valid_models
from hostile_values import archives, cases
from onnx import TensorProto, helper

from opsieve.gen.model.structure import check_structure

FLOAT = TensorProto.FLOAT
Change = Callable[[onnx.ModelProto], object]

_CHECK = """
import json, struct, sys
from opsieve.gen.irs.onnx.model_file import check
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


def corpus(folder: Path) -> list[tuple[Path, str]]:
    """Write the corpus under `folder`; paths for a command to be given, each with what is wrong there."""
    made: list[tuple[Path, str]] = []
    for family in (_damaged, _other_formats, _places, _outside, _tensors, _graphs, archives, cases):
        home = folder / family.__name__.strip("_")
        home.mkdir(parents=True)
        made += family(home)
    return made


def _damaged(home: Path) -> Iterator[tuple[Path, str]]:
    """Truncated and bit-flipped models, of which only those count that ONNX refuses: a flipped name can well
    be valid.
    """
    bases = [
        model.SerializeToString()
        for model in (valid_models.plain(), valid_models.branching(), valid_models.functional())
    ]
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
    accepted = {
        data for data, complaint in zip(doubtful, checker_complaints(doubtful), strict=True) if not complaint
    }
    invalid = [(why, data) for why, data in candidates if data not in accepted]
    for number, (why, data) in enumerate(invalid):
        yield valid_models.file(home / f"{number}.onnx", data), why


def _broken(data: bytes) -> bool:
    try:
        check_structure(onnx.ModelProto.FromString(data))
    except Exception:  # noqa: BLE001 protobuf raises a class of its own that has no type information
        return True
    return False


def _other_formats(home: Path) -> Iterator[tuple[Path, str]]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model.onnx", valid_models.plain().SerializeToString())
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
        yield valid_models.file(home / f"{number}.onnx", data), why


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
        model = valid_models.plain()
        valid_models.make_external(model.graph.initializer[0], entry)
        yield valid_models.model_file(place, model), f"external data {str(entry)[:80]}"
    spots: dict[str, Change] = {
        "in a constant": lambda m: m.graph.node.insert(
            0, helper.make_node("Constant", [], ["k"], value=valid_models.external("../../secret"))
        ),
        "in a function": lambda m: m.functions[0].node.insert(
            0, helper.make_node("Constant", [], ["k"], value=valid_models.external("../../secret"))
        ),
        "in a branch": lambda m: (
            m.graph.node[0].attribute[0].g.initializer.append(valid_models.external("../../secret"))
        ),
        "as strings": lambda m: m.graph.initializer.append(valid_models.external("data", TensorProto.STRING)),
        "of 3 GB": lambda m: m.graph.initializer.append(valid_models.external("sparse", dims=(3 << 28,))),
        "of unknown type": lambda m: m.graph.initializer.append(valid_models.external("data", 77)),
        "of negative size": lambda m: m.graph.initializer.append(valid_models.external("data", dims=(-6,))),
        "again and again": lambda m: m.graph.initializer.extend(
            valid_models.external("sparse", dims=(1 << 26,), name=f"t{n}") for n in range(16)
        ),
        "and inline data": lambda m: m.graph.initializer.append(valid_models.external("data", raw=bytes(24))),
    }
    for why, change in spots.items():
        place = _external_home(home, len(list(home.iterdir())))
        model = (
            valid_models.functional()
            if "function" in why
            else valid_models.branching()
            if "branch" in why
            else valid_models.plain()
        )
        change(model)
        yield valid_models.model_file(place, model), f"external data {why}"


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


def _tensors(home: Path) -> Iterator[tuple[Path, str]]:
    """Initializers whose declaration and data disagree."""
    giant = 10**9
    tensors = [
        TensorProto(data_type=number, dims=[giant]) for number in TensorProto.DataType.values() if number
    ]
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
        TensorProto(
            data_type=FLOAT, dims=[1], raw_data=bytes(4), segment=TensorProto.Segment(begin=0, end=10**12)
        ),
    ]
    for number, tensor in enumerate(tensors):
        tensor.name = "t"
        model = valid_models.plain()
        model.graph.initializer.append(tensor)
        yield (
            valid_models.model_file(home, model, f"{number}.onnx"),
            f"an initializer of type {tensor.data_type}, dimensions {str(tensor.dims)[:40]}",
        )
    for number, change in enumerate((_constant, _sparse, _sparse_shape)):
        model = valid_models.plain()
        change(model)
        yield (
            valid_models.model_file(home, model, f"more-{number}.onnx"),
            f"a tensor of a wrong size, {change.__name__}",
        )


def _constant(model: onnx.ModelProto) -> None:
    model.graph.node.insert(
        0, helper.make_node("Constant", [], ["k"], value=TensorProto(data_type=FLOAT, dims=[10**9]))
    )


def _sparse(model: onnx.ModelProto) -> None:
    values = TensorProto(name="k", data_type=FLOAT, dims=[10**9])
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, dims=[10**9]))


def _sparse_shape(model: onnx.ModelProto) -> None:
    values, indices = (
        helper.make_tensor("k", FLOAT, [1], [1.0]),
        helper.make_tensor("", TensorProto.INT64, [1], [0]),
    )
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
        "an output that nobody makes": lambda m: m.graph.output.append(
            helper.make_tensor_value_info("z", FLOAT, [1])
        ),
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
        "an unknown element type of an input": lambda m: setattr(
            m.graph.input[0].type.tensor_type, "elem_type", 99
        ),
        "an unknown element type of an output": lambda m: setattr(
            m.graph.output[0].type.tensor_type, "elem_type", -3
        ),
        "an unknown element type of a value": lambda m: m.graph.value_info.append(
            helper.make_tensor_value_info("a", 1000, [1])
        ),
        "an input of 10^18 elements": lambda m: (
            m.graph.input[0].type.tensor_type.shape.dim[0].__setattr__("dim_value", 10**18)
        ),
    }
    for number, (why, change) in enumerate(changes.items()):
        model = valid_models.plain()
        change(model)
        yield valid_models.model_file(home, model, f"{number}.onnx"), why
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
        "a branch whose output nobody makes": lambda m: setattr(
            m.graph.node[0].attribute[0].g.output[0], "name", "z"
        ),
    }
    called: dict[str, Change] = {
        "a function that calls itself": lambda m: m.functions[0].node.append(
            node("f", ["r"], ["t"], domain="local")
        ),
        "functions that call each other": _mutual,
        "a function twice": lambda m: m.functions.append(m.functions[0]),
        "a function that uses a name outside": lambda m: m.functions[0].node[0].input.__setitem__(0, "x"),
        "a function whose output nobody makes": lambda m: m.functions[0].output.__setitem__(0, "z"),
        "a function with an input twice": lambda m: m.functions[0].input.append("p"),
        "a function that defines its input": lambda m: m.functions[0].node[0].output.__setitem__(0, "p"),
    }
    for base, changes in ((valid_models.branching, inner), (valid_models.functional, called)):
        for number, (why, change) in enumerate(changes.items()):
            model = base()
            change(model)
            yield valid_models.model_file(home, model, f"{base.__name__}-{number}.onnx"), why
    data = valid_models.plain().SerializeToString()
    for depth in (26, 30, 200, 20_000):
        yield (
            valid_models.file(home / f"nested-{depth}.onnx", data + _field(7, _nested(depth))),
            f"graphs nested {depth} deep",
        )
    for number, name in enumerate((b"Relu", b"x", b"local")):
        source = valid_models.functional().SerializeToString() if name == b"local" else data
        tag = bytes([len(name)]) + name
        yield (
            valid_models.file(
                home / f"text-{number}.onnx", source.replace(tag, bytes([len(name)]) + b"\xff" * len(name))
            ),
            f"{name!r} no UTF-8",
        )


def _nested(depth: int) -> bytes:
    """A GraphProto, as bytes, with a node that has a graph that has a node, and so on; protobuf's own classes
    refuse to make it.
    """
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


# write the corpus for a person or a command: python tests/support/hostile.py FOLDER
if __name__ == "__main__":
    for path, why in corpus(Path(sys.argv[1])):
        print(f"{path!s:70.70} {why}")
