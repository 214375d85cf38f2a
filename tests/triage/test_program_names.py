"""The names that a program gives, and messages without them."""

import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.verdict import Verdict
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.onnx_edit.canonical_names import make_canonical
from opsieve.triage.fingerprint.component import NOTHING
from opsieve.triage.fingerprint.fingerprint import Fingerprint, make_fingerprint
from opsieve.triage.fingerprint.normalise import normalise_message
from opsieve.triage.fingerprint.program_graph import ProgramNames
from opsieve.triage.fingerprint.sameness import make_failure

NAMES = frozenset(["blk/conv_1", "input.1", "x", "Relu12", "onnx::Conv_3", "h_t", "a"])


def model() -> onnx.ModelProto:
    """`If` with bodies of their own names, and a function."""
    flag = helper.make_tensor_value_info("flag_in", TensorProto.BOOL, [])
    inside = helper.make_tensor_value_info("in_body_0", TensorProto.FLOAT, [2])
    body = helper.make_graph(
        [helper.make_node("Relu", ["x.1"], ["in_body_0"], "relu_of_body")], "body", [], [inside]
    )
    nodes = [
        helper.make_node("If", ["flag_in"], ["Result"], "if_0", then_branch=body, else_branch=body),
        helper.make_node("Pad", ["Result", "pads", "constant_value"], ["y"], "7"),
    ]
    function = helper.make_function(
        "own", "f", ["f_in"], ["f_out"], [helper.make_node("Abs", ["f_in"], ["f_out"], "abs_9")], []
    )
    graph = helper.make_graph(
        nodes,
        "g",
        [flag, helper.make_tensor_value_info("x.1", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("w/0", TensorProto.FLOAT, [1], [0.0])],
    )
    return helper.make_model(graph, functions=[function])


def test_names_of_every_part_and_no_words_of_authors() -> None:
    # Neither `Result`, nor `y` and `constant_value`, which are parameters of operators, nor a number.
    assert set(ProgramNames(OnnxProgram.of(model()))) == {
        *("flag_in", "x.1", "x_1", "in_body_0", "relu_of_body", "if_0", "w/0", "w_0"),
        *("f_in", "f_out", "abs_9"),
    }


@pytest.mark.parametrize(
    ("message", "template"),
    [
        ("node blk/conv_1: no shape of input.1.", "node <name>: no shape of <name>."),
        ("node 'Relu12' fails", "node <name> fails"),
        ("name:h_t of type:float32", "name:<name> of type:<dtype>"),
        ("near onnx::Conv_3: it failed", "near <name>: it failed"),
        ("blk/conv_1_fused and chart are others", "blk/conv_1_fused and chart are others"),
        ("Check failed: (IsFloat(x.ty())) is false", "Check failed: (IsFloat(x.ty())) is false"),
    ],
)
def test_names_are_replaced_where_they_are_whole_words(message: str, template: str) -> None:
    assert normalise_message(message, NAMES) == template


def test_what_the_interpreter_quotes_of_code_stays() -> None:
    assert (
        normalise_message("'Var' object has no attribute 'h_t'", NAMES) == "Var object has no attribute h_t"
    )


@given(st.text(max_size=300))
def test_without_a_program_nothing_changes(message: str) -> None:
    assert normalise_message(message, frozenset(["not_there_0"])) == normalise_message(message)


@pytest.mark.parametrize("unit", ["a ", "a:", ":", "'", "`a", "x.", "blk/conv_1 ", "\x1b[", "ab::"])
def test_ten_megabytes_of_hostile_text_about_many_names(unit: str) -> None:
    many = frozenset([*NAMES, *(f"t_{number}" for number in range(100_000))])
    assert len(normalise_message("zz " + unit * (10_000_000 // len(unit)), many)) <= 400


def told(message: str, names: frozenset[str] = frozenset()) -> Fingerprint:
    frames = (Frame("python", "Gemm._impl", "/site-packages/tvm/relax/frontend/onnx/onnx_frontend.py", 3),)
    seen = Observation("tvm", "1", "error", "compile", exception="ValueError", message=message, frames=frames)
    return make_fingerprint(Verdict("fail", "", "error", "compile"), seen, ["Gemm"], NOTHING, names)


@given(st.sampled_from(["x", "a", "X", "v_0", "conv1.out", "/blk/Conv_2", "onnx::MatMul_7", "t9"]))
def test_a_name_is_no_part_of_a_fingerprint(name: str) -> None:
    here = told(f"input 0 has {name} which cannot be lowered", frozenset([name]))
    assert here.key == told("input 0 has w_w which cannot be lowered", frozenset(["w_w"])).key
    assert here.key != told(f"input 0 has {name} which cannot be stored", frozenset([name])).key


def test_a_letter_is_no_word_whether_the_program_has_such_a_name_or_not() -> None:
    assert (
        told("expected a tensor of type x", frozenset(["a"])).key == told("expected a tensor of type x").key
    )


def test_an_author_s_words_stay_whatever_the_program_calls_its_values() -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["shape"], ["axes"])], "g", [], [])
    names = frozenset(ProgramNames(OnnxProgram.of(helper.make_model(graph))))
    assert told("the shape of axes is wrong", names).key == told("the shape of axes is wrong").key


def test_the_reducer_knows_a_failure_again_after_renaming() -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("image_0", "scores_out")]
    node = helper.make_node("Relu", ["image_0"], ["scores_out"], "blk/relu_1")
    whole = Subject(helper.make_model(helper.make_graph([node], "g", info[:1], info[1:])), {}, {})
    small = make_canonical(whole)
    assert small is not None

    def failing(subject: Subject) -> tuple[Verdict, Observation]:
        graph = subject.model.graph
        message = f"{graph.node[0].name}: {graph.input[0].name} cannot be lowered to {graph.output[0].name}"
        seen = Observation("tvm", "1", "error", "compile", exception="ValueError", message=message)
        return Verdict("fail", "", "error", "compile"), seen

    verdict, seen = failing(whole)
    failure = make_failure(verdict, seen, whole.program)
    assert failure.is_shown_by(*failing(small), small.program, "fingerprint")
    assert not failure.is_shown_by(*failing(whole), small.program, "fingerprint"), (
        "the names are those of another program"
    )


def test_a_name_that_the_compiler_made_of_one_of_the_program_s_is_a_name() -> None:
    message = "Node ({}_q) Op (QuantizeLinear) [TypeInferenceError] output_dtype INT8 does not match"
    assert normalise_message(message.format("v29"), {"v29"}) == normalise_message(
        message.format("v57"), {"v57"}
    )
    assert "output_dtype" in normalise_message(message.format("v29"), {"v29", "output"})
    assert "v30_q" in normalise_message("v30_q is bad", {"v29"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Function main_f4already declared in a different kind",
            "Function sub0_f12already declared in a different kind",
        ),
        ("Cannot find ffi::Function main_f4 in either", "Cannot find ffi::Function loop1_f0 in either"),
        ("Cannot find ffi::Function main_f4_0 in either", "Cannot find ffi::Function f7_q2_1 in either"),
    ],
)
def test_a_name_that_a_compiler_joined_of_names_of_the_program_is_one_placeholder(
    one: str, other: str
) -> None:
    names = {"f4", "f12", "f0", "f7", "q2", "sub0", "loop1", "main"}
    assert normalise_message(one, names) == normalise_message(other, names)
    assert "<name>" in normalise_message(one, names)
    assert normalise_message("conv2d_nchw already float32x", {"f4"}) == normalise_message(
        "conv2d_nchw already float32x"
    )
