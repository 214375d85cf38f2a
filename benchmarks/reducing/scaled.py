"""A bug among thousands of nodes: CPU time and memory of `opsieve reduce`, all of its processes together."""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper

_PLAIN = ("Neg", "Abs", "Sigmoid", "Softsign")
_WIDTH = 200  # how far back a node of a wide graph reads
_AT = 0.6  # where in the order the trigger stands


def model(
    nodes: int, shape: str, dtype: int = TensorProto.FLOAT, trigger: tuple[str, ...] = ("Tanh", "Exp")
) -> onnx.ModelProto:
    """A chain, or a graph in which any of the last 200 values is read next, with the trigger in it; every value is `dtype`[2, 3]."""
    draw = random.Random(0)
    values = ["x"]
    made = []
    first = int(nodes * _AT)
    for place in range(nodes):
        inside = first <= place < first + len(trigger)
        operator = trigger[place - first] if inside else draw.choice(_PLAIN)
        near = values[-1] if shape == "chain" or (place > first and inside) else draw.choice(values[-_WIDTH:])
        made.append(helper.make_node(operator, [near], [f"v{place}"], f"n{place}"))
        values.append(f"v{place}")
    read = {name for node in made for name in node.input}
    outputs = [name for name in values[1:] if name not in read]
    infos = [helper.make_tensor_value_info(name, dtype, [2, 3]) for name in ["x", *outputs]]
    graph = helper.make_graph(made, "scaled", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def report(nodes: int, shape: str, target: str) -> None:
    """Reduce such a model by the command, and print what it took."""
    real = not target.startswith("fake")
    # onnxruntime 1.31 cannot fuse Relu and Clip of float64: a real bug.
    made = model(nodes, shape, TensorProto.DOUBLE, ("Relu", "Clip")) if real else model(nodes, shape)
    with tempfile.TemporaryDirectory(prefix="opsieve-scaled-") as folder:
        place = Path(folder)
        onnx.save(made, place / "model.onnx")
        command = [sys.executable, "-m", "opsieve", "reduce", str(place / "model.onnx"), "-t", target, "--json"]
        since = time.monotonic()
        process = subprocess.Popen(
            [*command, "-o", str(place / "out"), "--seconds", "300"], stdout=subprocess.PIPE, text=True
        )
        peak = [0]
        ended = threading.Event()
        watch = threading.Thread(target=lambda: _watch(process.pid, peak, ended))
        watch.start()
        before = os.times()
        printed, _ = process.communicate()
        after = os.times()
        ended.set()
        watch.join()
        facts = json.loads(printed) if printed else {}
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        print(
            f"{shape} of {nodes} nodes, {target}: {facts.get('nodes_after')} left, minimal {facts.get('minimal')}, "
            f"{facts.get('checks')} checks ({facts.get('node_checks')} for nodes), {cpu:.1f} s of CPU, "
            f"{time.monotonic() - since:.1f} s by the clock, {peak[0] >> 20} MiB at most in all processes"
        )


def _watch(pid: int, peak: list[int], ended: threading.Event) -> None:
    """The largest memory that a process and its children share among themselves, in bytes; looked at every half second."""
    while not ended.wait(0.5):
        peak[0] = max(peak[0], sum(map(_resident, _family(pid))))


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
