"""Find the new clusters of a campaign: those unknown to a store of known bugs, or to the campaigns before.

A cluster is known if the other store has one with the same fingerprint, with one of its alternative titles
(one bug has several symptoms), or with a message of the same statement; or if a rule explains most of it. A
cluster that is `fixed` in that store is new if it appears again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsieve.triage.clustering.clusters import make_alternative_titles
from opsieve.triage.clustering.statements import find_common_text, get_statement
from opsieve.triage.fingerprint.component import Component
from opsieve.triage.known.issues import ClusterSignature
from opsieve.triage.review.review import iter_explained
from opsieve.triage.rules.rules import FOLDER, read_rules
from opsieve.triage.store.index.index import Index
from opsieve.triage.store.index.index_file import join_index
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.rows import ClusterRow, format_cluster


@dataclass(frozen=True, slots=True)
class JudgedCluster:
    """A cluster of a campaign; `known` says why it is known, "" for a new one. `fingerprint` is the key of
    its first one.
    """

    row: ClusterRow
    known: str
    # The key of its first fingerprint
    fingerprint: str


def judge_clusters(folder: Path, campaign: str, known: Path | None) -> list[JudgedCluster]:
    """Judge the clusters of a campaign in the store at `folder`, new ones first.

    They are compared with the store `known`, or else with the other campaigns of the same store.

    Raises:
        BadInput: If a store cannot be used.
    """
    with Queries(folder) as store:
        met, elsewhere = store.compare_campaigns(campaign)
        signatures = {one.cluster: one for one in store.list_signatures() if one.cluster in met}
        rows = {number: store.cluster(format_cluster(number)) for number in signatures}
    reasons = _match_rules(folder, known)
    if known is None:
        reasons |= dict.fromkeys(elsewhere, "another campaign of the store has met it")
    else:
        with Queries(known) as others:
            fixed = {row.id for row in others.clusters("status:fixed", limit=1000).rows}
            theirs = [one for one in others.list_signatures() if format_cluster(one.cluster) not in fixed]
        reasons |= {
            number: f"it is {format_cluster(same)} of {known}"
            for number, same in match_clusters(signatures.values(), theirs).items()
        }
    found = [
        JudgedCluster(rows[number], reasons.get(number, ""), min(one.keys, default=""))
        for number, one in signatures.items()
    ]
    return sorted(found, key=lambda one: (bool(one.known), one.row.rank, one.row.id))


def match_clusters(mine: Iterable[ClusterSignature], theirs: Iterable[ClusterSignature]) -> dict[int, int]:
    """Map each cluster to the one of another store that is the same bug."""
    by_name: dict[str, int] = {}
    by_statement: dict[str, list[tuple[int, Sequence[Component]]]] = {}
    for other in theirs:
        for name in _list_names(other):
            by_name.setdefault(name, other.cluster)
        for parts in other.components:
            if statement := get_statement(parts):
                by_statement.setdefault(statement, []).append((other.cluster, parts))
    found: dict[int, int] = {}
    for one in mine:
        same = next((by_name[name] for name in sorted(_list_names(one)) if name in by_name), None)
        if same is None:
            same = next(
                (
                    cluster
                    for parts in one.components
                    for cluster, other_parts in by_statement.get(get_statement(parts), [])
                    if find_common_text(other_parts, parts) is not None
                ),
                None,
            )
        if same is not None:
            found[one.cluster] = same
    return found


def _list_names(one: ClusterSignature) -> frozenset[str]:
    return one.keys.union(*(make_alternative_titles(parts) for parts in one.components))


def list_rule_problems(folder: Path, known: Path | None) -> list[str]:
    """List a sentence for each rule of either store that cannot be used."""
    return [
        problem
        for place in dict.fromkeys((folder, known))
        if place is not None
        for problem in read_rules(place / FOLDER)[1]
    ]


def _match_rules(folder: Path, known: Path | None) -> dict[int, str]:
    """Return the clusters of which a rule of either store explains more than half, with the rule."""
    rules = [rule for place in (folder, known) if place is not None for rule in read_rules(place / FOLDER)[0]]
    counted: Counter[tuple[int, str]] = Counter()
    with join_index(folder) as database:
        index = Index(database)
        members = {facts.id: facts.members for facts in index.list_cluster_facts()}
        for rule, one in iter_explained(index, rules):
            counted[one.cluster, rule.name] += one.many
    return {
        cluster: f"the rule {rule} explains it"
        for (cluster, rule), many in counted.items()
        if 2 * many > members[cluster]
    }
