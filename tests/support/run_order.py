"""A pytest plug-in: which tests run, and in which order, so that a run can be divided and repeated.

pytest-randomly shuffles. xdist moves tests from busy processes to idle ones, so its seed does not tell which
process ran what: each process notes that in `.test-order/`.
"""

import os
import shutil
from pathlib import Path

import pytest

FOLDER = ".test-order"
SHARDS = 3
USUAL_SECONDS = 5  # of a slow test whose mark does not say more: @pytest.mark.slow(seconds=60)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", type=Path, metavar="FILE", help="run the tests that FILE names, in its order")
    parser.addoption("--shard", type=int, choices=range(SHARDS), help="run this third of the tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses") and not hasattr(config, "workerinput"):
        shutil.rmtree(config.rootpath / FOLDER, ignore_errors=True)
        (config.rootpath / FOLDER).mkdir()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    dropped = []
    if config.option.shard is not None:
        dropped = [item for item, shard in _balance(items).items() if shard != config.option.shard]
    if config.option.order:
        places = {name: place for place, name in enumerate(config.option.order.read_text().splitlines())}
        dropped = [item for item in items if item.nodeid not in places]
        items.sort(key=lambda item: places.get(item.nodeid, -1))
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]


def _balance(items: list[pytest.Item]) -> dict[pytest.Item, int]:
    """Give each test to the shard that has least to do so far, long tests first. The order of `items` changes
    nothing.
    """
    seconds = {}
    for item in sorted(items, key=lambda item: item.nodeid):
        mark = item.get_closest_marker("slow")
        seconds[item] = mark.kwargs.get("seconds", USUAL_SECONDS) if mark else USUAL_SECONDS
    loads, shards = [0] * SHARDS, {}
    for item in sorted(seconds, key=lambda item: -seconds[item]):
        shards[item] = loads.index(min(loads))
        loads[shards[item]] += seconds[item]
    return shards


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        with (item.config.rootpath / FOLDER / worker).open("a") as order:
            order.write(f"{item.nodeid}\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed, and how to repeat in one process what a worker ran before it failed."""
    seed = config.getoption("randomly_seed", None)
    terminalreporter.write_line(f"Order of this run: SEED={seed}")
    reports = [report for name in ("failed", "error") for report in terminalreporter.getreports(name)]
    for worker in sorted({report.worker_id for report in reports if hasattr(report, "worker_id")}):
        terminalreporter.write_line(
            f"To repeat in one process what {worker} ran: make repeat WORKER={worker} SEED={seed}"
        )
