"""Which clusters of a campaign are new: unknown to a store of known bugs, or to the campaigns before.

A cluster is known where the other store has one with the same fingerprint, with an alternative title of its
(one bug shows in several ways), or with a message of the same statement; and where a rule explains most of
it. What that store holds as `fixed` is new when it comes again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsieve.triage.clustering.clusters import alternatives
from opsieve.triage.clustering.statements import common_text, statement_of
from opsieve.triage.fingerprint.component import Component
from opsieve.triage.known.issues import ClusterSignature
from opsieve.triage.review.review import explained
from opsieve.triage.rules.rules import FOLDER, read_rules
from opsieve.triage.store.index.index import Index
from opsieve.triage.store.index.index_file import joined
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.rows import ClusterRow, name_of


@dataclass(frozen=True, slots=True)
class JudgedCluster:
    """A cluster of a campaign; `known` says why it is known, "" for a new one."""

    row: ClusterRow
    known: str
    fingerprint: str  # the key of its first fingerprint


def judged_clusters(folder: Path, campaign: str, known: Path | None) -> list[JudgedCluster]:
    """The clusters of a campaign of the store at `folder`, new ones first; beside the store `known`, or else
    beside the other campaigns of its own.

    BadInput when a store cannot be used.
    """
    with Queries(folder) as store:
        met, elsewhere = store.met(campaign)
        signatures = {one.cluster: one for one in store.signatures() if one.cluster in met}
        rows = {number: store.cluster(name_of(number)) for number in signatures}
    reasons = _by_rules(folder, known)
    if known is None:
        reasons |= dict.fromkeys(elsewhere, "another campaign of the store has met it")
    else:
        with Queries(known) as others:
            fixed = {row.id for row in others.clusters("status:fixed", limit=1000).rows}
            theirs = [one for one in others.signatures() if name_of(one.cluster) not in fixed]
        reasons |= {
            number: f"it is {name_of(same)} of {known}"
            for number, same in same_clusters(signatures.values(), theirs).items()
        }
    found = [
        JudgedCluster(rows[number], reasons.get(number, ""), min(one.keys, default=""))
        for number, one in signatures.items()
    ]
    return sorted(found, key=lambda one: (bool(one.known), one.row.rank, one.row.id))


def same_clusters(mine: Iterable[ClusterSignature], theirs: Iterable[ClusterSignature]) -> dict[int, int]:
    """For each cluster that another store has, too: which one of that store it is."""
    by_name: dict[str, int] = {}
    by_statement: dict[str, list[tuple[int, Sequence[Component]]]] = {}
    for other in theirs:
        for name in _names(other):
            by_name.setdefault(name, other.cluster)
        for parts in other.components:
            if statement := statement_of(parts):
                by_statement.setdefault(statement, []).append((other.cluster, parts))
    found: dict[int, int] = {}
    for one in mine:
        same = next((by_name[name] for name in sorted(_names(one)) if name in by_name), None)
        if same is None:
            same = next(
                (
                    cluster
                    for parts in one.components
                    for cluster, other_parts in by_statement.get(statement_of(parts), [])
                    if common_text(other_parts, parts) is not None
                ),
                None,
            )
        if same is not None:
            found[one.cluster] = same
    return found


def _names(one: ClusterSignature) -> frozenset[str]:
    return one.keys.union(*(alternatives(parts) for parts in one.components))


def _by_rules(folder: Path, known: Path | None) -> dict[int, str]:
    """The clusters that a rule of either store explains for more than half, with the rule."""
    rules = [rule for place in (folder, known) if place is not None for rule in read_rules(place / FOLDER)[0]]
    counted: Counter[tuple[int, str]] = Counter()
    with joined(folder) as database:
        index = Index(database)
        members = {facts.id: facts.members for facts in index.cluster_facts()}
        for rule, one in explained(index, rules):
            counted[one.cluster, rule.name] += one.many
    return {
        cluster: f"the rule {rule} explains it"
        for (cluster, rule), many in counted.items()
        if 2 * many > members[cluster]
    }
