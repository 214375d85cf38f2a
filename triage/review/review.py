"""A round of triage over a store: what bisection and reduction left beside cases, the rules of known bugs, the order of reading.

Each step is one transaction on rows that are there; nothing is decided, so it can be done again at any time, beside a campaign.
"""

import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from opsieve.gen.model.bad_input import BadInput
from opsieve.triage.clustering.ranking import RankFeatures, ranked
from opsieve.triage.rules.rules import FOLDER, Rule, RuleSubject, first_that_explains, read_rules
from opsieve.triage.store.artifacts import CaseArtifacts, case_artifacts
from opsieve.triage.store.index_file import joined, writing
from opsieve.triage.store.index_rows import refresh
from opsieve.triage.store.store_folder import case_folder

_DONE = ("known", "fixed", "wontfix")


@dataclass(frozen=True, slots=True)
class TriageRound:
    """What a round did: how many clusters were ranked, rules read, failures explained; sentences about what could not be used;
    the places of cases beside which something was found, whose fingerprints may tell more now (`refingerprint`)."""

    ranked: int
    rules: int
    explained: int
    problems: tuple[str, ...]
    evidence: tuple[str, ...]


def review(folder: Path) -> TriageRound:
    """Take up evidence, match rules, rank. BadInput when the store cannot be used."""
    rules, problems = read_rules(folder / FOLDER)
    with joined(folder) as connection:
        places, unread = take_evidence(connection, folder)
        with writing(connection):
            explained = match_rules(connection, rules)
        with writing(connection):
            many = rank(connection)
    return TriageRound(many, len(rules), explained, (*problems, *unread), tuple(places))


def take_evidence(connection: sqlite3.Connection, folder: Path) -> tuple[list[str], list[str]]:
    """Enter what lies in kept cases (`case_artifacts`); the places of those that have any, whose fingerprints may say more now, and a sentence
    for each case that cannot be looked at."""
    changed: set[int] = set()
    found: list[tuple[int, str, CaseArtifacts]] = []
    places: list[str] = []
    problems: list[str] = []
    for row, place, reduced, key, cluster, guilty, bad in connection.execute(
        "SELECT f.rowid, f.folder, f.reduced, f.fingerprint, p.cluster, p.guilty_pass, p.first_bad FROM failures f"
        " JOIN fingerprints p ON p.key = f.fingerprint WHERE f.folder != ''"
    ).fetchall():
        try:
            here = case_artifacts(case_folder(folder, place))
        except BadInput as error:
            problems.append(str(error))
            continue
        if here == CaseArtifacts() and not (guilty or bad) and reduced is None:  # neither found now nor before
            continue
        places.append(place)
        passes = " ".join(here.guilty_passes)
        if (here.nodes, passes or guilty, here.first_bad or bad) != (reduced, guilty, bad):
            found.append((row, key, here))
            changed |= {cluster} - {None}
    if found:
        with writing(connection):
            for row, key, here in found:
                connection.execute("UPDATE failures SET reduced = ? WHERE rowid = ?", [here.nodes, row])
                if operators := here.operators:
                    connection.execute("UPDATE failures SET operators = ? WHERE rowid = ?", [" ".join(operators), row])
                for column, value in (("guilty_pass", " ".join(here.guilty_passes)), ("first_bad", here.first_bad)):
                    if value:
                        connection.execute(f"UPDATE fingerprints SET {column} = ? WHERE key = ?", [value, key])
            refresh(connection, sorted(changed))
    return places, problems


def match_rules(connection: sqlite3.Connection, rules: list[Rule]) -> int:
    """Count what each rule explains, by fingerprint; how many failures are explained in all."""
    connection.execute("DELETE FROM explained")
    connection.execute("DELETE FROM rules")
    counted: Counter[tuple[str, int]] = Counter()
    operators: dict[str, set[str]] = {}
    if rules:
        for key, names in connection.execute(
            "SELECT fingerprint, operators FROM failures WHERE folder != '' ORDER BY reduced IS NULL"
        ):
            operators.setdefault(key, set()).update(names.split())
        for key, number, kind, stage, message, guilty, version, many in connection.execute(
            "SELECT p.key, p.number, p.kind, p.stage, p.message, p.guilty_pass, f.version, f.many FROM (SELECT fingerprint, version,"
            " count(*) AS many FROM failures GROUP BY fingerprint, version) f JOIN fingerprints p ON p.key = f.fingerprint"
            " WHERE p.cluster IS NOT NULL"
        ):
            backend = key.partition(f"-{kind}-")[0]
            subject = RuleSubject(backend, kind, stage, message, frozenset(operators.get(key, ())), version, guilty)
            rule = first_that_explains(rules, subject)
            if rule is not None:
                counted[rule.name, number] += many
    totals: Counter[str] = Counter()
    for (name, _), many in counted.items():
        totals[name] += many
    connection.executemany("INSERT INTO explained VALUES (?, ?, ?)", [(*pair, many) for pair, many in counted.items()])
    connection.executemany(
        "INSERT INTO rules VALUES (?, ?, ?, ?)",
        [(rule.name, rule.title, rule.issue, totals[rule.name]) for rule in rules],
    )
    connection.execute(
        "UPDATE clusters SET rule = coalesce((SELECT e.rule FROM explained e JOIN fingerprints f ON f.number = e.number"
        " WHERE f.cluster = clusters.id GROUP BY e.rule HAVING sum(e.count) * 2 > clusters.members LIMIT 1), '')"
    )
    return sum(totals.values())


def rank(connection: sqlite3.Connection) -> int:
    """Rank every cluster; how many there are."""
    places = [
        RankFeatures(
            cluster,
            severity,
            len(targets.split()),
            reduced is not None,
            nodes if reduced is None else reduced,
            members,
            _features(kind, stage, title, operators, guilty),
            not rule if status == "new" else status not in _DONE,
            bool(pinned),
        )
        for cluster, severity, targets, reduced, nodes, members, kind, stage, title, operators, guilty, status, rule, pinned in connection.execute(
            "SELECT id, severity, targets, reduced, nodes, members, kind, stage, title, operators, guilty_pass, status, rule, pinned"
            " FROM clusters WHERE members > 0"
        )
    ]
    order = ranked(places)
    connection.executemany(
        "UPDATE clusters SET rank = ? WHERE id = ?", [(at, cluster) for at, cluster in enumerate(order, 1)]
    )
    return len(order)


def _features(kind: str, stage: str, title: str, operators: str, guilty: str) -> frozenset[str]:
    """What makes clusters unlike: kind, stage, pass, the words of the title, the operators when they are few."""
    few = operators.split() if operators.count(" ") < 8 else []
    return frozenset(
        [f"kind {kind}", f"stage {stage}", f"pass {guilty}", *(f"op {name}" for name in few), *title.split()[:20]]
    )
