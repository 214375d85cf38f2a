"""Values are recorded when they are asked for: how many runs that takes, and what happens when a source
cannot give them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx
from failing import host
from hypothesis import given, strategies as st
from models import program
from onnx import TensorProto, helper

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.view import Recording, Subject
from opsieve.gen.model.program import Program
from opsieve.reducer.onnx_edit.typed_view import plain_values
from opsieve.reducer.problem.recording import record_values


@dataclass
class Heard:
    """Workers that remember what they were asked."""

    workers: Workers
    asked: list[tuple[str, list[str], int]] = field(default_factory=list)  # target, outputs, nodes

    def observe(self, target: ResolvedTarget, program: Program, inputs: dict[str, Any]) -> Observation:
        graph = program.proto.graph
        self.asked.append((target.name, [info.name for info in graph.output], len(graph.node)))
        return self.workers.observe(target, program, inputs)


def record(subject: Subject, source: str, heard: Heard) -> Mapping[str, Any]:
    return record_values(subject, resolve(source), cast("Workers", heard)).values


def test_a_small_model_is_recorded_in_one_run_at_the_first_question(workers: Workers) -> None:
    case, heard = host(3, 40, [["Tanh"]]), Heard(workers)
    values = record(Subject(case.program.proto, case.inputs, {}), "onnxruntime:disable_all", heard)
    assert heard.asked == []
    assert values["v7"].shape == (2, 3)
    assert set(values) == {name for node in case.program.proto.graph.node for name in node.output}
    assert len(heard.asked) == 1


def wide() -> Subject:
    """A chain of 100 nodes over 64 KiB."""
    lines = [f"t{number} = Neg(t{number - 1})" for number in range(1, 101)]
    text = f"g (float[128, 128] t0) => (float[128, 128] t100) {{ {' '.join(lines)} }}"
    return Subject(program(text).proto, {"t0": np.full((128, 128), 2, np.float32)}, {})


def test_of_a_large_model_only_what_is_asked_for_is_recorded_from_what_computes_it(workers: Workers) -> None:
    heard = Heard(workers)
    values = record(wide(), "onnxruntime:disable_all", heard)
    assert values["t3"][0, 0] == -2
    assert heard.asked == [("onnxruntime", ["t3"], 3)]
    assert isinstance(values, Recording)
    values.want(["t3", "t9", "t12"])
    assert heard.asked[1:] == [("onnxruntime", ["t9", "t12"], 12)]
    assert values["t12"][0, 0] == 2
    assert "t0" not in values
    assert len(heard.asked) == 2


def test_a_source_that_dies_is_not_asked_again_and_the_reference_answers(workers: Workers) -> None:
    heard = Heard(workers)
    values = record(wide(), "fake:crash@Neg", heard)
    assert (values["t3"][0, 0], values["t4"][0, 0]) == (-2, 2)
    assert [target for target, _, _ in heard.asked] == ["fake", "reference", "reference"]


def test_a_value_that_contradicts_its_declared_type_comes_from_the_next_source(workers: Workers) -> None:
    start = Subject(program("g (float[2] x) => (float[2] y) { t = Neg(x) y = Exp(t) }").proto, {}, {})
    start = Subject(start.model, {"x": np.ones(2, np.float32)}, {})
    heard = Heard(workers)
    assert record(start, "fake:shape@Exp", heard)["y"].shape == (2,)
    assert [target for target, _, _ in heard.asked] == ["fake", "reference"]


def test_what_nobody_can_compute_stays_as_it_was(workers: Workers) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) { t ='
        " own.Secret(x) y = Neg(t) }"
    )
    fed = {"x": np.ones(2, np.float32)}
    assert "t" not in record(Subject(model, fed, {}), "onnxruntime:disable_all", Heard(workers))
    told = {"t": np.zeros(2, np.float32)}
    assert record(Subject(model, fed, told), "onnxruntime:disable_all", Heard(workers))["t"] is told["t"]


def test_a_sequence_that_nobody_can_compute_gets_no_value(workers: Workers) -> None:
    """Plain values are tensors; a sequence cut into parts of size 0 once ended the reduction."""
    text = """g (float[4] x, int64 size) => (float[2] y) <int64 one = {1}> {
        q = SplitToSequence (x, size)  e = SequenceAt (q, one)  y = Neg (e) }"""
    start = Subject(program(text).proto, {"x": np.ones(4, np.float32), "size": np.array(0)}, {})
    found = record_values(start, resolve("onnxruntime:disable_all"), workers, plain_values)
    assert "q" not in dict(found.values)
    # What inference takes for the sizes of y contradicts the declared ones.
    assert "y" not in found.values or found.values["y"].shape == (2,)


@given(
    st.sets(st.sampled_from("abcdefgh")),
    st.sets(st.sampled_from("abcdefgh")),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_a_recording_gives_what_it_names_and_can_have_and_asks_for_nothing_else(
    named: set[str], possible: set[str], kept: set[str]
) -> None:
    asked: set[str] = set()

    def play(names: Collection[str]) -> dict[str, Any]:
        asked.update(names)
        return {name: ord(name) for name in asked & possible}

    recording = Recording(sorted(named), play).only(kept)
    assert {name for name in "abcdefgh" if name in recording} == named & possible & kept
    assert asked <= named & kept
    assert dict(recording) == {name: ord(name) for name in sorted(named & possible & kept)}
    assert len(recording) == len(named & possible & kept)


def test_large_recorded_values_lie_in_files(workers: Workers) -> None:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1024, 512]) for name in "xz"]
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["y"], ["z"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", infos[:1], infos[1:]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    fed = np.arange(1024 * 512, dtype=np.float32).reshape(1024, 512)
    value = record_values(Subject(model, {"x": fed}, {}), resolve("onnxruntime:disable_all"), workers).values[
        "y"
    ]
    assert isinstance(value, np.ndarray)
    assert isinstance(value.base, np.memmap)
    assert np.array_equal(value, -fed)
