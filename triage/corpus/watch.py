"""One call of `opsieve watch`: judge the cases of a store on new releases, and close and reopen clusters."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from opsieve.backends.releases.consent import give_consent
from opsieve.backends.verdict import FAILING
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.triage.corpus.corpus_file import CorpusResult, SeenVerdict, State
from opsieve.triage.corpus.session import (
    CorpusRequest,
    RecordedCase,
    Say,
    find_newest,
    make_refusal,
    place_on_newest,
    replay_cases,
)
from opsieve.triage.judging import RefusedModel
from opsieve.triage.store import decisions, queries, rows

WORDS: Mapping[State, str] = {
    "newly-failing": "reopened",
    "changed": "changed",
    "still-failing": "open",
    "fixed": "closed",
    "passing": "fixed",
    "not-judged": "not judged",
}
# What a state makes of a cluster's status
_MARKS: Mapping[State, decisions.Status] = {"newly-failing": "confirmed", "fixed": "fixed"}
_LIMITS = Limits()
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """A store, and where to judge `members` cases of each cluster.

    They run on `targets`, or else on the newest release of the compiler that failed (with `offline` the
    newest one that is installed).
    """

    store: Path
    targets: tuple[str, ...] = ()
    members: int = 2
    limits: Limits = _LIMITS
    offline: bool = False


@dataclass(frozen=True, slots=True)
class WatchedCluster(CorpusResult):
    """The result of a cluster: that of its decisive case."""

    cluster: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class _Watched:
    row: rows.ClusterRow
    fingerprints: frozenset[str]
    cases: Mapping[str, rows.MemberRow]


def watch_store(request: WatchRequest, say: Say) -> Iterator[WatchedCluster]:
    """Judge the clusters of a store; flaky failures and clusters marked `wontfix` are left out.

    A cluster is fixed only if each of its cases passes, the reduced one and others. It fails still if one of
    them fails with a fingerprint of the cluster.

    Raises:
        BadInput: If the store cannot be used, or a target is unknown.
    """
    cases: dict[str, RecordedCase] = {}
    chosen: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[_Watched, list[CorpusResult]]] = []
    # Once for each package: it asks an index on the network.
    newest = cache(lambda package: find_newest(package, request.offline))
    with queries.Queries(request.store) as store:
        for watched in _iter_watched(store, request.members):
            results: list[CorpusResult] = []
            for path, member in watched.cases.items():
                seen = SeenVerdict(
                    member.verdict, member.kind, member.stage, member.fingerprint, member.version
                )
                try:
                    # Targets of the user's own need no question to the index.
                    chosen[path] = request.targets or (
                        place_on_newest(member.target, newest) or member.target,
                    )
                except BadInput as error:
                    results.append(CorpusResult(path, member.target, "not-judged", seen, reason=str(error)))
                else:
                    cases[path] = RecordedCase(Path(path), {member.target: seen})
            waiting.append((watched, results))
    asked = CorpusRequest(request.store, request.targets, request.limits, request.offline, chosen=chosen)
    # The command is there to install new releases, so that no single one wants a yes.
    with nullcontext() if request.offline else give_consent():
        found = [
            make_refusal(one) if isinstance(one, RefusedModel) else one
            for one in replay_cases(cases, asked, say)
        ]
    for watched, results in waiting:
        yield _combine(watched, [*results, *(one for one in found if one.case in watched.cases)])


def record_decisions(folder: Path, results: Sequence[WatchedCluster]) -> None:
    """Mark fixed and returned clusters; each mark is a decision that `opsieve undo` reverts."""
    marked = [(result.cluster, mark) for result in results if (mark := _MARKS.get(result.state))]
    # Only then: opening the ledger locks the store.
    if marked:
        with decisions.Ledger(folder) as ledger:
            for cluster, mark in marked:
                ledger.mark(cluster, mark)


def _iter_watched(store: queries.Queries, most: int) -> Iterator[_Watched]:
    """Yield the clusters that have cases: the reduced representative, and members as they were found."""
    after = ""
    while True:
        page = store.clusters(after=after, limit=_PAGE)
        for row in page.rows:
            # Without a kept case there is nothing to run.
            if row.status == "wontfix" or not row.representative:
                continue
            cases: dict[str, rows.MemberRow] = {}
            first = store.case(row.representative)
            if first.reduced is not None:
                cases[str(first.reduced)] = first.member
            for member in store.members(row.id, limit=_PAGE).rows:
                if (
                    member.folder
                    and member.verdict != "flaky"
                    and len(cases) < most + (first.reduced is not None)
                ):
                    cases[str(store.folder / member.folder)] = member
            # A run gives a plain key; `~18` was added when a person split a member off.
            keys = frozenset(one.key.partition("~")[0] for one in store.fingerprints(row.id))
            yield _Watched(row, keys, cases)
        if not page.next:
            return
        after = page.next


def _combine(watched: _Watched, results: Sequence[CorpusResult]) -> WatchedCluster:
    """Return the result of a cluster from those of its cases."""
    row = watched.row
    failing = [one for one in results if one.after is not None and one.after.verdict in FAILING]
    same = [one for one in failing if one.after is not None and one.after.fingerprint in watched.fingerprints]
    unjudged = [one for one in results if one.state == "not-judged"]
    state: State
    # One case that still fails is enough: others may pass by chance.
    if same:
        # A bug that was fixed and fails again is news.
        state = "newly-failing" if row.status == "fixed" else "still-failing"
    elif failing:
        state = "changed"
    elif unjudged:
        state = "not-judged"
    else:
        state = "passing" if row.status == "fixed" else "fixed"
    one = (same or failing or unjudged or list(results))[0]
    return WatchedCluster(
        row.representative, one.target, state, one.before, one.after, one.reason, one.seconds, one.refused,
        cluster=row.id, title=row.listed_title,
    )  # fmt: skip
