"""Failures, fingerprints and clusters as rows: how the index grows by one failure without looking at the
others.

A fingerprint has a number, from 1 on, for life. A cluster has the number of the fingerprint that began it and
is written `c17`. The rows of `clusters` hold sums over their fingerprints, kept up to date, so that a page of
clusters reads a page of rows. All functions expect to be inside a transaction (`index_file.writing`).
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence

from opsieve.triage.clustering.clusters import SEPARATOR, alternatives, placement
from opsieve.triage.clustering.ranking import severity
from opsieve.triage.clustering.statements import MOST_COMPARED, common_texts, statement_of
from opsieve.triage.fingerprint.component import Component, ComponentName
from opsieve.triage.fingerprint.fingerprint import Fingerprint, title_of
from opsieve.triage.store.failure_record import FailureRecord, components_in
from opsieve.triage.store.index.row_types import GREATEST

UNRANKED = 1_000_000_000  # less its severity: the rank of a cluster that `opsieve triage` has not ranked yet
_UNREDUCED = 1 << 30
DECIDED = "(shaped OR pinned OR status != 'new' OR name != '' OR note != '' OR issue != '')"


def add_failure(connection: sqlite3.Connection, record: FailureRecord, place: str, seen: float) -> None:
    """Enter a failure, kept as a case at `place` of the store or only counted (""). `place_new` and `refresh`
    finish the job.
    """
    connection.execute(
        "INSERT INTO failures (campaign, test, target, verdict, kind, stage, fingerprint, message, reason, blame, version, digest,"
        " folder, seen, nodes, operators) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            record.campaign, record.test, record.target, record.verdict, record.kind, record.stage, record.fingerprint, record.message, record.reason,
            record.blame, record.version, record.digest, place, seen, record.nodes, " ".join(record.operators),
        ],
    )  # fmt: skip
    add_fingerprint(connection, record.fingerprint, record, kept=bool(place), seen=seen)


def add_fingerprint(
    connection: sqlite3.Connection, key: str, record: FailureRecord, *, kept: bool, seen: float
) -> None:
    """Count one more failure of a fingerprint; a new one gets a number, its own where that is free."""
    row = connection.execute("SELECT targets, cluster FROM fingerprints WHERE key = ?", [key]).fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO fingerprints (key, version, kind, components, count, kept, number, stage, message, targets, first_seen,"
            " last_seen) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?)",
            [
                key, record.fingerprint_version, record.kind, json.dumps(record.components), int(kept), free_number(connection, record.number),
                record.stage, record.message, f" {record.target} ", seen, seen,
            ],
        )  # fmt: skip
        return
    targets, cluster = row
    if f" {record.target} " not in targets:
        targets = f"{targets or ' '}{record.target} "
    connection.execute(
        "UPDATE fingerprints SET count = count + 1, kept = kept + ?, targets = ?, first_seen ="
        " min(first_seen, ?), last_seen = max(last_seen, ?) WHERE key = ?",
        [int(kept), targets, seen, seen, key],
    )
    if cluster is not None:
        connection.execute(
            "UPDATE clusters SET members = members + 1, last_seen = max(last_seen, ?) WHERE id = ?",
            [seen, cluster],
        )
        if kept or f" {record.target} " not in row[0]:
            refresh(connection, [cluster])


def free_number(connection: sqlite3.Connection, wanted: int = 0) -> int:
    """`wanted` where no fingerprint has it, else the next number that neither a fingerprint nor a cluster
    has.
    """
    if (
        wanted > 0
        and not connection.execute("SELECT 1 FROM fingerprints WHERE number = ?", [wanted]).fetchone()
    ):
        return wanted
    sql = (
        "SELECT max((SELECT coalesce(max(number), 0) FROM fingerprints), (SELECT coalesce(max(id), 0) FROM"
        " clusters)) + 1 AS number"
    )
    return int(connection.execute(sql).fetchone()[0])


def place_new(connection: sqlite3.Connection) -> list[int]:
    """Give every fingerprint that has none its title, its alternative titles and its cluster; the numbers of
    these fingerprints.

    A flaky failure's fingerprint gets no cluster: it is no confirmed failure.
    """
    rows = connection.execute(
        "SELECT number, key, version, message, components, cluster FROM fingerprints WHERE title = '' ORDER"
        " BY number"
    ).fetchall()
    for number, key, version, message, stored, cluster in rows:
        components = components_in(stored)
        found = Fingerprint(version, key, components)
        title = title_of(found) or "a failure that tells nothing"
        operators = found.value(ComponentName.OPERATORS)
        guilty, bad = found.value(ComponentName.GUILTY_PASS), found.value(ComponentName.FIRST_BAD)
        connection.execute(
            "UPDATE fingerprints SET title = ?, guilty_pass = ?, first_bad = ? WHERE number = ?",
            [title, guilty, bad, number],
        )
        connection.execute(
            "INSERT OR REPLACE INTO texts (rowid, title, message, operators) VALUES (?, ?, ?, ?)",
            [number, title, " ".join([message, *(part.value for part in components)]), operators],
        )
        if not key.startswith("flaky-"):
            titles = alternatives(components) | _of_statement(connection, number, components)
            _name(connection, number, titles)
            if cluster is None:
                _join(connection, number, titles)
            else:  # it was somebody else's until its key changed
                refresh(connection, [cluster])
    return [int(row[0]) for row in rows]


def _name(connection: sqlite3.Connection, number: int, titles: Iterable[str]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO alternatives (title, number) VALUES (?, ?)",
        [(each, number) for each in titles],
    )


def _of_statement(
    connection: sqlite3.Connection, number: int, components: Sequence[Component]
) -> frozenset[str]:
    """Titles that a fingerprint shares with others of its statement whose messages are instances of one text;
    they get them, too.
    """
    statement = statement_of(components)
    if not statement:
        return frozenset()
    others = connection.execute(
        "SELECT f.number, f.components FROM statements s JOIN fingerprints f ON f.number = s.number"
        " WHERE s.place = ? AND s.number != ? ORDER BY s.number LIMIT ?",
        [statement, number, MOST_COMPARED],
    ).fetchall()
    connection.execute("INSERT OR IGNORE INTO statements (place, number) VALUES (?, ?)", [statement, number])
    texts = common_texts(components, [components_in(its) for _, its in others])
    shared = {other: text for (other, _), text in zip(others, texts, strict=True)}
    titles = {other: SEPARATOR.join((statement, text)) for other, text in shared.items() if text is not None}
    for other, title in titles.items():
        _name(connection, other, [title])
    return frozenset(titles.values())


def _join(connection: sqlite3.Connection, number: int, titles: Iterable[str]) -> None:
    sharing: dict[int, bool] = {}
    for title in sorted(titles):
        for cluster, decided in connection.execute(
            f"SELECT c.id, {DECIDED} FROM alternatives a JOIN fingerprints f ON f.number = a.number AND"
            " f.apart = 0 JOIN clusters c ON c.id = f.cluster WHERE a.title = ? AND a.number != ?",
            [title, number],
        ):
            sharing[cluster] = bool(decided)
    found = placement(number, sharing)
    connection.execute("INSERT OR IGNORE INTO clusters (id) VALUES (?)", [found.cluster])
    connection.execute("UPDATE fingerprints SET cluster = ? WHERE number = ?", [found.cluster, number])
    for absorbed in found.absorbed:
        connection.execute(
            "UPDATE fingerprints SET cluster = ? WHERE cluster = ? AND apart = 0", [found.cluster, absorbed]
        )
    refresh(connection, [found.cluster, *found.absorbed])


def refresh(connection: sqlite3.Connection, clusters: Iterable[int]) -> None:
    """Sum clusters up anew from their fingerprints and kept cases; one without fingerprints has no members
    and is not listed.
    """
    for cluster in clusters:
        connection.execute("INSERT OR IGNORE INTO clusters (id) VALUES (?)", [cluster])
        units = connection.execute(
            "SELECT key, kind, stage, title, count, targets, first_seen, last_seen, guilty_pass, first_bad,"
            """ instr(components, '"name": "program", "value": "invalid"') FROM fingerprints"""
            " WHERE cluster = ? ORDER BY number",
            [cluster],
        ).fetchall()
        if not units:
            connection.execute("UPDATE clusters SET members = 0, fingerprints = 0 WHERE id = ?", [cluster])
            continue
        kept = connection.execute(
            "SELECT f.folder, f.nodes, f.reduced, f.operators, f.fingerprint, p.number FROM fingerprints p"
            " JOIN failures f INDEXED BY failures_kept ON f.fingerprint = p.key AND f.folder != '' WHERE"
            " p.cluster = ?",
            [cluster],
        ).fetchall()
        best = min(kept, key=_smallest, default=("", 0, None, "", units[0][0], 0))
        speaker = next((unit for unit in units if unit[0] == best[4]), units[0])
        grave = severity(speaker[1], valid=not all(unit[10] for unit in units))
        targets = sorted({target for unit in units for target in unit[5].split()})
        connection.execute(
            "UPDATE clusters SET title = ?, kind = ?, backend = ?, stage = ?, members = ?, fingerprints = ?, nodes = ?, reduced = ?,"
            " representative = ?, targets = ?, operators = ?, guilty_pass = ?, first_bad = ?, first_seen = ?, last_seen = ?,"
            " severity = ?, rank = CASE WHEN rank < ? THEN rank ELSE ? END WHERE id = ?",
            [
                speaker[3], speaker[1], speaker[0].partition(f"-{speaker[1]}-")[0], speaker[2], min(sum(unit[4] for unit in units), GREATEST),
                len(units), best[1], best[2], best[0], f" {' '.join(targets)} ", f" {best[3]} ",
                next((unit[8] for unit in units if unit[8]), ""), next((unit[9] for unit in units if unit[9]), ""),
                min(unit[6] for unit in units), max(unit[7] for unit in units), grave, UNRANKED // 2, UNRANKED - grave, cluster,
            ],
        )  # fmt: skip


def _smallest(row: tuple[str, int, int | None, str, str, int]) -> tuple[bool, int, int, int, str]:
    """Reduced members first, the smallest of them; then the smallest of the others; of equals the oldest."""
    folder, nodes, reduced, _, _, number = row
    return (
        reduced is None,
        (nodes or _UNREDUCED) if reduced is None else reduced,
        number,
        len(folder),
        folder,
    )
