"""Templates, places and operators out of messages."""

import pytest
from golden_logs import KINDS, logs
from hypothesis import given, strategies as st

from opsieve.triage.fingerprint.normalise import find_blamed_operator, find_operators, normalise_message
from opsieve.triage.fingerprint.source_location import describe_location, get_qualified_name


@pytest.mark.parametrize("kind", KINDS)
def test_golden_messages(kind: str) -> None:
    for name, log in logs(kind):
        message = log.message
        assert normalise_message(message) == log.expected("template"), name
        assert describe_location(message) == log.expected("place"), name
        assert (find_blamed_operator(message) or find_blamed_operator(log.raw)) == log.expected("blamed"), (
            name
        )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("expected 3 inputs", "expected 12 inputs"),
        ("at 0x7f00aa11", "at 0xdeadbeef"),
        ("shape {1,3,224,224} is wrong", "shape {8} is wrong"),
        ("shape [1, 3] is wrong", "shape [2, 4, 5] is wrong"),
        ("got (1, 2, 9, 7)", "got (3, 3)"),
        ("dtype float32 here", "dtype bfloat16 here"),
        ("dtype T.float8_e4m3fn here", "dtype int4 here"),
        ("of (tensor(float))", "of (tensor(int64))"),
        ("node with name 'Conv_12'", "node with name '/block/conv1/Conv'"),
        ("node with name ''", 'node with name "x"'),
        ("variable lv12 is bound", "variable lv3 is bound"),
        ("in _impl_v13 of it", "in _impl_v18 of it"),
        ("cannot open /tmp/a1/model.onnx now", "cannot open /home/x/b.onnx now"),
        ("at /src/a/model.cc:12 failed", "at /build/src/a/model.cc:99 failed"),
        ("version 1.20.1 is old", "version 1.31.0.dev1 is old"),
        ("[01:34:30] failed", "[23:01:02] failed"),
        ("on 2026-11-21 03:50:00.1234 it failed", "on 2025-01-02T00:00:00Z it failed"),
        ("\x1b[1;31mfailed\x1b[m here", "failed here"),
        ("id 123e4567-e89b-12d3-a456-426614174000 lost", "id 00000000-e89b-12d3-a456-4266141740ff lost"),
        ("hash 3f9a1c2b04aa lost", "hash deadbeef0123 lost"),
        ("Cast(25) is missing", "Cast(13) is missing"),
        (
            "Not equal to tolerance rtol=0.1\n[[1. 2.]\n",
            "Not equal to tolerance rtol=0.5\n[[7. 2. 3.]\n [4. 5. 6.]]",
        ),
        ("inputs ('a', 'b') clash", "inputs ('x', 'y', 'z') clash"),
        ("kernel of 3x3 is odd", "kernel of 5x5x5 is odd"),
        ("near 1e-05 it failed", "near -3.5 it failed"),
    ],
)
def test_one_bug_has_one_template(one: str, other: str) -> None:
    assert normalise_message(one) == normalise_message(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Could not find an implementation for RoiAlign(22)",
            "Could not find an implementation for Cast(22)",
        ),
        ("unsupported op 'Gelu'", "unsupported op 'Erf'"),
        ("'Var' object has no attribute 'value'", "'Var' object has no attribute 'tolist'"),
        ("in model.cc:12 it failed", "in graph.cc:12 it failed"),
        ("expected a shape", "expected a type"),
        ("Check failed: a == b", "Check failed: a < b"),
    ],
)
def test_two_bugs_have_two_templates(one: str, other: str) -> None:
    assert normalise_message(one) != normalise_message(other)


def test_every_operator_of_onnx_survives() -> None:
    import onnx.defs

    names = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert len(names) > 180
    for name in names:
        for message in (
            f"no kernel for {name} here",
            f"no kernel for '{name}' here",
            f"no kernel for {name}(13) here",
        ):
            assert name in normalise_message(message).split(), message


@given(st.text(max_size=600))
def test_any_message_gives_a_short_line(text: str) -> None:
    template = normalise_message(text)
    assert len(template) <= 400
    assert "\n" not in template
    assert "\x1b" not in template
    describe_location(text)
    find_blamed_operator(text)


