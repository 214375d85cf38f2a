"""Other reducers on the question that `../reduce.py` asks: Polygraphy's `debug reduce`, and the algorithm of
torch's minifier.

Both are given warm workers and opsieve's own predicate, and their time is without the start of these workers.
"""

import math
import resource
import shlex
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.cuts import Graph, cut
from opsieve.gen.irs.onnx.subject import Subject
from opsieve.reducer.engine.certificate import certify
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import Rules
from opsieve.reducer.engine.interestingness import InterestingnessTest
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.oracle.target_test import TargetTest
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.passes.onnx import BYPASS, NODES, OUTPUTS
from opsieve.reducer.problem.onnx_form import OnnxForm
from opsieve.reducer.problem.order import count_nodes
from opsieve.reducer.problem.recording import record_values

_SECONDS = 200.0  # of a peer on one case, then it is killed
_MOST_QUERIES = 1500
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


def minifier(question: Question) -> Peer:
    """The strategy of torch's minifier, on our cuts: suffixes, ranges to inputs, outputs, at a granularity
    that is halved.

    As torch 2.13 has it (torch/_functorch/fx_minifier.py): every success is asked once more and starts again
    from the top, nothing is remembered, one query at a time. What removes dead code and unused inputs there
    is part of every cut here.
    """
    name = "torch minifier"
    search = _Minifier(Graph(question.start), question.evaluate)
    since = time.perf_counter()
    try:
        best = search.run()
    except TimeoutError:
        return Peer(
            "torch minifier",
            search.queries,
            time.perf_counter() - since,
            why=f"more than {_MOST_QUERIES} queries",
        )
    seconds = time.perf_counter() - since
    nodes, size = sum(count_nodes(best.model)), best.model.ByteSize()
    same, minimal = question.evaluate(best), question.minimal(best)
    return Peer(name, search.queries, seconds, 0.0, nodes, size, same, minimal, search.invalid)


class _Minifier:
    def __init__(self, graph: Graph, test: Callable[[Subject], str]):
        self.graph, self.test = graph, test
        self.queries = self.invalid = 0
        self.places = list(range(len(graph.nodes)))
        self.outputs = [graph.producer[name] for name in graph.outputs if name in graph.producer]

    def run(self) -> Subject:
        """The last state that shows the failure."""
        while True:
            size = 1 << int(math.log2(max(1, len(self.places))))
            while size >= 1 and not self._step(size):
                size //= 2
            if size < 1 and not self._without_outputs(1):
                found = self._cut(self.places, self.outputs)
                assert found is not None
                return found

    def _step(self, size: int) -> bool:
        crowded = len(self.outputs) > len(self.places) // 2
        return (
            (crowded and self._without_outputs(size))
            or self._without_suffix(size)
            or self._without_range(size)
        )

    def _without_suffix(self, size: int) -> bool:
        return any(
            self._try(self.places[: end + 1], [self.places[end]])
            for end in range(size, len(self.places), size)
        )

    def _without_range(self, size: int) -> bool:
        for start in range(0, len(self.places), size):
            gone = set(self.places[start : start + size])
            left = [place for place in self.places if place not in gone]
            outputs = [place for place in self.outputs if place not in gone]
            if self._try(left, outputs):
                return True
        return False

    def _without_outputs(self, size: int) -> bool:
        size = max(1, min(size, len(self.outputs) // 2))
        if len(self.outputs) < 2:
            return False
        return any(
            self._try(self.places, self.outputs[:start] + self.outputs[start + size :])
            for start in range(0, len(self.outputs), size)
        )

    def _try(self, places: Iterable[int], outputs: list[int]) -> bool:
        inside = set(places)
        left = self._needed(inside, outputs)
        if not outputs or not left or (len(left), len(outputs)) >= (len(self.places), len(self.outputs)):
            return False
        if not (self._query(left, outputs) and self._query(left, outputs)):
            return False
        self.places, self.outputs = left, outputs
        return True

    def _needed(self, inside: set[int], outputs: list[int]) -> list[int]:
        found: set[int] = set()
        waiting = list(outputs)
        while waiting:
            place = waiting.pop()
            if place in inside and place not in found:
                found.add(place)
                waiting.extend(self.graph.producers[place])
        return sorted(found)

    def _query(self, places: list[int], outputs: list[int]) -> bool:
        self.queries += 1
        if self.queries > _MOST_QUERIES:
            raise TimeoutError
        candidate = self._cut(places, outputs)
        answer = "invalid" if candidate is None else self.test(candidate)
        self.invalid += answer == "invalid"
        return answer == "same"

    def _cut(self, places: list[int], outputs: list[int]) -> Subject | None:
        return cut(
            self.graph,
            places,
            tap=[name for place in outputs for name in self.graph.nodes[place].output if name],
        )
