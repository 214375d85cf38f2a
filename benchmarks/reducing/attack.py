"""Certificates attacked by a brute force that shares no code with the reducer (`tests/support/brute_force.py`,
for programs of TVM `brute_force_tvm.py`).

Random models, and hosts with control flow, functions, sequences, QDQ, float16 and open sizes, are reduced while
they keep one or two of their operators with their inputs and attributes. Then every single simplification that
the brute force makes of the result is checked. A smaller model that keeps them beats the certificate.
"""

import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import onnx
from benchmarks.reducing.fresh import HOSTS, write_host

from opsieve.backends.workers.questions.programs import get_validator
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.irs.tvm.program import TvmProgram
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies.registry import generate
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.irs.tvm.subject import TvmSubject
from opsieve.reducer.irs.tvm_reduction import RelaxReduction, TirReduction
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.problem.order import simpler
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_by_check

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "tests" / "support"))
from brute_force import smaller_models
from brute_force_tvm import smaller_programs

S = TypeVar("S")
_CHAIN = 3  # nodes of each chain of a host
_FILLS = {"relax.full", "relax.ones", "relax.zeros"}  # the reducer puts them in the place of others


def report(first: int, count: int) -> None:
    """Attack the certificates of so many models, whose seeds begin with `first`; print a row for each that is
    beaten or not minimal, and the sums.
    """
    beaten = opened = tried = done = 0
    with Workers() as workers:
        for seed in range(first, first + count):
            start, name = _make(seed)
            keeps, what = _wanted(start, random.Random(seed))
            test = Keeps(keeps)
            found = reduce_by_check(OnnxReduction(), start, [test], workers, None, Journal(""), Listeners())
            left = [part for part in found.certificate.parts if part.is_open]
            better, asked = _beat(found.best, keeps, workers)
            done, tried, opened, beaten = done + 1, tried + asked, opened + bool(left), beaten + bool(better)
            if better or left:
                text = onnx.printer.to_text(found.best.model).replace("\n", " ")[:300]
                parts = "; ".join(f"{part.kind} {part.part}: {part.why}" for part in left[:3])
                print(f"{seed} ({name}, keeps {what}): {better[:2]} {parts} {text}", flush=True)
    print(f"{done} certificates, {tried} smaller models: {beaten} beaten, {opened} say what was not tried")


def report_tvm(kind: str, first: int, count: int) -> None:
    """Attack the certificates of so many TIR functions or Relax modules, and print the same."""
    beaten = opened = tried = done = 0
    with Workers() as workers:
        for seed in range(first, first + count):
            found = attack_tvm(kind, seed, workers)
            if found is None:
                continue
            reduction, what, better, asked = found
            left = [part for part in reduction.certificate.parts if part.is_open]
            done, tried, opened, beaten = done + 1, tried + asked, opened + bool(left), beaten + bool(better)
            if better or left:
                parts = "; ".join(f"{part.kind} {part.part}: {part.why}" for part in left[:3])
                print(f"{seed} (keeps {what}): {better[:2]} {parts}", flush=True)
    print(f"{done} certificates, {tried} smaller programs: {beaten} beaten, {opened} say what was not tried")


