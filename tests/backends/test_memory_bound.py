"""What a worker may have of memory that no limit of one process bounds (tests/support/memory_drill.py)."""

import pytest
from memory_drill import ACTS, LIMIT, MODES, hoard, is_disk

from opsieve.backends.workers.sandbox.isolation import examine_isolation
from opsieve.backends.workers.zygotes import memory_bound
from opsieve.backends.workers.zygotes.memory_bound import describe_bound, find_parent_group, make_group


@pytest.mark.parametrize("act", ["memory_files", "segments"])
def test_memory_that_stays_without_a_process_is_refused(act: str) -> None:
    assert hoard(act).outcome in ("error", "out-of-memory")


def test_a_worker_is_ended_for_files_in_memory() -> None:
    seen = hoard("files_in_shared_memory")
    if seen.outcome == "error":
        pytest.skip(f"no file tree of its own: {seen.message}")
    assert seen.outcome == "out-of-memory"
    assert f"may keep {LIMIT >> 20} MiB together" in seen.message


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_no_act_takes_three_times_the_limit(mode: tuple[tuple[str, ...], str], act: str) -> None:
    seen = hoard(act, *mode)
    assert is_disk(act, mode[0]) or seen.outcome in ("error", "out-of-memory"), seen.message


def test_what_bounds_memory_is_told() -> None:
    if find_parent_group() is not None:
        assert describe_bound(["filter"]) == "a control group"
    else:
        assert describe_bound(["filter"]) == "the filter and looks every 50 ms"
        assert describe_bound([]) == "looks every 50 ms"
    assert f"memory bounded by {describe_bound([])}" in examine_isolation().describe()


def test_a_group_counts_and_goes_with_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process may make control groups; elsewhere there is none, which is no error."""
    parent = find_parent_group()
    if parent is None:
        assert make_group(1, LIMIT) is None
        pytest.skip("no control groups here")
    seen = hoard("memory_files", (), "shared-memory")
    assert seen.outcome == "out-of-memory"
    monkeypatch.setattr(memory_bound, "measure_shared", lambda *_: pytest.fail("looked at in vain"))
    assert hoard("memory_files_of_a_child", (), "shared-memory").outcome == "out-of-memory"
    assert [path for path in parent.iterdir() if path.is_dir()] == []
