"""A hang is told by the time that a process had to work, not by the wall."""

import os
import signal
import subprocess
import sys

from opsieve.backends.registry import resolve
from opsieve.backends.workers.observe import is_killed_from_outside, read_death
from opsieve.backends.workers.zygotes.work_clock import (
    BACKSTOP,
    Load,
    WorkClock,
    count_oom_kills,
    read_load,
)
from opsieve.backends.workers.zygotes.zygote import Death, Limits


def seconds_until_expired(limit: float, share: float, wants: bool) -> float:
    """Wall seconds until a process is given up that gets this share of a CPU."""
    wall = [0.0]
    clock = WorkClock(1, limit, lambda pid: Load(share * wall[0], wants), lambda: wall[0])
    while True:
        wall[0] += clock.get_wait()
        if clock.is_expired():
            return wall[0]


def test_a_process_that_computes_is_given_its_cpu_time() -> None:
    assert 10 <= seconds_until_expired(10, 1.0, True) < 10.5


def test_a_process_that_waits_for_a_cpu_is_given_more_wall_time() -> None:
    assert 95 <= seconds_until_expired(10, 0.1, True) < 105


def test_a_process_that_sleeps_is_given_up_in_time() -> None:
    assert 10 <= seconds_until_expired(10, 0.0, False) < 10.5


def test_the_wall_is_behind_all() -> None:
    assert BACKSTOP * 10 <= seconds_until_expired(10, 0.0, True) < BACKSTOP * 10 + 1


def test_a_process_that_cannot_be_read_is_given_wall_time() -> None:
    wall = [0.0]
    clock = WorkClock(1, 1.0, lambda pid: None, lambda: wall[0])
    wall[0] = 0.9
    assert not clock.is_expired()
    wall[0] = 1.1
    assert clock.is_expired()


def test_the_load_of_a_tree_counts_its_children() -> None:
    child = "x = 0\nwhile x < 3_000_000: x += 1"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print(1, flush=True);"
        " input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        load = read_load(process.pid)
        assert load is not None
        assert load.cpu > 0.02
        process.communicate(b"\n")
    assert read_load(process.pid) is None


def test_a_kill_from_outside_is_no_lack_of_memory() -> None:
    limits, kills = Limits(memory=1 << 30), count_oom_kills()
    small = Death(0, "run", signal.SIGKILL, False, False, "", 1 << 20)
    assert os.WIFSIGNALED(small.status)
    assert is_killed_from_outside(small, limits, kills)
    assert read_death(resolve("fake"), "1", small, limits, kills).outcome == "crash"
    large = Death(0, "run", signal.SIGKILL, False, False, "", 1 << 30)
    assert read_death(resolve("fake"), "1", large, limits, kills).outcome == "out-of-memory"
    assert read_death(resolve("fake"), "1", small, limits, kills - 1).outcome == "out-of-memory"
