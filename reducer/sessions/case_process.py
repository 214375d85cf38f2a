"""Reduce one case in a process of its own: start it, wait for it, and stop it when its time is over.

The process writes messages to stderr and the facts as JSON to stdout. It ends with 0, with the `exit_code` of
a BadInput, or with 130 after a signal, its best so far saved.
"""

import ctypes
import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import printable
from opsieve.reducer.engine.form import Progress
from opsieve.reducer.sessions.session import ReductionRequest, Session
from opsieve.reducer.sessions.worker_pool import WorkerPool

PREFIX = "opsieve: "
# PR_SET_PDEATHSIG of Linux
_DEATH_SIGNAL = 1
_CHILD = "from opsieve.reducer.sessions.case_process import main; main()"
# Seconds in which an interrupted reduction saves its best
_GRACE = 20.0
# Seconds between two looks whether the answer is still wanted
_LOOK = 0.2


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
    """The end of the process: its status (case_process.py), its output, and whether it kept within its
    time.
    """

    status: int
    out: str
    err: str
    in_time: bool


def run_child(case: Path, output: Path, task: ChildTask, given_up: threading.Event) -> ChildEnd:
    """Reduce the case in a folder into another one, which holds the best so far when the time is over."""
    # -P: the current folder, which may be a stranger's, supplies no modules.
    command = [sys.executable, "-P", "-c", _CHILD, str(case), task.target, str(output), str(task.run)]
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
                # The timeout only serves to look at the clock and at a request to stop.
                continue
            return ChildEnd(child.returncode, out, err, True)
        child.terminate()
        try:
            out, err = child.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
        # The child may have ended by itself just before the signal: then it counts as in time.
        return ChildEnd(child.returncode, out, err, child.returncode == 0)
    except BaseException:
        child.terminate()
        child.wait()
        raise


class _ToStderr:
    """A listener that writes sentences to stderr."""

    def say(self, sentence: str) -> None:
        print(PREFIX + printable(sentence), file=sys.stderr, flush=True)

    def progress(self, at: Progress) -> None:
        """Ignore progress, which has no reader here."""


def main() -> NoReturn:
    """Reduce: the arguments are the case folder, the target, the folder of the result, the seconds of one
    run, and maybe `offline`.
    """
    end_with_parent()
    case, target, output, seconds, *rest = sys.argv[1:]
    log = _ToStderr()
    try:
        sys.exit(_reduce(Path(case), target, Path(output), float(seconds), bool(rest), log))
    except (BadInput, OSError) as error:
        log.say(str(error))
        sys.exit(error.exit_code if isinstance(error, BadInput) else BadInput.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _reduce(case: Path, target: str, output: Path, seconds: float, offline: bool, log: _ToStderr) -> int:
    named_by_file(target, offline)
    request = ReductionRequest(case, output=output, targets=(target,), seconds=seconds)
    with (
        WorkerPool(Limits(seconds=seconds), 1, offline, request.targets, log.say) as pool,
        Session(request, pool, log) as session,
    ):
        reduced = session.reduce()
    if reduced.error is not None:
        raise reduced.error
    print(json.dumps(reduced.facts))
    return 0


def end_with_parent() -> None:
    """Ask the kernel for SIGTERM if the parent dies: a session then saves its best subject."""
    libc = ctypes.CDLL(None)
    # Only Linux has `prctl`; elsewhere an orphan runs to the end of its budget.
    if hasattr(libc, "prctl"):
        libc.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
