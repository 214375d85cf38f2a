"""Fingerprints: what is one bug and what is not."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from golden_logs import KINDS, PATHS, GoldenLog, logs
from hypothesis import given, strategies as st
from onnx import helper

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.stacks.frames import parse_log
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.triage.fingerprint.component import NOTHING, Evidence, Signature
from opsieve.triage.fingerprint.fingerprint import Fingerprint, make_fingerprint, make_title
from opsieve.triage.fingerprint.program_graph import make_signature
from opsieve.triage.fingerprint.sameness import is_same
from opsieve.triage.fingerprint.stack import read_stack

CONVERTER = "/venv/site-packages/tvm/relax/frontend/onnx/onnx_frontend.py"


def python(function: str, line: int = 1, file: str = CONVERTER) -> Frame:
    return Frame("python", function, file, line)


def error(
    message: str,
    frames: tuple[Frame, ...] = (),
    exception: str = "ValueError",
    target: str = "tvm",
    log: str = "",
) -> Fingerprint:
    observation = Observation(
        target, "1", "error", "compile", exception=exception, message=message, frames=frames, log=log
    )
    return make_fingerprint(Verdict("fail", "", "error"), observation, ["Conv", "Relu"])


def mismatch(
    what: str = "value",
    operators: tuple[str, ...] = ("Conv", "Relu"),
    dtype: str = "float32",
    blame: str = "optimiser",
) -> Fingerprint:
    observation = Observation("onnxruntime:all", "1", "ok", outputs={"y": np.zeros(1, dtype)})
    verdict = Verdict("fail", "", "mismatch", mismatch=Mismatch("y", what, max_abs=3.0), blame=blame)  # type: ignore[arg-type]
    return make_fingerprint(verdict, observation, operators)


def crash(log: str, target: str = "onnxruntime", number: int = 11) -> Fingerprint:
    observation = Observation(
        target, "1", "crash", "run", frames=parse_log(log, lambda _: "aa" * 20), signal=number, log=log
    )
    return make_fingerprint(Verdict("fail", "", "crash"), observation, ["Div"])


def kept(print_: Fingerprint) -> dict[str, str]:
    return {component.name: component.value for component in print_.components if component.kept}


@pytest.mark.parametrize("kind", KINDS)
def test_golden_stacks(kind: str) -> None:
    for name, log in logs(kind):
        stack = read_stack(log.frames, 3, exhausted="RecursionError" in log.raw)
        assert (name, " < ".join(stack.names)) == (name, log.expected("telling"))


def test_the_key_is_stable() -> None:
    """A change of any of these is a new version of the rules."""
    assert error("no value in Constant", (python("Constant._impl_v13"),)).key == "tvm-error-32ccde01b3"
    assert mismatch().key == "onnxruntime-mismatch-1b9e1bc388"


def test_each_component_says_why() -> None:
    for print_ in (error("x"), mismatch(), crash("free(): invalid pointer")):
        assert all(component.hint and component.value for component in print_.components)
        assert re.fullmatch(r"[a-z]+-[a-z]+-[0-9a-f]{10}", print_.key)


def test_lines_opsets_and_folders_do_not_count() -> None:
    one = error("bad 3", (python("Constant._impl_v13", 100),))
    other = error("bad 4", (python("Constant._impl_v18", 200, CONVERTER.replace("/venv", "/other")),))
    assert one.key == other.key


def test_classes_count_where_they_are_known() -> None:
    assert (
        error("bad 3", (python("Constant._impl_v13"),)).key
        != error("bad 3", (python("Split._impl_v13"),)).key
    )


def test_a_vague_name_is_told_by_the_operator_in_the_log() -> None:
    frames = (python("_impl_v13"),)
    one = error("bad 3", frames, log="Error converting operator CumSum, with inputs: [x]")
    other = error("bad 3", frames, log="Error converting operator Split, with inputs: [x]")
    assert one.key != other.key
    assert kept(one)["operator"] == "CumSum"


def test_an_operator_counts_when_the_message_that_names_it_does_not() -> None:
    frames = (python("_impl_v13"),)
    said = "unsupported operand type(s) for +: 'CumSum' and 'int'"
    one = error(said, frames, log="Error converting operator CumSum, with inputs: [x]")
    assert "message" not in kept(one)
    assert kept(one)["operator"] == "CumSum"


def test_a_vague_name_anywhere_among_the_frames_is_told_by_the_operator() -> None:
    frames = (python("_impl_v1"), python("pad_of", file="/v/site-packages/tvm/relax/op/pads.py"))
    logs = [f"Error converting operator {name}, with inputs: [x]" for name in ("Conv", "Pool")]
    assert error("bad pad", frames, log=logs[0]).key != error("bad pad", frames, log=logs[1]).key
    named = (python("Conv._impl_v1"), frames[1])
    assert error("bad pad", named, log=logs[0]).key == error("bad pad", named).key


def test_uninteresting_frames_do_not_count() -> None:
    inner = python("Split._impl_v13")
    bridge = Frame("python", "tvm_ffi.core.Function.__call__", "python/tvm_ffi/cython/function.pxi", 1038)
    harness = Frame("python", "main", "/case/harness.py", 3)
    assert (
        error("bad 3", (inner,)).key
        == error("bad 3", (harness, python("ONNXGraphImporter.from_onnx"), inner, bridge)).key
    )


def test_the_constant_words_of_a_message_tell_two_checks_of_one_function_apart() -> None:
    frames = (python("f"),)
    assert error("got 3 inputs of [1, 2]", frames).key == error("got 12 inputs of [7]", frames).key
    assert error("got 3 inputs", frames).key != error("got 3 outputs", frames).key
    # one word says too little beside frames
    assert error("3: bad", frames).key == error("4: worse", frames).key
    assert error("3: bad").key != error("4: worse").key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "'<' not supported between instances of 'NoneType' and 'int'",
            "'<' not supported between instances of 'str' and 'int'",
        ),
        (
            "f() missing 2 required positional arguments: 'a' and 'b'",
            "f() missing 1 required positional argument: 'b'",
        ),
        (
            "unsupported operand type(s) for +: 'int' and 'str'",
            "unsupported operand type(s) for -: 'list' and 'str'",
        ),
    ],
)
def test_what_the_interpreter_says_of_the_data_does_not_count_beside_frames(one: str, other: str) -> None:
    assert error(one, (python("f"),), "TypeError").key == error(other, (python("f"),), "TypeError").key
    assert error(one, (), "TypeError").key != error("no such thing", (), "TypeError").key


@given(st.lists(st.integers(0, 9999), max_size=6), st.sampled_from(["x", "conv_7", "/a/b/Conv"]))
def test_how_many_dimensions_and_names_a_message_lists_does_not_count(shape: list[int], name: str) -> None:
    found = error(f"cannot reshape {name!r} of shape {shape} here", (python("f"),))
    assert is_same(found, error("cannot reshape 'y' of shape [1, 2] here", (python("f"),)))


def test_the_place_in_the_message_is_the_innermost_frame() -> None:
    text = "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/{}:{} onnxruntime::{}(int) {}"
    told = [
        ("model.cc", 1, "Model::Model", "bad"),
        ("model.cc", 2, "Model::Model", "bad"),
        ("graph.cc", 1, "Graph::Load", "bad"),
    ]
    keys = [error(text.format(*at), target="onnxruntime").key for at in told]
    assert keys[0] == keys[1] != keys[2]
    assert error(text.format("model.cc", 1, "Model::Model", "worse"), target="onnxruntime").key != keys[0]
    assert kept(error(text.format(*told[0])))["frames"] == "onnxruntime::Model::Model"


def test_where_a_hang_was_stopped_does_not_count() -> None:
    def hung(*names: str) -> Fingerprint:
        frames = tuple(python(name) for name in names)
        return make_fingerprint(
            Verdict("fail", "", "hang"), Observation("tvm", "1", "hang", "compile", frames=frames), []
        )

    outer = ("build", "run_passes", "simplify")
    assert hung(*outer, "visit", "mutate").key == hung(*outer, "rewrite").key
    assert hung(*outer).key != hung("build", "run_passes", "fuse").key


def test_another_compiler_stage_exception_or_signal_is_another_bug() -> None:
    assert error("bad").key != error("bad", target="onnxruntime").key
    assert error("bad").key != error("bad", exception="TypeError").key
    assert (
        error("bad", exception="tvm.error.InternalError").key
        == error("bad", exception="tvm._ffi.InternalError").key
    )
    assert error("bad", target="tvm:zero").key == error("bad", target="tvm==0.20:default").key
    log = "@native\t8\tfault\n@frame\t/lib.so\t0x1\tf\n@end\twhole\n"
    assert crash(log, number=8).key != crash(log, number=11).key


def test_frames_without_a_symbol_are_told_by_build_and_offset() -> None:
    log = "@native\t8\tfault\n@frame\t/x/lib.so\t{}\t?\n@frame\t/lib/libc.so.6\t0x99\tabort\n@end\twhole\n"
    print_ = crash(log.format("0x1f"))
    assert kept(print_)["frames"] == "lib.so+0x1f@aaaaaaaaaaaa"
    assert print_.key != crash(log.format("0x2f")).key


def test_where_memory_runs_out_is_chance() -> None:
    verdict = Verdict("fail", "", "memory", message="signal 6")
    raised = Observation("tvm", "1", "out-of-memory", "compile", exception="MemoryError", message="bad_alloc")
    aborted = Observation("tvm", "1", "out-of-memory", "compile", signal=6, log="terminate called\n")
    keys = {make_fingerprint(verdict, seen, ["tirx.For"]).key for seen in (raised, aborted)}
    assert len(keys) == 1


def test_broken_memory_is_told_by_frames_not_by_its_many_messages() -> None:
    stack = "\n@native\t6\tsent\n@frame\t/lib/libc.so.6\t0x1\tabort\n@frame\t/x/lib.so\t0x2\tnet_free\n@end\twhole\n"
    assert (
        crash("free(): invalid pointer" + stack).key == crash("double free or corruption (out)" + stack).key
    )


def test_a_crash_in_generated_code_is_told_by_few_operators() -> None:
    log = "@native\t8\tfault\n@frame\t<jit>\t0x7f\t?\n@frame\t<jit>\t0x8f\t?\n@end\twhole\n"
    print_ = crash(log, "tvm")
    assert kept(print_)["frames"] == "<jit>"
    assert kept(print_)["operators"] == "Div"


@given(st.integers(3, 30), st.integers(0, 2), st.sampled_from(["", "leaf"]))
def test_recursion_is_one_wherever_the_stack_ran_out(turns: int, begin: int, leaf: str) -> None:
    names = (["Add", "Mul", "Mutate"] * (turns + 2))[begin : begin + 3 * turns + 3]
    frames = tuple(
        Frame("native", name, module="lib.so") for name in ["main_", *names[::-1], *filter(None, [leaf])]
    )
    stack = read_stack(frames, 3)
    assert stack.recursive
    assert stack.names == ("Add", "Mul", "Mutate")


def test_where_a_python_stack_ran_out_and_who_began_the_recursion_are_chance() -> None:
    def exhausted(leaves: tuple[str, ...], line: int = 40, message: str = "", outer: str = "load") -> str:
        turns = (*(python("Node.show", 7), python("Graph.show", line)) * 5,)
        frames = (python(outer), *turns, *(python(leaf, 9) for leaf in leaves))
        return error(f"maximum recursion depth exceeded{message}", frames, exception="RecursionError").key

    one = exhausted(("Tensor.text", "Shape.text", "text", "join", "items", "item"))
    assert one == exhausted((), message=" in comparison", outer="save")
    assert one == exhausted(("Constant.text", "LazyValues.text", "a", "b", "c", "d", "e"), line=50)
    alone = [(*(python("Graph.text", line),) * 4, python("text", 9)) for line in (40, 50)]
    keys = {
        error("maximum recursion depth exceeded", frames, exception="RecursionError").key for frames in alone
    }
    assert len(keys | {one}) == 3  # a function that calls itself in one line is told by it


def test_wrong_results_are_told_by_what_is_wrong_and_few_operators() -> None:
    assert mismatch().key == mismatch(operators=("Relu", "Conv", "Conv")).key
    for other in (
        mismatch("nan"),
        mismatch(operators=("Conv",)),
        mismatch(dtype="int32"),
        mismatch(dtype="float16"),
        mismatch(blame="compiler"),
    ):
        assert mismatch().key != other.key
    assert mismatch(dtype="float64").key == mismatch().key


def test_many_operators_do_not_count() -> None:
    many = tuple(f"Op{i}" for i in range(20))
    assert mismatch(operators=many).key == mismatch(operators=many[:10]).key


def test_the_same_while_the_graph_shrinks() -> None:
    many = tuple(f"Op{i}" for i in range(20))
    assert is_same(mismatch(operators=many), mismatch(operators=("Conv",)))
    assert not is_same(mismatch("nan"), mismatch("value"))
    assert not is_same(error("bad"), error("worse"))


@given(
    st.text(max_size=300),
    st.text(max_size=60),
    st.lists(st.text(max_size=30), max_size=9),
    st.text(max_size=100),
)
def test_any_text_gives_a_bounded_fingerprint(
    message: str, target: str, operators: list[str], name: str
) -> None:
    frames = (Frame("python", name, name), Frame("native", name, module=name))
    observation = Observation(
        target, "1", "crash", message=message, frames=frames, exception=name, log=message, signal=99
    )
    print_ = make_fingerprint(Verdict("fail", "", "crash"), observation, operators)
    assert all(len(component.value) <= 600 for component in print_.components)
    assert len(print_.key) < 80


def test_real_failures_are_told_apart() -> None:
    """Each golden traceback is another failure."""
    keys: dict[str, list[str]] = {}
    for path in PATHS:
        log = GoldenLog.read(path)
        if log.head["kind"] == "traceback":
            backend, exception = log.head["backend"], log.head["exception"]
            frames, message = log.frames, log.message
            observation = Observation(
                backend, "1", "error", exception=exception, message=message, frames=frames, log=log.raw
            )
            keys.setdefault(make_fingerprint(Verdict("fail", "", "error"), observation, []).key, []).append(
                path.stem
            )
    assert len(keys) >= 50
    assert [stems for stems in keys.values() if len(stems) > 1] == []


def conv_relu(rank: int = 4, mode: str = "edge") -> onnx.ModelProto:
    shape = ["a", "b", "c", "d", "e"][:rank]
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["t"], mode=mode),
        helper.make_node("Conv", ["t", "w"], ["u"], pads=[0, 0, 0, 0], group=3),
        helper.make_node("Relu", ["u"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info("w", 1, shape)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, None)])
    return helper.make_model(graph)


def test_a_signature_is_the_shape_of_a_graph_in_words() -> None:
    assert make_signature(OnnxProgram.of(conv_relu())) == Signature(
        ("Conv", "Pad", "Relu"),
        (">Conv", ">Pad", "Conv>Relu", "Pad>Conv"),
        ("Pad:4",),
        ("Conv.group=n", "Conv.pads=zeros", "Pad.mode=edge"),
    )
    renamed = conv_relu()
    for node in renamed.graph.node:
        node.name = "other"
        node.output[:] = [f"z{name}" for name in node.output]
        node.input[:] = [name if name in ("x", "w", "p") else f"z{name}" for name in node.input]
    assert make_signature(OnnxProgram.of(renamed)) == make_signature(OnnxProgram.of(conv_relu()))
    large = conv_relu()
    large.graph.node.extend(helper.make_node("Relu", ["y"], [f"r{i}"]) for i in range(20))
    assert make_signature(OnnxProgram.of(large)) == Signature()


def wrong(evidence: Evidence = NOTHING, operators: Sequence[str] = ("Conv", "Pad", "Relu")) -> Fingerprint:
    observation = Observation("onnxruntime", "1", "ok", outputs={"y": np.zeros(1, np.float32)})
    verdict = Verdict("fail", "", "mismatch", mismatch=Mismatch("y", "value"), blame="optimiser")
    return make_fingerprint(verdict, observation, operators, evidence)


def test_evidence_joins_as_it_comes_and_says_so() -> None:
    shape = make_signature(OnnxProgram.of(conv_relu()))
    other = replace(shape, edges=("Relu>Conv",))
    assert wrong(Evidence(shape)).key != wrong(Evidence(other)).key
    assert (
        wrong(Evidence(shape)).key
        == wrong(Evidence(make_signature(OnnxProgram.of(conv_relu(5, "reflect"))))).key
    )
    known = [
        Evidence(shape),
        Evidence(shape, guilty_passes=("ConvActivationFusion",)),
        Evidence(shape, guilty_passes=("PadFusion",)),
        Evidence(shape, cure=("level=basic",)),
        Evidence(shape, first_bad="1.17.0"),
        Evidence(shape, first_bad="1.18.0"),
    ]
    assert len({wrong(evidence).key for evidence in known}) == len(known)
    both = wrong(Evidence(shape, guilty_passes=("PadFusion",), cure=("level=basic",)))
    assert both.key == wrong(known[2]).key
    assert {component.name for component in both.components} >= {
        "guilty pass",
        "cure",
        "edges",
        "ranks",
        "attributes",
    }
    assert all(component.hint for component in both.components)


def test_evidence_never_counts_for_the_same_failure() -> None:
    shape = make_signature(OnnxProgram.of(conv_relu()))
    for evidence in (
        Evidence(shape),
        Evidence(guilty_passes=("A",)),
        Evidence(cure=("B",)),
        Evidence(first_bad="1"),
    ):
        assert is_same(wrong(), wrong(evidence))


def test_where_an_error_failed_tells_more_than_evidence() -> None:
    observation = Observation(
        "tvm", "1", "error", exception="ValueError", message="bad", frames=(python("f"),)
    )
    keys = {
        make_fingerprint(Verdict("fail", "", "error"), observation, [], evidence).key
        for evidence in (NOTHING, Evidence(guilty_passes=("A",)), Evidence(first_bad="1"))
    }
    assert len(keys) == 1


def test_visitors_and_checks_that_every_program_passes_through_do_not_count() -> None:
    """Else any two internal errors of TVM below the same visitor would be one."""
    inner = (
        Frame(
            "native",
            "tvm::relax::ExprFunctor<void (tvm::RelaxExpr const&)>::VisitExpr(tvm::RelaxExpr const&)",
        ),
        Frame("native", "tvm::runtime::vm::CheckTensorInfo(tvm::ffi::AnyView)"),
        Frame("native", "tvm::__TVMFFIStaticInitFunc2()"),
    )
    one = error("found null", (python("Clip._impl_v1"), *inner), "InternalError")
    other = error("found null", (python("Elu._impl_v1"), *inner), "InternalError")
    assert one.key != other.key
    assert kept(one)["frames"] == "onnx_frontend.py Clip._impl"


def test_a_cause_is_told_before_what_was_made_of_it() -> None:
    """onnxscript wraps every error of a pass: where and why it began tells bugs apart, not the wrapper."""

    def wrapped(cause: str, link: str) -> Fingerprint:
        text = (
            'Traceback (most recent call last):\n  File "/x/site-packages/p/fold.py", line 3, in'
            f" fold\n{cause}\n\n{link}\n\nTraceback (most recent call last):\n  File"
            ' "/x/site-packages/p/passes.py", line 9, in call\np.PassError: a pass failed\n'
        )
        seen = Observation(
            "onnxscript",
            "1",
            "error",
            "compile",
            exception="p.PassError",
            message="a pass failed",
            traceback=text,
        )
        return make_fingerprint(Verdict("fail", "", "error", message="a pass failed"), seen, [])

    link = "The above exception was the direct cause of the following exception:"
    shape, rank = (wrapped(f"ValueError: no {what} here", link) for what in ("shape", "rank"))
    assert shape.key != rank.key
    assert (shape.get_value("exception"), shape.get_value("message")) == ("ValueError", "no shape here")
    handled = "During handling of the above exception, another exception occurred:"
    # What was made of it was meant to be read.
    assert wrapped("KeyError: 'a'", handled).get_value("message") == "a pass failed"


def test_a_type_counts_until_the_graph_is_reduced() -> None:
    def wrong(dtype: str, shape: Signature | None) -> str:
        seen = Observation("tvm", "1", "ok", outputs={"y": np.zeros(1, dtype)})
        return make_fingerprint(
            Verdict("fail", "", "mismatch", mismatch=Mismatch("y", "value")),
            seen,
            ["OneHot"],
            Evidence(shape),
        ).key

    small = Signature(("OneHot",), (">OneHot",))
    assert wrong("int64", None) != wrong("float32", None)
    assert wrong("int64", small) == wrong("float32", small) != wrong("float16", small)


def test_a_dispatching_function_is_telling_where_all_began_in_it() -> None:
    """The converter of whichever operator came along has no part in it, and what it raises on purpose names
    an operator where that matters.
    """

    def raised(said: str, operator: str, *inner: Frame) -> Fingerprint:
        frames = (python("Loop._impl_v1"), python("ONNXGraphImporter._convert_operator"), *inner)
        return error(said, frames, log=f"Error converting operator {operator}, with inputs: []")

    assert raised("cannot handle shapes", "Tile").key == raised("cannot handle shapes", "Trilu").key
    assert raised("no Tile here", "Tile").key != raised("no Trilu here", "Trilu").key
    assert kept(raised("bad", "Tile", python("Tile._impl_v1")))["frames"] == "onnx_frontend.py Tile._impl"
    bridge = Frame("python", "tvm_ffi.core.Function.__call__", "python/tvm_ffi/cython/function.pxi", 1038)
    assert kept(raised("bad", "Tile", bridge))["frames"] == "onnx_frontend.py Loop._impl"


def test_who_raises_for_others_is_never_where_it_began() -> None:
    frames = (
        python("f", file="/v/site-packages/torch/_dynamo/variables/builder.py"),
        python("unimplemented", file="/v/site-packages/torch/_dynamo/exc.py"),
    )
    assert kept(error("no such thing", frames))["frames"] == "builder.py f"
    dispatch = (python("Loop._impl"), python("ONNXGraphImporter._convert_operator"), frames[1])
    assert (
        kept(error("no such thing", dispatch))["frames"]
        == "onnx_frontend.py ONNXGraphImporter._convert_operator"
    )


def test_a_helper_of_one_file_is_told_without_its_callers() -> None:
    """A call from another file may be the mistake; who calls a helper of its own file says little of what is
    wrong with the helper.
    """

    def raised(caller: str, file: str = CONVERTER, said: str = "no axes given") -> str:
        return error(said, (python(caller, file=file), python("_axes_of"))).key

    assert raised("Slice._impl") == raised("Pad._lower")
    assert raised("Slice._impl", "/v/site-packages/tvm/a.py") != raised(
        "Pad._lower", "/v/site-packages/tvm/a.py"
    )
    said = [raised(f"{name}._impl", said=f"{name} axis 7 is out of range") for name in ("Slice", "Pad")]
    assert said[0] == said[1]
    assert said[0] != raised("Slice._impl", said="Pad axis 7 is out of range")  # another one than its caller
    text = [
        error("no axes given", (python(name), python("_check_attrs"))).key
        for name in ("_impl_slice", "_impl_pad")
    ]
    assert text[0] != text[1]  # methods of two classes, maybe
    nameless = [error("bad", (python(f"{name}"), python("<lambda>"))) for name in ("slice", "pad")]
    assert nameless[0].key != nameless[1].key


def test_a_name_that_is_not_defined_is_the_functions_own_affair() -> None:
    def raised(exception: str, caller: str) -> str:
        called = python(caller, file="/v/site-packages/tvm/relax/op/manipulate.py")
        return error("name axes is not defined", (called, python("_normalize_axes")), exception).key

    assert raised("NameError", "slice") == raised("NameError", "pad")
    assert raised("KeyError", "slice") != raised("KeyError", "pad")


def test_of_which_class_a_value_was_does_not_count() -> None:
    def stumbled(said: str) -> str:
        return error(said, (python("Transpose._impl_v13"),), "AttributeError").key

    assert stumbled("'Var' object has no attribute 'typ'") == stumbled(
        "'GenericConst' object has no attribute 'typ'"
    )
    assert stumbled("'Var' object has no attribute 'typ'") != stumbled("'Var' object has no attribute 'shap'")
    got = "Mismatched type on argument #1 when calling: `f`. Expected `T` but got `ir.{}`"
    assert stumbled(got.format("Var")) == stumbled(got.format("Call"))


def died(*frames: Frame, operator: str = "Gemm", release: str = "1") -> Fingerprint:
    seen = Observation("tvm", release, "crash", "import", signal=11, frames=frames)
    return make_fingerprint(Verdict("fail", "", "crash"), seen, [operator])


def test_a_death_in_python_code_is_told_by_its_line() -> None:
    """Text shows `_impl` without its class: Gemm's and Reshape's are not one; and nothing else tells two
    deaths of a function apart.
    """
    assert died(python("_impl", 10)).key == died(python("_impl", 10), operator="Relu").key
    assert died(python("_impl", 10)).key != died(python("_impl", 99)).key
    native = Frame("native", "fold", module="lib.so", offset=7)
    assert died(python("_impl", 10), native).key == died(python("_impl", 99), native).key


def test_a_death_in_a_dispatching_function_is_its_own() -> None:
    """Even beneath Python's own library."""
    inside = (
        Frame("python", "string_at", "/usr/lib/python3.11/ctypes/__init__.py", 519),
        Frame("native", module="libffi.so.8", offset=3),
    )
    dispatch = python("_convert_operator", 70)
    assert (
        kept(died(python("_impl_v1", 4), dispatch, *inside))["frames"] == "onnx_frontend.py _convert_operator"
    )
    assert died(dispatch, *inside).key == died(dispatch, *inside, operator="Tile").key
    assert kept(died(dispatch, python("_impl_v1", 4)))["frames"] == "onnx_frontend.py _impl"


