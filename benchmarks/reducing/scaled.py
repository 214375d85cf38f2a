"""A bug among thousands of nodes: CPU time and memory of `opsieve reduce`, all of its processes together."""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

_PLAIN = ("Neg", "Abs", "Sigmoid", "Ceil")  # onnxruntime has them for float64 too
_KEEPING = ("Neg", "Abs")  # a wrong value stays wrong behind them
_JOINS = ("Add", "Max", "Min")
SHAPES = ("chain", "wide", "outputs")
_WIDTH = 200  # values of a wide graph that wait to be read
_SHORT = 10  # nodes of each of many chains
_AT = 0.6  # where in the order the trigger stands
_SHAPE = [1, 1, 4, 4]
# fault -> its nodes: operator, stored inputs, attributes
FAULTS: dict[str, list[tuple[str, list[str], dict[str, Any]]]] = {
    "crash": [("Tanh", [], {}), ("Exp", [], {})],
    "error": [("Relu", [], {}), ("Clip", ["lowest"], {})],
    "mismatch": [
        ("Abs", [], {}),
        ("Neg", [], {}),
        ("Pad", ["pads"], {}),
        ("MaxPool", [], {"kernel_shape": [3, 3]}),
    ],
}


def model(nodes: int, shape: str, fault: str = "crash") -> onnx.ModelProto:
    """A chain, a graph in which some 200 values wait to be read at any time, or chains of ten nodes of which
    each ends in an output; with a trigger in it.

    `crash`: a Tanh and an Exp, for `fake`. `error`, `mismatch`: real bugs of onnxruntime 1.31, a Relu and a
    Clip of float64 that cannot be fused, and a Pad and a MaxPool whose fusion pads with the lowest number
    where zeros were asked for.
    """
    draw = random.Random(0)
    plain = _KEEPING if fault == "mismatch" else _PLAIN
    dtype = TensorProto.DOUBLE if fault == "error" else TensorProto.FLOAT
    trigger = [helper.make_node(name, stored, [], **attributes) for name, stored, attributes in FAULTS[fault]]
    made: list[onnx.NodeProto] = []
    waiting = [] if shape == "outputs" else ["x"]
    first = int(nodes * _AT)
    for place in range(nodes):
        if first <= place < first + len(trigger):
            node = trigger[place - first]
            node.input.insert(0, waiting.pop())
        elif shape == "outputs":
            node = helper.make_node(draw.choice(plain), [waiting.pop() if place % _SHORT else "x"], [])
        elif shape == "chain":
            node = helper.make_node(draw.choice(plain), [waiting.pop()], [])
        elif len(waiting) < _WIDTH and place < nodes - 2 * _WIDTH:
            node = helper.make_node(draw.choice(plain), [draw.choice(waiting)], [])
        else:
            read = [waiting.pop(draw.randrange(len(waiting))) for _ in range(min(2, len(waiting)))]
            node = helper.make_node(draw.choice(_JOINS if len(read) == 2 else plain), read, [])
        node.name = f"n{place}"
        node.output.append(f"v{place}")
        made.append(node)
        waiting.append(f"v{place}")
    if shape == "wide":  # a Max or Min can lose a wrong value
        made.append(helper.make_node("Add", [waiting.pop(), f"v{first + len(trigger) - 1}"], ["y"], "last"))
        waiting.append("y")
    infos = [helper.make_tensor_value_info(name, dtype, _SHAPE) for name in ("x", *waiting)]
    graph = helper.make_graph(made, "scaled", infos[:1], infos[1:])
    if fault == "error":
        graph.initializer.append(helper.make_tensor("lowest", dtype, [], [0.5]))
    if fault == "mismatch":
        graph.initializer.append(helper.make_tensor("pads", TensorProto.INT64, [8], [0, 0, 1, 1, 0, 0, 1, 1]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def report(nodes: int, shapes: Sequence[str], faults: Sequence[str]) -> None:
    """Reduce such models by the command, and print a line of a table for what each took."""
    print(
        "| nodes | shape | fault | left | checks (for nodes) | CPU, s | clock, s | memory, MiB (main"
        " process) |"
    )
    for shape, fault in itertools.product(shapes, faults):
        target = "fake:crash@Tanh>Exp" if fault == "crash" else "onnxruntime"
        with tempfile.TemporaryDirectory(prefix="opsieve-scaled-") as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model(nodes, shape, fault), path)
            cost = measured(path, target, Path(folder) / "out")
        facts = cost.facts
        print(
            f"| {nodes} | {shape} | {fault} | {cost.left} | {facts.get('checks')}"
            f" ({facts.get('node_checks')}) | {cost.cpu:.1f} | {cost.seconds:.1f} | {cost.memory >> 20}"
            f" ({cost.main_memory >> 20}) |",
            flush=True,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call of the command gave and took: its facts, CPU seconds, seconds by the clock, bytes of
    memory that all processes had at most (each page shared out among those that map it).
    """

    facts: dict[str, Any]
    cpu: float
    seconds: float
    memory: int
    main_memory: int  # of them in the process that the user started

    @property
    def left(self) -> int:
        """Nodes of the result, those in bodies included."""
        return (self.facts.get("nodes_after") or 0) + (self.facts.get("inner_nodes_after") or 0)


def measured(path: Path, target: str, out: Path, *more: str) -> Cost:
    """`opsieve reduce` on a model, as a user calls it."""
    command = [sys.executable, "-m", "opsieve", "reduce", str(path), "-t", target, "--json", "-o", str(out)]
    since = time.monotonic()
    process = subprocess.Popen([*command, "--seconds", "300", *more], stdout=subprocess.PIPE, text=True)
    peak = [0, 0]
    ended = threading.Event()
    watch = threading.Thread(target=lambda: _watch(process.pid, peak, ended))
    watch.start()
    before = os.times()
    printed, _ = process.communicate()
    after = os.times()
    ended.set()
    watch.join()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(json.loads(printed) if printed else {}, cpu, time.monotonic() - since, *peak)


def _watch(pid: int, peak: list[int], ended: threading.Event) -> None:
    """The largest memory that a process and its children had, in bytes, and the largest that it had itself;
    looked at five times a second.
    """
    while not ended.wait(0.2):
        each = list(map(_resident, list_family(pid)))
        peak[0], peak[1] = max(peak[0], sum(each)), max(peak[1], *each[:1], 0)


def list_family(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        texts = [Path(f"/proc/{pid}/task/{task}/children").read_text() for task in tasks]
    except OSError:
        return []
    return [pid, *(member for text in texts for child in text.split() for member in list_family(int(child)))]


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
