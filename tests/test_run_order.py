"""Tests run in random order; a failure that depends on the order can be repeated in one process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import run_order

TESTS = """
import pytest

ran = []

@pytest.mark.parametrize("number", range(20))
def test_spoiler(number):
    ran.append(number)

def test_victim():
    assert not ran
"""


def run(folder: Path, *arguments: str, turns: str = "[[]]") -> str:
    """Run pytest with the plug-in on a folder's tests, as `make test` and `make repeat` do, and return what
    it prints. Each of `turns` adds arguments to a run of its own, in the same process.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(Path(run_order.__file__).parent)
    words = ["-q", "-p", "run_order", "-p", "no:opsieve", *arguments]
    several = f"import pytest, sys; [pytest.main([*sys.argv[1:], *turn]) for turn in {turns}]"
    command = [sys.executable, "-c", several, *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120).stdout


def test_what_a_worker_ran_before_a_failure_is_repeated_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_pair.py").write_text(TESTS)
    printed = run(tmp_path, "-n1", "--randomly-seed=4")
    assert "1 failed, 20 passed" in printed
    worker, seed = re.search(r"make repeat WORKER=(\w+) SEED=(\d+)", printed).groups()
    ran = (tmp_path / run_order.FOLDER / worker).read_text().splitlines()
    assert len(ran) == 21
    assert ran != sorted(ran)
    again = run(tmp_path, "-n0", "-vv", f"--randomly-seed={seed}", f"--order={run_order.FOLDER}/{worker}")
    assert re.findall(r"^(test_pair.py::\S+)", again, re.MULTILINE) == ran
    assert "1 failed, 20 passed" in again


def test_every_test_is_in_one_shard_and_shards_take_equally_long(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    names = {f"test_number_{number}" for number in range(30)}
    lines = [f"def {name}(): pass" for name in sorted(names)]
    for place in range(run_order.SHARDS):
        lines[place] = f"@pytest.mark.slow(seconds=100)\n{lines[place]}"
    (tmp_path / "test_many.py").write_text("\n".join(["import pytest", *lines]))
    turns = [[f"--shard={shard}"] for shard in range(run_order.SHARDS)]
    printed = run(tmp_path, "--collect-only", turns=str(turns)).split("Order of this run")
    shards = [set(re.findall(r"test_number_\d+", each)) for each in printed[: run_order.SHARDS]]
    assert set.union(*shards) == names
    assert list(map(len, shards)) == [10, 10, 10]
    assert all(len(shard & {f"test_number_{number}" for number in (0, 1, 10)}) == 1 for shard in shards)
