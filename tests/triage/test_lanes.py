"""Lanes: what travels to them and back, that every test comes once and in order whatever they do, and that
one may be killed.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st
from test_campaign import FAKE, WHOLE, contents, plan

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits, Unavailable
from opsieve.gen.case.case import Case, Origin, load
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.torch.graph import Ref, TorchCall, TorchGraph
from opsieve.gen.irs.torch.program import TorchProgram
from opsieve.gen.model.tensors import TensorType
from opsieve.triage.campaign import campaign as campaign_loop, lane_messages
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.campaign.lane_messages import (
    Begin,
    Finished,
    NumberRange,
    Stop,
    iter_tests,
    make_finished,
    receive_message,
    send_message,
)
from opsieve.triage.campaign.lane_pool import LanePool
from opsieve.triage.campaign.lane_process import check_imports
from opsieve.triage.campaign.lane_spawn import LaneClient, ProcessLane, start_first_lane
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.campaign.schedule.costs import read_stated
from opsieve.triage.fingerprint.component import Component, ComponentName
from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure, NonBug
from opsieve.triage.store.store import Store

CAMPAIGN = Campaign("c0ffee", "isra", 3, ("fake",))


def travelled(tests: list[FinishedTest]) -> list[FinishedTest]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_message(ours, make_finished(tests, 1, 2.5, False))
        message = receive_message(theirs)
    assert isinstance(message, Finished)
    return [done.test for done in iter_tests(message)]


@pytest.mark.parametrize(
    "program", [OnnxProgram(b"model", "name"), TirProgram(b"{}", ("a.pass:1",), "name", "script", True)]
)
def test_a_failure_travels_whole(program: OnnxProgram | TirProgram) -> None:
    inputs = {
        "x": np.array([1, np.nan, np.inf], ml_dtypes.bfloat16),
        "texts": np.array([["a", "\ud800"]], dtype=object),
        "items": [np.zeros((0, 3), np.int8), np.array(True)],
        "absent": None,
    }
    verdict = Verdict(
        "fail", "differs", "mismatch", "run", mismatch=Mismatch("y", "nan", max_abs=float("nan"))
    )
    seen = Observation(
        "fake", "1", "ok", outputs={"y": np.arange(3.0)}, frames=(Frame("python", "f", "a.py", 3),)
    )
    died = Observation("fake", "1", "crash", signal=11, reached=(1, 2))
    print_ = Fingerprint(5, "fake-mismatch-1", (Component(ComponentName.KIND, ("mismatch",), True, "why"),))
    case = Case(
        program,
        inputs,
        {"y": np.ones(2)},
        Origin("isra", 7, {"onnx": "1"}, "generated", {"nodes": "6"}),
        {"a": "b"},
    )
    (came,) = travelled(
        [
            FinishedTest(
                0, case, {"fake": ("fail", 0.25)}, [FoundFailure("fake", verdict, print_, (seen, died))]
            )
        ]
    )
    assert came.case is not None
    assert (came.case.program, came.case.program.name, came.digest) == (program, "name", program.digest)
    assert (came.case.origin, came.case.parameters, came.answers) == (
        case.origin,
        {"a": "b"},
        {"fake": ("fail", 0.25)},
    )
    assert came.case.inputs["x"].dtype == ml_dtypes.bfloat16  # type: ignore[union-attr]
    assert came.case.inputs["absent"] is None
    assert came.case.inputs["x"].tobytes() == inputs["x"].tobytes()  # type: ignore[union-attr]
    assert came.case.inputs["texts"].tolist() == [["a", "\ud800"]]  # type: ignore[union-attr]
    assert [item.shape for item in came.case.inputs["items"]] == [(0, 3), ()]  # type: ignore[union-attr]
    (finding,) = came.findings
    assert finding.fingerprint == print_
    assert repr(finding.verdict) == repr(verdict)  # NaN is not itself
    assert finding.observations[1] == died
    np.testing.assert_array_equal((finding.observations[0].outputs or {})["y"], np.arange(3.0))


def test_a_program_that_writes_its_own_text_travels() -> None:
    relu = TorchCall("aten.relu.default", (Ref("x"),), (), ("y",))
    graph = TorchGraph(("x",), {}, (relu,), ("y",), {"x": TensorType("float32", (2,))})
    case = Case(TorchProgram.from_graph(graph, "relu"), {"x": np.ones(2, np.float32)})
    assert lane_messages.unpack_case(lane_messages.pack_case(case)).program == case.program


def test_of_a_test_that_found_nothing_the_digest_travels_and_half_a_character_does_no_harm() -> None:
    program = OnnxProgram(b"model")
    lack = NonBug("fake", "unsupported", "no \ud800", "no")
    (came,) = travelled([FinishedTest(4, Case(program, {}), {"fake": ("unsupported", 0.0)}, (), [lack])])
    assert came.case is None
    assert (came.number, came.digest) == (4, program.digest)
    assert came.non_bugs[0].what == "no ?"


@given(st.binary(max_size=40))
def test_what_is_no_message_counts_as_an_end(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(lane_messages._LENGTH.pack(len(data)) + data)
        ours.close()
        with contextlib.suppress(EOFError):
            assert isinstance(
                receive_message(theirs), (Begin, NumberRange, Stop, Finished, lane_messages.Failed)
            )


@dataclass
class ThreadLane:
    """A lane that does nothing for its tests, in pieces of a size, and dies after so many of them (0:
    never).
    """

    connection: socket.socket
    piece: int
    pieces: int
    thread: threading.Thread | None = None

    def serve(self) -> None:
        try:
            assert isinstance(receive_message(self.connection), Begin)
            while True:
                asked = receive_message(self.connection)
                if isinstance(asked, NumberRange) and not self.answer(asked):
                    return
        except (EOFError, OSError):
            return
        finally:
            self.connection.close()

    def answer(self, asked: NumberRange) -> bool:
        at = asked.start
        while at < asked.stop:
            upto = min(asked.stop, at + self.piece)
            done = [
                FinishedTest(number, None, {}, (), program_digest=str(number)) for number in range(at, upto)
            ]
            send_message(self.connection, make_finished(done, upto, 1000.0, False))
            at = upto
            self.pieces -= 1
            if not self.pieces:
                return False
        return True

    def kill(self) -> None:
        pass

    def wait(self) -> int:
        assert self.thread is not None
        self.thread.join()
        return 0


class LateLane(ThreadLane):
    """A lane that has done its first test when it is asked to stop, and no sooner."""

    def answer(self, asked: NumberRange) -> bool:
        assert isinstance(receive_message(self.connection), Stop)
        first = FinishedTest(asked.start, None, {}, (), program_digest="first")
        send_message(self.connection, make_finished([first], asked.start + 1, 1.0, True))
        return True


def started(lane: ThreadLane) -> ThreadLane:
    lane.thread = threading.Thread(target=lane.serve, daemon=True)
    lane.thread.start()
    return lane


def test_the_first_test_of_a_run_is_waited_for_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign_loop, "GRACE", 0.0)

    def late() -> LaneClient:
        ours, theirs = socket.socketpair()
        return ProcessLane(started(LateLane(theirs, 1, 0)), ours)

    with Store(tmp_path / "store") as store:
        store.begin_campaign(CAMPAIGN)
        assert list(run_campaign(store, CAMPAIGN, CampaignPlan(), Limits(), seconds=1e-3, start=late)) == [1]


def test_the_first_lane_is_started_at_once_and_ends_when_nobody_asked_for_it() -> None:
    with contextlib.ExitStack() as stack:
        lanes = [stack.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(3)]
        ends = [stack.enter_context(end) for _ in lanes for end in socket.socketpair()]
        waiting: list[LaneClient] = [ProcessLane(*each) for each in zip(lanes, ends, strict=False)]
        every = list(waiting)
        with start_first_lane(lambda: waiting.pop(0), lambda: waiting.pop(0)) as start:
            assert len(waiting) == 2
            assert [start(), start()] == every[:2]
        with start_first_lane(lambda: waiting.pop(0)):
            pass
        assert lanes[2].poll() == -signal.SIGKILL
        assert [lane.poll() for lane in lanes[:2]] == [None, None]  # those are their pool's to end
        for lane in lanes:
            lane.kill()


# threads shrink badly
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(0, 300),
    st.integers(1, 700),
)
def test_every_test_comes_once_whatever_lanes_do(
    habits: list[tuple[int, int]], lanes: int, first: int, many: int
) -> None:
    """Lanes of any speed that die at any piece: all numbers arrive, each once, and nothing is begun too far
    ahead.
    """
    coming = iter(habits)

    def spawn() -> LaneClient:
        ours, theirs = socket.socketpair()
        return ProcessLane(started(ThreadLane(theirs, *next(coming, (32, 0)))), ours)

    got: list[int] = []
    with LanePool(CAMPAIGN, CampaignPlan(), Limits(), lanes, first, first + many, spawn) as pool:
        recorded = first
        while recorded < first + many:
            assert not pool.is_idle
            got += [done.test.number for done in pool.iter_results(float("inf"))]
            there = set(got)
            while recorded in there:
                recorded += 1
            pool.note_recorded(recorded)
    assert sorted(got) == list(range(first, first + many))


def test_a_lane_that_dies_again_and_again_is_told() -> None:
    def spawn() -> LaneClient:
        ours, theirs = socket.socketpair()
        lane = ThreadLane(theirs, 1, 1, threading.Thread())
        lane.thread = threading.Thread(target=theirs.close, daemon=True)
        lane.thread.start()
        return ProcessLane(lane, ours)

    def last(pool: LanePool) -> None:
        for _ in range(9):
            list(pool.iter_results(float("inf")))

    with (
        LanePool(CAMPAIGN, CampaignPlan(), Limits(), 1, 5, 9, spawn) as pool,
        pytest.raises(BadInput, match="tests from 5 on ended 3 times"),
    ):
        last(pool)


def lanes_below(pid: int) -> list[int]:
    """The lane processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
            if parent == str(pid) and b"lane_process" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.slow(seconds=5)
