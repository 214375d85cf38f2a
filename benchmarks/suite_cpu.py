"""CPU seconds of each test and of all processes that it starts, as the tables of docs/benchmarks/tests.md.

    TEST_CPU=FOLDER python -m pytest -q -n auto --dist worksteal -p benchmarks.suite_cpu
    python benchmarks/suite_cpu.py FOLDER [--rows 40]

The first is the whole suite with this file as a plug-in: each process of pytest writes a file into FOLDER.
The second prints what they hold: by folder, by file, by test (the parameters of one test added up). Seconds
are user and system of pytest, of what lives below it and of what has ended there, read from /proc before and
after each test; other load inflates them.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """Writes a line for each test, and one for what came before the first: the imports and the collection."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._last = self._own = 0.0

    def _note(self, name: str) -> None:
        now, own = used(), time.process_time()
        line = {"test": name, "cpu": round(now - self._last, 3), "own": round(own - self._own, 3)}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self._last, self._own = now, own

    def pytest_collection_finish(self) -> None:
        """All is imported."""
        self._note("collection")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """A test with its fixtures."""
        done = yield
        self._note(item.nodeid)
        return done


def pytest_configure(config: pytest.Config) -> None:
    """Measure where TEST_CPU names a folder."""
    if folder := os.environ.get("TEST_CPU"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        config.pluginmanager.register(Meter(Path(folder) / f"{name}.jsonl"))


def used() -> float:
    """CPU seconds of this process, of all below it and of those that they waited for."""
    ticks, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        try:
            ticks += sum(
                map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15])
            )
            for thread in Path(f"/proc/{process}/task").iterdir():
                left += map(int, (thread / "children").read_text().split())
        except OSError:  # it has ended meanwhile, and its parent has its seconds
            continue
    return ticks / _TICKS


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=40)
    options = parser.parse_args()
    if options.folder is None:
        parser.print_usage()
        return
    lines = [json.loads(line) for path in sorted(options.folder.glob("*.jsonl")) for line in path.open()]
    spent, own = sum(line["cpu"] for line in lines), sum(line["own"] for line in lines)
    print(f"{spent:.0f} s of CPU, {own:.0f} s of it pytest's own, for {len(lines)} tests and collections")
    parts: tuple[Callable[[str], str], ...] = (
        lambda name: "/".join(name.split("::")[0].split("/")[:2]),
        lambda name: name.split("::")[0],
        lambda name: name.split("[")[0],
    )
    for part in parts:
        found: dict[str, list[float]] = defaultdict(list)
        for line in lines:
            found[part(line["test"])].append(line["cpu"])
        print()
        for name, seconds in sorted(found.items(), key=lambda each: -sum(each[1]))[: options.rows]:
            print(f"{sum(seconds):8.2f} s {len(seconds):5} {name}")


if __name__ == "__main__":
    main()
