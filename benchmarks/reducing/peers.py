"""Polygraphy's `debug reduce` on the question that `../reduce.py` asks.

It is given warm workers and opsieve's own predicate, and its time is without the start of these workers.
"""

import resource
import shlex
import socketserver
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import onnx

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.certificate import certify
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import Rules
from opsieve.reducer.engine.interestingness import InterestingnessTest
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.oracle.target_test import TargetTest
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.passes.onnx import BYPASS, NODES, OUTPUTS
from opsieve.reducer.problem.order import OnnxForm, count_nodes
from opsieve.reducer.problem.recording import record_values

_SECONDS = 200.0  # of a peer on one case, then it is killed
CLIENT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode() + b"\\n"); sys.exit(s.recv(1)[0])
"""


@dataclass(frozen=True)
class Peer:
    """What came of a peer; `nodes` is None when it died, `why` says how."""

    name: str
    checks: int
    seconds: float
    cpu: float = 0.0
    nodes: int | None = None
    size: int = 0
    same: str = ""
    minimal: bool = False
    invalid: int = 0
    why: str = ""
    start: float = 0.0  # seconds until its workers gave their first answers, which are not in `seconds`


def cpu_seconds() -> float:
    """User and system time of the children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Question:
    """The case, its workers and the predicate."""

    def __init__(self, case: Case, target: ResolvedTarget, workers: Workers):
        premise = find(case, [target], None, workers)
        self.workers = workers
        self.source = target.baseline
        self.start = record_values(Subject(case.program.proto, case.inputs, {}), self.source, workers)
        self.check: InterestingnessTest[Subject] = TargetTest(
            workers, target, premise.failure, premise.arbiter, "fingerprint"
        )
        self.validator = OnnxValidator(workers, self.start)

    def evaluate(self, subject: Subject) -> str:
        """The kind of the predicate's answer; `invalid` for what is no valid model."""
        if any(self.validator.complaints([subject])):
            return "invalid"
        return next(iter(self.check.evaluate([subject]))).kind

    def minimal(self, subject: Subject) -> bool:
        """Whether no single node or output can go and no node can be bypassed."""
        start = record_values(subject, self.source, self.workers)
        rules = Rules(
            OnnxForm(),
            [self.check],
            self.validator,
            lambda item: record_values(item, self.source, self.workers),
        )
        return certify(Engine(start, rules, Journal("")), [NODES, OUTPUTS, BYPASS]).minimal


def polygraphy(question: Question, model: Path, python: Path, mode: str) -> Peer:
    """Polygraphy with the predicate behind a socket; `python` has polygraphy and onnxruntime."""
    asked: list[str] = []
    values = {**question.start.values, **question.start.inputs}
    with tempfile.TemporaryDirectory() as scratch:

        def read(path: str) -> Subject:
            proto = onnx.load(path)
            initial = {tensor.name for tensor in proto.graph.initializer}
            names = [info.name for info in proto.graph.input if info.name not in initial]
            return Subject(proto, {name: values[name] for name in names}, {})

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    asked.append(
                        question.evaluate(read(f"{scratch}/{self.rfile.readline().decode().strip()}"))
                    )
                except Exception as error:  # noqa: BLE001  whatever is wrong with what Polygraphy made, it is not the failure
                    asked.append(f"invalid ({type(error).__name__})")
                self.wfile.write(b"\1" if asked[-1] == "same" else b"\0")

        place, client, result = f"{scratch}/socket", Path(scratch) / "client.py", Path(scratch) / "out.onnx"
        client.write_text(CLIENT)
        with socketserver.UnixStreamServer(place, Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            command = [str(python.parent / "polygraphy"), "debug", "reduce", str(model), "-o", str(result)]
            line = [str(python), "-I", "-S", str(client), place, "polygraphy_debug.onnx"]
            since, busy = time.perf_counter(), cpu_seconds()
            why = ""
            try:
                done = subprocess.run(
                    [*command, "--mode", mode, "--check", *line],
                    capture_output=True,
                    text=True,
                    cwd=scratch,
                    env={"PATH": "/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch},
                    timeout=_SECONDS,
                    check=False,
                )
                why = shlex.join(done.stderr.strip().splitlines()[-1:])[:120]
            except subprocess.TimeoutExpired:
                why = f"not done after {_SECONDS:g} s"
            seconds, cpu = time.perf_counter() - since, cpu_seconds() - busy
            server.shutdown()
        name, invalid = f"polygraphy {mode}", sum("invalid" in answer for answer in asked)
        if not result.exists():
            return Peer(name, len(asked), seconds, cpu, invalid=invalid, why=why)
        final = read(str(result))
        nodes, size = sum(count_nodes(final.model)), final.model.ByteSize()
        same, minimal = question.evaluate(final), question.minimal(final)
        return Peer(name, len(asked), seconds, cpu, nodes, size, same, minimal, invalid)
