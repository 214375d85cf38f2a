"""The index of a store to those who change many rows at once: a method for each question and each change, so that SQL stays in this folder.

All changes expect to be inside a transaction (`index_file.writing`).
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opsieve.triage.fingerprint.component import Component
from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.store.artifacts import CaseArtifacts
from opsieve.triage.store.failure_record import components_in, components_json
from opsieve.triage.store.index_file import writing
from opsieve.triage.store.index_rows import DECIDED, free_number, place_new, refresh

_AT_ONCE = 500  # values in one statement


@dataclass(frozen=True, slots=True)
class KeptCase:
    """A failure whose case is kept: its row, its place in the store, and what the index has of it and its fingerprint."""

    row: int
    place: str
    reduced: int | None
    key: str
    cluster: int | None
    guilty_pass: str
    first_bad: str


@dataclass(frozen=True, slots=True)
class VersionCount:
    """The failures of one fingerprint under one version of the compiler, counted."""

    key: str
    number: int
    kind: str
    stage: str
    message: str
    guilty_pass: str
    version: str
    many: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the rank of a cluster depends on."""

    id: int
    severity: int
    targets: str
    reduced: int | None
    nodes: int
    members: int
    kind: str
    stage: str
    title: str
    operators: str
    guilty_pass: str
    status: str
    rule: str
    pinned: int


