"""The wheel whose generator is compiled: optional, of the same sources, and with the same programs
(hatch_build.py).
"""

import subprocess
import sys
import tomllib

import pytest
from repository import ROOT

MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
    "hooks"
]["custom"]["modules"]


def test_what_is_to_be_compiled_is_there() -> None:
    assert [pattern for pattern in MODULES if not list(ROOT.glob(pattern))] == []


@pytest.mark.slow(seconds=200)
def test_compiled_programs_are_equal() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "compiled.py"), "--rounds", "0", "--programs", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "programs are equal byte for byte" in done.stdout
