"""A campaign on a Dask cluster stores what a campaign here stores: on workers in this process; in make
test-all on processes, one of which is killed.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest
from commands import opsieve
from models import X, chain
from test_campaign import FAKE, contents
from thread_lanes import spawn as thread_spawn

from opsieve.backends.compare import POLICY
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.sources.cluster_probes import open_cluster_probes
from opsieve.bisect.sources.outcome import ProbeJournal, evaluate
from opsieve.bisect.sources.version_sequence import VersionSequence
from opsieve.gen.case.case import Case, Origin, load, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.reducer.engine.form import Progress
from opsieve.reducer.sessions.reduction import Reduction
from opsieve.reducer.sessions.session import ReductionRequest, Session
from opsieve.reducer.sessions.store_session import (
    StoreReductionRequest,
    cases_to_reduce,
    cluster_reducer,
    reduce_cases,
)
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.campaign.lane_spawn import Spawn, spawn_lane
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.distributed.cluster import Cluster, open_lanes
from opsieve.triage.distributed.remote_lane import describe_installed
from opsieve.triage.distributed.remote_workers import Further, open_remote_workers
from opsieve.triage.store.store import Store

if TYPE_CHECKING:
    import distributed

# Imported by what uses it, not by each process of the tests: Dask takes a second.
pytestmark = pytest.mark.skipif(not find_spec("distributed"), reason="the extra `cluster` is not installed")

PLAN = CampaignPlan("isra", replace(USUAL, nodes=6, between=None))
CAMPAIGN = make_campaign(3, [resolve(FAKE)], PLAN)


def started(processes: bool) -> "distributed.LocalCluster":
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=processes,
        protocol="tcp://",
        dashboard_address=":0",
        resources={"GPU": 1},
    )


@pytest.fixture(scope="module")
def cluster() -> "Iterator[distributed.LocalCluster]":
    """Two workers that are threads: what is sent between them and the scheduler goes through sockets all the
    same.
    """
    with started(False) as cluster:
        yield cluster


def fuzz(folder: Path, start: Spawn, lanes: int, killed: int = 0, tests: int = 24) -> None:
    with Store(folder) as store:
        store.begin_campaign(CAMPAIGN)
        for _ in run_campaign(
            store, CAMPAIGN, PLAN, Limits(seconds=20), lanes=lanes, tests=tests, start=start
        ):
            if killed:
                os.kill(killed, signal.SIGKILL)
                killed = 0


def reduced_there(cluster: "distributed.LocalCluster", store: Path) -> None:
    """Reduce one case of a store on the cluster."""
    request = StoreReductionRequest(store, 60, offline=True, jobs=2)
    wanted = cases_to_reduce(request)[:1]
    with cluster_reducer(cluster.scheduler_address, [FAKE], {}, print) as (threads, reducer):
        assert threads == 2
        done = list(reduce_cases(request, wanted, reducer))
    assert (
        [(one.case, one.answer) for one in done]
        == [(candidate.place, "reduced") for candidate in wanted]
        != []
    )
    for one in done:
        assert one.nodes_after == 1 < one.nodes_before
        assert len(load(store / one.case / "reduced").program.operators()) == 1


@pytest.mark.slow(seconds=4)
def test_a_campaign_there_stores_what_one_here_stores(
    cluster: "distributed.LocalCluster", tmp_path: Path
) -> None:
    fuzz(tmp_path / "here", thread_spawn, 1, tests=12)
    with open_lanes(cluster.scheduler_address, CAMPAIGN, {"GPU": 1}, print) as (threads, start):
        assert threads == 2
        fuzz(tmp_path / "there", start, 1, tests=12)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    reduced_there(cluster, tmp_path / "there")


class Heard:
    """A listener that does something at the first progress, and keeps the sentences."""

    def __init__(self, first: Callable[[], None] = lambda: None):
        self.said: list[str] = []
        self._first: Callable[[], None] | None = first

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def progress(self, at: Progress) -> None:
        if self._first is not None and at.checks > 3:
            first, self._first = self._first, None
            first()


def reduced_from(
    folder: Path, pool: Sequence[Workers], further: Further | None, listener: Heard | None = None
) -> tuple[bytes, Reduction[Any]]:
    """Reduce a model into a folder: its journal, and what came of it."""
    case = folder.parent / "case"
    if not case.exists():
        save(
            Case(chain("Abs", "Neg", "Sigmoid", "Tanh", "Exp", "Relu", "Neg", "Abs"), X, None, Origin()), case
        )
    request = ReductionRequest(case, targets=("fake:wrong@Tanh>Exp",), output=folder)
    with Session(request, pool, listener or Heard(), further) as session:
        found = session.reduce().reduction
    assert found is not None
    return (folder / "attempts.jsonl").read_bytes(), found


def alike(one: Reduction[Any], other: Reduction[Any]) -> bool:
    same = one.best.program.data == other.best.program.data and one.certificate == other.certificate
    return same and (one.same, one.minimal, one.slippage.keys()) == (
        other.same,
        other.minimal,
        other.slippage.keys(),
    )


@pytest.mark.slow(seconds=3)
def test_a_reduction_there_is_what_one_here_is(
    cluster: "distributed.LocalCluster", workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempt by attempt, where as many tests run at the same time; with the cluster lost midway too."""
    monkeypatch.setattr("opsieve.reducer.engine.engine._SLOW", 0.0)
    asked: list[object] = []
    is_cut: list[bool] = []
    done = Cluster.run_task

    def counted(self: Cluster, given_up: threading.Event, function: Callable[..., Any], *given: Any) -> Any:
        asked.append(function)
        # Lost midway: the first answers of the last reduction still come from the cluster.
        if is_cut and len(asked) > 3:
            raise EOFError("it is gone")
        return done(self, given_up, function, *given)

    monkeypatch.setattr(Cluster, "run_task", counted)
    with Workers() as second, Workers() as third:
        here = reduced_from(tmp_path / "here", [workers, second, third], None)
    assert len(here[1].best.program.operators()) == 2
    said: list[str] = []
    with open_remote_workers(cluster.scheduler_address, {}, None, workers, said.append) as further:
        there = reduced_from(tmp_path / "there", [workers], further)
        assert len(asked) > 4
        assert (there[0], alike(*(found for _, found in (here, there)))) == (here[0], True)
        asked.clear()
        is_cut.append(True)
        cut = reduced_from(tmp_path / "cut", [workers], further)
    assert (cut[0], alike(cut[1], here[1])) == (here[0], True)
    assert len(asked) > len(said) > 0
    assert set(said) == {"the cluster gives no answer, so a test runs here: 'it is gone'"}


