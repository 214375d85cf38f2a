"""`opsieve triage --reduce`: cases of a store reduced by child processes within a budget, then fingerprinted by what is left of them."""

import json
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opsieve.triage.store.candidates import Candidate

_GRACE = 20.0  # seconds in which an interrupted reduction saves its best
_TURN = 30.0  # seconds, and the part of the budget, that a case may take before others had their turn
_PART = 0.1
_RUN = 10.0  # seconds of one run of a candidate: what hangs on the way is not waited for as long as by `reduce` itself
# Where this process is killed, the child ends as well, its best saved (PR_SET_PDEATHSIG, on Linux).
_CHILD = """
import ctypes, signal
libc = ctypes.CDLL(None)
if hasattr(libc, "prctl"):
    libc.prctl(1, signal.SIGTERM, 0, 0, 0)
from opsieve.tui.commands.reduce_command import main
main()
"""


@dataclass(frozen=True, slots=True)
class ReducedCase:
    """What became of a case: `reduced`, `not-reproduced`, `failed` or `unfinished`; nodes before, and after where it was reduced,
    or as far as it was; wall seconds, all of its turns together."""

    case: str
    answer: str
    nodes_before: int
    nodes_after: int | None
    seconds: float
    message: str = ""


def reduce_all(store: Path, wanted: "list[Candidate]", budget: float, offline: bool) -> Iterator[ReducedCase]:
    """Reduce cases one after the other until `budget` seconds of wall time are over; what was begun ends with its best saved.

    A case that takes long gives way to the others: it is yielded as `unfinished` and, when they are done, again with what became of
    it in twice the time. Each result lies in the folder `reduced` of its case; an unfinished one is gone on with the next time.
    """
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.triage.store.store_folder import case_folder

    end = time.monotonic() + budget
    waiting = deque((candidate, max(_TURN, _PART * budget), 0.0) for candidate in wanted)
    while waiting and (left := end - time.monotonic()) > 0:
        candidate, turn, before = waiting.popleft()
        try:
            place = case_folder(store, candidate.place)
        except BadInput as error:
            yield ReducedCase(candidate.place, "failed", candidate.nodes, None, 0.0, str(error))
            continue
        found = _reduce(place, candidate, min(turn, left), before, offline)
        if found.answer == "unfinished":
            waiting.append((candidate, 2 * turn, found.seconds))
        yield found


def _reduce(case: Path, candidate: "Candidate", seconds: float, before: float, offline: bool) -> ReducedCase:
    began = time.monotonic()
    output = case / "reduced"
    kept = (output / "case.json").exists()  # the best of an earlier turn, which nothing here may take away
    command = [sys.executable, "-c", _CHILD, str(case), "-t", candidate.target, "-o", str(output), "--json"]
    command += ["--seconds", str(_RUN), *(["--offline"] if offline else [])]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )

    def reduced(answer: str, after: int | None, message: str) -> ReducedCase:
        return ReducedCase(candidate.place, answer, candidate.nodes, after, before + time.monotonic() - began, message)

    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            out, err = child.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
        if child.returncode != 0:  # else it was done at that moment
            return reduced("unfinished", _nodes_so_far(output), "its time is over, the best so far is kept")
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if child.returncode == 0:
        facts = json.loads(out)
        after = facts["nodes_after"] + facts["inner_nodes_after"]
        return reduced("reduced", after, "") if facts["same"] else reduced("failed", after, "the failure changed")
    if not kept:
        shutil.rmtree(output, ignore_errors=True)
    said = (err.strip().splitlines() or [""])[-1].removeprefix("opsieve: ")
    return reduced("not-reproduced" if child.returncode == 3 else "failed", None, said[:300])


def _nodes_so_far(output: Path) -> int | None:
    """The nodes of the best that an interrupted reduction saved, bodies included; None when it saved none."""
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.gen.model.model import load_program
    from opsieve.gen.model.structure import all_nodes

    try:
        return len(list(all_nodes(load_program(output / "model.onnx").proto.graph.node)))
    except BadInput:
        return None
