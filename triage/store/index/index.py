"""The index of a store for writers: a method for each query that a change needs, and for each change.

All changes must happen inside a transaction (`open_transaction`).
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.store.failure_record import encode_components, read_components
from opsieve.triage.store.index import schema
from opsieve.triage.store.index.growth import DECIDED, GrowingIndex
from opsieve.triage.store.rows import Decision, FingerprintPlace, KeptCase, VersionCount

# It reads cases, with onnx; the terminal app only decides
if TYPE_CHECKING:
    from opsieve.triage.store.artifacts import CaseArtifacts

# Values in one statement
_AT_ONCE = 500
ClusterField = Literal["status", "issue", "note", "name", "pinned", "shaped"]


class Index(GrowingIndex):
    """An open index to change."""

    @contextmanager
    def open_savepoint(self) -> Iterator[None]:
        """Run a part of a transaction; if it fails, the rest of the transaction stays."""
        with self._database.atomic():
            yield

    # -- questions

    def list_kept_cases(self) -> list[KeptCase]:
        """List every kept case by the number of its fingerprint."""
        rows = self._select(
            "SELECT f.rowid, f.folder, f.reduced, f.fingerprint, p.cluster, p.guilty_pass, p.first_bad FROM"
            " failures f JOIN fingerprints p ON p.key = f.fingerprint WHERE f.folder != '' ORDER BY p.number,"
            " f.rowid"
        )
        return [KeptCase(*row) for row in rows]

    def count_kept(self, key: str) -> int:
        """Count the failures of a fingerprint that have a case."""
        return int(self._database.table("failures").count_where("fingerprint = ? AND folder != ''", [key]))

    def find_place(self, campaign: str, test: int, target: str) -> str | None:
        """Return the place of a failure's case, "" if it was not kept, None for an unknown failure."""
        sql = "SELECT folder FROM failures WHERE campaign = ? AND test = ? AND target = ?"
        found = self._select_value(sql, campaign, test, target)
        return None if found is None else str(found)

    def find_fingerprint(self, key: str) -> FingerprintPlace | None:
        """Find a fingerprint; None if the index lacks it."""
        sql = "SELECT key, number, cluster, apart, count, kept, components FROM fingerprints WHERE key = ?"
        for name, number, cluster, apart, count, kept, stored in self._select(sql, key):
            return FingerprintPlace(name, number, cluster, apart, count, kept, read_components(stored))
        return None

    def list_fingerprints(self, cluster: int) -> list[tuple[str, int]]:
        """List key and number of the fingerprints of a cluster, oldest first."""
        return self._select("SELECT key, number FROM fingerprints WHERE cluster = ? ORDER BY number", cluster)

    def get_latest_number(self) -> int:
        """Return the number of the latest fingerprint."""
        return int(self._select_value("SELECT coalesce(max(number), 0) AS number FROM fingerprints"))

    def get_cluster_field(self, cluster: int, field: ClusterField) -> object:
        """Return a person's decision about a cluster, or its default."""
        return self._select_value(f"SELECT {field} FROM clusters WHERE id = ?", cluster)

    def map_clusters(self) -> dict[str, int]:
        """Map every confirmed fingerprint to its cluster."""
        return dict(self._select("SELECT key, cluster FROM fingerprints WHERE cluster IS NOT NULL"))

    def map_places(self) -> dict[str, tuple[int, int]]:
        """Map every fingerprint to its number and cluster."""
        rows = self._select("SELECT key, number, cluster FROM fingerprints")
        return {key: (number, cluster) for key, number, cluster in rows}

    def list_decided(self) -> set[int]:
        """List the clusters with decisions of a person."""
        return {row[0] for row in self._select(f"SELECT id FROM clusters WHERE {DECIDED}")}

    def map_operators(self) -> dict[str, set[str]]:
        """Map each fingerprint to the operators of its kept cases, reduced ones if there are any."""
        found: dict[str, set[str]] = {}
        sql = "SELECT fingerprint, operators FROM failures WHERE folder != '' ORDER BY reduced IS NULL"
        for key, names in self._select(sql):
            found.setdefault(key, set()).update(names.split())
        return found

    def iter_version_counts(self) -> Iterator[VersionCount]:
        """Yield the failures of each confirmed fingerprint, counted by the compiler's version."""
        rows = self._select(
            "SELECT p.key, p.number, p.kind, p.stage, p.message, p.guilty_pass, f.version, f.many, p.cluster"
            " FROM (SELECT fingerprint, version, count(*) AS many FROM failures GROUP BY fingerprint,"
            " version) f JOIN fingerprints p ON p.key = f.fingerprint WHERE p.cluster IS NOT NULL"
        )
        return (VersionCount(*row) for row in rows)

    # -- changes by a round of triage

    def set_artifacts(self, case: KeptCase, found: "CaseArtifacts") -> None:
        """Store the results of later steps for a case; earlier facts about its fingerprint stay if those lack
        them.
        """
        operators = {"operators": " ".join(found.operators)} if found.operators else {}
        self._update("failures", "rowid = ?", [case.row], reduced=found.nodes, **operators)
        evidence = {"guilty_pass": " ".join(found.guilty_passes), "first_bad": found.first_bad}
        if known := {name: value for name, value in evidence.items() if value}:
            self._update("fingerprints", "key = ?", [case.key], **known)

    def set_explained(
        self, counted: Mapping[tuple[str, int], int], rules: Sequence[tuple[str, str, str]]
    ) -> None:
        """Replace the failures that rules explain, by rule and fingerprint number, and the rules' name, title
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
        self._select(
            "UPDATE clusters SET rule = coalesce((SELECT e.rule FROM explained e JOIN fingerprints f ON"
            " f.number = e.number WHERE f.cluster = clusters.id GROUP BY e.rule HAVING sum(e.count) * 2 >"
            " clusters.members LIMIT 1), '')"
        )

    def set_probable_issues(self, found: Mapping[int, str]) -> None:
        """Replace the probable public issues of clusters, each as JSON (`encode_issues`)."""
        self._update("clusters", "probably != ''", [], probably="")
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
        """Turn a fingerprint's row into another's, with its number; `place_new` remakes its titles."""
        for table in ("alternatives", "statements"):
            number = "number = (SELECT number FROM fingerprints WHERE key = ?)"
            self._database.table(table).delete_where(number, [key])
        stored = json.dumps(encode_components(now))
        columns = {"key": new, "version": now.version, "components": stored, "title": "", "cluster": cluster}
        self._update("fingerprints", "key = ?", [key], **columns)

    def add_fingerprint(self, key: str, now: Fingerprint, cluster: int | None, rows: Sequence[int]) -> None:
        """Add a row for a fingerprint of existing failures; `recount_fingerprints` and `place_new`
        finish it.
        """
        kind, stage, message = self._select_row(
            "SELECT kind, stage, message FROM failures WHERE rowid = ?", rows[0]
        )
        # SQLite bounds the parameters of a statement.
        asked = rows[:_AT_ONCE]
        marks = ", ".join("?" * len(asked))
        targets = self._select(f"SELECT DISTINCT target FROM failures WHERE rowid IN ({marks})", *asked)
        row = {
            "key": key,
            "version": now.version,
            "components": json.dumps(encode_components(now)),
            "count": 0,
            "kept": 0,
            "number": self.get_free_number(),
            "cluster": cluster,
            "kind": kind,
            "stage": stage,
            "message": message,
            "targets": schema.join_targets(sorted(name for (name,) in targets)),
        }
        self._database.table("fingerprints").insert(row)

    def move_counted(self, key: str, new: str) -> None:
        """Move the failures without a case from one fingerprint to another."""
        self._update("failures", "fingerprint = ? AND folder = ''", [key], fingerprint=new)

    def move_failures(self, rows: Iterable[int], new: str) -> None:
        """Move failures to a fingerprint."""
        sql = "UPDATE failures SET fingerprint = ? WHERE rowid = ?"
        self._database.conn.executemany(sql, [(new, row) for row in rows])

    def recount_fingerprints(self, keys: Collection[str]) -> None:
        """Recount fingerprints, remove empty ones, and give the new ones titles and clusters."""
        for key in keys:
            self._select(
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
        """Whether there are decisions."""
        return bool(self._database.table("decisions").count)

    def get_next_decision(self) -> int:
        """Return the number of the next decision."""
        return int(self._select_value("SELECT coalesce(max(id), 0) + 1 FROM decisions"))

    def find_to_undo(self) -> Decision | None:
        """Find the latest decision in force that can be undone."""
        # A rekey follows from new rules, and no person took it.
        return self._find_decision("state = 'done' AND action != 'rekey' ORDER BY id DESC")

    def find_to_redo(self) -> Decision | None:
        """Find the first undone decision that can be redone."""
        return self._find_decision("state = 'undone' ORDER BY id")

    def _find_decision(self, which: str) -> Decision | None:
        row = self._select_row(f"SELECT id, at, action, text, state FROM decisions WHERE {which} LIMIT 1")
        return None if row is None else Decision(*row)

    def list_patches(self) -> list[tuple[int, str]]:
        """List number and patch, as JSON, of every decision."""
        return self._select("SELECT id, patch FROM decisions")

    def get_patch(self, number: int, state: str) -> str | None:
        """Return the patch of a decision in this state, if there is one."""
        found = self._select_value("SELECT patch FROM decisions WHERE id = ? AND state = ?", number, state)
        return None if found is None else str(found)

    def set_patch(self, number: int, patch: str) -> None:
        """Replace the patch of a decision."""
        self._update("decisions", "id = ?", [number], patch=patch)

    def set_state(self, number: int, state: str) -> None:
        """Mark a decision as done or undone."""
        self._update("decisions", "id = ?", [number], state=state)

    def drop_undone(self) -> None:
        """Make undone decisions final: they can no longer be redone."""
        self._update("decisions", "state = 'undone'", [], state="dropped")

    def add_decision(self, number: int, at: float, born: int, action: str, text: str, patch: str) -> None:
        """Insert a decision as done."""
        row = {"id": number, "at": at, "born": born, "action": action, "text": text, "patch": patch}
        self._database.table("decisions").insert(row)

    def set_cluster(self, key: str, cluster: int) -> None:
        """Move a fingerprint to a cluster; call `refresh_clusters` for both."""
        self._update("fingerprints", "key = ?", [key], cluster=cluster)

    def set_apart(self, key: str, apart: int) -> None:
        """Set whether a fingerprint stays out of other clusters."""
        self._update("fingerprints", "key = ?", [key], apart=apart)

    def set_cluster_field(self, cluster: int, field: ClusterField, value: object) -> None:
        """Store a person's decision about a cluster."""
        self._database.table("clusters").upsert({"id": cluster, field: value}, pk="id")

    def move_member(
        self, member: tuple[str, int, str], key: str, own: str, number: int, *, forwards: bool
    ) -> set[int]:
        """Move a failure from the fingerprint `key` to `own`, or undo that; a missing one is made (`number`).

        Returns the changed clusters.
        """
        source, goal = (key, own) if forwards else (own, key)
        place = self._select_value(
            "SELECT folder FROM failures WHERE campaign = ? AND test = ? AND target = ? AND fingerprint = ?",
            *member,
            source,
        )
        if place is None:
            # Counted once, and lost with an old index
            return set()
        kept = int(bool(place))
        free = self.get_free_number(number)
        self._select(
            # A copy of the original row with `apart` set; the counts follow below, for both.
            "INSERT OR IGNORE INTO fingerprints (key, version, kind, components, count, kept, number,"
            " cluster, apart, title, stage, message, targets, guilty_pass, first_bad, first_seen,"
            " last_seen) SELECT ?, version, kind, components, 0, 0, ?, ?, 1, title, stage, message, ?,"
            " guilty_pass, first_bad, first_seen, last_seen FROM fingerprints WHERE key = ?",
            goal,
            free,
            free,
            schema.join_targets([member[2]]),
            source,
        )
        self._update("failures", "campaign = ? AND test = ? AND target = ?", member, fingerprint=goal)
        for name, change in ((source, -1), (goal, 1)):
            sql = "UPDATE fingerprints SET count = count + ?, kept = kept + ? WHERE key = ?"
            self._select(sql, change, change * kept, name)
        rows = self._select("SELECT cluster FROM fingerprints WHERE key IN (?, ?)", source, goal)
        # Only after the clusters were read, which have to be refreshed.
        self._database.table("fingerprints").delete_where("key = ? AND count = 0", [source])
        return {int(row[0]) for row in rows}
