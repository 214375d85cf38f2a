"""The index of a store to those who change it: a method for each question that a change depends on, and for
each change.

All changes expect to be inside a transaction (`changing`).
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Literal

from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.store.failure_record import components_in, components_json
from opsieve.triage.store.index.growth import DECIDED, GrowingIndex
from opsieve.triage.store.rows import ClusterFacts, Decision, FingerprintPlace, KeptCase, VersionCount

if TYPE_CHECKING:  # it reads cases, with onnx; the terminal app only decides
    from opsieve.triage.store.artifacts import CaseArtifacts

_AT_ONCE = 500  # values in one statement
ClusterField = Literal["status", "issue", "note", "name", "pinned", "shaped"]


class Index(GrowingIndex):
    """An open index to change."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """A part of a transaction: where it fails, the rest of the transaction stays."""
        with self._database.atomic():
            yield

    # -- questions

    def kept_cases(self) -> list[KeptCase]:
        """Every kept case, by the number of its fingerprint."""
        rows = self._rows(
            "SELECT f.rowid, f.folder, f.reduced, f.fingerprint, p.cluster, p.guilty_pass, p.first_bad FROM"
            " failures f JOIN fingerprints p ON p.key = f.fingerprint WHERE f.folder != '' ORDER BY p.number,"
            " f.rowid"
        )
        return [KeptCase(*row) for row in rows]

    def kept(self, key: str) -> int:
        """How many failures of a fingerprint have a case."""
        return int(self._database.table("failures").count_where("fingerprint = ? AND folder != ''", [key]))

    def place_of(self, campaign: str, test: int, target: str) -> str | None:
        """The place of a failure's case, "" where none was kept; None where the failure is not known."""
        sql = "SELECT folder FROM failures WHERE campaign = ? AND test = ? AND target = ?"
        found = self._value(sql, campaign, test, target)
        return None if found is None else str(found)

    def fingerprint(self, key: str) -> FingerprintPlace | None:
        """Where a fingerprint stands; None for one that is not there."""
        sql = "SELECT key, number, cluster, apart, count, kept, components FROM fingerprints WHERE key = ?"
        for name, number, cluster, apart, count, kept, stored in self._rows(sql, key):
            return FingerprintPlace(name, number, cluster, apart, count, kept, components_in(stored))
        return None

    def fingerprints_in(self, cluster: int) -> list[tuple[str, int]]:
        """Key and number of the fingerprints of a cluster, oldest first."""
        return self._rows("SELECT key, number FROM fingerprints WHERE cluster = ? ORDER BY number", cluster)

    def latest_number(self) -> int:
        """The number of the latest fingerprint."""
        return int(self._value("SELECT coalesce(max(number), 0) AS number FROM fingerprints"))

    def cluster_field(self, cluster: int, field: ClusterField) -> object:
        """What a person decided of a cluster, or its default."""
        return self._value(f"SELECT {field} FROM clusters WHERE id = ?", cluster)

    def clusters_by_key(self) -> dict[str, int]:
        """The cluster of every confirmed fingerprint."""
        return dict(self._rows("SELECT key, cluster FROM fingerprints WHERE cluster IS NOT NULL"))

    def placed(self) -> dict[str, tuple[int, int]]:
        """Number and cluster of every fingerprint."""
        rows = self._rows("SELECT key, number, cluster FROM fingerprints")
        return {key: (number, cluster) for key, number, cluster in rows}

    def decided(self) -> set[int]:
        """The clusters that a person decided of."""
        return {row[0] for row in self._rows(f"SELECT id FROM clusters WHERE {DECIDED}")}

    def operators(self) -> dict[str, set[str]]:
        """The operators of the kept cases of each fingerprint, of the reduced ones where there are any."""
        found: dict[str, set[str]] = {}
        sql = "SELECT fingerprint, operators FROM failures WHERE folder != '' ORDER BY reduced IS NULL"
        for key, names in self._rows(sql):
            found.setdefault(key, set()).update(names.split())
        return found

    def counted_by_version(self) -> Iterator[VersionCount]:
        """The failures of each confirmed fingerprint, by the version of the compiler."""
        rows = self._rows(
            "SELECT p.key, p.number, p.kind, p.stage, p.message, p.guilty_pass, f.version, f.many, p.cluster"
            " FROM (SELECT fingerprint, version, count(*) AS many FROM failures GROUP BY fingerprint,"
            " version) f JOIN fingerprints p ON p.key = f.fingerprint WHERE p.cluster IS NOT NULL"
        )
        return (VersionCount(*row) for row in rows)

    def cluster_facts(self) -> list[ClusterFacts]:
        """What every cluster's rank depends on."""
        names = ", ".join(field.name for field in fields(ClusterFacts))
        return [ClusterFacts(*row) for row in self._rows(f"SELECT {names} FROM clusters WHERE members > 0")]

    # -- changes by a round of triage

    def enter_artifacts(self, case: KeptCase, found: "CaseArtifacts") -> None:
        """Enter what later steps left in a case; what they no longer say of its fingerprint stays."""
        operators = {"operators": " ".join(found.operators)} if found.operators else {}
        self._set("failures", "rowid = ?", [case.row], reduced=found.nodes, **operators)
        evidence = {"guilty_pass": " ".join(found.guilty_passes), "first_bad": found.first_bad}
        if known := {name: value for name, value in evidence.items() if value}:
            self._set("fingerprints", "key = ?", [case.key], **known)

    def set_explained(
        self, counted: Mapping[tuple[str, int], int], rules: Sequence[tuple[str, str, str]]
    ) -> None:
        """Replace what rules explain: failures by rule and fingerprint number, and the rules as name, title
        and issue.
        """
        totals: Counter[str] = Counter()
        for (name, _), many in counted.items():
            totals[name] += many
        rows = {
            "explained": [
                {"rule": rule, "number": number, "count": many} for (rule, number), many in counted.items()
            ],
            "rules": [
                {"name": name, "title": title, "issue": issue, "count": totals[name]}
                for name, title, issue in rules
            ],
        }
        for table, replacement in rows.items():
            self._database.table(table).delete_where()
            self._database.table(table).insert_all(replacement)
        self._rows(
            "UPDATE clusters SET rule = coalesce((SELECT e.rule FROM explained e JOIN fingerprints f ON"
            " f.number = e.number WHERE f.cluster = clusters.id GROUP BY e.rule HAVING sum(e.count) * 2 >"
            " clusters.members LIMIT 1), '')"
        )

    def set_probable_issues(self, found: Mapping[int, str]) -> None:
        """Replace the public issues that clusters probably are, each as JSON (`issues_json`)."""
        self._set("clusters", "probably != ''", [], probably="")
        self._database.conn.executemany(
            "UPDATE clusters SET probably = ? WHERE id = ?",
            [(issues, cluster) for cluster, issues in found.items()],
        )

    def set_ranks(self, order: Sequence[int]) -> None:
        """Rank clusters in this order, from 1 on."""
        self._database.conn.executemany(
            "UPDATE clusters SET rank = ? WHERE id = ?", [(at, one) for at, one in enumerate(order, 1)]
        )

    # -- changes of fingerprints

    def rename_fingerprint(self, key: str, new: str, now: Fingerprint, cluster: int | None) -> None:
        """Let a fingerprint's row go on as another's, with its number; its titles are made anew by
        `place_new`.
        """
        for table in ("alternatives", "statements"):
            number = "number = (SELECT number FROM fingerprints WHERE key = ?)"
            self._database.table(table).delete_where(number, [key])
        stored = json.dumps(components_json(now))
        columns = {"key": new, "version": now.version, "components": stored, "title": "", "cluster": cluster}
        self._set("fingerprints", "key = ?", [key], **columns)

    def add_fingerprint(self, key: str, now: Fingerprint, cluster: int | None, rows: Sequence[int]) -> None:
        """A row for a fingerprint of failures that are there; `recount` and `place_new` finish it."""
        first = self._row("SELECT kind, stage, message FROM failures WHERE rowid = ?", rows[0])
        asked = rows[:_AT_ONCE]
        marks = ", ".join("?" * len(asked))
        targets = self._rows(f"SELECT DISTINCT target FROM failures WHERE rowid IN ({marks})", *asked)
        row = {"key": key, "version": now.version, "components": json.dumps(components_json(now))}
        row |= {"count": 0, "kept": 0, "number": self.free_number(), "cluster": cluster}
        row |= dict(zip(("kind", "stage", "message"), first, strict=True))
        row["targets"] = f" {' '.join(sorted(name for (name,) in targets))} "
        self._database.table("fingerprints").insert(row)

    def move_counted(self, key: str, new: str) -> None:
        """Give the failures of a fingerprint that have no case to another one."""
        self._set("failures", "fingerprint = ? AND folder = ''", [key], fingerprint=new)

    def move_failures(self, rows: Iterable[int], new: str) -> None:
        """Give failures to a fingerprint."""
        sql = "UPDATE failures SET fingerprint = ? WHERE rowid = ?"
        self._database.conn.executemany(sql, [(new, row) for row in rows])

    def recount(self, keys: Collection[str]) -> None:
        """Count fingerprints anew, remove those without failures, and give the new ones titles and
        clusters.
        """
        for key in keys:
            self._rows(
                "UPDATE fingerprints SET (count, kept, first_seen, last_seen) = (SELECT count(*),"
                " count(nullif(folder, '')), coalesce(min(seen), 0), coalesce(max(seen), 0) FROM failures"
                " WHERE fingerprint = ?) WHERE key = ?",
                key,
                key,
            )
        self._database.conn.executemany(
            "DELETE FROM fingerprints WHERE key = ? AND count = 0", [(key,) for key in keys]
        )
        self.place_new()

    # -- decisions

    def has_decisions(self) -> bool:
        """Whether anything was decided."""
        return bool(self._database.table("decisions").count)

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
        self._set("decisions", "id = ?", [number], patch=patch)

    def set_state(self, number: int, state: str) -> None:
        """Mark a decision as done or undone."""
        self._set("decisions", "id = ?", [number], state=state)

    def drop_undone(self) -> None:
        """What was undone cannot be done again."""
        self._set("decisions", "state = 'undone'", [], state="dropped")

    def add_decision(self, number: int, at: float, born: int, action: str, text: str, patch: str) -> None:
        """Enter a decision as done."""
        row = {"id": number, "at": at, "born": born, "action": action, "text": text, "patch": patch}
        self._database.table("decisions").insert(row)

    def set_cluster(self, key: str, cluster: int) -> None:
        """Move a fingerprint to a cluster; `refresh` both."""
        self._set("fingerprints", "key = ?", [key], cluster=cluster)

    def set_apart(self, key: str, apart: int) -> None:
        """Whether a fingerprint joins nothing by itself."""
        self._set("fingerprints", "key = ?", [key], apart=apart)

    def set_cluster_field(self, cluster: int, field: ClusterField, value: object) -> None:
        """Enter what a person decided of a cluster."""
        self._database.table("clusters").upsert({"id": cluster, field: value}, pk="id")

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
            self._rows(
                "INSERT OR IGNORE INTO fingerprints (key, version, kind, components, count, kept, number,"
                " cluster, apart, title, stage, message, targets, guilty_pass, first_bad, first_seen,"
                " last_seen) SELECT ?, version, kind, components, 0, 0, ?, ?, 1, title, stage, message, ?,"
                " guilty_pass, first_bad, first_seen, last_seen FROM fingerprints WHERE key = ?",
                own,
                number,
                number,
                f" {member[2]} ",
                key,
            )
        self._set("failures", "campaign = ? AND test = ? AND target = ?", member, fingerprint=goal)
        for name, change in ((source, -1), (goal, 1)):
            sql = "UPDATE fingerprints SET count = count + ?, kept = kept + ? WHERE key = ?"
            self._rows(sql, change, change * kept, name)
        rows = self._rows("SELECT cluster FROM fingerprints WHERE key IN (?, ?)", source, goal)
        if not forwards:
            self._database.table("fingerprints").delete_where("key = ? AND count = 0", [own])
        return {int(row[0]) for row in rows}