def broken(
    said: str, evidence: Evidence = NOTHING, operators: Sequence[str] = ("Concat", "Relu")
) -> Fingerprint:
    seen = Observation(
        "onnxscript", "1", "error", "compile", exception="opsieve_backend.BrokenModel", message=said
    )
    return make_fingerprint(Verdict("fail", "", "error", "compile", said), seen, operators, evidence)


def test_a_broken_model_is_told_like_a_wrong_result() -> None:
    """Its reader stumbles wherever the break happens to show."""
    refused = "onnx.checker accepts the original and refuses the transformed model: {}"
    mul, add = (
        broken(refused.format(f"Inference error: (op_type:{name}, node name: n)")) for name in ("Mul", "Add")
    )
    lost = broken("the transformed model has lost the outputs y")
    assert mul.key != add.key != lost.key  # all that is known as long as the graph is large
    assert is_same(mul, add)
    assert not is_same(mul, broken(refused.format("bad")))
    assert not is_same(mul, lost)
    small = Evidence(Signature(("Concat",), (">Concat",)), guilty_passes=("fold",))
    assert (
        broken(refused.format("bad"), small).key
        == broken("the transformed model has lost the outputs y", small).key
    )
    assert broken("", small).key != broken("", replace(small, guilty_passes=("fuse",))).key
    assert broken("", small).key != broken("", replace(small, signature=Signature(("Pad",), (">Pad",)))).key


def test_the_title_of_a_broken_model_tells_what_broke_it() -> None:
    refused = "onnx.checker accepts the original and refuses the transformed model: {}"
    many = tuple(f"Op{at}" for at in range(9))
    assert make_title(broken(refused.format("no output y"), operators=many)) == "broken model: no output y"
    small = Evidence(Signature(("Concat",), (">Concat",)))
    assert make_title(broken(refused.format("no output y"), small)) == "broken model of Concat: no output y"
    fused = broken(refused.format("no output y"), Evidence(guilty_passes=("fuse_pad",)))
    assert make_title(fused) == "broken model of Concat Relu by pass fuse_pad: no output y"
    assert (
        make_title(broken("onnxruntime is silent", operators=many)) == "broken model: onnxruntime is silent"
    )
