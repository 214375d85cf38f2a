"""One import of a compiler serves all workers of a process, and none outlives the last of them unless it is
to.
"""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from models import X, chain

from opsieve.backends.registry import resolve
from opsieve.backends.target import Target
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.channels import wait_readable
from opsieve.backends.workers.zygotes.shared_zygotes import JoinedZygote, SharedZygotes
from opsieve.backends.workers.zygotes.zygote import Limits, Zygote

FAKE, RELU = resolve("fake"), chain("Relu")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where zygotes have their folders; nothing may be left of them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert os.listdir(tmp_path) == []


def zygote_of(workers: Workers, target: Target = FAKE) -> Zygote:
    assert workers.observe(target, RELU, X).outcome == "ok"
    (found,) = workers._zygotes.values()
    return found


@pytest.mark.usefixtures("scratch")
def test_workers_of_one_process_share_a_zygote_and_the_last_one_closes_it() -> None:
    zygotes = SharedZygotes()
    with Workers(zygotes=zygotes) as first:
        zygote = zygote_of(first)
        with Workers(Limits(seconds=5.0), zygotes=zygotes) as second:
            assert zygote_of(second) is zygote
            crashed = second.observe(resolve("fake:crash@Relu"), RELU, X)
            assert crashed.outcome == "crash"
        assert zygote_of(first) is zygote
        assert zygote.is_alive
    assert not zygote.is_alive


@pytest.mark.usefixtures("scratch")
def test_lanes_that_begin_at_once_start_one() -> None:
    zygotes = SharedZygotes()
    lanes = [Workers(zygotes=zygotes) for _ in range(6)]
    with ThreadPoolExecutor(len(lanes)) as pool:
        assert len(set(pool.map(zygote_of, lanes))) == 1
    for lane in lanes:
        lane.close()


@pytest.mark.usefixtures("scratch")
def test_one_that_was_killed_is_replaced_for_everybody() -> None:
    zygotes = SharedZygotes()
    with Workers(zygotes=zygotes) as first, Workers(zygotes=zygotes) as second:
        killed = zygote_of(first)
        assert zygote_of(second) is killed
        killed._process.kill()
        killed._process.wait()
        assert zygote_of(first) is zygote_of(second) is not killed


@pytest.mark.usefixtures("scratch")
def test_lanes_of_a_campaign_have_one_zygote_that_ends_with_the_last_of_them_and_loses_the_workers_of_one_that_ends() -> (
    None
):
    name = f"test {os.getpid()}"
    started, joined = SharedZygotes(), SharedZygotes()
    for lane in (started, joined):
        lane.share_as(name)
    first = Workers(zygotes=started)
    with Workers(zygotes=joined) as second:
        zygote, other = zygote_of(first), zygote_of(second)
        assert isinstance(other, JoinedZygote)
        assert not isinstance(zygote, JoinedZygote)
        assert (other.version, other.walls, other.lacks) == (zygote.version, zygote.walls, zygote.lacks)
        assert second.observe(resolve("fake:crash@Relu"), RELU, X).outcome == "crash"
        lost = zygote.fork_worker(
            Limits()
        )  # of a lane that was killed: its sockets close, and it may be at work
        ending = os.pidfd_open(lost.pid)
        lost._status.close()
        assert wait_readable(ending, 30.0)
        os.close(ending)
        lost._close_files()
        first.close()
        assert other.is_alive
        assert zygote_of(second) is other
        assert second.observe(FAKE, RELU, X, fresh=True).outcome == "ok"
    zygote._process.wait(30)


def test_what_is_kept_serves_the_next_and_ends_when_it_is_not_kept_any_more(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygotes = SharedZygotes()
    zygotes.keep_idle(1, ignored=["NAME_OF_THE_TEST"])
    with Workers(zygotes=zygotes) as workers:
        zygote = zygote_of(workers)
    monkeypatch.setenv("NAME_OF_THE_TEST", "another")
    with Workers(zygotes=zygotes) as workers:
        assert zygote_of(workers) is zygote
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # the compiler may look at it
    with Workers(zygotes=zygotes) as workers:
        assert zygote_of(workers) is not zygote
    assert not zygote.is_alive
    assert len(os.listdir(scratch)) == 1
    zygotes.keep_idle(0)
