"""Saving, recording, deciding and indexing killed inside any of the C library's calls that change a file,
SQLite's among them (support/kills.py).
"""

import shutil

import kills
import pytest


@pytest.mark.skipif(shutil.which("cc") is None, reason="what counts the calls is compiled")
@pytest.mark.parametrize("every", [58, pytest.param(1, marks=pytest.mark.slow(seconds=60))])
def test_what_is_killed_is_old_or_new_and_goes_on(every: int) -> None:
    done = kills.preloaded([*list(kills.ACTS)[:4], "--every", str(every)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.endswith("| 0 |") for line in done.stdout.splitlines()[2:]] == [True] * 4
