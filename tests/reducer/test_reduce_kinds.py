"""Real failures of other kinds: of quantised models, of TVM, inside a Loop, under external data of 500 MB."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.reducing import scaled
from benchmarks.reducing.grow import grown
from models import program
from onnx import TensorProto, helper

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle import discover
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.problem.order import count_nodes
from opsieve.reducer.sessions import reduction
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_failure


def reduced(case: Case, target: str, workers: Workers) -> Reduction:
    premise = find(case, [resolve(target)], None, workers)
    start = Subject(case.program.proto, case.inputs, {})
    return reduce_failure(OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners())


def operators(result: Reduction) -> list[str]:
    return [node.op_type for node in result.best.model.graph.node]


@pytest.mark.slow  # in make test: a wrong fusion in test_reduce_hints.py, scales in test_reduce_sameness.py
def test_a_wrong_result_of_a_quantised_model(workers: Workers) -> None:
    text = """g (float[3, 5, 7] x) => (float[3, 5, 7] y, float[5, 7, 3] z) <float scale = {0.1}, uint8 zero = {128}>
        { a = Softmax <axis: int = -1> (x)  b = Transpose <perm: ints = [1, 2, 0]> (a)
          y = Transpose <perm: ints = [2, 0, 1]> (b)  c = QuantizeLinear (b, scale, zero)  z = DequantizeLinear (c, scale, zero) }"""
    small = program(text, 20, 10).proto
    case = Case(OnnxProgram(grown(small, 60, above=True).SerializeToString()), seeded_inputs(small, 0))
    result = reduced(case, "onnxruntime", workers)
    assert operators(result) == ["Softmax", "Transpose", "Transpose", "QuantizeLinear", "DequantizeLinear"]
    assert result.best.model.ByteSize() <= 260
    assert (result.same, result.minimal) == (True, True)


@pytest.mark.slow  # in make test: the wrong value, below
def test_a_wrong_type_of_tvm(workers: Workers) -> None:
    pytest.importorskip("tvm")
    text = """g (int64[2, 3] x) => (float[2, 3, 1] y) <int64 depth = {4}, float[2] v = {0, 1}, float[4, 1] w = {1.5, 2.5, -1, 3}>
        { h = OneHot <axis: int = -1> (x, depth, v)  y = MatMul (h, w) }"""
    small = program(text, 20, 10).proto
    case = Case(OnnxProgram(grown(small, 40).SerializeToString()), {"x": np.array([[0, 1, 2], [3, 1, 0]])})
    result = reduced(case, "tvm", workers)
    assert operators(result) == ["OneHot", "MatMul"]
    assert (result.same, result.minimal) == (True, True)


@pytest.mark.slow(seconds=5)
def test_a_wrong_value_of_tvm(workers: Workers) -> None:
    pytest.importorskip("tvm")
    text = "g (float[6] x) => (bool[6] y) { y = IsInf <detect_negative: int = 0> (x) }"
    value = np.array([-1.2, np.nan, np.inf, 2.8, -np.inf, 3.0], np.float32)
    result = reduced(Case(program(text, 20, 9), {"x": value}), "tvm", workers)
    assert operators(result) == ["IsInf"]
    stored = [onnx.numpy_helper.to_array(tensor) for tensor in result.best.model.graph.initializer]
    assert [*stored, *result.best.inputs.values()] == [-np.inf]
    assert (result.same, result.minimal) == (True, True)


def test_of_very_many_nodes_the_unoptimised_build_says_what_is_wrong(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discover, "_MANY", 200)
    asked: list[str] = []
    observe = Workers.observe

    def heard(self: Workers, target: ResolvedTarget, *given: Any, **more: Any) -> Observation:
        asked.append(target.name)
        return observe(self, target, *given, **more)

    monkeypatch.setattr(Workers, "observe", heard)
    wide = OnnxProgram(scaled.model(300, "wide", "mismatch").SerializeToString())
    premise = find(Case(wide, seeded_inputs(wide.proto, 0)), [resolve("onnxruntime")], None, workers)
    assert (premise.arbiter, premise.named, premise.assumed) == (resolve("onnxruntime").baseline, False, True)
    assert set(asked) == {"onnxruntime"}
    monkeypatch.setattr(reduction, "still", lambda subject, premise, workers: False)
    start = Subject(wide.proto, seeded_inputs(wide.proto, 0), {})
    with pytest.raises(NoFailure, match="in no small part of the model are they wrong"):
        reduce_failure(OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners())


def test_the_oracles_of_run_are_asked_where_the_reference_knows_nothing(workers: Workers) -> None:
    image, mask = [1, 1, 2, 2], np.ones((1, 1, 2, 2), np.int32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, image)
    m = helper.make_tensor_value_info("m", TensorProto.INT32, image)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 1])
    nodes = [
        helper.make_node("MaxpoolWithMask", ["x", "m"], ["a"], domain="com.microsoft", kernel_shape=[2, 2]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, m], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    case = Case(OnnxProgram(model.SerializeToString()), {"x": np.ones(image, np.float32), "m": mask})
    premise = find(case, [resolve("fake:error@Relu/import")], None, workers)
    assert premise.arbiter == resolve("onnxruntime:disable_all")
    assert premise.failure.verdict.verdict == "fail"


def test_a_trigger_in_the_body_of_a_loop_is_brought_out(workers: Workers) -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y) <int64 turns = {3}, bool go = {1}> {
        a = Abs (x)
        b = Loop (turns, go, a) <body = body (int64 i, bool c, float[2, 3] s) => (bool d, float[2, 3] r) {
            d = Identity (c)  p = Neg (s)  q = Tanh (p)  t = Exp (q)  r = Sigmoid (t) }>
        y = Softplus (b) }"""
    case = Case(program(text), {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)})
    result = reduced(case, "fake:crash@Tanh>Exp", workers)
    assert operators(result) == ["Tanh", "Exp"]
    assert count_nodes(result.best.model) == (2, 0)
    assert (result.same, result.minimal) == (True, True)


