"""Stacks read out of logs and tracebacks."""

import traceback

import pytest
from golden_logs import KINDS, logs
from hypothesis import given, strategies as st

from opsieve.backends.observation import Frame
from opsieve.backends.stacks.death_message import summary
from opsieve.backends.stacks.demangle import demangle
from opsieve.backends.stacks.frame_lines import frame_of
from opsieve.backends.stacks.frames import chain_frames, parse_log, read_tracebacks

LINES = st.sampled_from(
    [
        "@native\t11\tfault",
        "@frame\t/lib/a.so\t0x12\tf",
        "@frame\t<jit>\t0x12\t?",
        "@frame\t\t\t",
        "@end\twhole",
        "Current thread 0x1 (most recent call first):",
        "Thread 0x2 (most recent call first):",
        '  File "a.py", line 3 in f',
        '  File "a.py", line 3, in f',
        "Traceback (most recent call last):",
        "  + Exception Group Traceback (most recent call last):",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        "!!!!!!! Segfault encountered !!!!!!!",
        "    #0 0x1 in f (a=1) at x.c:3",
        "    #1 (lib.so+0x12)",
        "terminate called after throwing an instance of 'X'",
        "  what():  no",
        "",
    ]
)


@pytest.mark.parametrize("kind", KINDS)
def test_golden_frames(kind: str) -> None:
    for name, log in logs(kind):
        frames = log.frames
        assert len(frames) == int(log.expected("frames") or 0), name
        last = frames[-1] if frames else Frame("python")
        offset = f"+0x{last.offset:x}" if last.offset else ""
        assert (last.function or last.module + offset) == log.expected("innermost"), name
        if log.head["kind"] == "log":
            assert summary(log.raw) == log.expected("summary"), name


@given(
    st.one_of(
        st.text(max_size=400), st.lists(st.one_of(LINES, st.text(max_size=30)), max_size=40).map("\n".join)
    )
)
def test_any_text_is_read(text: str) -> None:
    for frame in (*parse_log(text, lambda module: "id"), *chain_frames(read_tracebacks(text))):
        assert frame.language in ("python", "native")
    assert len(summary(text)) <= 300
    assert summary(text).isprintable()


def test_a_real_traceback_gives_the_frames_of_the_root_cause() -> None:
    def inner() -> None:
        raise KeyError("x")

    def outer() -> None:
        try:
            inner()
        except KeyError as error:
            raise ValueError("y") from error

    try:
        outer()
    except ValueError as error:
        text = "".join(traceback.format_exception(error))
    names = [frame.function for frame in chain_frames(read_tracebacks(text))]
    assert names[-2:] == ["outer", "inner"]
    assert names.count("outer") == 1


def test_native_frames_come_behind_python_frames_innermost_last() -> None:
    frames = parse_log(
        "\n@native\t8\tfault\n@frame\t/x/lib.so\t0x20\t_ZN2ns1fEv\n@frame\t/x/lib.so\t0x10\t?\n@end\twhole\nFatal"
        " Python error: Floating point exception\n\nCurrent thread 0x1 (most recent call first):\n  File"
        ' "a.py", line 2 in g\n  File "a.py", line 9 in main\n',
        lambda module: f"id of {module}",
    )
    assert frames == (
        Frame("python", "main", "a.py", 9),
        Frame("python", "g", "a.py", 2),
        Frame("native", "", module="lib.so", offset=0x10, build_id="id of /x/lib.so"),
        Frame("native", "ns::f", module="lib.so", offset=0x20),
    )


def test_an_address_of_generated_code_is_not_kept() -> None:
    (frame,) = parse_log("@native\t8\tfault\n@frame\t<jit>\t0x7f123\t?\n@end\twhole\n")
    assert frame == Frame("native", module="<jit>")


def test_the_later_of_two_crashes_counts() -> None:
    block = "@native\t11\tfault\n@frame\t/lib.so\t{}\t?\n@end\twhole\n"
    assert [frame.offset for frame in parse_log(block.format("0x1") + block.format("0x2"))] == [2]


def test_tvm_frames_in_a_traceback_are_native() -> None:
    assert frame_of("void tvm::f(int)", "/project/src/x.cc", 3) == Frame(
        "native", "void tvm::f(int)", "/project/src/x.cc", 3
    )
    assert frame_of("tvm::g()", "<unknown>", 0) == Frame("native", "tvm::g()")
    assert frame_of("C.method", "/venv/a.py", 3).language == "python"
    assert (
        frame_of("tvm_ffi.core.Function.__call__", "python/tvm_ffi/cython/function.pxi", 3).language
        == "python"
    )


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN3tvm13ObjectMutator6MutateENS_3ffi7AnyViewENS1_11InplaceModeE", "tvm::ObjectMutator::Mutate"),
        (
            "_ZN3tvm13ObjectMutator12DispatchNodeINS_11ExprMutatorENS_4prim7AddNodeEEEvv",
            "tvm::ObjectMutator::DispatchNode",
        ),
        ("_ZSt9terminatev", "std::terminate"),
        ("_ZNK1aIiE1bC2Ev", "a::b::b"),
        ("_ZN1a1bILi10EEEvv", "a::b"),
        ("_ZN12_GLOBAL__N_11fEv", "<anonymous>::f"),
        ("_ZN1aclEi", "a::operator()"),
        ("_ZN1a1fB5cxx11Ev", "a::f"),
        ("plain_c", "plain_c"),
        ("_ZN", "_ZN"),
        ("_ZN99xE", "_ZN99xE"),
    ],
)
def test_demangling(symbol: str, name: str) -> None:
    assert demangle(symbol) == name


@given(st.text(alphabet="_ZNSEIt0123456789abLKvCDUlF", max_size=60))
def test_any_symbol_is_demangled_or_left(text: str) -> None:
    assert demangle("_Z" + text)


def test_a_huge_hostile_log_is_read() -> None:  # it would not end were anything quadratic
    for evil in (
        "#1 " * 3_000_000,
        '  File "' * 1_000_000,
        "(a+0x1" * 1_500_000,
        "#0 0x1 in f (\n" * 700_000,
        " at " * 2_500_000,
    ):
        parse_log(evil)
        chain_frames(read_tracebacks(evil))
        summary(evil)
