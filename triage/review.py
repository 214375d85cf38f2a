"""A round of triage over a store: what bisection and reduction left beside cases, the rules of known bugs, the order of reading.

Each step is one transaction on rows that are there; nothing is decided, so it can be done again at any time, beside a campaign.
"""

import json
import sqlite3
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsieve.gen.bad_input import BadInput
from opsieve.gen.files import read_file
from opsieve.triage.index_file import joined, writing
from opsieve.triage.ranking import Place, ranked
from opsieve.triage.rules import FOLDER, Rule, Subject, first_that_explains, read_rules
from opsieve.triage.shelf import refresh

_MAX_JSON = 8 << 20
_DONE = ("known", "fixed", "wontfix")


@dataclass(frozen=True, slots=True)
class Review:
    """What a round did: how many clusters were ranked, rules read, failures explained; sentences about what could not be used."""

    ranked: int
    rules: int
    explained: int
    problems: tuple[str, ...]


def review(folder: Path) -> Review:
    """Take up evidence, match rules, rank. BadInput when the store cannot be used."""
    rules, problems = read_rules(folder / FOLDER)
    with joined(folder) as connection:
        take_evidence(connection, folder)
        with writing(connection):
            explained = match_rules(connection, rules)
        with writing(connection):
            many = rank(connection)
    return Review(many, len(rules), explained, tuple(problems))


def take_evidence(connection: sqlite3.Connection, folder: Path) -> None:
    """Enter what lies beside kept cases: the size of a reduction, the guilty passes, the first bad release."""
    changed: set[int] = set()
    rows = connection.execute(
        "SELECT f.rowid, f.folder, f.reduced, f.fingerprint, p.cluster, p.guilty_pass, p.first_bad FROM failures f"
        " JOIN fingerprints p ON p.key = f.fingerprint WHERE f.folder != ''"
    ).fetchall()
    found = []
    for row_id, place, reduced, key, cluster, guilty, bad in rows:
        nodes, passes, first = evidence_of(folder / place)
        if (nodes if nodes is not None else reduced, passes or guilty, first or bad) != (reduced, guilty, bad):
            found.append((row_id, nodes, key, passes, first))
            changed |= {cluster} - {None}
    if not found:
        return
    with writing(connection):
        for row_id, nodes, key, passes, first in found:
            if nodes is not None:
                connection.execute("UPDATE failures SET reduced = ? WHERE rowid = ?", [nodes, row_id])
            if passes:
                connection.execute("UPDATE fingerprints SET guilty_pass = ? WHERE key = ?", [passes, key])
            if first:
                connection.execute("UPDATE fingerprints SET first_bad = ? WHERE key = ?", [first, key])
        refresh(connection, sorted(changed))


def evidence_of(case: Path) -> tuple[int | None, str, str]:
    """Of a case folder: the nodes of its reduction (None: not reduced), its guilty passes, its first bad release or commit; "" when unknown."""
    reduction, culprit = _facts(case / "reduced" / "reduction.json"), _facts(case / "culprit.json")
    attribution = _facts(case / "attribution.json") or _inner(culprit, "attribution")
    nodes = reduction.get("nodes_after")
    inner = reduction.get("inner_nodes_after", 0)
    counted = (
        nodes + (inner if isinstance(inner, int) else 0) if isinstance(nodes, int) and reduction.get("same") else None
    )
    passes = attribution.get("passes") if attribution.get("answer") in ("pass", "set") else culprit.get("guilty_passes")
    named = [str(one)[:100] for one in passes if isinstance(one, str)] if isinstance(passes, list) else []
    bad = culprit.get("first_bad") or culprit.get("culprit_commit")
    return counted, " ".join(named)[:300], bad[:100] if isinstance(bad, str) else ""


def match_rules(connection: sqlite3.Connection, rules: list[Rule]) -> int:
    """Count what each rule explains, by fingerprint; how many failures are explained in all."""
    connection.execute("DELETE FROM explained")
    connection.execute("DELETE FROM rules")
    counted: Counter[tuple[str, int]] = Counter()
    operators: dict[str, set[str]] = {}
    if rules:
        for key, told in connection.execute(
            "SELECT fingerprint, operators FROM failures WHERE folder != '' ORDER BY reduced IS NULL"
        ):
            operators.setdefault(key, set()).update(told.split())
        for key, number, kind, stage, message, guilty, version, many in connection.execute(
            "SELECT p.key, p.number, p.kind, p.stage, p.message, p.guilty_pass, f.version, f.many FROM (SELECT fingerprint, version,"
            " count(*) AS many FROM failures GROUP BY fingerprint, version) f JOIN fingerprints p ON p.key = f.fingerprint"
            " WHERE p.cluster IS NOT NULL"
        ):
            backend = key.partition(f"-{kind}-")[0]
            subject = Subject(backend, kind, stage, message, frozenset(operators.get(key, ())), version, guilty)
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
        Place(
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


def _facts(path: Path) -> dict[str, Any]:
    """A JSON object that another part of opsieve left; {} when there is none that can be read."""
    if path.is_file():
        with suppress(BadInput, ValueError, RecursionError):
            told = json.loads(read_file(path, _MAX_JSON))
            if isinstance(told, dict):
                return told
    return {}


def _inner(told: dict[str, Any], name: str) -> dict[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}
