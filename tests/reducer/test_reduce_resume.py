"""Interrupted, resumed, with several workers: the result is the same, byte for byte."""

import random
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import opsieve
from failing import host
from models import chain, program
from slow_params import keep_quick

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, save
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine import engine as engine_module
from opsieve.reducer.engine.interestingness import CheckResult, InterestingnessTest
from opsieve.reducer.engine.journal import NAME, Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.sessions.output import lock_folder
from opsieve.reducer.sessions.reduction import Listeners, Reduction, reduce_by_check, reduce_failure


@pytest.fixture(scope="module")
def second() -> Iterator[Workers]:
    with Workers(Limits(seconds=20.0)) as workers:
        yield workers


def start(case: Case) -> Subject:
    return Subject(case.program.proto, case.inputs, {})


def run(case: Case, premise: Premise, pool: Sequence[Workers], folder: Path | None = None) -> Reduction:
    with Journal("question", folder) as journal:
        return reduce_failure(
            OnnxReduction(), start(case), premise, pool, "fingerprint", journal, Listeners()
        )


def bytes_of(result: Reduction) -> bytes:
    values = b"".join(name.encode() + value.tobytes() for name, value in sorted(result.best.inputs.items()))
    return bytes(result.best.program.model) + values


@pytest.mark.parametrize("fault", keep_quick(["wrong@Tanh>Exp", "crash@Tanh&Sin"], 1))
def test_a_journal_cut_anywhere_leads_to_the_same_bytes(workers: Workers, tmp_path: Path, fault: str) -> None:
    case = host(7, 50, [["Tanh", "Exp"], ["Sin"]])
    premise = find(case, [resolve(f"fake:{fault}")], None, workers)
    whole = run(case, premise, [workers], tmp_path)
    lines = (tmp_path / NAME).read_bytes().split(b"\n")
    assert run(case, premise, [workers], tmp_path).checks == 0
    for parts in (1, 4, 7):
        kept = 1 + (len(lines) - 2) * parts // 8
        (tmp_path / NAME).write_bytes(b"\n".join(lines[:kept]) + b'\n{"digest": "cut off he')
        again = run(case, premise, [workers], tmp_path)
        assert bytes_of(again) == bytes_of(whole), kept
        assert again.certificate == whole.certificate
        assert again.checks < whole.checks


