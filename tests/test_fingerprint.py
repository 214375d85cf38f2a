"""Fingerprints: what is one bug and what is not."""

import re
from pathlib import Path

import numpy as np
import pytest
from golden_logs import PATHS, GoldenLog
from hypothesis import given
from hypothesis import strategies as st

from opsieve.backends.frames import parse_log
from opsieve.backends.observation import Frame, Observation
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.triage.fingerprint import Fingerprint, fingerprint, same
from opsieve.triage.stack import read

CONVERTER = "/venv/site-packages/tvm/relax/frontend/onnx/onnx_frontend.py"


def python(function: str, line: int = 1, file: str = CONVERTER) -> Frame:
    return Frame("python", function, file, line)


def error(
    message: str, frames: tuple[Frame, ...] = (), exception: str = "ValueError", target: str = "tvm", log: str = ""
) -> Fingerprint:
    observation = Observation(
        target, "1", "error", "compile", exception=exception, message=message, frames=frames, log=log
    )
    return fingerprint(Verdict("fail", "", "error"), observation, ["Conv", "Relu"])


def mismatch(
    what: str = "value", operators: tuple[str, ...] = ("Conv", "Relu"), dtype: str = "float32", blame: str = "optimiser"
) -> Fingerprint:
    observation = Observation("onnxruntime:all", "1", "ok", outputs={"y": np.zeros(1, dtype)})
    verdict = Verdict("fail", "", "mismatch", mismatch=Mismatch("y", what, max_abs=3.0), blame=blame)  # type: ignore[arg-type]
    return fingerprint(verdict, observation, operators)


def crash(log: str, target: str = "onnxruntime", number: int = 11) -> Fingerprint:
    observation = Observation(
        target, "1", "crash", "run", frames=parse_log(log, lambda _: "aa" * 20), signal=number, log=log
    )
    return fingerprint(Verdict("fail", "", "crash"), observation, ["Div"])


def kept(print_: Fingerprint) -> dict[str, str]:
    return {component.name: component.value for component in print_.components if component.kept}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_golden_stacks(path: Path) -> None:
    log = GoldenLog.read(path)
    assert " < ".join(read(log.frames, 3).names) == log.expected("telling")


def test_the_key_is_stable() -> None:
    """A change of any of these is a new version of the rules."""
    assert error("no value in Constant", (python("Constant._impl_v13"),)).key == "tvm-error-a01111016d"
    assert mismatch().key == "onnxruntime-mismatch-cf9661c64e"


def test_each_component_says_why() -> None:
    for print_ in (error("x"), mismatch(), crash("free(): invalid pointer")):
        assert all(component.hint and component.value for component in print_.components)
        assert re.fullmatch(r"[a-z]+-[a-z]+-[0-9a-f]{10}", print_.key)


def test_lines_opsets_and_folders_do_not_count() -> None:
    one = error("bad 3", (python("Constant._impl_v13", 100),))
    other = error("bad 4", (python("Constant._impl_v18", 200, CONVERTER.replace("/venv", "/other")),))
    assert one.key == other.key


def test_classes_count_where_they_are_known() -> None:
    assert error("bad 3", (python("Constant._impl_v13"),)).key != error("bad 3", (python("Split._impl_v13"),)).key


def test_a_vague_name_is_told_by_the_operator_in_the_log() -> None:
    frames = (python("_impl_v13"),)
    one = error("bad 3", frames, log="Error converting operator CumSum, with inputs: [x]")
    other = error("bad 3", frames, log="Error converting operator Split, with inputs: [x]")
    assert one.key != other.key
    assert kept(one)["operator"] == "CumSum"


def test_an_operator_counts_when_the_message_that_names_it_does_not() -> None:
    frames = (python("_impl_v13"),)
    one = error("CumSum wants 3 inputs", frames, log="Error converting operator CumSum, with inputs: [x]")
    assert "message" not in kept(one)
    assert kept(one)["operator"] == "CumSum"


def test_plumbing_does_not_count() -> None:
    inner = python("Split._impl_v13")
    bridge = Frame("python", "tvm_ffi.core.Function.__call__", "python/tvm_ffi/cython/function.pxi", 1038)
    harness = Frame("python", "main", "/case/harness.py", 3)
    assert (
        error("bad 3", (inner,)).key
        == error("bad 3", (harness, python("ONNXGraphImporter.from_onnx"), inner, bridge)).key
    )


def test_a_message_with_variable_parts_counts_only_without_frames() -> None:
    assert error("bad 3", (python("f"),)).key == error("worse 3 than", (python("f"),)).key
    assert error("bad 3").key != error("worse 3 than").key
    assert error("bad").key != error("worse").key


