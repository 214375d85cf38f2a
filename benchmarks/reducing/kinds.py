"""Every kind of failure that is reduced, with a case of each: real ones of released compilers in a host,
planted ones (`fake`) where a real one would not stay the same.

A `--check` script stands twice: one that always sees the failure, and one that sees it in half of its runs.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from benchmarks.reducing import scaled
from benchmarks.reducing.bugs import SAMPLES
from benchmarks.reducing.grow import grown
from onnx import TensorProto, helper

from opsieve.gen.case.case import Case, load
from opsieve.gen.data.data_set import write_folder
from opsieve.gen.irs.onnx.program import OnnxProgram, onnx_program

_NODES = 60
_CHECK = """import random, sys
import onnx
graph = onnx.load(sys.argv[1]).graph
made = {name: node.op_type for node in graph.node for name in node.output}
sees = any(node.op_type == "Exp" and made.get(node.input[0]) == "Tanh" for node in graph.node)
sys.exit(0 if sees and random.random() < RATE else 1)
"""


@dataclass(frozen=True, slots=True)
class KindCase:
    """A kind, where it is looked for, what a minimal model of it has, further arguments; a sample, or "" for
    the planted model.
    """

    kind: str
    target: str
    minimum: int
    sample: str = ""
    more: tuple[str, ...] = ()
    rate: float = 0.0  # of a check script
    fault: str = "crash"  # which planted model: behind that of `mismatch` a wrong value stays wrong


CASES = (
    KindCase("crash", "onnxoptimizer", 1, "onnxoptimizer-shape-crash"),
    KindCase("error", "onnxruntime==1.31.1", 2, "pad-conv-weight-load-error"),
    KindCase("mismatch", "onnxruntime==1.20.1", 2, "pad-maxpool-wrong-value"),
    KindCase("hang", "fake:hang@Tanh>Exp", 2, more=("--seconds", "1")),
    KindCase("memory", "fake:memory@Tanh>Exp", 2, more=("--memory", "800")),
    KindCase("nondeterminism", "fake:wrong@Pad>MaxPool%0.5", 2, fault="mismatch"),
    KindCase("slowdown", "fake:drag@Tanh>Exp/run", 2),
    KindCase("accepts-invalid", "fake", 1),
    KindCase("check script", "", 2, rate=1.0),
    KindCase("check script, seen in half of its runs", "", 2, rate=0.5),
)


def report(only: str) -> None:
    """A row of a table for each kind: what `reduce` said that it holds fixed, what is left, what it took."""
    print(
        "| kind | target | nodes | left (minimum) | held fixed, as it says at the start | checks | CPU, s |"
        " minimal | seen again |"
    )
    for case in CASES:
        if only in case.kind:
            with tempfile.TemporaryDirectory(prefix="opsieve-kinds-") as folder:
                print(_row(case, Path(folder)), flush=True)


def hosted(sample: str, place: Path, size: int) -> int:
    """Write a sample within a host as a model with its inputs; itself where nothing of it can be given one.
    The nodes that it has.
    """
    case = load(SAMPLES / sample)
    proto = onnx_program(case.program, "this").proto
    with suppress(ValueError):
        case = Case(OnnxProgram(grown(proto, size).SerializeToString()), case.inputs)
    (place / "test_data_set_0").mkdir(parents=True)
    onnx.save(onnx_program(case.program, "this").proto, place / "model.onnx")
    write_folder(place / "test_data_set_0", case.inputs, case.program.inputs(), "input")
    return case.program.size


def _row(case: KindCase, folder: Path) -> str:
    place = folder / "case"
    if case.sample:
        nodes = hosted(case.sample, place, _NODES)
    else:
        place.mkdir()
        model = _invalid() if case.kind == "accepts-invalid" else scaled.model(_NODES, "chain", case.fault)
        onnx.save(model, place / "model.onnx")
        nodes = len(model.graph.node)
    named = ["-t", case.target] if case.target else []
    if case.rate:
        (folder / "check.py").write_text(f"#!{sys.executable}\n" + _CHECK.replace("RATE", str(case.rate)))
        (folder / "check.py").chmod(0o755)
        named = ["--check", str(folder / "check.py")]
    command = [sys.executable, "-m", "opsieve", "reduce", str(place), *named, *case.more]
    before = os.times()
    done = subprocess.run(
        [*command, "--json", "-o", str(folder / "out")], capture_output=True, text=True, check=False
    )
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    facts: Mapping[str, Any] = json.loads(done.stdout) if done.stdout else {}
    held = [line for line in done.stderr.splitlines() if "held fixed" in line]
    left = (facts.get("nodes_after") or 0) + (facts.get("inner_nodes_after") or 0)
    return (
        f"| {case.kind} | {case.target or '--check'} | {nodes} | {left} ({case.minimum}) |"
        f" {held[0].partition('held fixed: ')[2] if held else done.stderr.strip()[-200:]} |"
        f" {facts.get('checks')} | {cpu:.1f} | {facts.get('minimal')} |"
        f" {facts.get('replays') or facts.get('same')} |"
    )


def _invalid() -> onnx.ModelProto:
    """A Concat of integers and floats, which onnx.checker refuses and the reference evaluator runs, among
    others.
    """
    names = [f"v{place}" for place in range(_NODES - 2)]
    nodes = [
        helper.make_node("Neg" if place % 2 else "Abs", [f"v{place - 1}" if place else "x"], [name])
        for place, name in enumerate(names)
    ]
    nodes += [
        helper.make_node("Concat", [names[-1], "k"], ["d"], axis=0),
        helper.make_node("Tanh", ["d"], ["y"]),
    ]
    ins = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("k", TensorProto.INT64, [1, 3]),
    ]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 3])]
    graph = helper.make_graph(nodes, "disruptive Concat mixed-dtypes: T", ins, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