def test_releases_are_tried_there(cluster: "distributed.LocalCluster", tmp_path: Path) -> None:
    """As many at once as there are threads, and they show what they show here."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    case = Case(OnnxProgram(model.SerializeToString()), {"x": np.array([-1, 2], np.float32)}, None, Origin())
    versions = {str(number): resolve("fake:error@Relu" if number > 3 else "fake") for number in range(1, 7)}
    with open_cluster_probes(cluster.scheduler_address, {}, Limits(), True, print) as (threads, tried):
        sequence = VersionSequence(
            lambda name: tried(case, versions[name], POLICY),
            ProbeJournal(tmp_path, {}),
            "fake",
            lambda said: None,
        )
        found = sequence.search_versions(list(versions), None, None, jobs=threads)
        assert (threads, found.outcome and found.outcome.first) == (2, (3,))
        with Workers() as workers:
            assert found.wanted == evaluate(case, versions["6"], ObservationCache(workers))
        with pytest.raises(BadInput, match="the cluster gives no answer for fake==9"):
            tried(case, resolve("fake").with_release("9"), POLICY)


@pytest.mark.slow  # in make test: the campaign above, and lanes that are killed in test_lanes.py
def test_a_worker_that_is_killed_costs_no_test(tmp_path: Path) -> None:
    from distributed import Client

    fuzz(tmp_path / "here", spawn_lane, 1)
    with started(True) as cluster:
        with open_lanes(cluster.scheduler_address, CAMPAIGN, {"GPU": 1}, print) as (threads, start):
            assert threads == 2
            with Client(cluster) as client:
                killed = next(iter(client.run(os.getpid).values()))
            fuzz(tmp_path / "there", start, threads, killed)
        assert contents(tmp_path / "there") == contents(tmp_path / "here")
        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=60)  # the nanny restarts the one that was killed
        reduced_there(cluster, tmp_path / "there")


@pytest.mark.slow  # in make test: a reduction there, and one whose cluster is lost
def test_a_worker_that_is_killed_costs_no_reduction(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    monkeypatch.setattr("opsieve.reducer.engine.engine._SLOW", 0.0)
    here = reduced_from(tmp_path / "here", [workers], None)
    with started(True) as cluster, Client(cluster) as client:
        killed = next(iter(client.run(os.getpid).values()))
        with open_remote_workers(cluster.scheduler_address, {}, None, workers, print) as further:
            heard = Heard(lambda: os.kill(killed, signal.SIGKILL))
            there = reduced_from(tmp_path / "there", [workers], further, heard)
        assert killed not in client.run(os.getpid).values()
    assert alike(there[1], here[1])


def test_workers_that_are_not_alike_are_left_out_with_the_reason(cluster: "distributed.LocalCluster") -> None:
    here = describe_installed((FAKE,))
    for other, wanted, reason in (
        (replace(here, generator="0123456789ab"), {}, "here it is 0123456789ab: install the same opsieve"),
        (replace(here, versions={FAKE: "99"}), {}, "there and 99 here"),
        (here, {"TPU": 2.0}, "it has no TPU=2 (dask worker --resources TPU=2)"),
    ):
        said: list[str] = []
        with (
            Cluster(cluster.scheduler_address, other, wanted, said.append) as connection,
            pytest.raises(BadInput, match="no worker of"),
        ):
            connection.count_threads()
        assert len(said) == 2
        assert all(reason in sentence for sentence in said)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that does not answer is waited for half a second."""
    monkeypatch.setattr("opsieve.triage.distributed.cluster._CONNECT", 0.5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--scheduler", "tcp://127.0.0.1:9"), "no scheduler answers at 'tcp://127.0.0.1:9'"),
        (("--scheduler", "nonsense://x"), "'nonsense://x' is not the address of a scheduler: write tcp://"),
        (("--scheduler", "127.0.0.1"), "'127.0.0.1' is not the address of a scheduler: write tcp://"),
        (("--scheduler", "tcp://127.0.0.1:9", "--coverage", "functions"), "leave --scheduler out"),
        (("--resource", "GPU=many"), "is not NAME=AMOUNT, such as GPU=1"),
    ],
)
def test_what_cannot_be_is_said(
    options: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = opsieve(
        "fuzz", "-t", "fake", "--tests", "1", "--store", tmp_path / "s", *options, capsys=capsys
    )
    assert (code, sentence in err) == (2, True), err


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param((), "no scheduler answers at 'tcp://127.0.0.1:9'", marks=pytest.mark.slow),
        (("--check", "/bin/true"), "--check runs its script on this machine: leave --scheduler out"),
    ],
)
def test_reduce_says_what_cannot_be(
    options: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "model.onnx").write_bytes(chain("Relu").data)
    given = ("reduce", tmp_path / "model.onnx", "-t", "fake", "--scheduler", "tcp://127.0.0.1:9", *options)
    code, _, err = opsieve(*given, capsys=capsys)
    assert (code, sentence in err) == (2, True), err
    assert not (tmp_path / "model.reduced").exists()
