"""A bug among thousands of nodes: CPU time and memory of `opsieve reduce`, all of its processes together."""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

_PLAIN = ("Neg", "Abs", "Sigmoid", "Ceil")  # onnxruntime has them for float64 too
_KEEPING = ("Neg", "Abs")  # a wrong value stays wrong behind them
_JOINS = ("Add", "Max", "Min")
_WIDTH = 200  # values of a wide graph that wait to be read
_AT = 0.6  # where in the order the trigger stands
_SHAPE = [1, 1, 4, 4]
# fault -> its nodes: operator, stored inputs, attributes
_FAULTS: dict[str, list[tuple[str, list[str], dict[str, Any]]]] = {
    "crash": [("Tanh", [], {}), ("Exp", [], {})],
    "error": [("Relu", [], {}), ("Clip", ["lowest"], {})],
    "mismatch": [("Abs", [], {}), ("Neg", [], {}), ("Pad", ["pads"], {}), ("MaxPool", [], {"kernel_shape": [3, 3]})],
}


def model(nodes: int, shape: str, fault: str = "crash") -> onnx.ModelProto:
    """A chain, or a graph in which some 200 values wait to be read at any time, with a trigger in it.

    `crash`: a Tanh and an Exp, for `fake`. `error`, `mismatch`: real bugs of onnxruntime 1.31, a Relu and a Clip of float64 that cannot be
    fused, and a Pad and a MaxPool whose fusion pads with the lowest number where zeros were asked for.
    """
    draw = random.Random(0)
    plain = _KEEPING if fault == "mismatch" else _PLAIN
    dtype = TensorProto.DOUBLE if fault == "error" else TensorProto.FLOAT
    trigger = [helper.make_node(name, stored, [], **attributes) for name, stored, attributes in _FAULTS[fault]]
    made: list[onnx.NodeProto] = []
    waiting = ["x"]
    first = int(nodes * _AT)
    for place in range(nodes):
        if first <= place < first + len(trigger):
            node = trigger[place - first]
            node.input.insert(0, waiting.pop())
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
    infos = [helper.make_tensor_value_info(name, dtype, _SHAPE) for name in ("x", *waiting)]
    graph = helper.make_graph(made, "scaled", infos[:1], infos[1:])
    if fault == "error":
        graph.initializer.append(helper.make_tensor("lowest", dtype, [], [0.5]))
    if fault == "mismatch":
        graph.initializer.append(helper.make_tensor("pads", TensorProto.INT64, [8], [0, 0, 1, 1, 0, 0, 1, 1]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def report(nodes: int, shape: str, target: str, fault: str) -> None:
    """Reduce such a model by the command, and print what it took."""
    made = model(nodes, shape, fault)
    with tempfile.TemporaryDirectory(prefix="opsieve-scaled-") as folder:
        onnx.save(made, Path(folder) / "model.onnx")
        cost = measured(Path(folder) / "model.onnx", target, Path(folder) / "out")
    print(f"{shape} of {nodes} nodes, {target}, {fault}: {cost}")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call of the command gave and took: its facts, CPU seconds, seconds by the clock, bytes of memory that all processes had at most (each page shared out among those that map it)."""

    facts: dict[str, Any]
    cpu: float
    seconds: float
    memory: int
    main_memory: int  # of them in the process that the user started

    def __str__(self) -> str:
        left = (self.facts.get("nodes_after") or 0) + (self.facts.get("inner_nodes_after") or 0)
        return (
            f"{left} left, minimal {self.facts.get('minimal')}, {self.facts.get('checks')} checks ({self.facts.get('node_checks')} for nodes), "
            f"{self.cpu:.1f} s of CPU, {self.seconds:.1f} s by the clock, {self.memory >> 20} MiB at most in all processes, {self.main_memory >> 20} in the main one"
        )


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
    """The largest memory that a process and its children had, in bytes, and the largest that it had itself; looked at five times a second."""
    while not ended.wait(0.2):
        each = list(map(_resident, _family(pid)))
        peak[0], peak[1] = max(peak[0], sum(each)), max(peak[1], *each[:1], 0)


def _family(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        texts = [Path(f"/proc/{pid}/task/{task}/children").read_text() for task in tasks]
    except OSError:
        return []
    return [pid, *(member for text in texts for child in text.split() for member in _family(int(child)))]


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
