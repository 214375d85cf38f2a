"""One case reduced in a process of its own, as `store_session` starts it: what it says goes to stderr, the
facts as JSON to stdout.

It ends with 0, with the `exit_code` of a BadInput, or with 130 after a signal, its best so far saved.
"""

import ctypes
import json
import signal
import sys
from pathlib import Path
from typing import NoReturn

from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import printable
from opsieve.reducer.engine.form import Progress
from opsieve.reducer.session import ReductionRequest, Session
from opsieve.reducer.worker_pool import WorkerPool

PREFIX = "opsieve: "
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


class _ToStderr:
    """A listener that writes sentences to stderr."""

    def say(self, sentence: str) -> None:
        print(PREFIX + printable(sentence), file=sys.stderr, flush=True)

    def progress(self, at: Progress) -> None:
        """Nothing: nobody looks."""


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
    """Where the parent is killed, this process gets SIGTERM, at which a session saves its best."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
