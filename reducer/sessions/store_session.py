"""Reduce cases of a store within a budget, each in a process of its own, here or on a Dask cluster.

`opsieve triage` then fingerprints the reduced cases.
"""

import json
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from opsieve.gen.case.case import load, save
from opsieve.gen.errors import BadInput, NoFailure, shown
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.model.structure import all_nodes
from opsieve.reducer.sessions.case_process import PREFIX, ChildEnd, ChildTask, run_child
from opsieve.triage.distributed.cluster import Cluster
from opsieve.triage.distributed.remote_lane import Files, describe_installed, pack_files, write_files
from opsieve.triage.review.review import review_store
from opsieve.triage.store.index.index_file import join_index
from opsieve.triage.store.index.index_reader import IndexReader
from opsieve.triage.store.rows import Candidate
from opsieve.triage.store.store_folder import get_case_folder

# Every waiting case gets a short turn first, since most reductions end within it. Only then do long ones get
# more.
_TURN = 30.0
# A turn is at least this share of the budget, so that a large budget is not cut into needlessly short turns.
_PART = 0.1
# Turns double, so that a long reduction is interrupted seldom.
_MORE = 2
# The time limit of one run of a candidate, in seconds. It is shorter than that of `reduce`, because each
# candidate that hangs costs the whole of it.
_RUN = 10.0

# The folder in a case that holds its reduced form.
RESULT = "reduced"
# The signature of `case_process.run_child`; a reducer may run it here or on a cluster.
Reducer = Callable[[Path, Path, ChildTask, threading.Event], ChildEnd]


@dataclass(frozen=True, slots=True)
class StoreReductionRequest:
    """What to reduce in a store: `members` cases of each fingerprint, for `budget` seconds of wall time,
    `offline` with the releases that are installed, `jobs` at once.
    """

    store: Path
    budget: float
    members: int = 1
    offline: bool = False
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class ReducedCase:
    """The result of a case: `reduced`, `not-reproduced`, `failed` or `unfinished`.

    `nodes_after` is `None` if nothing was reduced. `seconds` is the wall time of all its turns together.
    """

    case: str
    answer: str
    nodes_before: int
    nodes_after: int | None
    seconds: float
    message: str = ""


def cases_to_reduce(request: StoreReductionRequest) -> list[Candidate]:
    """List the cases of a store that wait for reduction, in order of priority.

    Raises:
        BadInput: If the store cannot be used.
    """
    # The review computes the ranks that order the candidates.
    review_store(request.store)
    with join_index(request.store) as database:
        return IndexReader(database).list_candidates(request.members)


def reduce_cases(
    request: StoreReductionRequest, wanted: Sequence[Candidate], reducer: Reducer = run_child
) -> Iterator[ReducedCase]:
    """Reduce cases until the budget is spent; running ones end with their best saved.

    A case that takes long gives way to the others: it is yielded as `unfinished`, and again after a longer
    turn when they are done. Each result lies in the folder `reduced` of its case; the next call continues an
    unfinished one. Cases of one test, such as several levels of a compiler, are reduced one at a time, and
    each begins with the result of another if it shows its failure too.
    """
    end = time.monotonic() + request.budget
    waiting = deque((candidate, max(_TURN, _PART * request.budget), 0.0) for candidate in wanted)
    running: dict[Future[ReducedCase], tuple[Candidate, float]] = {}
    twins = {candidate.test: candidate.reduced_twin for candidate in wanted}
    given_up = threading.Event()
    with ThreadPoolExecutor(request.jobs) as pool:
        try:
            while True:
                while len(running) < request.jobs and (left := end - time.monotonic()) > 0:
                    # A case of a running test waits: the result of the other may be a head start for it.
                    busy = {candidate.test for candidate, _ in running.values()} - {""}
                    free = next((item for item in waiting if item[0].test not in busy), None)
                    if free is None:
                        break
                    waiting.remove(free)
                    candidate, turn, before = free
                    candidate = replace(candidate, reduced_twin=twins[candidate.test])
                    doing = pool.submit(
                        _reduce, request, candidate, min(turn, left), before, reducer, given_up
                    )
                    running[doing] = candidate, turn
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    candidate, turn = running.pop(done)
                    found = done.result()
                    if found.answer == "reduced" and candidate.test:
                        twins[candidate.test] = candidate.place
                    if found.answer == "unfinished":
                        waiting.append((candidate, _MORE * turn, found.seconds))
                    yield found
        finally:
            given_up.set()


