"""The process that reduces one case: started, waited for, and stopped when its time is over or nobody wants
the answer any more.
"""

import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_CHILD = "from opsieve.reducer.case_process import main; main()"
_GRACE = 20.0  # seconds in which an interrupted reduction saves its best
_LOOK = 0.2  # seconds between two looks whether the answer is still wanted


@dataclass(frozen=True, slots=True)
class ChildTask:
    """The target of a case, the seconds of wall time for its reduction and for one run of a candidate, and
    whether releases that are not installed are left alone.
    """

    target: str
    seconds: float
    run: float
    offline: bool


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How the process ended: its status (case_process.py), what it printed, and whether that was within its
    time.
    """

    status: int
    out: str
    err: str
    in_time: bool


def ended(case: Path, output: Path, task: ChildTask, given_up: threading.Event) -> ChildEnd:
    """Reduce the case in a folder into another one, which holds the best so far when the time is over."""
    command = [sys.executable, "-c", _CHILD, str(case), task.target, str(output), str(task.run)]
    child = subprocess.Popen(
        command + ["offline"] * task.offline,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    end = time.monotonic() + task.seconds
    try:
        while (left := end - time.monotonic()) > 0 and not given_up.is_set():
            try:
                out, err = child.communicate(timeout=min(left, _LOOK))
            except subprocess.TimeoutExpired:
                continue
            return ChildEnd(child.returncode, out, err, True)
        child.terminate()
        try:
            out, err = child.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
        return ChildEnd(child.returncode, out, err, child.returncode == 0)  # else it was done at that moment
    except BaseException:
        child.terminate()
        child.wait()
        raise