@pytest.mark.slow(seconds=35)
def test_weights_of_500_megabytes_in_a_file_beside_the_model(tmp_path: Path) -> None:
    size, blocks = 5120, 5
    draw = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(draw.standard_normal((size, size), dtype=np.float32) / 72, f"w{block}")
        for block in range(blocks)
    ]
    shapes = {
        "wide": [2, 10, 16, 16],
        "pads": [0, 0, 0, 0, 0, 0, 1, 2],
        "zero": [0, 0, 0, 0],
        "flat": [1, size],
    }
    weights += [onnx.numpy_helper.from_array(np.array(value), name) for name, value in shapes.items()]
    nodes, last = [], "x"
    for block in range(blocks):
        nodes.append(helper.make_node("MatMul", [last, f"w{block}"], [f"m{block}"]))
        nodes.append(helper.make_node("Tanh", [f"m{block}"], [last := f"t{block}"]))
        if block == 2:
            nodes += [
                helper.make_node("Reshape", [last, "wide"], ["r"]),
                helper.make_node("Pad", ["r", "pads"], ["p"]),
                helper.make_node("MaxPool", ["p"], ["q"], kernel_shape=[2, 2], pads=[1] * 4, strides=[1, 1]),
                helper.make_node("Slice", ["q", "zero", "wide"], ["s"]),
                helper.make_node("Reshape", ["s", "flat"], [last := "u"]),
            ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin")
    del model, graph, weights
    start = "from opsieve.tui.commands.examine.reduce_command import main; main()"
    arguments = [str(tmp_path / "model.onnx"), "-t", "onnxruntime", "-o", str(tmp_path / "out"), "--json"]
    process = subprocess.Popen([sys.executable, "-c", start, *arguments], stdout=subprocess.PIPE, text=True)
    peak = [0]
    ended = threading.Event()
    watch = threading.Thread(target=lambda: _watch(process.pid, peak, ended))
    watch.start()
    printed, _ = process.communicate(timeout=300)
    ended.set()
    watch.join()
    facts = json.loads(printed)
    assert (process.returncode, facts["nodes_after"], facts["same"], facts["minimal"]) == (0, 2, True, True)
    assert facts["bytes_after"] < 1024
    print(f"peak of all processes: {peak[0] >> 20} MiB, {facts['seconds']} s")
    assert 0 < peak[0] < 2 << 30


def _watch(pid: int, peak: list[int], ended: threading.Event) -> None:
    """The largest memory that a process and its children share among themselves, in bytes; looked at ten
    times a second.
    """
    while not ended.wait(0.1):
        peak[0] = max(peak[0], sum(map(_resident, _family(pid))))


def _family(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        children = [
            int(child)
            for task in tasks
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(member for child in children for member in _family(child))]


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