def _reduce(
    request: StoreReductionRequest,
    candidate: Candidate,
    seconds: float,
    before: float,
    reducer: Reducer,
    given_up: threading.Event,
) -> ReducedCase:
    """Run one turn of a case, which used `before` seconds in earlier turns."""
    began = time.monotonic()

    def make_result(answer: str, after: int | None, message: str) -> ReducedCase:
        return ReducedCase(
            candidate.place, answer, candidate.nodes, after, before + time.monotonic() - began, message
        )

    try:
        case = get_case_folder(request.store, candidate.place)
    except BadInput as error:
        return make_result("failed", None, str(error))
    output = case / RESULT
    # The store may come from elsewhere, and the reduction would write through the link.
    if output.is_symlink():
        return make_result("failed", None, f"{shown(output, 200)} is a link")
    # The best of an earlier turn must survive a failure here.
    kept = (output / "case.json").exists()
    if candidate.reduced_twin and not output.exists():
        # The twin's result is only a head start; without it the reduction begins with the whole case.
        with suppress(BadInput):
            save(load(get_case_folder(request.store, candidate.reduced_twin) / RESULT), output)
    child = reducer(case, output, ChildTask(candidate.target, seconds, _RUN, request.offline), given_up)
    if not child.in_time:
        return make_result("unfinished", _nodes_so_far(output), "its time is over, the best so far is kept")
    if child.status == 0:
        facts = json.loads(child.out)
        after = facts["nodes_after"] + facts["inner_nodes_after"]
        return (
            make_result("reduced", after, "")
            if facts["same"]
            else make_result("failed", after, "the failure changed")
        )
    if not kept:
        shutil.rmtree(output, ignore_errors=True)
    said = (child.err.strip().splitlines() or [""])[-1].removeprefix(PREFIX)
    return make_result(
        "not-reproduced" if child.status == NoFailure.exit_code else "failed", None, said[:300]
    )


def _nodes_so_far(output: Path) -> int | None:
    """Count the nodes of the best that an interrupted reduction saved, bodies included; returns `None`
    without a saved one.
    """
    try:
        return len(list(all_nodes(load_program(output / "model.onnx").proto.graph.node)))
    except BadInput:
        return None


class ClusterReducer:
    """Reduces cases on a cluster, as `case_process.run_child` does on this machine."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def __call__(self, case: Path, output: Path, task: ChildTask, given_up: threading.Event) -> ChildEnd:
        """Reduce the case in a folder on a worker, and write what comes back into another one."""
        try:
            given = pack_files(case, RESULT), pack_files(output, RESULT) if output.is_dir() else {}
            end, left = self._cluster.run_task(given_up, reduce_there, *given, task)
            write_files(left, output)
        except (BadInput, EOFError) as error:
            if given_up.is_set():
                return ChildEnd(130, "", "", False)
            return ChildEnd(2, "", str(error), True)
        assert isinstance(end, ChildEnd)
        return end


def reduce_there(case: Files, kept: Files, task: ChildTask) -> tuple[ChildEnd, dict[str, bytes]]:
    """Reduce on a worker the case in these files, continuing from the files `kept` of an earlier turn;
    returns the resulting files.
    """
    with tempfile.TemporaryDirectory() as folder:
        place, output = Path(folder) / "case", Path(folder) / "reduced"
        for where, files in ((place, case), (output, kept)):
            write_files(files, where)
        end = run_child(place, output, task, threading.Event())
        return end, pack_files(output, RESULT) if output.is_dir() else {}


@contextmanager
def cluster_reducer(
    address: str, targets: Sequence[str], resources: Mapping[str, float], say: Callable[[str], None]
) -> Iterator[tuple[int, ClusterReducer]]:
    """Yield the number of cases that the cluster at an address can reduce at once, and its reducer.

    Raises:
        BadInput: If the cluster cannot be used.
    """
    with Cluster(address, describe_installed(targets), resources, say) as cluster:
        yield cluster.count_threads(), ClusterReducer(cluster)
