"""A failure out of any text."""

import json

import pytest
from golden_logs import KINDS, PATHS, GoldenLog, logs
from hypothesis import given, strategies as st

from opsieve.backends.observation import Frame
from opsieve.triage.fingerprint.source_location import add_location, find_location
from opsieve.triage.fingerprint.traces import find_wrong_result, read_trace

LINES = st.sampled_from(sorted({line for path in PATHS for line in path.read_text().splitlines()[:60]}))


@pytest.mark.parametrize("kind", KINDS)
def test_golden_traces(kind: str) -> None:
    for name, log in logs(kind):
        trace = log.trace
        assert trace.kind == log.expected("kind"), name
        assert trace.exception == log.expected("exception"), name
        assert " ".join(trace.message.split())[:160] == log.expected("says"), name
        assert str(trace.signal or "") == log.expected("signal"), name
        assert trace.raw == log.raw, name
        if log.head["kind"] == "traceback":  # as the process itself knew it
            assert trace.exception == log.head["exception"].removeprefix("builtins."), name
            assert trace.message.split() == json.loads(log.head["message"]).split(), name


def test_there_are_enough_golden_logs() -> None:
    assert len(PATHS) >= 150
    sources = {GoldenLog.read(path).head.get("source", "real") for path in PATHS}
    assert sources == {"real", "provoked", "documented"}


@given(st.one_of(st.text(max_size=300), st.lists(LINES, max_size=40).map("\n".join)))
def test_any_text_is_read(text: str) -> None:
    trace = read_trace(text)
    assert trace.raw == text
    assert len(trace.message) <= 8000
    assert 0 <= trace.signal < 65
    assert trace.kind or not (trace.exception or trace.message or trace.frames)


@given(
    st.lists(LINES, max_size=30).map("\n".join),
    st.sampled_from(["\x1b[31m", "\x1b[1;35m", "\x1b[0m", "\x1b[K"]),
)
def test_colours_change_nothing(text: str, colour: str) -> None:
    plain = read_trace(text)
    coloured = read_trace("\n".join(f"{colour}{line}\x1b[m" for line in text.split("\n")))
    assert (plain.kind, plain.exception, plain.signal) == (coloured.kind, coloured.exception, coloured.signal)
    assert plain.frames == coloured.frames


@pytest.mark.slow
def test_a_huge_hostile_text_is_read() -> None:  # it would not end were anything quadratic
    for unit in (
        "a: ",
        "a.A",
        "E   a: ",
        "[E:onnxruntime:,",
        "==1==ERROR: ",
        "thread 'a' panicked at ",
        "a.py:1: in ",
        "F1 ",
        "/a.c:1:",
    ):
        for line in (unit * 200_000, (unit + "\n") * 80_000):
            read_trace(line)
            read_trace("Traceback (most recent call last):\n" + line)


def test_the_place_in_a_message_becomes_the_innermost_frame_once() -> None:
    message = "/src/core/graph/model.cc:256 ns::Model::Model(int) bad version"
    outer = Frame("python", "load", "a.py", 3)
    frames = add_location((outer,), message)
    assert frames == (outer, Frame("native", "ns::Model::Model", "/src/core/graph/model.cc", 256))
    assert add_location(frames, message) == frames
    assert add_location((outer,), "no place here") == (outer,)


@pytest.mark.parametrize(
    ("message", "file", "function"),
    [
        (
            "Exception from src/a.cpp:1:\nCheck 'x' failed at src/core/node.cpp:412:\nbad",
            "src/core/node.cpp",
            "",
        ),
        ("prog: /src/a.cpp:12: void ns::C::f(int): Assertion `x' failed.", "/src/a.cpp", "ns::C::f"),
        ("UNREACHABLE executed at /src/a.cpp:369!", "/src/a.cpp", ""),
    ],
)
def test_places_in_other_words(message: str, file: str, function: str) -> None:
    place = find_location(message)
    assert place is not None
    assert (place.file, place.function) == (file, function)


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("\nNot equal to tolerance rtol=0.01\nx and y nan location mismatch:", "nan"),
        ("inf values mismatch:", "inf"),
        ("(shapes (2, 3), (3, 3) mismatch)", "shape"),
        ("shape mismatch: got (), want (3, 1)", "shape"),
        ("The values for attribute 'dtype' do not match: torch.float32 != torch.int32.", "dtype"),
        ("Tensor-likes are not close!\n\nMismatched elements: 3 / 12", "value"),
        ("node 3 has no kernel", None),
    ],
)
def test_wrong_results_in_words(message: str, what: str | None) -> None:
    found = find_wrong_result(message)
    assert (found and found.what) == what
