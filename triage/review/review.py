"""A round of triage over a store: what bisection and reduction left beside cases, the rules of known bugs,
the order of reading.

Each step is one transaction on rows that are there; nothing is decided, so it can be done again at any time,
beside a campaign.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opsieve.gen.errors import BadInput
from opsieve.triage.clustering.ranking import RankFeatures, ranked
from opsieve.triage.clustering.reassign import Difference
from opsieve.triage.known.issues import issues_json, read_issues
from opsieve.triage.known.matching import IssueIndex, probable_issues
from opsieve.triage.review.refingerprint import refingerprint
from opsieve.triage.rules.rules import FOLDER, Rule, RuleSubject, first_that_explains, read_rules
from opsieve.triage.store.artifacts import CaseArtifacts, case_artifacts
from opsieve.triage.store.index.index import Index
from opsieve.triage.store.index.index_file import joined
from opsieve.triage.store.rows import ClusterFacts, KeptCase, VersionCount, name_of
from opsieve.triage.store.store import Store
from opsieve.triage.store.store_folder import case_folder

_DONE = ("known", "fixed", "wontfix")


@dataclass(frozen=True, slots=True)
class TriageRound:
    """What a round did: how many clusters were ranked, rules read, failures explained; sentences about what
    could not be used; the places of cases beside which something was found, whose fingerprints may tell more
    now (`refingerprint`).
    """

    ranked: int
    rules: int
    explained: int
    problems: tuple[str, ...]
    evidence: tuple[str, ...]


def review(folder: Path) -> TriageRound:
    """Take up evidence, match rules, rank. BadInput when the store cannot be used."""
    rules, problems = read_rules(folder / FOLDER)
    with joined(folder) as database:
        index = Index(database)
        places, unread = take_evidence(index, folder)
        with index.changing():
            explained = match_rules(index, rules)
            unread += match_issues(index, folder)
        with index.changing():
            many = rank(index)
    return TriageRound(many, len(rules), explained, (*problems, *unread), tuple(places))


def take_evidence(index: Index, folder: Path) -> tuple[list[str], list[str]]:
    """Enter what lies in kept cases (`case_artifacts`); the places of those that have any, whose fingerprints
    may say more now, and a sentence for each case that cannot be looked at.
    """
    found: list[tuple[KeptCase, CaseArtifacts]] = []
    places: list[str] = []
    problems: list[str] = []
    for case in index.kept_cases():
        try:
            here = case_artifacts(case_folder(folder, case.place))
        except BadInput as error:
            problems.append(str(error))
            continue
        known = case.guilty_pass, case.first_bad
        # neither found now nor before
        if here == CaseArtifacts() and not any(known) and case.reduced is None:
            continue
        places.append(case.place)
        now = " ".join(here.guilty_passes) or case.guilty_pass, here.first_bad or case.first_bad
        if (here.nodes, *now) != (case.reduced, *known):
            found.append((case, here))
    if found:
        with index.changing():
            for case, here in found:
                index.enter_artifacts(case, here)
            index.refresh(sorted({case.cluster for case, _ in found if case.cluster is not None}))
    return places, problems


def match_rules(index: Index, rules: list[Rule]) -> int:
    """Count what each rule explains, by fingerprint; how many failures are explained in all."""
    counted: Counter[tuple[str, int]] = Counter()
    for rule, one in explained(index, rules):
        counted[rule.name, one.number] += one.many
    index.set_explained(counted, [(rule.name, rule.title, rule.issue) for rule in rules])
    return sum(counted.values())


def explained(index: Index, rules: list[Rule]) -> Iterator[tuple[Rule, VersionCount]]:
    """Each rule with the failures of one fingerprint and version that it explains."""
    operators = index.operators() if rules else {}
    for one in index.counted_by_version() if rules else ():
        backend = one.key.partition(f"-{one.kind}-")[0]
        named = frozenset(operators.get(one.key, ()))
        subject = RuleSubject(backend, one.kind, one.stage, one.message, named, one.version, one.guilty_pass)
        rule = first_that_explains(rules, subject)
        if rule is not None:
            yield rule, one


def match_issues(index: Index, folder: Path) -> list[str]:
    """Find the public issues that clusters probably are, in the index that the store keeps of them; sentences
    about files that cannot be read.
    """
    issues, problems = read_issues(folder / FOLDER)
    known = IssueIndex(issues)
    found = {one.cluster: probable_issues(one, known) for one in index.signatures()} if issues else {}
    index.set_probable_issues({cluster: issues_json(each) for cluster, each in found.items() if each})
    return problems


def rank(index: Index) -> int:
    """Rank every cluster; how many there are."""
    order = ranked([_rank_features(one) for one in index.cluster_facts()])
    index.set_ranks(order)
    return len(order)


def _rank_features(one: ClusterFacts) -> RankFeatures:
    return RankFeatures(
        one.id,
        one.severity,
        len(one.targets.split()),
        one.reduced is not None,
        one.nodes if one.reduced is None else one.reduced,
        one.members,
        _features(one.kind, one.stage, one.title, one.operators, one.guilty_pass),
        not one.rule if one.status == "new" else one.status not in _DONE,
        bool(one.pinned),
    )


def _features(kind: str, stage: str, title: str, operators: str, guilty: str) -> frozenset[str]:
    """What makes clusters unlike: kind, stage, pass, the words of the title, the operators when they are
    few.
    """
    few = operators.split() if operators.count(" ") < 8 else []
    return frozenset(
        [
            f"kind {kind}",
            f"stage {stage}",
            f"pass {guilty}",
            *(f"op {name}" for name in few),
            *title.split()[:20],
        ]
    )


@dataclass(frozen=True, slots=True)
class Move:
    """Failures whose fingerprint became another: how many, both fingerprints, both clusters by name (`new`
    for one that is not there yet) with their titles before, why, and which components differ.
    """

    failures: int
    fingerprint: str
    to: str
    cluster: str
    to_cluster: str
    reason: str
    title: str
    to_title: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class TriageOutcome:
    """What a round did, what it moved, and sentences about fingerprints that could not be computed anew."""

    round: TriageRound
    moves: tuple[Move, ...] | None  # None where nothing had to be computed anew
    unread: tuple[str, ...] = ()


def triage(folder: Path, *, refingerprinted: bool = False) -> TriageOutcome:
    """A round over the store; what evidence says anew moves at once, unless that was done just now. BadInput
    when the store cannot be used.

    While a campaign holds the store fingerprints stay as they are, and the rest of the round is as good
    without.
    """
    done = review(folder)
    if refingerprinted or not done.evidence:
        return TriageOutcome(done, None)
    try:
        moves, unread = compute_anew(folder, places=done.evidence)
    except BadInput as error:
        return TriageOutcome(done, None, (f"fingerprints were not updated: {error}",))
    return TriageOutcome(review(folder) if moves else done, moves, unread)


def compute_anew(
    folder: Path, *, places: tuple[str, ...] | None = None, dry_run: bool = False
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """Fingerprints by today's rules, of the cases at `places` (of all for None): what moves, or would, and a
    sentence for each case that cannot be read and stays. BadInput when another process writes the store.
    """
    with Store(folder) as store, store.guarded():
        titles = store.index.titles()
        outcome = refingerprint(store.index, folder, places=places, dry_run=dry_run)
    moves = tuple(
        Move(
            len(group.rows),
            group.key,
            group.to_key,
            name_of(group.cluster),
            name_of(group.to_cluster) if group.to_cluster else "new",
            group.reason,
            titles.get(group.cluster, ""),
            titles.get(group.to_cluster, ""),
            apart,
        )
        for group, apart in zip(outcome.groups, outcome.differences, strict=True)
    )
    return moves, outcome.problems