def test_the_place_in_the_message_counts() -> None:
    text = "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/{}:{} onnxruntime::Model::Model(int) bad"
    keys = [
        error(text.format(*at), target="onnxruntime").key for at in (("model.cc", 1), ("model.cc", 2), ("graph.cc", 1))
    ]
    assert keys[0] == keys[1] != keys[2]


def test_another_compiler_stage_exception_or_signal_is_another_bug() -> None:
    assert error("bad").key != error("bad", target="onnxruntime").key
    assert error("bad").key != error("bad", exception="TypeError").key
    assert error("bad", exception="tvm.error.InternalError").key == error("bad", exception="tvm._ffi.InternalError").key
    assert error("bad", target="tvm:zero").key == error("bad", target="tvm==0.20:default").key
    log = "@native\t8\tfault\n@frame\t/lib.so\t0x1\tf\n@end\twhole\n"
    assert crash(log, number=8).key != crash(log, number=11).key


def test_frames_without_a_symbol_are_told_by_build_and_offset() -> None:
    log = "@native\t8\tfault\n@frame\t/x/lib.so\t{}\t?\n@frame\t/lib/libc.so.6\t0x99\tabort\n@end\twhole\n"
    print_ = crash(log.format("0x1f"))
    assert kept(print_)["frames"] == "lib.so+0x1f@aaaaaaaaaaaa"
    assert print_.key != crash(log.format("0x2f")).key


def test_broken_memory_is_told_by_frames_not_by_its_many_messages() -> None:
    stack = "\n@native\t6\tsent\n@frame\t/lib/libc.so.6\t0x1\tabort\n@frame\t/x/lib.so\t0x2\tnet_free\n@end\twhole\n"
    assert crash("free(): invalid pointer" + stack).key == crash("double free or corruption (out)" + stack).key


def test_a_crash_in_generated_code_is_told_by_few_operators() -> None:
    log = "@native\t8\tfault\n@frame\t<jit>\t0x7f\t?\n@frame\t<jit>\t0x8f\t?\n@end\twhole\n"
    print_ = crash(log, "tvm")
    assert kept(print_)["frames"] == "<jit>"
    assert kept(print_)["operators"] == "Div"


@given(st.integers(3, 30), st.integers(0, 2), st.sampled_from(["", "leaf"]))
def test_recursion_is_one_wherever_the_stack_ran_out(turns: int, begin: int, leaf: str) -> None:
    names = (["Add", "Mul", "Mutate"] * (turns + 2))[begin : begin + 3 * turns + 3]
    frames = tuple(Frame("native", name, module="lib.so") for name in ["main_", *names[::-1], *filter(None, [leaf])])
    stack = read(frames, 3)
    assert stack.recursive
    assert stack.names == ("Add", "Mul", "Mutate")


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
    assert same(mismatch(operators=many), mismatch(operators=("Conv",)))
    assert not same(mismatch("nan"), mismatch("value"))
    assert not same(error("bad"), error("worse"))


@given(st.text(max_size=300), st.text(max_size=60), st.lists(st.text(max_size=30), max_size=9), st.text(max_size=100))
def test_any_text_gives_a_bounded_fingerprint(message: str, target: str, operators: list[str], name: str) -> None:
    frames = (Frame("python", name, name), Frame("native", name, module=name))
    observation = Observation(
        target, "1", "crash", message=message, frames=frames, exception=name, log=message, signal=99
    )
    print_ = fingerprint(Verdict("fail", "", "crash"), observation, operators)
    assert all(len(component.value) <= 600 for component in print_.components)
    assert len(print_.key) < 80


def test_real_failures_are_told_apart() -> None:
    """Each golden traceback is another failure; the two checks inside one C++ function are the price of dropping messages that vary."""
    keys: dict[str, list[str]] = {}
    for path in PATHS:
        log = GoldenLog.read(path)
        if log.head["kind"] == "traceback":
            backend, exception = log.head["backend"], log.head["exception"]
            frames, message = log.frames, log.message
            observation = Observation(
                backend, "1", "error", exception=exception, message=message, frames=frames, log=log.raw
            )
            keys.setdefault(fingerprint(Verdict("fail", "", "error"), observation, []).key, []).append(path.stem)
    assert len(keys) >= 50
    assert sorted(stems for stems in keys.values() if len(stems) > 1) == [
        ["tvm-unsupported-input-datatype-for-ope", "tvm-zero-point-param-datatype-should-b"],
        ["tvm-unsupported-output-datatype-attrib", "tvm-zero-point-param-datatype-should-b-quantizelinear"],
    ]
