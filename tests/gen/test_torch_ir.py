"""PyTorch programs as data: their JSON, torch's archives, the printed code, the view and the edits. Nothing here
needs torch.
"""

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opsieve.gen.case.case import Case, load, open_case, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.registry import make_inputs, read_program
from opsieve.gen.irs.torch.edits import TorchEdits, TorchSubject
from opsieve.gen.irs.torch.graph import (
    CONDITION,
    Argument,
    Branch,
    MalformedProgram,
    Ref,
    TorchCall,
    TorchGraph,
    Word,
    decode_graph,
    encode_graph,
)
from opsieve.gen.irs.torch.program import TorchProgram
from opsieve.gen.irs.torch.text import program_text
from opsieve.gen.irs.view import Operation
from opsieve.gen.model.tensors import TensorType

ARCHIVE = Path(__file__).parents[1] / "corpus" / "torch" / "linear.pt2"


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(dtype, shape)


def call(operator: str, result: str, *args: Argument, **kwargs: Argument) -> TorchCall:
    return TorchCall(operator, args, tuple(kwargs.items()), (result,))


def small() -> TorchGraph:
    """Two inputs, a constant, five calls, two outputs."""
    x, a, b, c = map(Ref, ("x", "a", "b", "c"))
    calls = (
        call("aten.relu.default", "a", x),
        call("aten.add.Tensor", "b", a, Ref("w"), alpha=2),
        TorchCall("aten.max.dim", (b, 1), (), ("m", "where"), True),
        call("aten.mul.Tensor", "c", b, Ref("y")),
        call("aten.sum.dim_IntList", "d", c, (1,), dtype=Word("dtype", "float64")),
    )
    types = {"x": tensor(4, 3), "y": tensor(4, 3), "a": tensor(4, 3), "b": tensor(4, 3), "c": tensor(4, 3)}
    types |= {"m": tensor(4), "where": tensor(4, dtype="int64"), "d": tensor(4, dtype="float64")}
    return TorchGraph(("x", "y"), {"w": np.arange(3, dtype=np.float32)}, calls, ("d", "m"), types)


def subject(graph: TorchGraph | None = None) -> TorchSubject:
    program = TorchProgram.from_graph(graph or small())
    made = make_inputs(program, 0)
    values = {name: np.ones(type_.shape or (), type_.dtype) for name, type_ in program.graph.types.items()}
    return TorchSubject(program, made, values)


def same(a: TorchGraph, b: TorchGraph) -> bool:
    held = all(np.array_equal(a.constants[name], b.constants[name]) for name in a.constants)
    return held and replace(a, constants={}) == replace(b, constants={}) and [*a.constants] == [*b.constants]


numbers = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
)
words = st.sampled_from([Word("dtype", "float16"), Word("memory_format", "channels_last"), Ref("x"), "mean"])
arguments: Any = st.recursive(numbers | words, lambda inner: st.lists(inner, max_size=3).map(tuple))


@given(st.lists(arguments, max_size=4), st.dictionaries(st.sampled_from("abc"), arguments))
def test_a_graph_comes_back_from_its_json(args: list[Argument], kwargs: dict[str, Argument]) -> None:
    graph = replace(small(), calls=(*small().calls, call("aten.foo.bar", "e", *args, **kwargs)))
    assert same(decode_graph(encode_graph(graph)), graph)
    assert encode_graph(decode_graph(encode_graph(graph))) == encode_graph(graph)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "bool", "int64", "complex64"])