class Index:
    """An open index."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction: all changes inside are made, or none."""
        with writing(self._connection):
            yield

    # -- questions

    def kept_cases(self) -> list[KeptCase]:
        """Every kept case, by the number of its fingerprint."""
        rows = self._connection.execute(
            "SELECT f.rowid, f.folder, f.reduced, f.fingerprint, p.cluster, p.guilty_pass, p.first_bad FROM failures f"
            " JOIN fingerprints p ON p.key = f.fingerprint WHERE f.folder != '' ORDER BY p.number, f.rowid"
        )
        return [KeptCase(*row) for row in rows]

    def components(self, key: str) -> tuple[Component, ...]:
        """The components of a fingerprint; () for one that is not there."""
        row = self._connection.execute("SELECT components FROM fingerprints WHERE key = ?", [key]).fetchone()
        return components_in(row[0]) if row else ()

    def count(self, key: str) -> int:
        """How many failures a fingerprint has."""
        row = self._connection.execute("SELECT count FROM fingerprints WHERE key = ?", [key]).fetchone()
        return int(row[0]) if row else 0

    def kept(self, key: str) -> int:
        """How many of them have a case."""
        sql = "SELECT count(*) FROM failures WHERE fingerprint = ? AND folder != ''"
        return int(self._connection.execute(sql, [key]).fetchone()[0])

    def clusters_by_key(self) -> dict[str, int]:
        """The cluster of every confirmed fingerprint."""
        return dict(
            self._connection.execute("SELECT key, cluster FROM fingerprints WHERE cluster IS NOT NULL").fetchall()
        )

    def placed(self) -> dict[str, tuple[int, int]]:
        """Number and cluster of every fingerprint."""
        rows = self._connection.execute("SELECT key, number, cluster FROM fingerprints").fetchall()
        return {key: (number, cluster) for key, number, cluster in rows}

    def decided(self) -> set[int]:
        """The clusters that a person decided of."""
        return {row[0] for row in self._connection.execute(f"SELECT id FROM clusters WHERE {DECIDED}")}

    def operators(self) -> dict[str, set[str]]:
        """The operators of the kept cases of each fingerprint, of the reduced ones where there are any."""
        found: dict[str, set[str]] = {}
        rows = self._connection.execute(
            "SELECT fingerprint, operators FROM failures WHERE folder != '' ORDER BY reduced IS NULL"
        )
        for key, names in rows:
            found.setdefault(key, set()).update(names.split())
        return found

    def counted_by_version(self) -> Iterator[VersionCount]:
        """The failures of each confirmed fingerprint, by the version of the compiler."""
        rows = self._connection.execute(
            "SELECT p.key, p.number, p.kind, p.stage, p.message, p.guilty_pass, f.version, f.many FROM (SELECT fingerprint, version,"
            " count(*) AS many FROM failures GROUP BY fingerprint, version) f JOIN fingerprints p ON p.key = f.fingerprint"
            " WHERE p.cluster IS NOT NULL"
        )
        return (VersionCount(*row) for row in rows)

    def clusters(self) -> list[ClusterFacts]:
        """What every cluster's rank depends on."""
        rows = self._connection.execute(
            "SELECT id, severity, targets, reduced, nodes, members, kind, stage, title, operators, guilty_pass, status, rule, pinned"
            " FROM clusters WHERE members > 0"
        )
        return [ClusterFacts(*row) for row in rows]

    # -- changes by a round of triage

    def enter_artifacts(self, case: KeptCase, found: CaseArtifacts) -> None:
        """Enter what later steps left in a case; what they no longer say of its fingerprint stays."""
        self._connection.execute("UPDATE failures SET reduced = ? WHERE rowid = ?", [found.nodes, case.row])
        if found.operators:
            names = " ".join(found.operators)
            self._connection.execute("UPDATE failures SET operators = ? WHERE rowid = ?", [names, case.row])
        for column, value in (("guilty_pass", " ".join(found.guilty_passes)), ("first_bad", found.first_bad)):
            if value:
                self._connection.execute(f"UPDATE fingerprints SET {column} = ? WHERE key = ?", [value, case.key])

    def refresh(self, clusters: Iterable[int]) -> None:
        """Sum clusters up anew."""
        refresh(self._connection, clusters)

    def set_explained(self, counted: Mapping[tuple[str, int], int], rules: Sequence[tuple[str, str, str]]) -> None:
        """Replace what rules explain: failures by rule and fingerprint number, and the rules as name, title and issue."""
        totals: Counter[str] = Counter()
        for (name, _), many in counted.items():
            totals[name] += many
        self._connection.execute("DELETE FROM explained")
        self._connection.execute("DELETE FROM rules")
        self._connection.executemany(
            "INSERT INTO explained VALUES (?, ?, ?)", [(*pair, many) for pair, many in counted.items()]
        )
        self._connection.executemany(
            "INSERT INTO rules VALUES (?, ?, ?, ?)", [(*rule, totals[rule[0]]) for rule in rules]
        )
        self._connection.execute(
            "UPDATE clusters SET rule = coalesce((SELECT e.rule FROM explained e JOIN fingerprints f ON f.number = e.number"
            " WHERE f.cluster = clusters.id GROUP BY e.rule HAVING sum(e.count) * 2 > clusters.members LIMIT 1), '')"
        )

    def set_ranks(self, order: Sequence[int]) -> None:
        """Rank clusters in this order, from 1 on."""
        self._connection.executemany(
            "UPDATE clusters SET rank = ? WHERE id = ?", [(at, one) for at, one in enumerate(order, 1)]
        )

    # -- changes of fingerprints

    def has(self, key: str) -> bool:
        """Whether there is a row for a fingerprint."""
        return self._connection.execute("SELECT 1 FROM fingerprints WHERE key = ?", [key]).fetchone() is not None

    def rename_fingerprint(self, key: str, new: str, now: Fingerprint, cluster: int | None) -> None:
        """Let a fingerprint's row go on as another's, with its number; its titles are made anew by `place_new`."""
        for table in ("alternatives", "statements"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE number = (SELECT number FROM fingerprints WHERE key = ?)", [key]
            )
        self._connection.execute(
            "UPDATE fingerprints SET key = ?, version = ?, components = ?, title = '', cluster = ? WHERE key = ?",
            [new, now.version, json.dumps(components_json(now)), cluster, key],
        )

    def add_fingerprint(self, key: str, now: Fingerprint, cluster: int | None, rows: Sequence[int]) -> None:
        """A row for a fingerprint of failures that are there; `recount` and `place_new` finish it."""
        first = self._connection.execute(
            "SELECT kind, stage, message FROM failures WHERE rowid = ?", [rows[0]]
        ).fetchone()
        asked = rows[:_AT_ONCE]
        targets = self._connection.execute(
            f"SELECT DISTINCT target FROM failures WHERE rowid IN ({', '.join('?' * len(asked))})", asked
        ).fetchall()
        words = f" {' '.join(sorted(row[0] for row in targets))} "
        number = free_number(self._connection)
        self._connection.execute(
            "INSERT INTO fingerprints (key, version, kind, components, count, kept, number, cluster, stage, message, targets)"
            " VALUES (?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?)",
            [key, now.version, first[0], json.dumps(components_json(now)), number, cluster, first[1], first[2], words],
        )

    def move_counted(self, key: str, new: str) -> None:
        """Give the failures of a fingerprint that have no case to another one."""
        sql = "UPDATE failures SET fingerprint = ? WHERE fingerprint = ? AND folder = ''"
        self._connection.execute(sql, [new, key])

    def move_failures(self, rows: Iterable[int], new: str) -> None:
        """Give failures to a fingerprint."""
        sql = "UPDATE failures SET fingerprint = ? WHERE rowid = ?"
        self._connection.executemany(sql, [(new, row) for row in rows])

    def recount(self, keys: Collection[str]) -> None:
        """Count fingerprints anew, remove those without failures, and give the new ones titles and clusters."""
        for key in keys:
            self._connection.execute(
                "UPDATE fingerprints SET (count, kept, first_seen, last_seen) = (SELECT count(*), count(nullif(folder, '')),"
                " coalesce(min(seen), 0), coalesce(max(seen), 0) FROM failures WHERE fingerprint = ?) WHERE key = ?",
                [key, key],
            )
        self._connection.executemany("DELETE FROM fingerprints WHERE key = ? AND count = 0", [(key,) for key in keys])
        place_new(self._connection)
