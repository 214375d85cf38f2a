"""The part of the hostile corpus that is about values and saved cases: archives, data sets, case.json."""

import io
import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import valid_models
from onnx import TensorProto

from opsieve.gen.case.case import Case, save
from opsieve.gen.irs.onnx.program import OnnxProgram

FLOAT = TensorProto.FLOAT


def archives(home: Path) -> Iterator[tuple[Path, str]]:
    """Folders with a sound model and an inputs.npz that is not."""
    good = np.zeros((2, 3), np.float32)
    header = _npy(good)
    intact = _npz({"x": header})
    archives: dict[str, bytes] = {
        "empty": b"",
        "text": b"not a zip",
        "an .npy": header,
        "truncated": intact[: len(intact) // 2],
        "the end cut off": intact[:-10],
        "a flipped bit in the data": (
            _npz({"x": header}, method=zipfile.ZIP_STORED).replace(bytes(24), bytes(23) + b"\1")
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
        "a shape of 10^12": _npz(
            {"x": _header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}")}
        ),
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
        "encrypted": _encrypted(intact),
    }
    for number, (why, data) in enumerate(archives.items()):
        place = home / str(number)
        place.mkdir()
        valid_models.model_file(place, valid_models.plain())
        valid_models.file(place / "inputs.npz", data)
        yield place, f"inputs.npz: {why}"
    for number, (name, data) in enumerate(
        (("expected.npz", b"junk"), ("expected.npz", _npz({"y": _npy(good[:1])})))
    ):
        place = home / f"expected-{number}"
        place.mkdir()
        valid_models.model_file(place, valid_models.plain())
        valid_models.file(place / "inputs.npz", intact)
        valid_models.file(place / name, data)
        yield place, f"{name}: {len(data)} bytes that do not fit"
    place = home / "pipe"
    place.mkdir()
    valid_models.model_file(place, valid_models.plain())
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


def cases(home: Path) -> Iterator[tuple[Path, str]]:
    """Saved cases, damaged afterwards."""
    program = OnnxProgram(valid_models.plain().SerializeToString(), "plain")
    x = np.ones((2, 3), np.float32)
    case = Case(program, {"x": x}, {"y": x})
    whole = (
        '{"format": 1, "name": "n", "origin": {"generator": "g", "seed": 1, "versions": {}, "inputs": ""},'
        ' "knobs": {}}'
    )
    texts = {
        "empty": "",
        "no JSON": "format = 1",
        "cut short": whole[:50],
        "a list": "[1]",
        "null": "null",
        "a newer format": whole.replace('"format": 1', '"format": 3'),
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
        "an input from another file": (
            "test_data_set_0/input_0.pb",
            valid_models.external("../../../secret").SerializeToString(),
        ),
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