@given(st.text(alphabet="ab/.:0123456789 ([{,'\"<>xT_-eA\n", max_size=300))
def test_a_template_of_a_template_is_itself_or_shorter(text: str) -> None:
    template = normalise_message(text)
    assert len(normalise_message(template)) <= len(template) + 100


@pytest.mark.parametrize(
    "unit",
    [
        "(",
        "[",
        "'",
        '"',
        "a",
        "a/",
        "/a",
        "R.a(",
        "1.",
        "0x",
        "\x1b[",
        "<",
        "/a.cc:1 a::b(",
        "-1,",
        "a-",
        "A1",
        "a.",
        "1x",
        "2026-",
        "_1",
        "\n",
        ".",
        "f0",
    ],
)
def test_ten_megabytes_of_hostile_text(unit: str) -> None:  # it would not end were anything quadratic
    evil = "zz " + unit * (10_000_000 // len(unit))
    assert len(normalise_message(evil)) <= 400
    describe_location(evil)
    find_operators(evil, ["Conv"])
    find_blamed_operator(evil)
    get_qualified_name(evil)


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("onnxruntime::Model::Model(onnx::ModelProto&&, const std::string&)", "onnxruntime::Model::Model"),
        (
            "void tvm::runtime::Copy<float, std::map<int, int>>(DLTensor*, unsigned long)",
            "tvm::runtime::Copy",
        ),
        ("std::vector<int> (anonymous namespace)::helper(int)", "::helper"),
        ("tvm::PrimExpr tvm::te::Tensor::operator()(tvm::PrimExpr) const", "tvm::te::Tensor::operator()"),
        (
            "onnxruntime::RNN<T>::RNN(const onnxruntime::OpKernelInfo&) [with T = float]",
            "onnxruntime::RNN::RNN",
        ),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_qualified_names(signature: str, name: str) -> None:
    assert get_qualified_name(signature).strip(":") == name.strip(":")


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (
            (
                "/onnxruntime_src/core/graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&)"
                " Unsupported"
            ),
            "model.cc Model::Model",
        ),
        ("/a/x.cc:1 ns::f(int) outer /a/y.cc:2 ns::g(int) inner", "y.cc ns::g"),
        ("/a/x.h:48 a::RNN<T>::RNN(const a::Info&) [with T = float] layout_ == 0 was false", "x.h RNN::RNN"),
        ("/a/x.cc:1 this is prose (with a bracket)", "x.cc"),
        ('File "/project/src/x.cc", line 69, in void tvm::f(int)', "x.cc tvm::f"),
        (
            "Exception raised from copy_impl at ../aten/src/Copy.cpp:118 (most recent call first):",
            "Copy.cpp copy_impl",
        ),
        ("/home/me/model.onnx:3 is broken", ""),
        ("nothing", ""),
    ],
)
def test_places(message: str, place: str) -> None:
    assert describe_location(message) == place


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("running FusedMatMul node", ("MatMul",)),
        ("MatMul+Add fusion", ("MatMul", "Add")),
        ("QLinearConv is wrong", ("QLinearConv",)),
        ("Not equal to tolerance", ()),
        ("running Not node", ("Not",)),
        ("Conv_fused_Relu", ("Conv", "Relu")),
        ("Additional", ()),
    ],
)
def test_operators_named(message: str, named: tuple[str, ...]) -> None:
    assert find_operators(message, ["MatMul", "Add", "QLinearConv", "Conv", "Not", "Relu"]) == named


def test_which_types_a_call_was_made_with_is_the_program_s_matter() -> None:
    said = "Do not know how to handle GlobalVar.__call__ for types [{}]"
    one = normalise_message(said.format("<class 'tvm.ir.expr.Var'>, <class 'int'>"))
    assert one == normalise_message(
        said.format("<class 'tvm.ir.expr.Tuple'>, <class 'tvm.ir.expr.Var'>, <class 'int'>")
    )
    assert one.endswith("for types <type>")
    assert "NoneType" in normalise_message("expected a tensor but got <class 'NoneType'>")