@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (7, "wrong@Sin"),
        pytest.param(6, "crash@Tanh&Exp", marks=pytest.mark.slow),
        pytest.param(8, "crash@Sin&Cos&Exp", marks=pytest.mark.slow),
    ],
)
def test_lanes_change_no_byte(
    workers: Workers, second: Workers, seed: int, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_SLOW", 0.0)  # checks that take any time at all are asked ahead
    case = host(seed, 60, [["Tanh", "Exp"], ["Sin"], ["Cos"]])
    premise = find(case, [resolve(f"fake:{fault}")], None, workers)
    one = run(case, premise, [workers])
    two = run(case, premise, [workers, second])
    assert bytes_of(one) == bytes_of(two)
    assert one.certificate == two.certificate
    assert two.checks > one.checks


class Counting:
    """A check that counts what it was asked. `odd` lets one candidate in so many fail by chance, the same one
    each time.
    """

    def __init__(self, needed: frozenset[str], odd: int = 0):
        self.needed = needed
        self.odd = odd
        self.asked: list[Subject] = []

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        for subject in subjects:
            self.asked.append(subject)
            there = self.needed <= {node.op_type for node in subject.model.graph.node}
            small = len(subject.model.graph.node) < 7
            if self.odd and small and zlib.crc32(subject.program.model) % self.odd == 0:
                there = False
            yield CheckResult("same" if there else "gone")


@pytest.mark.slow  # in make test: journals that are cut, lanes, and a flaky check, in this file
@pytest.mark.parametrize("odd", [2, 3, 4, 5])
def test_a_capricious_check_is_led_to_the_same_bytes_whenever_it_was_cut_off_and_on_any_lanes(
    workers: Workers, tmp_path: Path, odd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y)
        <float[2, 3] a = {1.5, -2.25, 3.125, 4.1, 5.7, 6.3}, float[3] b = {0.37, 2.51, -1.9}, float[3] c = {7.7, 0.1, 3}>
        { t = Mul(x, a)  u = Tanh(t)  v = Add(u, b)  w = Sin(v)  p = Mul(w, c)  q = Sub(p, z)  y = Exp(q) }"""
    value = np.linspace(-1.37, 2.9, 6, dtype=np.float32).reshape(2, 3)
    case = Case(program(text), {"x": value, "z": value * 3})
    pool = [Counting(frozenset(["Mul", "Tanh", "Add", "Sin", "Sub"]), odd) for _ in range(2)]

    def by(count: int) -> Reduction:
        with Journal("question", tmp_path) as journal:
            return reduce_by_check(
                OnnxReduction(), start(case), pool[:count], workers, None, journal, Listeners()
            )

    whole = by(1)
    lines = (tmp_path / NAME).read_bytes().split(b"\n")
    assert by(1).checks == 0
    for kept in (1, len(lines) // 3, 2 * len(lines) // 3):
        (tmp_path / NAME).write_bytes(b"\n".join(lines[:kept]) + b"\n")
        assert bytes_of(by(1)) == bytes_of(whole), kept
    monkeypatch.setattr(engine_module, "_SLOW", 0.0)
    (tmp_path / NAME).unlink()
    ahead = by(2)
    assert bytes_of(ahead) == bytes_of(whole)
    assert ahead.checks > whole.checks


def test_every_lane_of_slow_checks_is_asked(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    case = host(9, 60, [["Tanh"], ["Exp"]])

    def by(checks: Sequence[InterestingnessTest]) -> Reduction:
        return reduce_by_check(OnnxReduction(), start(case), checks, workers, None, Journal(""), Listeners())

    pool = [Counting(frozenset(["Tanh", "Exp"])) for _ in range(3)]
    alone = by(pool[:1])
    assert by(pool).checks == alone.checks  # quick checks are asked one by one, replays on all lanes
    assert len(pool[1].asked) < 5 < len(pool[0].asked)
    for each in pool:
        each.asked.clear()
    monkeypatch.setattr(engine_module, "_SLOW", 0.0)
    assert bytes_of(by(pool)) == bytes_of(alone)
    for each in pool[1:]:
        assert len({id(subject) for subject in each.asked}) > 2


class Flaky(Counting):
    """A check that sees the failure in a share of its runs only."""

    def __init__(self, needed: frozenset[str], rate: float):
        super().__init__(needed)
        self.draw, self.rate = random.Random(3), rate

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        for result in super().evaluate(subjects):
            yield result if self.draw.random() < self.rate else CheckResult("gone")


@pytest.mark.parametrize("rate", [0.9, 0.5])
def test_a_flaky_check_is_found_out_and_repeated(workers: Workers, rate: float) -> None:
    """Run once for each candidate it would give up early, or end on more nodes than are needed and call them
    minimal.
    """
    case = host(9, 30, [["Tanh", "Exp"]])
    nodes = [each for each in OnnxReduction().passes() if each.name in ("nodes", "outputs", "bypass")]
    test = Flaky(frozenset(["Tanh", "Exp"]), rate)
    result = reduce_by_check(
        OnnxReduction(), start(case), [test], workers, None, Journal(""), Listeners(), nodes
    )
    assert sorted(node.op_type for node in result.best.model.graph.node) == ["Exp", "Tanh"]
    assert result.replays is not None
    assert 0 < result.replays[0] <= result.replays[1]


def test_a_folder_holds_one_reduction_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(Case(chain("Relu"), {"x": np.ones((2, 3), np.float32)}), tmp_path / "case")
    arguments = ("reduce", tmp_path / "case", "-t", "fake:wrong@Relu", "-o", tmp_path / "out")
    with lock_folder(tmp_path / "case" / ".." / "out"):
        code, _, err = opsieve(*arguments, capsys=capsys)
        assert (code, "another reduction writes" in err, (tmp_path / "out").exists()) == (2, True, False)
    assert opsieve(*arguments, capsys=capsys)[0] == 0
    assert opsieve(*arguments, capsys=capsys)[0] == 0
