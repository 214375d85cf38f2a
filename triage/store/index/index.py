"""The index of a store to those who change it: a method for each question that a change depends on, and for
each change.

All changes expect to be inside a transaction (`index_file.writing`).
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from opsieve.triage.fingerprint.component import Component
from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.store.failure_record import FailureRecord, components_in, components_json
from opsieve.triage.store.index import growth
from opsieve.triage.store.index.index_file import writing
from opsieve.triage.store.index.index_reader import IndexReader
from opsieve.triage.store.rows import ClusterFacts, Decision, FingerprintPlace, KeptCase, VersionCount

if TYPE_CHECKING:  # it reads cases, with onnx; the terminal app only decides
    from opsieve.triage.store.artifacts import CaseArtifacts

_AT_ONCE = 500  # values in one statement
ClusterField = Literal["status", "issue", "note", "name", "pinned", "shaped"]


class Index(IndexReader):
    """An open index to change."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction: all changes inside are made, or none."""
        with writing(self._db):
            yield

    @contextmanager
    def step(self) -> Iterator[None]:
        """A part of a transaction: where it fails, the rest of the transaction stays."""
        with self._db.atomic():
            yield

    # -- questions

    def kept_cases(self) -> list[KeptCase]:
        """Every kept case, by the number of its fingerprint."""
        rows = self._connection.execute(
            "SELECT f.rowid, f.folder, f.reduced, f.fingerprint, p.cluster, p.guilty_pass, p.first_bad FROM"
            " failures f JOIN fingerprints p ON p.key = f.fingerprint WHERE f.folder != '' ORDER BY p.number,"
            " f.rowid"
        )
        return [KeptCase(*row) for row in rows]

    def components(self, key: str) -> tuple[Component, ...]:
        """The components of a fingerprint; () for one that is not there."""
        stored = self._value("SELECT components FROM fingerprints WHERE key = ?", key)
        return components_in(stored) if stored is not None else ()

    def count(self, key: str) -> int:
        """How many failures a fingerprint has."""
        return int(self._value("SELECT count FROM fingerprints WHERE key = ?", key) or 0)

    def counts_by_key(self) -> dict[str, int]:
        """How many failures each fingerprint has."""
        rows = self._db.table("fingerprints").rows_where(select="key, count")
        return {row["key"]: row["count"] for row in rows}

    def failures(self) -> list[dict[str, Any]]:
        """Every failure, by campaign, test and target: its columns by name."""
        return list(self._db.table("failures").rows_where(order_by="campaign, test, target"))

    def kept(self, key: str) -> int:
        """How many of them have a case."""
        return int(self._db.table("failures").count_where("fingerprint = ? AND folder != ''", [key]))

    def number_and_kept(self, key: str) -> tuple[int, int] | None:
        """The number of a fingerprint and how many of its cases are kept; None for one that is not there."""
        row = self._row("SELECT number, kept FROM fingerprints WHERE key = ?", key)
        return None if row is None else (int(row[0]), int(row[1]))

    def place_of(self, campaign: str, test: int, target: str) -> str | None:
        """The place of a failure's case, "" where none was kept; None where the failure is not known."""
        sql = "SELECT folder FROM failures WHERE campaign = ? AND test = ? AND target = ?"
        found = self._value(sql, campaign, test, target)
        return None if found is None else str(found)

    def fingerprint(self, key: str) -> FingerprintPlace | None:
        """Where a fingerprint stands; None for one that is not there."""
        row = self._row("SELECT key, number, cluster, apart, count FROM fingerprints WHERE key = ?", key)
        return None if row is None else FingerprintPlace(*row)

    def fingerprints_in(self, cluster: int) -> list[tuple[str, int]]:
        """Key and number of the fingerprints of a cluster, oldest first."""
        rows = self._db.table("fingerprints").rows_where("cluster = ?", [cluster], order_by="number")
        return [(row["key"], row["number"]) for row in rows]

    def free_number(self) -> int:
        """The next number that neither a fingerprint nor a cluster has."""
        return growth.free_number(self._connection)

    def latest_number(self) -> int:
        """The number of the latest fingerprint."""
        return int(self._value("SELECT coalesce(max(number), 0) AS number FROM fingerprints"))

    def cluster_field(self, cluster: int, field: ClusterField) -> object:
        """What a person decided of a cluster, or its default."""
        return self._value(f"SELECT {field} FROM clusters WHERE id = ?", cluster)

    def clusters_by_key(self) -> dict[str, int]:
        """The cluster of every confirmed fingerprint."""
        return dict(
            self._connection.execute(
                "SELECT key, cluster FROM fingerprints WHERE cluster IS NOT NULL"
            ).fetchall()
        )

    def placed(self) -> dict[str, tuple[int, int]]:
        """Number and cluster of every fingerprint."""
        rows = self._connection.execute("SELECT key, number, cluster FROM fingerprints").fetchall()
        return {key: (number, cluster) for key, number, cluster in rows}

    def decided(self) -> set[int]:
        """The clusters that a person decided of."""
        return {row[0] for row in self._connection.execute(f"SELECT id FROM clusters WHERE {growth.DECIDED}")}

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
            "SELECT p.key, p.number, p.kind, p.stage, p.message, p.guilty_pass, f.version, f.many, p.cluster"
            " FROM (SELECT fingerprint, version, count(*) AS many FROM failures GROUP BY fingerprint,"
            " version) f JOIN fingerprints p ON p.key = f.fingerprint WHERE p.cluster IS NOT NULL"
        )
        return (VersionCount(*row) for row in rows)

    def clusters(self) -> list[ClusterFacts]:
        """What every cluster's rank depends on."""
        rows = self._connection.execute(
            "SELECT id, severity, targets, reduced, nodes, members, kind, stage, title, operators,"
            " guilty_pass, status, rule, pinned FROM clusters WHERE members > 0"
        )
        return [ClusterFacts(*row) for row in rows]

    # -- changes by a campaign

    def add_failure(self, record: FailureRecord, place: str, seen: float) -> None:
        """Enter a failure, kept as a case at `place` or only counted (""); `place_new` finishes the job."""
        growth.add_failure(self._connection, record, place, seen)

    def place_new(self) -> list[int]:
        """Give every fingerprint that has none its titles and its cluster; the numbers of these
        fingerprints.
        """
        return growth.place_new(self._connection)

    # -- changes by a round of triage

    def enter_artifacts(self, case: KeptCase, found: "CaseArtifacts") -> None:
        """Enter what later steps left in a case; what they no longer say of its fingerprint stays."""
        self._connection.execute("UPDATE failures SET reduced = ? WHERE rowid = ?", [found.nodes, case.row])
        if found.operators:
            names = " ".join(found.operators)
            self._connection.execute("UPDATE failures SET operators = ? WHERE rowid = ?", [names, case.row])
        for column, value in (("guilty_pass", " ".join(found.guilty_passes)), ("first_bad", found.first_bad)):
            if value:
                self._connection.execute(
                    f"UPDATE fingerprints SET {column} = ? WHERE key = ?", [value, case.key]
                )

    def refresh(self, clusters: Iterable[int]) -> None:
        """Sum clusters up anew."""
        growth.refresh(self._connection, clusters)

    def set_explained(
        self, counted: Mapping[tuple[str, int], int], rules: Sequence[tuple[str, str, str]]
    ) -> None:
        """Replace what rules explain: failures by rule and fingerprint number, and the rules as name, title
        and issue.
        """
        totals: Counter[str] = Counter()
        for (name, _), many in counted.items():
            totals[name] += many
        self._db.table("explained").delete_where()
        self._db.table("rules").delete_where()
        self._db.table("explained").insert_all(
            {"rule": rule, "number": number, "count": many} for (rule, number), many in counted.items()
        )
        self._db.table("rules").insert_all(
            {"name": name, "title": title, "issue": issue, "count": totals[name]}
            for name, title, issue in rules
        )
        self._connection.execute(
            "UPDATE clusters SET rule = coalesce((SELECT e.rule FROM explained e JOIN fingerprints f ON"
            " f.number = e.number WHERE f.cluster = clusters.id GROUP BY e.rule HAVING sum(e.count) * 2 >"
            " clusters.members LIMIT 1), '')"
        )

    def set_probable_issues(self, found: Mapping[int, str]) -> None:
        """Replace the public issues that clusters probably are, each as JSON (`issues_json`)."""
        self._connection.execute("UPDATE clusters SET probably = '' WHERE probably != ''")
        self._connection.executemany(
            "UPDATE clusters SET probably = ? WHERE id = ?",
            [(issues, cluster) for cluster, issues in found.items()],
        )

    def set_ranks(self, order: Sequence[int]) -> None:
        """Rank clusters in this order, from 1 on."""
        self._connection.executemany(
            "UPDATE clusters SET rank = ? WHERE id = ?", [(at, one) for at, one in enumerate(order, 1)]
        )

    # -- changes of fingerprints

    def has(self, key: str) -> bool:
        """Whether there is a row for a fingerprint."""
        return bool(self._db.table("fingerprints").count_where("key = ?", [key]))

    def rename_fingerprint(self, key: str, new: str, now: Fingerprint, cluster: int | None) -> None:
        """Let a fingerprint's row go on as another's, with its number; its titles are made anew by
        `place_new`.
        """
        for table in ("alternatives", "statements"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE number = (SELECT number FROM fingerprints WHERE key = ?)", [key]
            )
        self._connection.execute(
            "UPDATE fingerprints SET key = ?, version = ?, components = ?, title = '', cluster = ? WHERE"
            " key = ?",
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
        number = self.free_number()
        self._connection.execute(
            "INSERT INTO fingerprints (key, version, kind, components, count, kept, number, cluster, stage,"
            " message, targets) VALUES (?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?)",
            [
                key,
                now.version,
                first[0],
                json.dumps(components_json(now)),
                number,
                cluster,
                first[1],
                first[2],
                words,
            ],
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
        """Count fingerprints anew, remove those without failures, and give the new ones titles and
        clusters.
        """
        for key in keys:
            self._connection.execute(
                "UPDATE fingerprints SET (count, kept, first_seen, last_seen) = (SELECT count(*),"
                " count(nullif(folder, '')), coalesce(min(seen), 0), coalesce(max(seen), 0) FROM failures"
                " WHERE fingerprint = ?) WHERE key = ?",
                [key, key],
            )
        self._connection.executemany(
            "DELETE FROM fingerprints WHERE key = ? AND count = 0", [(key,) for key in keys]
        )
        self.place_new()

    # -- decisions

    def has_decisions(self) -> bool:
        """Whether anything was decided."""
        return bool(self._db.table("decisions").count)

    def next_decision(self) -> int:
        """The number that the next decision gets."""
        return int(self._value("SELECT coalesce(max(id), 0) + 1 FROM decisions"))

    def to_undo(self) -> Decision | None:
        """The latest decision that stands and can be undone."""
        return self._decision("state = 'done' AND action != 'rekey' ORDER BY id DESC")

    def to_redo(self) -> Decision | None:
        """The first decision that was undone and can be done again."""
        return self._decision("state = 'undone' ORDER BY id")

    def _decision(self, which: str) -> Decision | None:
        row = self._row(f"SELECT id, at, action, text, state FROM decisions WHERE {which} LIMIT 1")
        return None if row is None else Decision(*row)

    def patches(self) -> list[tuple[int, str]]:
        """Number and patch, as JSON, of every decision."""
        return self._rows("SELECT id, patch FROM decisions")

    def patch(self, number: int, state: str) -> str | None:
        """The patch of a decision in a state; None where it is not there, or in another one."""
        found = self._value("SELECT patch FROM decisions WHERE id = ? AND state = ?", number, state)
        return None if found is None else str(found)

    def set_patch(self, number: int, patch: str) -> None:
        """Replace the patch of a decision."""
        self._db.table("decisions").update(number, {"patch": patch})

    def set_state(self, number: int, state: str) -> None:
        """Mark a decision as done or undone."""
        self._db.table("decisions").update(number, {"state": state})

    def drop_undone(self) -> None:
        """What was undone cannot be done again."""
        self._connection.execute("UPDATE decisions SET state = 'dropped' WHERE state = 'undone'")

    def add_decision(self, number: int, at: float, born: int, action: str, text: str, patch: str) -> None:
        """Enter a decision as done."""
        row = {"id": number, "at": at, "born": born, "action": action, "text": text, "patch": patch}
        self._db.table("decisions").insert(row)

    def set_cluster(self, key: str, cluster: int) -> None:
        """Move a fingerprint to a cluster; `refresh` both."""
        self._connection.execute("UPDATE fingerprints SET cluster = ? WHERE key = ?", [cluster, key])

    def set_apart(self, key: str, apart: int) -> None:
        """Whether a fingerprint joins nothing by itself."""
        self._connection.execute("UPDATE fingerprints SET apart = ? WHERE key = ?", [apart, key])

    def set_cluster_field(self, cluster: int, field: ClusterField, value: object) -> None:
        """Enter what a person decided of a cluster."""
        self._db.table("clusters").upsert({"id": cluster, field: value}, pk="id")

    def move_member(
        self, member: tuple[str, int, str], key: str, own: str, number: int, *, forwards: bool
    ) -> set[int]:
        """Give a failure of the fingerprint `key` a row of its own (`own`, `number`), or take that back; the
        clusters that changed.
        """
        source, goal = (key, own) if forwards else (own, key)
        place = self._value(
            "SELECT folder FROM failures WHERE campaign = ? AND test = ? AND target = ? AND fingerprint = ?",
            *member,
            source,
        )
        if place is None:
            return set()  # counted once, and lost with an old index
        kept = int(bool(place))
        if forwards:
            self._connection.execute(
                "INSERT OR IGNORE INTO fingerprints (key, version, kind, components, count, kept, number,"
                " cluster, apart, title, stage, message, targets, guilty_pass, first_bad, first_seen,"
                " last_seen) SELECT ?, version, kind, components, 0, 0, ?, ?, 1, title, stage, message, ?,"
                " guilty_pass, first_bad, first_seen, last_seen FROM fingerprints WHERE key = ?",
                [own, number, number, f" {member[2]} ", key],
            )
        self._connection.execute(
            "UPDATE failures SET fingerprint = ? WHERE campaign = ? AND test = ? AND target = ?",
            [goal, *member],
        )
        for name, change in ((source, -1), (goal, 1)):
            self._connection.execute(
                "UPDATE fingerprints SET count = count + ?, kept = kept + ? WHERE key = ?",
                [change, change * kept, name],
            )
        rows = self._rows("SELECT cluster FROM fingerprints WHERE key IN (?, ?)", source, goal)
        if not forwards:
            self._connection.execute("DELETE FROM fingerprints WHERE key = ? AND count = 0", [own])
        return {int(row[0]) for row in rows}
