"""Polygraphy's `debug reduce` as a user runs it: its own command with a check of his own, a process for each
question.

The check is the kind of script that a user writes: onnxruntime with and without optimisation on the values
that the whole model had, and the message or the difference that he is after. It is spared the search for
these values: they are recorded for it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from benchmarks.reducing.peers import Peer, Question, cpu_seconds

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.problem.order import count_nodes

_SECONDS = 200.0
_CHECK = """
import json, sys
import numpy as np
import onnxruntime as ort

folder, sign, model = sys.argv[1:]
open(folder + "/asked", "a").write(".")
names = json.load(open(folder + "/names.json"))
values = np.load(folder + "/values.npz")

def run(level):
    options = ort.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, level
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {item.name: values[names[item.name]] for item in session.get_inputs()})

try:
    right = run(ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
except Exception:
    sys.exit(0)
try:
    got = run(ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
except Exception as error:
    sys.exit(sign in str(error))
same = lambda a, b: a.shape == b.shape and (sign == "SHAPE" or np.allclose(a, b, 1e-2, 1e-3, equal_nan=True))
sys.exit(sign in ("WRONG", "SHAPE") and not all(map(same, got, right)))
"""


def shapes(question: Question) -> list[str]:
    """The option that Polygraphy asks of those whose models leave a dimension open."""
    inputs = question.start.program.inputs()
    told = [
        f"{name}:[{','.join(map(str, np.shape(question.start.inputs[name])))}]"  # type: ignore[arg-type]
        for name, type_ in inputs.items()
        if any(not isinstance(dim, int) for dim in getattr(type_, "shape", None) or ())
    ]
    return ["--model-input-shapes", *told] if told else []


def as_a_user(
    question: Question, model: Path, python: Path, case: dict[str, Any], target: ResolvedTarget
) -> Peer:
    """Bisect mode; `python` has polygraphy, the check runs in the environment of the target."""
    home, path = Path(sys.executable), ""
    if target.release:
        found = ReleaseStore().environment(target.backend, target.release, offline=True)
        home, path = found.python, os.pathsep.join(map(str, found.path))
    held = {**question.start.values, **question.start.inputs}
    arrays = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "check.py").write_text(_CHECK)
        (place / "names.json").write_text(
            json.dumps({name: f"v{number}" for number, name in enumerate(arrays)})
        )
        np.savez(
            place / "values.npz", **{f"v{number}": value for number, value in enumerate(arrays.values())}
        )
        check = [str(home), str(place / "check.py"), scratch, case["signature"], "polygraphy_debug.onnx"]
        command = [
            str(python.parent / "polygraphy"),
            "debug",
            "reduce",
            str(model),
            "-o",
            str(place / "out.onnx"),
        ]
        command += shapes(question)
        knobs = {"PATH": "/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch, "PYTHONPATH": path}
        since, busy, why = time.perf_counter(), cpu_seconds(), ""
        try:
            done = subprocess.run(
                [*command, "--mode", "bisect", "--check", *check],
                capture_output=True,
                text=True,
                cwd=scratch,
                env=knobs,
                timeout=_SECONDS,
                check=False,
            )
            why = " ".join(done.stderr.strip().splitlines()[-1:])[:120]
        except subprocess.TimeoutExpired:
            why = f"not done after {_SECONDS:g} s"
        seconds, cpu = time.perf_counter() - since, cpu_seconds() - busy
        asked = len((place / "asked").read_text()) if (place / "asked").exists() else 0
        if not (place / "out.onnx").exists():
            return Peer("polygraphy, user's check", asked, seconds, cpu, why=why)
        final = onnx.load(place / "out.onnx")
        given = {tensor.name for tensor in final.graph.initializer}
        fed = {info.name: held[info.name] for info in final.graph.input if info.name not in given}
        subject = Subject(final, fed, {})
        nodes, size = sum(count_nodes(final)), final.ByteSize()
        return Peer(
            "polygraphy, user's check",
            asked,
            seconds,
            cpu,
            nodes,
            size,
            question.evaluate(subject),
            question.minimal(subject),
        )
