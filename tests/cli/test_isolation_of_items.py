"""A bad item costs no good one: every command that takes several items is given a good one among bad ones."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from commands import opsieve
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from models import X, chain
from onnx import helper
from slow_params import keep_quick

from opsieve.gen.case.case import Case, save

Capture = pytest.CaptureFixture[str]
INTEGERS = (-1, 0, 1 << 31, (1 << 62) + 1, -(1 << 63))
NOT_TEXT = b"\xff\xfe"


def messages(message: Message) -> Iterator[Message]:
    """The message and every one in it."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from messages(part)


def places(message: Message) -> Iterator[tuple[int, FieldDescriptor, object]]:
    """Each field of each message, by the message's number, with what it is set to."""
    for number, part in enumerate(messages(message)):
        for field in part.DESCRIPTOR.fields:
            if field.type == FieldDescriptor.TYPE_STRING:
                yield number, field, "ABCD"
            elif field.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_INT32):
                for value in INTEGERS:
                    if field.type == FieldDescriptor.TYPE_INT64 or abs(value) < 1 << 31:
                        yield number, field, value
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                yield number, field, None  # nothing, and an empty one


def rich() -> onnx.ModelProto:
    """A model with an initializer, attributes, metadata and a doc string."""
    types = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, "n"]) for name in "xz"]
    weights = helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [2.0])
    nodes = [
        helper.make_node("Add", ["x", "w"], ["y"], name="sum"),
        helper.make_node("LeakyRelu", ["y"], ["z"], alpha=0.5, doc_string="leaks"),
    ]
    graph = helper.make_graph(nodes, "g", types[:1], types[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"key": "value"})
    return model


def bad_models() -> Iterator[bytes]:
    """A good model with one field changed, removed or added in each."""
    good = rich().SerializeToString()
    for number, field, value in places(onnx.load_model_from_string(good)):
        model = onnx.load_model_from_string(good)
        part = list(messages(model))[number]
        if value is None:
            part.ClearField(field.name)
            yield model.SerializeToString()
            if field.is_repeated:
                getattr(part, field.name).add()
            else:
                getattr(part, field.name).SetInParent()
        elif field.is_repeated:
            getattr(part, field.name).append(value)
        else:
            setattr(part, field.name, value)
        # A string that is no text cannot be set, only written.
        yield model.SerializeToString().replace(b"ABCD", NOT_TEXT + b"CD")
    yield from (b"", b"\xff" * 100, good[:-3], good * 2, good + b"\x00")
    dice = random.Random(39)
    for _ in range(90):
        at, size = dice.randrange(len(good)), dice.randrange(5)
        yield good[:at] + dice.randbytes(size) + good[at + dice.randrange(1, 9) :]


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """At least three hundred bad items of all kinds, and a good one among them."""
    folder = tmp_path_factory.mktemp("items")
    for number, data in enumerate(bad_models()):
        (folder / f"bad-{number}.onnx").write_bytes(data)
    save(Case(chain("Relu"), X), folder / "bad-case")
    (folder / "bad-case" / "case.json").write_text('{"format": ' + "9" * 5000 + "}")
    os.mkfifo(folder / "bad-pipe.onnx")
    (folder / "bad-link.onnx").symlink_to("/dev/zero")
    (folder / "bad-folder").mkdir()
    good = chain("Relu").model
    Path(os.fsdecode(os.fsencode(folder) + b"/bad-\xff\xfe.onnx")).write_bytes(chain("Tanh").model)
    (folder / "good.onnx").write_bytes(good)
    found = sorted(folder.iterdir())
    assert len(found) > 300
    return found


COMMANDS = [
    "run -t fake",
    "run -t fake --json",
    "corpus add {} -t fake",
    "import -o {}",
    "import -o {} --json",
]


@pytest.mark.parametrize("line", keep_quick(COMMANDS, 2))
def test_the_good_item_has_its_result(line: str, items: list[Path], tmp_path: Path, capsys: Capture) -> None:
    words = line.format(tmp_path / "out").split()
    code, out, err = opsieve(*words, *items, capsys=capsys)
    assert code != 70, err[-3000:]
    assert "good.onnx" in out or "good  fake  pass" in out
    if "--json" in words:
        assert isinstance(json.loads(out), dict)


@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.slow(seconds=150))])
@pytest.mark.parametrize(
    "line", keep_quick(["run -t fake --json", "corpus add {} -t fake", "import -o {}"], 1)
)
def test_a_good_item_beside_each_bad_one(
    line: str, every: int, items: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    (good,) = (item for item in items if item.name == "good.onnx")
    for number, bad in enumerate(item for item in items[::every] if item != good):
        folder = tmp_path / f"{number}"
        pair = [bad, good] if number % 2 else [good, bad]
        code, out, err = opsieve(*line.format(folder).split(), *pair, capsys=capsys)
        assert code in (0, 1, 2), (bad, err)
        if "--json" in line:
            results = {result["model"]: result["verdict"] for result in json.loads(out)["results"]}
            assert results[str(good)] == "pass", bad
        else:
            assert list(folder.glob("*good*/case.json")), (bad, err)


@pytest.mark.slow(seconds=3)
def test_each_item_alone_is_no_fault(items: list[Path], tmp_path: Path, capsys: Capture) -> None:
    """What reads one item at a time: export and reduce, on each thirtieth."""
    for number, item in enumerate(items[::30]):
        for words in (
            ["export", item, "-o", tmp_path / "x.py"],
            ["reduce", item, "-o", tmp_path / f"{number}"],
        ):
            code, _, err = opsieve(*words, "-t", "fake:wrong@Relu", "--seconds", "5", capsys=capsys)
            assert code in (0, 1, 2, 3), (item, err)
