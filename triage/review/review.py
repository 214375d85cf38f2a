"""A round of triage over a store: results of bisection and reduction, rules of known bugs, the reading order.

Each step is one transaction on existing rows and decides nothing, so it can be repeated at any time, beside a
campaign.

The new clusters of a campaign are those unknown to a store of known bugs, or to the campaigns before. A
cluster is known if the other store has one with the same fingerprint, with one of its alternative titles
(one bug has several symptoms), or with a message of the same statement; or if a rule explains most of it. A
cluster that is `fixed` in that store is new if it appears again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsieve.gen.errors import BadInput
from opsieve.triage.clustering import clusters, ranking, reassign
from opsieve.triage.fingerprint.component import Component
from opsieve.triage.known.issues import ClusterSignature, encode_issues, read_issues
from opsieve.triage.known.matching import IssueIndex, find_probable
from opsieve.triage.review.refingerprint import refingerprint
from opsieve.triage.rules.rules import FOLDER, Rule, RuleSubject, find_rule, read_rules
from opsieve.triage.store import artifacts, queries, store_folder
from opsieve.triage.store.index.index import Index
from opsieve.triage.store.index.index_file import join_index
from opsieve.triage.store.rows import ClusterRow, KeptCase, VersionCount, format_cluster
from opsieve.triage.store.store import Store

_DONE = ("known", "fixed", "wontfix")


@dataclass(frozen=True, slots=True)
class TriageRound:
    """The result of a round: clusters ranked, rules read, failures explained, problems.

    `evidence` are the places of cases with new results, whose fingerprints may change now (`refingerprint`).
    """

    ranked: int
    rules: int
    explained: int
    problems: tuple[str, ...]
    evidence: tuple[str, ...]


def review_store(folder: Path) -> TriageRound:
    """Take up evidence, match rules and rank clusters.

    Raises:
        BadInput: If the store cannot be used.
    """
    rules, problems = read_rules(folder / FOLDER)
    with join_index(folder) as database:
        index = Index(database)
        places, unread = take_evidence(index, folder)
        with index.open_transaction():
            explained = match_rules(index, rules)
            unread += match_issues(index, folder)
        with index.open_transaction():
            many = rank_all(index)
    return TriageRound(many, len(rules), explained, (*problems, *unread), tuple(places))


def take_evidence(index: Index, folder: Path) -> tuple[list[str], list[str]]:
    """Store the results beside kept cases (`read_artifacts`).

    Returns the places of cases with results, and a sentence for each unreadable one.
    """
    found: list[tuple[KeptCase, artifacts.CaseArtifacts]] = []
    places: list[str] = []
    problems: list[str] = []
    for case in index.list_kept_cases():
        try:
            here = artifacts.read_artifacts(store_folder.get_case_folder(folder, case.place))
        except BadInput as error:
            problems.append(str(error))
            continue
        known = case.guilty_pass, case.first_bad
        # neither found now nor before
        if here == artifacts.CaseArtifacts() and not any(known) and case.reduced is None:
            continue
        places.append(case.place)
        now = " ".join(here.guilty_passes) or case.guilty_pass, here.first_bad or case.first_bad
        # Only changes are written, so that a repeated round costs no writes.
        if (here.nodes, *now) != (case.reduced, *known):
            found.append((case, here))
    if found:
        with index.open_transaction():
            for case, here in found:
                index.set_artifacts(case, here)
            index.refresh_clusters(sorted({case.cluster for case, _ in found if case.cluster is not None}))
    return places, problems


def match_rules(index: Index, rules: list[Rule]) -> int:
    """Count the failures that each rule explains, by fingerprint, and return their total."""
    counted: Counter[tuple[str, int]] = Counter()
    for rule, one in iter_explained(index, rules):
        counted[rule.name, one.number] += one.many
    index.set_explained(counted, [(rule.name, rule.title, rule.issue) for rule in rules])
    return sum(counted.values())


def iter_explained(index: Index, rules: list[Rule]) -> Iterator[tuple[Rule, VersionCount]]:
    """Yield each rule with the failures of one fingerprint and version that it explains."""
    operators = index.map_operators() if rules else {}
    for one in index.iter_version_counts() if rules else ():
        backend = one.key.partition(f"-{one.kind}-")[0]
        named = frozenset(operators.get(one.key, ()))
        subject = RuleSubject(backend, one.kind, one.stage, one.message, named, one.version, one.guilty_pass)
        rule = find_rule(rules, subject)
        if rule is not None:
            yield rule, one


def match_issues(index: Index, folder: Path) -> list[str]:
    """Find the probable public issues of clusters in the store's index; return sentences about unreadable
    files.
    """
    issues, problems = read_issues(folder / FOLDER)
    known = IssueIndex(issues)
    found = {one.cluster: find_probable(one, known) for one in index.list_signatures()} if issues else {}
    index.set_probable_issues({cluster: encode_issues(each) for cluster, each in found.items() if each})
    return problems


def rank_all(index: Index) -> int:
    """Rank every cluster, and return their number."""
    order = ranking.rank_clusters([_make_rank_features(one) for one in index.list_clusters()])
    index.set_ranks(order)
    return len(order)


def _make_rank_features(one: ClusterRow) -> ranking.RankFeatures:
    # Operators of a large program are chance and would make all clusters look different.
    few = one.operators if len(one.operators) < 7 else ()
    # What makes clusters different
    features = [f"kind {one.kind}", f"stage {one.stage}", f"pass {one.guilty_pass}"]
    return ranking.RankFeatures(
        one.number,
        one.severity,
        len(one.targets),
        one.reduced is not None,
        one.nodes if one.reduced is None else one.reduced,
        one.members,
        frozenset([*features, *(f"op {name}" for name in few), *one.own_title.split()[:20]]),
        one.status not in _DONE,
        one.pinned,
    )


@dataclass(frozen=True, slots=True)
class Move:
    """Failures with a changed fingerprint: their number, both fingerprints, both clusters with their old
    titles, the reason.

    `to_cluster` is `new` for a cluster that does not exist yet; `differences` are the components that differ.
    """

    failures: int
    fingerprint: str
    to: str
    cluster: str
    to_cluster: str
    reason: str
    title: str
    to_title: str
    differences: tuple[reassign.Difference, ...]


@dataclass(frozen=True, slots=True)
class TriageOutcome:
    """The result of a round, its moves (None if all fingerprints were up to date), and unreadable cases."""

    round: TriageRound
    # None if nothing changed.
    moves: tuple[Move, ...] | None
    unread: tuple[str, ...] = ()


def run_triage(folder: Path, *, refingerprinted: bool = False) -> TriageOutcome:
    """Run a round over the store; changed fingerprints move at once unless that was just done.

    While a campaign holds the store, fingerprints stay as they are and the rest of the round still runs.

    Raises:
        BadInput: If the store cannot be used.
    """
    done = review_store(folder)
    if refingerprinted or not done.evidence:
        return TriageOutcome(done, None)
    try:
        moves, unread = recompute_fingerprints(folder, places=done.evidence)
    except BadInput as error:
        return TriageOutcome(done, None, (f"fingerprints were not updated: {error}",))
    # Again after moves, which change members and so ranks and rules.
    return TriageOutcome(review_store(folder) if moves else done, moves, unread)


def recompute_fingerprints(
    folder: Path, *, places: tuple[str, ...] | None = None, dry_run: bool = False
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """Recompute the fingerprints of the cases at `places` (all for None).

    Returns the moves, planned or done, and a sentence for each unreadable case.

    Raises:
        BadInput: If another process writes the store.
    """
    with Store(folder) as store, store.translate_errors():
        titles = store.index.titles()
        outcome = refingerprint(store.index, folder, places=places, dry_run=dry_run)
    moves = tuple(
        Move(
            len(group.rows),
            group.key,
            group.to_key,
            format_cluster(group.cluster),
            format_cluster(group.to_cluster) if group.to_cluster else "new",
            group.reason,
            titles.get(group.cluster, ""),
            titles.get(group.to_cluster, ""),
            apart,
        )
        for group, apart in zip(outcome.groups, outcome.differences, strict=True)
    )
    return moves, outcome.problems


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
    with queries.Queries(folder) as store:
        met, elsewhere = store.compare_campaigns(campaign)
        signatures = {one.cluster: one for one in store.list_signatures() if one.cluster in met}
        rows = {number: store.cluster(format_cluster(number)) for number in signatures}
    reasons = _match_rules(folder, known)
    if known is None:
        reasons |= dict.fromkeys(elsewhere, "another campaign of the store has met it")
    else:
        with queries.Queries(known) as others:
            # A bug that was fixed and comes back is news.
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
            if statement := clusters.get_statement(parts):
                by_statement.setdefault(statement, []).append((other.cluster, parts))
    found: dict[int, int] = {}
    for one in mine:
        same = next((by_name[name] for name in sorted(_list_names(one)) if name in by_name), None)
        if same is None:
            same = next(
                (
                    cluster
                    for parts in one.components
                    for cluster, other_parts in by_statement.get(clusters.get_statement(parts), [])
                    if clusters.find_common_text(other_parts, parts) is not None
                ),
                None,
            )
        if same is not None:
            found[one.cluster] = same
    return found


def _list_names(one: ClusterSignature) -> frozenset[str]:
    return one.keys.union(*(clusters.make_alternative_titles(parts) for parts in one.components))


def list_rule_problems(folder: Path, known: Path | None) -> list[str]:
    """List a sentence for each rule of either store that cannot be used."""
    return [
        problem
        for place in dict.fromkeys((folder, known))
        if place is not None
        for problem in read_rules(place / FOLDER)[1]
    ]


def _match_rules(folder: Path, known: Path | None) -> dict[int, str]:
    """Return the clusters that a rule of either store explains for more than half, with the rule."""
    rules = [rule for place in (folder, known) if place is not None for rule in read_rules(place / FOLDER)[0]]
    counted: Counter[tuple[int, str]] = Counter()
    with join_index(folder) as database:
        index = Index(database)
        members = {row.number: row.members for row in index.list_clusters()}
        for rule, one in iter_explained(index, rules):
            counted[one.cluster, rule.name] += one.many
    return {
        cluster: f"the rule {rule} explains it"
        for (cluster, rule), many in counted.items()
        # More than half, as for the status `known` in a store.
        if 2 * many > members[cluster]
    }