def attack_tvm(
    kind: str, seed: int, workers: Workers
) -> tuple[Reduction[TvmSubject], str, list[str], int] | None:
    """Reduce the program of a seed while it keeps one or two operators, or two that stand together; return
    the result, what it keeps, what beats it, and how many programs were tried. `None` for an invalid program.
    """
    case = generate(kind, seed, GenRequest(nodes=8))
    assert isinstance(case.program, TvmProgram)
    start, draw = TvmSubject(case.program, dict(case.inputs)), random.Random(seed)
    names = sorted(set(case.program.operators()) - _FILLS)
    edges = sorted(edge for edge in set(case.program.edges()) if _FILLS.isdisjoint(edge))
    if not names or not accepts(start, workers):
        return None
    chosen = set(draw.sample(names, min(len(names), 1 + seed % 2)))
    edge = draw.choice(edges) if seed % 3 == 2 and edges else None

    def keeps(now: TvmSubject) -> bool:
        return edge in now.program.edges() if edge else chosen <= {*now.program.operators()}

    form = TirReduction() if kind == "tir" else RelaxReduction()
    found = reduce_by_check(form, start, [Keeps(keeps)], workers, None, Journal(""), Listeners())
    best, better = found.best, list[str]()
    made = list(smaller_programs(best.program, best.inputs))
    for what, program, fed in made:
        now = TvmSubject(program, fed)
        if form.simpler(now, best) and keeps(now) and accepts(now, workers):
            better.append(what)
    return found, " and ".join(edge or sorted(chosen)), better, len(made)


def accepts(subject: TvmSubject, workers: Workers) -> bool:
    """Return whether TVM's own check accepts the program."""
    test = Test(subject.program, subject.inputs)
    (seen,) = workers.observe_many(get_validator(subject.program), [test])
    return seen.outcome == "ok"


def _make(seed: int) -> tuple[Subject, str]:
    """Return a random model for an even seed, a host for an odd one."""
    hosts = [host for host in HOSTS if not host.external]
    if seed % 2:
        host = hosts[seed // 2 % len(hosts)]
        short = replace(host, text=re.sub(r":\d+\}", f":{_CHAIN}}}", host.text))
        with tempfile.TemporaryDirectory(prefix="opsieve-attack-") as folder:
            model = onnx.load(write_host(short, Path(folder))[0])
        stored = {tensor.name for tensor in model.graph.initializer}
        fed = {key: value for key, value in seeded_inputs(model, seed).items() if key not in stored}
        return Subject(model, fed, {}), host.name
    case = generate("mix", seed, GenRequest(nodes=8))
    # Its own inputs: a shape that is fed has to fit the model.
    return Subject(case.program.proto, dict(case.inputs), {}), "mix"


def _wanted(start: Subject, draw: random.Random) -> tuple[Callable[[Subject], bool], str]:
    nodes = _list_nodes(start)
    chosen = draw.sample(nodes, min(len(nodes), draw.choice((1, 2))))

    def keeps(now: Subject) -> bool:
        left = _list_nodes(now)
        return all(any(_is_like(node, each) for node in left) for each in chosen)

    return keeps, " and ".join(node.op_type for node in chosen)


def _list_nodes(subject: Subject) -> list[onnx.NodeProto]:
    inner = [node for function in subject.model.functions for node in all_nodes(function.node)]
    return [*all_nodes(subject.model.graph.node), *inner]


def _is_like(node: onnx.NodeProto, wanted: onnx.NodeProto) -> bool:
    names = {attribute.name for attribute in node.attribute}
    fewer = len(node.input) < len(wanted.input) or {each.name for each in wanted.attribute} - names
    return node.op_type == wanted.op_type and not fewer


def _beat(best: Subject, keeps: Callable[[Subject], bool], workers: Workers) -> tuple[list[str], int]:
    """Return what makes the result smaller and keeps what is wanted, and how many models were tried."""
    made = [(what, Subject(model, fed, {})) for what, model, fed in smaller_models(best.model, best.inputs)]
    smaller = [(what, now) for what, now in made if simpler(now, best) and keeps(now)]
    try:
        complaints = OnnxValidator(workers, best).complaints([now for _, now in smaller])
    except BadInput:
        return [], 0
    return [what for (what, _), said in zip(smaller, complaints, strict=True) if not said], len(made)


@dataclass
class Keeps(Generic[S]):
    """A failure that a function defines."""

    keeps: Callable[[S], bool]

    def evaluate(self, subjects: Sequence[S]) -> Iterator[CheckResult]:
        for each in subjects:
            yield CheckResult("same" if self.keeps(each) else "gone")
