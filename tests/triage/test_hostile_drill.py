"""Hostile stores, models, cases, values and logs, given to the commands: a sentence each, nothing outside
changed (support/hostile_drill.py).
"""

import subprocess
import sys
from pathlib import Path

import hostile_drill
import hostile_inputs
import hostile_stores
import pytest

DRILL = Path(hostile_drill.__file__)


def run(*arguments: str, seconds: int) -> None:
    done = subprocess.run(
        [sys.executable, DRILL, *arguments], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| 0 |\n" in done.stdout


@pytest.mark.slow  # in make test: test_hostile_stores.py, test_index_rows.py, test_readers.py
def test_a_few_of_the_drill_end_in_sentences() -> None:
    run("index schemas", "--every", "48", seconds=300)


@pytest.mark.slow(seconds=3)
def test_the_drill_has_hundreds_of_items() -> None:
    assert sum(map(len, hostile_drill.families().values())) >= 300


@pytest.mark.slow(seconds=70)
@pytest.mark.parametrize("name", [*hostile_stores.FAMILIES, *hostile_inputs.FAMILIES])
def test_the_whole_drill_ends_in_sentences(name: str) -> None:
    run(name, seconds=1800)
