"""One call of `opsieve triage`: reduce waiting cases, recompute fingerprints, and rank the clusters."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun
from opsieve.triage.review.review import recompute_fingerprints, run_triage
from opsieve.triage.store.queries import Queries, upgrade_index
from opsieve.triage.store.rows import ClusterPage

if TYPE_CHECKING:
    from opsieve.reducer.sessions.store_session import ReducedCase, Reducer

# The number of clusters, and of entries that are not bugs, on the first page.
_FIRST = 10


@dataclass(frozen=True, slots=True)
class TriageRequest:
    """A store and the steps of the round.

    `reduce` first reduces cases within `budget` seconds, `members` of each fingerprint, `jobs` at once (None:
    one, or as many as the cluster at `scheduler` has threads). `refingerprint` recomputes all fingerprints,
    and with `dry_run` only lists what would move.
    """

    store: Path
    reduce: bool = False
    budget: float = 600.0
    members: int = 1
    jobs: int | None = None
    scheduler: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    refingerprint: bool = False
    dry_run: bool = False
    offline: bool = False


@dataclass(frozen=True, slots=True)
class TriageAnswer:
    """The result of a round: `facts` are the keys of `opsieve triage --json`.

    `clusters` is the first page of the ranked list (None after a dry run), `unread` are sentences about
    unreadable cases.
    """

    facts: dict[str, Any]
    clusters: ClusterPage | None = None
    unread: tuple[str, ...] = ()


def triage_store(
    request: TriageRequest, say: Callable[[str], None], progress: "Callable[[ReducedCase], object]"
) -> TriageAnswer:
    """Run a round; `progress` receives each reduced case as it ends.

    Raises:
        BadInput: If the store cannot be used.
    """
    if request.dry_run and not request.refingerprint:
        raise BadInput("--dry-run needs --refingerprint")
    folder = request.store
    # An index of an older version is upgraded first, because every later step opens it.
    upgrade_index(folder)
    facts: dict[str, Any] = {}
    unread: tuple[str, ...] = ()
    if request.refingerprint:
        moves, unread = recompute_fingerprints(folder, dry_run=request.dry_run)
        facts["moves"] = [asdict(move) for move in moves]
        if request.dry_run:
            return TriageAnswer(facts, None, unread)
    if request.reduce:
        facts |= _reduce_waiting(request, say, progress)
    done = run_triage(folder, refingerprinted=request.refingerprint)
    if done.moves is not None:
        facts["moves"] = [asdict(move) for move in done.moves]
    with Queries(folder) as store:
        non_bugs = [asdict(entry) for entry in store.non_bugs(most=_FIRST)]
        summary: dict[str, Any] = {
            **asdict(store.counts()),
            "rules": [asdict(rule) for rule in store.rules()],
            "explained": done.round.explained,
            "non_bugs": non_bugs,
            # The key of `non_bugs` before 0.2
            "aside": non_bugs,
            **facts,
            "problems": list(done.round.problems),
            "store": str(folder),
        }
        return TriageAnswer(summary, store.clusters(limit=_FIRST), (*unread, *done.unread))


def _reduce_waiting(
    request: TriageRequest, say: Callable[[str], None], progress: "Callable[[ReducedCase], object]"
) -> dict[str, Any]:
    """Reduce the waiting cases, here or on a cluster; return the keys `reductions` and `left`."""
    # A round without reductions needs neither onnx nor the reducer
    from opsieve.reducer.sessions.case_process import run_child
    from opsieve.reducer.sessions.store_session import (
        StoreReductionRequest,
        cases_to_reduce,
        cluster_reducer,
        reduce_cases,
    )

    asked = StoreReductionRequest(
        request.store, request.budget, request.members, request.offline, request.jobs or 1
    )
    wanted = cases_to_reduce(asked)
    clusters = {candidate.place: candidate.cluster for candidate in wanted}
    done: dict[str, ReducedCase] = {}
    say(f"{count_noun(len(wanted), 'case')} to reduce in {request.budget:g} s")
    with ExitStack() as stack:
        reducer: Reducer = run_child
        if request.scheduler is not None and wanted:
            targets = sorted({candidate.target for candidate in wanted})
            threads, reducer = stack.enter_context(
                cluster_reducer(request.scheduler, targets, request.resources, say)
            )
            # Only the scheduler knows how many threads the cluster has.
            asked = replace(asked, jobs=request.jobs or threads)
        try:
            for one in reduce_cases(asked, wanted, reducer):
                done[one.case] = one
                say(f"[{len(done)}/{len(wanted)}] {clusters[one.case]} {_describe_result(one)}")
                progress(one)
        except KeyboardInterrupt:
            say("finished reductions are kept; the next opsieve triage uses them")
            raise
    answers = Counter(one.answer for one in done.values())
    left = len(wanted) - len(done) + answers["unfinished"]
    summary = [f"{count} {answer}" for answer, count in answers.items() if answer != "unfinished"]
    summary += [f"{left} left; run the same command to continue"] * bool(left)
    if wanted:
        say(", ".join(summary))
    return {"reductions": [asdict(one) for one in done.values()], "left": left}


def _describe_result(one: "ReducedCase") -> str:
    """Describe the result of a case."""
    whole = count_noun(one.nodes_before, "node")
    nodes = (
        whole if one.nodes_after is None else f"{one.nodes_before} to {count_noun(one.nodes_after, 'node')}"
    )
    why = f": {one.message}" if one.message else ""
    return f"{one.case} {one.answer}, {nodes} in {one.seconds:.1f} s{why}"
