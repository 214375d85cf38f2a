"""Models, cases, values, modules and logs from a stranger for hostile_drill.py, besides those of
hostile.py.
"""

import gzip
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import valid_models
from hostile_stores import NUMBERS, TEXTS
from onnx import TensorProto, helper
from tvm_programs import RELAX, tir_program

from opsieve.gen.case.case import Case, save
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import make_inputs

Make = Callable[[Path], Path]  # in an empty folder; what the commands are given
FLOAT = TensorProto.FLOAT


def models() -> Iterator[tuple[str, Make]]:
    changes: dict[str, Callable[[onnx.ModelProto], object]] = {
        **{f"an input {depth} sequences deep": partial(_deep_type, depth) for depth in (3, 30, 45)},
        **{f"an input of {name}": partial(_input, dims) for name, dims in {
            "2^62 elements": [2**31, 2**31], "70 dimensions": [1] * 70, "no elements of 2^62": [0, 2**62],
            "-1": [-1], "20000 dimensions": [1] * 20_000, "10^10 elements": [10**5, 10**5]}.items()},
        **{f"{count} functions in each other": partial(_functions, count) for count in (30, 3000)},
        "functions that double": _doubling,
        "a function that calls itself": partial(_recursive, 1),
        "functions in a ring of 500": partial(_recursive, 500),
        "a tile of 2^40": partial(_tiles, 1, 2**40),
        "a chain of 400 tiles": partial(_tiles, 400, 3),
        "a name of a path": lambda m: setattr(m.graph, "name", "../../canary/papers"),
    }  # fmt: skip
    for what, change in changes.items():
        yield f"a model with {what}", partial(_model, change)
    for what, text in TEXTS.items():
        yield (
            f"a model whose names are {what}",
            partial(_named, text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")),
        )
    for what, entry in {
        "an absolute path": {"location": "/etc/passwd"}, "a path out": {"location": "../../canary/papers/text"},
        "a link out": {"location": "link"}, "a device": {"location": "device"}, "a pipe": {"location": "pipe"},
        "a sparse file": {"location": "sparse"}, "an offset of 2^63": {"location": "data", "offset": str(2**63)},
        "a length of -1": {"location": "data", "length": "-1"}}.items():  # fmt: skip
        yield f"a model whose data is {what}", partial(_external, entry, 1)
    yield "a sparse file used 3000 times", partial(_external, {"location": "sparse"}, 3000)


def _model(change: Callable[[onnx.ModelProto], object], place: Path) -> Path:
    model = valid_models.plain()
    change(model)
    return valid_models.model_file(place, model)


def _deep_type(depth: int, model: onnx.ModelProto) -> None:
    kind = helper.make_tensor_type_proto(FLOAT, [1])
    for _ in range(depth):
        kind = helper.make_sequence_type_proto(kind)
    model.graph.input.append(helper.make_value_info("deep", kind))


def _input(dims: list[int], model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("wide", FLOAT, dims))


def _called(model: onnx.ModelProto, bodies: list[list[str]]) -> None:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    for number, calls in enumerate(bodies):
        nodes = [
            helper.make_node(
                call,
                [f"v{at}" if at else "p"],
                [f"v{at + 1}" if at + 1 < len(calls) else "r"],
                domain="mine" if call[0] == "f" else "",
            )
            for at, call in enumerate(calls)
        ]
        model.functions.append(helper.make_function("mine", f"f{number}", ["p"], ["r"], nodes, imports))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    model.graph.node.append(helper.make_node("f0", ["x"], ["called"], domain="mine"))
    model.graph.output.append(helper.make_tensor_value_info("called", FLOAT, [2, 3]))


def _functions(count: int, model: onnx.ModelProto) -> None:
    _called(model, [*([f"f{number + 1}"] for number in range(count - 1)), ["Relu"]])


def _doubling(model: onnx.ModelProto) -> None:
    _called(model, [*([f"f{number + 1}"] * 2 for number in range(60)), ["Relu"]])


def _recursive(count: int, model: onnx.ModelProto) -> None:
    _called(model, [[f"f{(number + 1) % count}"] for number in range(count)])


def _tiles(steps: int, size: int, model: onnx.ModelProto) -> None:
    """A model that ONNX takes and that makes as many elements as no machine has: its limits end it."""
    del model.graph.node[:]
    model.graph.initializer.append(helper.make_tensor("times", TensorProto.INT64, [2], [size, 1]))
    names = ["x", *(f"t{at}" for at in range(steps))]
    model.graph.node.extend(
        helper.make_node("Tile", [old, "times"], [new]) for old, new in itertools.pairwise(names)
    )
    model.graph.node.append(helper.make_node("ReduceSum", [names[-1]], ["y"], keepdims=0))
    model.graph.output[0].type.tensor_type.ClearField("shape")


def _named(text: str, place: Path) -> Path:
    model = valid_models.plain()
    model.graph.name = model.producer_name = model.doc_string = text
    for node in model.graph.node:
        node.name = text
        node.op_type = text if node.op_type == "Relu" else node.op_type
        node.output[0] += "" if node is model.graph.node[-1] else text
    model.graph.input[0].name = text
    return valid_models.model_file(place, model)


def _external(entry: dict[str, str], times: int, place: Path) -> Path:
    (place / "link").symlink_to(place.parent.parent / "canary" / "papers" / "text")
    (place / "device").symlink_to("/dev/zero")
    os.mkfifo(place / "pipe")
    (place / "data").write_bytes(bytes(24))
    with (place / "sparse").open("wb") as file:
        file.truncate(600_000 if times > 1 else 3 << 30)
    model = valid_models.plain()
    dims = (150_000,) if times > 1 else (3 << 28,) if entry["location"] == "sparse" else (2, 3)
    for at in range(times):
        tensor = valid_models.external(entry["location"], dims=dims, name=f"w{at}")
        valid_models.make_external(tensor, entry)
        model.graph.initializer.append(tensor)
    return valid_models.model_file(place, model)


def cases() -> Iterator[tuple[str, Make]]:
    targets = [
        "../../x",
        "fake",
        "onnxruntime==0.0.1",
        "onnxruntime@/tmp/build",
        "onnxruntime:a=b",
        "x" * 9000,
        "\x1b[2J",
        "os.system",
        "",
        "torch==9.9.9",
    ]
    for target in targets:
        yield f"a case for {target[:20]!r}", partial(_case, {"knobs": {"target": target}})
    for what, text in TEXTS.items():
        yield (
            f"a case whose texts are {what}",
            partial(
                _case,
                {
                    "name": text,
                    "origin": {"generator": text, "seed": 1, "versions": {text: text}, "inputs": text},
                    "knobs": {text: text, "target": "reference"},
                },
            ),
        )
    for what, data in {
        "brackets": b"[" * 1_000_000, "objects in each other": b'{"knobs":' * 50_000, "no UTF-8": b"\xff" * 100, "NaN": b'{"format": NaN}',
        "10^100000": b'{"format": 1' + b"0" * 100_000 + b"}", "a key twice": b'{"format": 1, "format": 99, "name": "x"}', "nothing": b"",
        "a million keys": b'{"format": 1, "knobs": {' + b",".join(b'"%d": ""' % at for at in range(300_000)) + b"}}"}.items():  # fmt: skip
        yield f"a case.json of {what}", partial(_case_json, data)
    for what, value in NUMBERS.items():
        yield f"a case whose numbers are {what}", partial(_case, {"format": value})
        yield (
            f"a case whose seed is {what}",
            partial(_case, {"origin": {"generator": "g", "seed": value, "versions": {}, "inputs": ""}}),
        )


def _case_json(data: bytes, place: Path) -> Path:
    folder = _case({}, place)
    (folder / "case.json").write_bytes(data)
    return folder


def _case(changes: dict[str, Any], place: Path) -> Path:
    folder = place / "case"
    save(
        Case(
            OnnxProgram(valid_models.plain().SerializeToString(), "plain"),
            {"x": np.ones((2, 3), np.float32)},
            parameters={"target": "onnxruntime"},
        ),
        folder,
    )
    whole = json.loads((folder / "case.json").read_text())
    (folder / "case.json").write_text(json.dumps(whole | changes))
    return folder


def values() -> Iterator[tuple[str, Make]]:
    """Values beside a sound model that claim to be more than they are; those of hostile_values.py are the
    rest.
    """
    good = TensorProto(name="x", data_type=FLOAT, dims=[2, 3], raw_data=bytes(24))
    changes: dict[str, dict[str, Any]] = {
        "2^62 elements": {"dims": [2**31, 2**31]}, "no elements of 2^62": {"dims": [0, 2**62], "raw_data": b""}, "70 dimensions": {"dims": [1] * 70},
        "a negative size": {"dims": [-1]}, "an unknown type": {"data_type": 99}, "strings": {"data_type": 8}, "no type": {"data_type": 0},
        "100,000 dimensions": {"dims": [1] * 100_000}, "64 MB for 6 elements": {"raw_data": bytes(64 << 20)}}  # fmt: skip
    for what, change in changes.items():
        tensor = TensorProto()
        tensor.CopyFrom(good)
        for field, value in change.items():
            if field == "dims":
                del tensor.dims[:]
                tensor.dims.extend(value)
            else:
                setattr(tensor, field, value)
        yield f"a value of {what}", partial(_value, tensor.SerializeToString())
    yield "a value of 100 MB that says nothing", partial(_value, bytes(100 << 20))


def _value(data: bytes, place: Path) -> Path:
    folder = _case({}, place)
    (folder / "test_data_set_0" / "input_0.pb").write_bytes(data)
    return folder


def modules() -> Iterator[tuple[str, Make]]:
    """Modules of TVM whose names, functions and numbers are the stranger's; graphs that unfold are in
    test_hostile_modules.py.
    """
    for what, text in {**TEXTS, "code": "x = __import__('os').system('touch mark')"}.items():
        yield f"a Relax module whose names are {what}", partial(_module, "relax", RELAX.read_text(), text)
        yield (
            f"a TIR module whose names are {what}",
            partial(_module, "tir", tir_program().module.decode(), text),
        )
    deep = {
        "root_index": 30_000,
        "nodes": [{"type": "int", "data": 1}, *({"type": "ffi.Array", "data": [at]} for at in range(30_000))],
    }
    wide = {
        "root_index": 40,
        "nodes": [{"type": "int", "data": 1}, *({"type": "ffi.Array", "data": [at] * 8} for at in range(40))],
    }
    for form in ("relax", "tir"):
        for what, graph in (("deep", deep), ("unfolding", wide), ("nothing", {"root_index": 0, "nodes": []})):
            yield f"a {form} module that is {what}", partial(_module, form, json.dumps(graph), "")


def _module(form: str, text: str, name: str, place: Path) -> Path:
    folder = place / "case"
    save(Case(tir_program(), make_inputs(tir_program(), 0)), folder)
    (folder / "case.json").write_text((folder / "case.json").read_text().replace('"tir"', f'"{form}"'))
    graph = json.loads(text)
    for node in graph["nodes"] if name else ():
        if node["type"] == "ffi.String" and re.fullmatch(r"[a-z]\w{0,9}", str(node.get("data"))):
            node["data"] = name
    (folder / "module.json").write_text(json.dumps(graph))
    (folder / "tvm.py").write_text("open('mark', 'w')\n")
    return folder


def logs() -> Iterator[tuple[str, Make]]:
    base = {"backend": "tvm", "phase": "import", "exc_type": "KeyError", "message": "no", "traceback": ""}
    contents: dict[str, bytes] = {
        "nothing": b"", "brackets": b"[" * 500_000, "no UTF-8": b"\xff\xfe" * 1000, "a line of 80 MB": b"x" * (80 << 20),
        "a million lines": b"\n" * 1_000_000, "NUL": bytes(1_000_000), "carriage returns": b"a\rb\r" * 100_000,
        "a trace without end": b"Traceback (most recent call last):\n" + b'  File "x.py", line 1, in f\n' * 100_000,
        "almost a path, again and again": b"/" * 200_000 + b"\n" + b"a/" * 200_000 + b'File "' * 100_000,
        "brackets of C++": b"#0 0x1 in " + b"a<" * 100_000 + b"\n", "numbers": b"1." * 200_000 + b"e" * 200_000,
        "spaces": b"Error:" + b" " * 400_000 + b"x\n"}  # fmt: skip
    for what, data in contents.items():
        yield f"a log of {what}", partial(_log, "log.txt", data)
    for what, value in {**TEXTS, **NUMBERS, "lists": [[1]], "an object": {"a": {}}}.items():
        line = json.dumps({**base, **dict.fromkeys(base, value), "signal": value, "ops": [value]}).encode()
        yield (
            f"a record of {what}",
            partial(_log, "log.jsonl", line + b"\n" + json.dumps(base).encode() + b"\n"),
        )
    yield "a packed log that unfolds", partial(_log, "log.jsonl.gz", gzip.compress(bytes(3 << 30 >> 4)))
    yield "a packed log cut short", partial(_log, "log.jsonl.gz", gzip.compress(b"{}" * 5000)[:40])
    for what, start in (("JSON", b'{"message": "'), ("text", b"x")):
        yield f"a log of one line of 1 GB of {what}", partial(_long_log, start)
    for kind, goal in (("a pipe", None), ("a device", "/dev/zero")):
        yield f"a log that is {kind}", partial(_odd_log, goal)


def _long_log(start: bytes, place: Path) -> Path:
    with (place / "log.jsonl").open("wb") as file:
        file.write(start)
        file.truncate(1 << 30)
    return place / "log.jsonl"


def _log(name: str, data: bytes, place: Path) -> Path:
    (place / name).write_bytes(data)
    return place / name


def _odd_log(goal: str | None, place: Path) -> Path:
    os.mkfifo(place / "log.txt") if goal is None else (place / "log.txt").symlink_to(goal)
    return place / "log.txt"


FAMILIES = {"models": models, "cases": cases, "values": values, "modules of TVM": modules, "logs": logs}
