"""How long the first answer of `reduce` takes: from the first failing run of the target to the first smaller
model on disk, in seconds by the clock and of CPU time of all processes, and relative to one run of the target.

Each case runs in a process of its own, in which the calls of workers and the writing of models are timed.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from benchmarks.reducing.grow import grown
from benchmarks.reducing.scaled import list_family

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.reducer.engine.form import Progress
from opsieve.reducer.sessions import session
from opsieve.reducer.sessions.worker_pool import WorkerPool

ROOT = Path(__file__).resolve().parent.parent.parent
_CHILD = "from benchmarks.reducing.first import main; main()"
# Samples of different kinds with a target on which each fails, and the nodes of a host around it.
CASES = (
    ("onnxoptimizer-shape-slice-wrong-value", "onnxoptimizer", 0),
    ("onnxruntime-empty-scan-crash", "onnxruntime", 0),
    ("onnxruntime-symbolic-loop-error", "onnxruntime-symbolic-shapes", 0),
    ("onnxscript-clip-bounds-wrong-value", "onnxscript", 0),
    ("tvm-onehot-type-error", "tvm", 0),
    ("pad-conv-weight-load-error", "onnxruntime", 500),
    ("onnxscript-clip-bounds-wrong-value", "onnxscript", 500),
)
_TICK = os.sysconf("SC_CLK_TCK")


def report(only: str) -> None:
    """Print a row for each case."""
    print(
        "| case (nodes of the host) | run of the target, s CPU | first answer, s CPU (clock) | ratio | over 0.5 s"
        " and a run |"
    )
    print("|---|---|---|---|---|")
    ratios = []
    for name, target, nodes in CASES:
        if only in name:
            with tempfile.TemporaryDirectory(prefix="opsieve-first-") as folder:
                path = ROOT / "samples" / name
                if nodes:
                    model = grown(onnx.load(path / "model.onnx"), nodes, above=False)
                    path = Path(folder) / "host.onnx"
                    onnx.save(model, path)
                command = [sys.executable, "-c", _CHILD, str(path), target, f"{folder}/out"]
                done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
            found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else None
            if found is None:
                print(f"| {name} ({nodes}) | {(done.stdout + done.stderr).strip()[-200:]} |", flush=True)
                continue
            ratios.append(found["cpu"] / found["run"])
            print(
                f"| {name} ({nodes}) | {found['run']:.3f} | {found['cpu']:.2f} ({found['clock']:.2f}) |"
                f" {ratios[-1]:.0f} | {found['cpu'] - found['run'] - 0.5:+.2f} |",
                flush=True,
            )
    print(f"median ratio {statistics.median(ratios):.0f}")


def tree_cpu() -> float:
    """User and system time, in seconds, of this process and those that it started, ended ones included."""
    total = 0.0
    for pid in list_family(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / _TICK
    return total


class _Answered(Exception):
    pass


class _Log:
    def say(self, sentence: str) -> None:
        print(f"{time.monotonic():.2f} {sentence}", file=sys.stderr)

    def progress(self, at: Progress) -> None:
        pass


def main() -> None:
    """Reduce until the first smaller model is on disk; print the figures as JSON."""
    path, name, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    failing: list[tuple[float, float]] = []
    answered: list[tuple[float, float]] = []
    given: list[tuple[ResolvedTarget, Test]] = []
    observe, write = Workers.observe_many, session._Best._write

    def observe_many(
        self: Workers, target: ResolvedTarget, tests: Sequence[Test], **more: Any
    ) -> Iterator[Observation]:
        for test, seen in zip(tests, observe(self, target, tests, **more), strict=True):
            if target.display == name and not given:
                failing.append((time.monotonic(), tree_cpu()))
                given.append((target, test))
            yield seen

    def write_best(self: Any, subject: Any) -> None:
        write(self, subject)
        answered.append((time.monotonic(), tree_cpu()))
        raise _Answered

    Workers.observe_many = observe_many  # type: ignore[method-assign]
    session._Best._write = write_best  # type: ignore[method-assign]
    request = session.ReductionRequest(path, output=out, targets=(name,))
    log = _Log()
    with WorkerPool(Limits(), 1, True, request.targets, log.say) as pool:
        try:
            with session.Session(request, pool, log) as running:
                running.reduce()
        except _Answered:
            pass
        if not answered:
            sys.exit("no smaller model")
        runs = []
        for _ in range(5):
            before = tree_cpu()
            target, test = given[0]
            next(observe(pool[0], target, [test], fresh=False))
            runs.append(tree_cpu() - before)
    clock, cpu = (after - before for before, after in zip(failing[0], answered[0], strict=True))
    print(json.dumps({"clock": clock, "cpu": cpu, "run": max(0.01, statistics.median(runs))}))
