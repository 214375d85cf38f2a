"""Waiting for what another process does, without taking the processor from it."""

import subprocess
import time
from collections.abc import Callable

_PATIENCE = 90.0  # seconds after which a condition counts as never true
_PAUSE = 0.01


def wait_until(
    condition: Callable[[], object], process: "subprocess.Popen[str] | subprocess.Popen[bytes]"
) -> None:
    """Wait until a condition holds, which a process brings about; AssertionError when that ends before or
    takes too long.
    """
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert process.poll() is None, f"it ended too soon: {process.communicate()}"
        assert time.monotonic() < end, "it never came about"
        time.sleep(_PAUSE)