def test_a_lane_that_is_killed_is_replaced_and_the_store_is_the_same(tmp_path: Path, whole: Path) -> None:
    with Store(tmp_path / "killed") as store:
        campaign = make_campaign(3, [resolve(FAKE), resolve("onnxruntime")], plan())
        store.begin_campaign(campaign)
        killed = 0
        for done in run_campaign(store, campaign, plan(), Limits(seconds=20), tests=WHOLE):
            for lane in lanes_below(os.getpid()) if done < WHOLE and killed < 2 else ():
                os.kill(lane, signal.SIGKILL)
                killed += 1
    assert killed
    assert contents(tmp_path / "killed") == contents(whole)
    assert not lanes_below(os.getpid())


@pytest.mark.slow  # 1,120 tests
def test_the_first_decided_batch_is_the_same_whatever_the_lanes(tmp_path: Path) -> None:
    """The shares of the fifth batch, from test 1,024 on, follow from the tests of the first: those of a
    resumed campaign too.
    """
    target = resolve("fake:error@ReduceMax+error@Neg")
    small = CampaignPlan("mix", replace(USUAL, nodes=1, between=None), costs=read_stated([target]))
    campaign = make_campaign(3, [target], small)

    def upto(tests: int, folder: Path, lanes: int) -> dict[str, str]:
        with Store(folder) as store:
            if not store.count_done(campaign):
                store.begin_campaign(campaign)
            for _ in run_campaign(store, campaign, small, Limits(seconds=20), lanes=lanes, tests=tests):
                pass
            return store.read_state(campaign)

    upto(1000, tmp_path / "two", 2)
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    learnt = upto(1060, tmp_path / "two", 2)
    assert upto(1060, tmp_path / "one", 1) == learnt
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    usual, decided = (json.loads(learnt[name])["shares"] for name in ("batch|3", "batch|4"))
    assert usual != decided
    strategies = {case.origin.generator for case in map(load, (tmp_path / "one").glob("cases/*/*"))}
    assert len(strategies) > 1


def test_a_lane_says_what_cannot_be_imported_and_no_other_lack_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(_: Workers, target: ResolvedTarget) -> str:
        if target.name == "onnxruntime":
            raise Unavailable("onnxruntime cannot be imported here: half a wheel")
        return "1"

    monkeypatch.setattr(Workers, "version", version)
    answers = {"fake": ("environment", 0.0), "onnxruntime": ("unsupported", 0.0)}
    with Workers() as workers:
        check_imports([FinishedTest(0, None, answers, [])], workers)
        with pytest.raises(Unavailable, match="half a wheel"):
            check_imports([FinishedTest(0, None, {"onnxruntime": ("environment", 0.0)}, [])], workers)
