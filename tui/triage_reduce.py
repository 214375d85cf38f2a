"""`opsieve triage --reduce`: cases of a store reduced by child processes within a budget, then told apart by what is left of them."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opsieve.triage.candidates import Candidate

_GRACE = 20.0  # seconds in which an interrupted reduction saves its best
_CHILD = "from opsieve.reducer.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Reduced:
    """What became of a case: `reduced`, `not-reproduced`, `failed` or `unfinished`; nodes before, and after where it was reduced."""

    case: str
    answer: str
    nodes_before: int
    nodes_after: int | None
    seconds: float
    message: str = ""


def reduce_all(
    store: Path, wanted: "list[Candidate]", budget: float, offline: bool, say: Callable[[Reduced], None]
) -> list[Reduced]:
    """Reduce cases one after the other until `budget` seconds of wall time are over; what was begun ends with its best saved.

    Each result lies in the folder `reduced` of its case; an unfinished one is gone on with the next time.
    """
    end = time.monotonic() + budget
    found: list[Reduced] = []
    for candidate in wanted:
        left = end - time.monotonic()
        if left <= 0:
            break
        found.append(_reduce(store / candidate.place, candidate, left, offline))
        say(found[-1])
    return found


def _reduce(case: Path, candidate: "Candidate", seconds: float, offline: bool) -> Reduced:
    began = time.monotonic()
    output = case / "reduced"
    command = [sys.executable, "-c", _CHILD, str(case), "-t", candidate.target, "-o", str(output), "--json"]
    child = subprocess.Popen(
        [*command, "--offline"] if offline else command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            out, err = child.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
        return Reduced(
            candidate.place, "unfinished", candidate.nodes, None, time.monotonic() - began, "the budget is spent"
        )
    except BaseException:
        child.terminate()
        child.wait()
        raise
    spent, said = time.monotonic() - began, (err.strip().splitlines() or [""])[-1]
    if child.returncode == 0:
        facts = json.loads(out)
        after = facts["nodes_after"] + facts["inner_nodes_after"]
        answer = "reduced" if facts["same"] else "failed"
        return Reduced(
            candidate.place, answer, candidate.nodes, after, spent, "" if facts["same"] else "the failure changed"
        )
    shutil.rmtree(output, ignore_errors=True)
    return Reduced(
        candidate.place,
        "not-reproduced" if child.returncode == 3 else "failed",
        candidate.nodes,
        None,
        spent,
        said[:300],
    )