def test_constants_keep_their_bytes(dtype: str) -> None:
    import ml_dtypes  # noqa: F401 -- registers the dtypes

    array = np.arange(6).reshape(2, 3).astype(dtype)
    again = decode_graph(encode_graph(replace(small(), constants={"w": array}))).constants["w"]
    assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another format": (lambda root: root.update(format=2), "format"),
    "no calls": (lambda root: root.pop("calls"), "not JSON of a PyTorch program"),
    "code for an operator": (lambda root: root["calls"][0].update(op="os.system.x"), "unknown operator"),
    "an operator that opens files": (
        lambda root: root["calls"][0].update(op="aten.from_file.default"),
        "unknown operator",
    ),
    "code for a name": (lambda root: root["inputs"][0].update(name="x): import os #"), "no word"),
    "a keyword for a name": (lambda root: root["calls"][0]["result"].update(name="lambda"), "no word"),
    "a name twice": (lambda root: root["calls"][0]["result"].update(name="x"), "one name"),
    "a value from later": (lambda root: root["calls"][0].update(args=[{"value": "d"}]), "before it is made"),
    "a word of torch's that is none": (
        lambda root: root["calls"][0].update(args=[{"dtype": "ops"}]),
        "torch does not have",
    ),
    "a text that is code": (lambda root: root["calls"][0].update(args=["'); import os"]), "no word"),
    "an output that is not made": (lambda root: root.update(outputs=["q"]), "not made"),
    "an input without a type": (lambda root: root["inputs"][0].pop("dtype"), "element type"),
    "a negative size": (lambda root: root["inputs"][0].update(shape=[-1]), "list of sizes"),
    "a huge tensor": (lambda root: root["inputs"][0].update(shape=[1 << 39]), "too large"),
    "data that is too short": (lambda root: root["constants"][0].update(data="AAAA"), "does not fit"),
    "a string tensor": (lambda root: root["inputs"][0].update(dtype="string"), "element type"),
    "strides of another rank": (lambda root: root["inputs"][0].update(strides=[1]), "strides"),
    "nested lists": (
        lambda root: root["calls"][0].update(args=json.loads("[" * 12 + "]" * 12)),
        "too deep",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_json_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    change, reason = BROKEN[name]
    root = json.loads(encode_graph(small()))
    change(root)
    (tmp_path / "graph.json").write_text(json.dumps(root))
    with pytest.raises(BadInput, match=reason):
        TorchProgram.read(tmp_path / "graph.json")
    for damaged in (b"", b"[", b"[" * 100_000, b"\xff\xfe", b"{}", b"[]"):
        with pytest.raises(MalformedProgram):
            decode_graph(damaged)


def test_an_archive_is_read_without_torch() -> None:
    program = read_program(ARCHIVE)
    assert isinstance(program, TorchProgram)
    graph = program.graph
    assert (graph.inputs, graph.outputs) == (("x", "y_0"), ("sum_1", "to", "getitem_2"))
    # The weight was transposed, so its elements do not lie in order; neither do the input's.
    assert graph.constants["p_w"].tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert graph.strides == {"x": (1, 4)}
    assert [each.operator.split(".")[1] for each in graph.calls] == [
        *("matmul", "relu", "mul", "add", "mul_", "split", "sum", "to", "max")
    ]
    assert list(program.outputs()) == [
        *(f"output_{place}{part}" for place in range(3) for part in ("", ".layout")),
        *("x.after", "y_0.after"),
    ]
    assert open_case(ARCHIVE).inputs["x"].shape == (4, 3)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"arg": {"as_int": 2}', '"arg": {"as_sym_int": 2}', "symbolic sizes"),
        ("torch.ops.aten.relu.default", "torch.ops.higher_order.cond", "not an operator of aten's"),
        ('"use_pickle": false', '"use_pickle": true', "which only torch reads"),
        ('"path_name": "weight_0"', '"path_name": "weight_9"', "not an archive of torch.export.save"),
        ('"user_output"', '"buffer_mutation"', "output of the kind"),
        ('"name": "relu"', '"name": "re lu"', "no word"),
        ('"arg": {"as_tensor": {"name": "x"}}', '"arg": {"as_tensor": {"name": []}}', "not an archive"),
    ],
)
def test_an_archive_with_more_than_a_graph_is_refused(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    with zipfile.ZipFile(ARCHIVE) as source, zipfile.ZipFile(tmp_path / "bad.pt2", "w") as made:
        for info in source.infolist():
            data = source.read(info)
            made.writestr(info, data.replace(old.encode(), new.encode()) if b"{" in data[:1] else data)
    with pytest.raises(BadInput, match=reason):
        read_program(tmp_path / "bad.pt2")


def test_a_weight_without_dimensions_keeps_its_shape(tmp_path: Path) -> None:
    place = "linear/data/weights/model_weights_config.json"
    with zipfile.ZipFile(ARCHIVE) as source, zipfile.ZipFile(tmp_path / "m.pt2", "w") as made:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.partition("/")[2] == place.partition("/")[2]:
                root = json.loads(data)
                root["config"]["n"]["tensor_meta"] |= {"sizes": [], "strides": []}
                data = json.dumps(root).encode()
            made.writestr(info, data)
    program = read_program(tmp_path / "m.pt2")
    assert isinstance(program, TorchProgram)
    assert program.graph.constants["b_n"].shape == ()
    assert "torch.full([], 1.0, dtype=torch.float32)" in program.script


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_an_archive_that_torch_would_not_pack_is_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(ARCHIVE) as source, zipfile.ZipFile(tmp_path / "m.pt2", "w", method) as made:
        for info in source.infolist():
            made.writestr(info.filename, source.read(info))
    data = bytearray((tmp_path / "m.pt2").read_bytes())
    # Signs of the packed graph, which the modules for these methods report with errors of their own
    at = data.index(b"models/model.json") + len("models/model.json")
    data[at : at + 16] = bytes(16)
    (tmp_path / "m.pt2").write_bytes(data)
    with pytest.raises(BadInput, match="packed in a way that torch does not write"):
        read_program(tmp_path / "m.pt2")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.pt2").write_bytes(ARCHIVE.read_bytes()[:900])
    with pytest.raises(BadInput, match=r"not an archive of torch\.export\.save"):
        read_program(tmp_path / "cut.pt2")


def test_a_case_folder_holds_the_graph_and_code_that_is_never_read(tmp_path: Path) -> None:
    start = subject()
    save(Case(start.program, start.inputs), tmp_path / "case")
    (tmp_path / "case" / "module.py").write_text("raise SystemExit")
    again = load(tmp_path / "case")
    assert again.program == start.program
    assert read_program(tmp_path / "case" / "graph.json").data == start.program.data


def test_the_text_is_python_that_says_the_same() -> None:
    graph = small()
    source = program_text(replace(graph, constants={"w": np.array([1.5, np.nan, 2], np.float32)}))
    compile(source, "program", "exec")
    # A stored tensor is no literal of the function, which torch.compile would fold.
    assert source.index("w = torch.frombuffer") < source.index("def program(x, y):")
    assert source.endswith(
        """    a = torch.ops.aten.relu.default(x)
    b = torch.ops.aten.add.Tensor(a, w, alpha=2)
    m, where = torch.ops.aten.max.dim(b, 1)
    c = torch.ops.aten.mul.Tensor(b, y)
    d = torch.ops.aten.sum.dim_IntList(c, [1], dtype=torch.float64)
    return (d, m)
"""
    )
    # -0 is no 0
    assert "full" not in program_text(replace(graph, constants={"w": np.array([0.0, -0.0], np.float32)}))
    assert "full([2], -0.0" in program_text(replace(graph, constants={"w": np.full(2, -0.0, np.float32)}))


def find(start: TorchSubject, key: str) -> Operation:
    return next(each for each in TorchEdits().view(start).operations() if each.key == key)


def test_a_call_goes_and_its_recorded_value_is_fed() -> None:
    start = subject()
    made = TorchEdits().remove(start, find(start, "b"))
    assert made is not None
    # `a` had no other reader; neither had the constant.
    assert [each.key for each in made.graph.calls] == ["m", "c", "d"]
    assert (made.graph.inputs, list(made.graph.constants)) == (("y", "b"), [])
    assert (made.inputs["b"] == 1).all()
    # The last call goes with its output.
    assert (TorchEdits().remove(start, find(start, "d")) or start).graph.outputs == ("m",)
    assert TorchEdits().remove(replace(start, values={}), find(start, "b")) is None


def test_another_value_is_read_for_a_result() -> None:
    start = subject()
    made = TorchEdits().replace(start, "b", "x", False)
    assert made is not None
    assert made.graph.calls[0].operator == "aten.max.dim"
    assert TorchEdits().replace(start, "b", "c", False) is None
    other = TorchEdits().replace(start, "c", "m", True)
    assert other is not None
    # What follows a value of another type has no type until it is recorded again.
    assert other.graph.type_of("d") is None
    assert other.program.outputs()["output_0"] == TensorType("", None)


def test_outputs_inputs_sizes_and_types() -> None:
    start, edits = subject(), TorchEdits()
    view = edits.view(start)
    assert (edits.drop_output(start, "1") or start).graph.outputs == ("d",)
    frozen = edits.freeze(start, "x")
    assert frozen is not None
    assert np.array_equal(frozen.graph.constants["x"], start.inputs["x"])
    smaller = edits.resize(start, next(each for each in view.sizes() if each.size == 4), 2, True)
    assert smaller is not None
    assert np.array_equal(smaller.inputs["x"], start.inputs["x"][-2:])
    other = edits.retype(start, [each for each in view.dtypes() if each.dtype == "float64"], "float32")
    assert other is not None
    assert other.graph.calls[-1].kwargs == (("dtype", Word("dtype", "float32")),)


def test_an_edit_that_changes_nothing_gives_nothing() -> None:
    start, edits = subject(), TorchEdits()
    stored = {each.name: each for each in edits.view(start).tensors()}
    assert edits.store(start, stored["w"], stored["w"].array.copy()) is None
    assert edits.store(start, stored["w"], np.zeros(3, np.float32)) is not None
    changed = edits.store(start, stored["x"], np.zeros((4, 3), np.float32))
    assert changed is not None
    # It is another tensor now.
    assert edits.store(changed, stored["x"], np.ones((4, 3), np.float32)) is None


def conditional() -> TorchGraph:
    """Two conditions, one after the other; names within a branch are those of values outside it, too."""
    types = {"a": tensor(2), "x": tensor(2)}
    calls = (call("aten.neg.default", "x", Ref("a")), call("aten.mul.Tensor", "y", Ref("x"), Ref("a")))
    yes = Branch(TorchGraph(("a",), {}, calls, ("y",), types))
    no = Branch(TorchGraph(("a",), {}, calls[:1], ("x",), types))
    first = TorchCall(CONDITION, (Ref("p"), yes, no, (Ref("x"),)), (), ("b",), True)
    last = TorchCall(CONDITION, (Ref("p"), no, yes, (Ref("b"),)), (), ("d",), True)
    types = {"x": tensor(2), "p": tensor(dtype="bool")}
    return TorchGraph(("x", "p"), {}, (first, last), ("d", "b"), types)


def test_the_branches_of_a_condition_come_back_and_are_code_that_says_the_same() -> None:
    graph = conditional()
    assert decode_graph(encode_graph(graph)) == graph
    source = program_text(graph)
    compile(source, "program", "exec")
    assert source.endswith(
        """    def d_branch_0(a):
        x = torch.ops.aten.neg.default(a)
        return (x,)
    def d_branch_1(a):
        x = torch.ops.aten.neg.default(a)
        y = torch.ops.aten.mul.Tensor(x, a)
        return (y,)
    (d,) = torch.ops.higher_order.cond(p, d_branch_0, d_branch_1, [b])
    return (d, b)
"""
    )


def test_a_branch_takes_the_place_of_its_condition() -> None:
    start, edits = subject(conditional()), TorchEdits()
    yes, no, *_ = edits.view(start).openings()
    made = edits.open(start, yes)
    assert made is not None
    assert "b_x = torch.ops.aten.neg.default(x)" in made.program.script
    assert "b_y = torch.ops.aten.mul.Tensor(b_x, x)" in made.program.script
    assert made.program.script.endswith("d_branch_0, d_branch_1, [b_y])\n    return (d, b_y)\n")
    # The other side of the same condition has no place any more.
    assert edits.open(made, no) is None
    (last, _) = edits.view(made).openings()
    assert [each.key for each in (edits.open(made, last) or start).graph.calls] == ["b_x", "b_y", "d_x"]


def test_branches_nested_too_deep_are_refused() -> None:
    graph = conditional()
    for _ in range(9):
        side = Branch(replace(graph, outputs=("d",)))
        graph = replace(graph, calls=(TorchCall(CONDITION, (Ref("p"), side, side, ()), (), ("d",), True),))
        graph = replace(graph, outputs=("d",))
    with pytest.raises(MalformedProgram, match="nested too deep"):
        decode_graph(encode_graph(graph))


def test_generated_programs_are_well_formed_and_equal_seeds_give_equal_bytes() -> None:
    from opsieve.gen.generation.random_graph import GenRequest
    from opsieve.gen.strategies.torch_programs import torch_programs

    request = GenRequest(nodes=12)
    drawn = set()
    for seed in range(80):
        case = torch_programs(request, seed)
        assert isinstance(case.program, TorchProgram)
        assert decode_graph(case.program.data).calls == case.program.graph.calls
        assert case.program.data == torch_programs(request, seed).program.data
        drawn |= {each.split(".")[1] for each in case.program.operators()}
    # Views, writes, promotion and indexing all occur.
    assert {"transpose", "select", "expand", "copy_", "fill_", "where", "index_select", "_to_copy"} <= drawn
    assert {"ones_like", "threshold_backward", "slice_backward", "select_backward", "cond"} <= drawn


@pytest.mark.parametrize(
    ("at", "value"), [(8, 1), (10, 99)], ids=["encrypted", "compressed in a way that nobody knows"]
)
def test_an_archive_that_zipfile_does_not_read_is_a_sentence(tmp_path: Path, at: int, value: int) -> None:
    data = bytearray(ARCHIVE.read_bytes())
    place = -1
    # The headers of the central directory: flags at 8, method at 10
    while (place := data.find(b"PK\x01\x02", place + 1)) >= 0:
        data[place + at] = value
    (tmp_path / "m.pt2").write_bytes(data)
    with pytest.raises(BadInput, match="cannot be read"):
        read_program(tmp_path / "m.pt2")
