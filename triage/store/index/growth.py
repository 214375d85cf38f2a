"""Add one failure to the index without reading the others: failures, fingerprints and clusters are rows.

A fingerprint has a number, from 1 on, for life. A cluster has the number of its first fingerprint and is
written `c17`. The rows of `clusters` hold sums over their fingerprints, kept up to date, so that a page of
clusters reads a page of rows. All changes must happen inside a transaction (`OpenIndex.open_transaction`).
"""

import json
from collections.abc import Iterable, Sequence

import msgspec

from opsieve.triage.clustering.clusters import (
    MOST_COMPARED,
    SEPARATOR,
    choose_cluster,
    find_common_texts,
    get_statement,
    make_alternative_titles,
)
from opsieve.triage.clustering.ranking import get_severity
from opsieve.triage.fingerprint import component, fingerprint
from opsieve.triage.store.failure_record import FailureRecord, read_components
from opsieve.triage.store.index import index_reader, schema

# Less its severity: the rank of a cluster that `opsieve triage` has not ranked yet
UNRANKED = 1_000_000_000
# A case without a known size sorts behind all with one.
_UNREDUCED = 1 << 30
# What a cluster takes from a fingerprint.
_UNIT = (
    "key, kind, stage, title, count, targets, first_seen, last_seen, guilty_pass, first_bad,"
    """ instr(components, '"name": "program", "value": "invalid"') AS invalid"""
)
# Any trace of a person: such a cluster is not merged away by itself.
DECIDED = "(shaped OR pinned OR status != 'new' OR name != '' OR note != '' OR issue != '')"


class GrowingIndex(index_reader.IndexReader):
    """An open index to which failures are added."""

    def add_failure(self, record: FailureRecord, place: str, seen: float) -> None:
        """Add a failure, kept as a case at `place` of the store or only counted (""). `place_new` finishes
        the job.
        """
        columns = schema.get_columns("failures")
        row = {name: value for name, value in msgspec.structs.asdict(record).items() if name in columns}
        row |= {"operators": " ".join(record.operators), "folder": place, "seen": seen}
        self._insert_row("failures", row)
        known = self._select_row(
            "SELECT targets, cluster FROM fingerprints WHERE key = ?", record.fingerprint
        )
        if known is None:
            row = {
                "key": record.fingerprint,
                "version": record.fingerprint_version,
                "kind": record.kind,
                "components": json.dumps(record.components),
                "count": 1,
                "kept": int(bool(place)),
                "number": self.get_free_number(record.number),
                "stage": record.stage,
                "message": record.message,
                "targets": schema.join_targets([record.target]),
                "first_seen": seen,
                "last_seen": seen,
            }
            self._insert_row("fingerprints", row)
            return
        targets, cluster = known
        # With the spaces around it, since one target's name can be the beginning of another's.
        target = schema.join_targets([record.target])
        is_new_target = target not in targets
        if is_new_target:
            targets = targets.rstrip(" ") + target
        self._select(
            "UPDATE fingerprints SET count = count + 1, kept = kept + ?, targets = ?, first_seen ="
            " min(first_seen, ?), last_seen = max(last_seen, ?) WHERE key = ?",
            int(bool(place)),
            targets,
            seen,
            seen,
            record.fingerprint,
        )
        if cluster is not None:
            sql = "UPDATE clusters SET members = members + 1, last_seen = max(last_seen, ?) WHERE id = ?"
            self._select(sql, seen, cluster)
            # Further failures change only sums, which the statement above has updated.
            if place or is_new_target:
                self.refresh_clusters([cluster])

    def get_free_number(self, wanted: int = 0) -> int:
        """Return `wanted` if it is free among fingerprints, else the next number unused by fingerprints and
        clusters.
        """
        # A record carries its number, so that a rebuilt index names its clusters as before.
        if wanted > 0 and self._select_row("SELECT 1 FROM fingerprints WHERE number = ?", wanted) is None:
            return wanted
        sql = (
            "SELECT max((SELECT coalesce(max(number), 0) FROM fingerprints), (SELECT coalesce(max(id),"
            " 0) FROM"
            " clusters)) + 1 AS number"
        )
        return int(self._select_value(sql))

    def place_new(self) -> None:
        """Give every new fingerprint its title, its alternative titles and its cluster.

        The fingerprint of a flaky failure gets no cluster, because it is not a confirmed failure.
        """
        for number, key, version, message, stored, cluster in self._select(
            "SELECT number, key, version, message, components, cluster FROM fingerprints WHERE title ="
            " '' ORDER"
            " BY number"
        ):
            components = read_components(stored)
            found = fingerprint.Fingerprint(version, key, components)
            # Never empty: an empty title marks fingerprints that are not placed yet.
            title = fingerprint.make_title(found) or "a failure that tells nothing"
            guilty, bad = (
                found.get_value(component.ComponentName.GUILTY_PASS),
                found.get_value(component.ComponentName.FIRST_BAD),
            )
            self._update(
                "fingerprints", "number = ?", [number], title=title, guilty_pass=guilty, first_bad=bad
            )
            self._select(
                "INSERT OR REPLACE INTO texts (rowid, title, message, operators) VALUES (?, ?, ?, ?)",
                number,
                title,
                " ".join([message, *(part.value for part in components)]),
                found.get_value(component.ComponentName.OPERATORS),
            )
            if not key.startswith("flaky-"):
                titles = make_alternative_titles(components) | self._find_statement_titles(number, components)
                self._add_titles(number, titles)
                if cluster is None:
                    self._join_cluster(number, titles)
                else:
                    # It was somebody else's until its key changed
                    self.refresh_clusters([cluster])

    def _add_titles(self, number: int, titles: Iterable[str]) -> None:
        self._database.conn.executemany(
            "INSERT OR IGNORE INTO alternatives (title, number) VALUES (?, ?)",
            [(each, number) for each in titles],
        )

    def _find_statement_titles(
        self, number: int, components: Sequence[component.Component]
    ) -> frozenset[str]:
        """Find titles that a fingerprint shares with others of its statement, and give them to those too.

        The messages must be instances of one text.
        """
        statement = get_statement(components)
        if not statement:
            return frozenset()
        others = self._select(
            "SELECT f.number, f.components FROM statements s JOIN fingerprints f ON f.number = s.number"
            " WHERE s.place = ? AND s.number != ? ORDER BY s.number LIMIT ?",
            statement,
            number,
            MOST_COMPARED,
        )
        self._select("INSERT OR IGNORE INTO statements (place, number) VALUES (?, ?)", statement, number)
        texts = find_common_texts(components, [read_components(its) for _, its in others])
        shared = {other: text for (other, _), text in zip(others, texts, strict=True)}
        titles = {
            other: SEPARATOR.join((statement, text)) for other, text in shared.items() if text is not None
        }
        for other, title in titles.items():
            self._add_titles(other, [title])
        return frozenset(titles.values())

    def _join_cluster(self, number: int, titles: Iterable[str]) -> None:
        """Put a fingerprint into the cluster that shares a title with it, or into one of its own."""
        sharing: dict[int, bool] = {}
        # Sorted, so that the same failures form the same clusters in every run.
        for title in sorted(titles):
            for cluster, decided in self._select(
                f"SELECT c.id, {DECIDED} FROM alternatives a JOIN fingerprints f ON f.number = a.number AND"
                " f.apart = 0 JOIN clusters c ON c.id = f.cluster WHERE a.title = ? AND a.number != ?",
                title,
                number,
            ):
                sharing[cluster] = bool(decided)
        found = choose_cluster(number, sharing)
        self._select("INSERT OR IGNORE INTO clusters (id) VALUES (?)", found.cluster)
        self._update("fingerprints", "number = ?", [number], cluster=found.cluster)
        for absorbed in found.absorbed:
            # What a person split out stays out.
            self._update("fingerprints", "cluster = ? AND apart = 0", [absorbed], cluster=found.cluster)
        self.refresh_clusters([found.cluster, *found.absorbed])

    def refresh_clusters(self, clusters: Iterable[int]) -> None:
        """Recompute clusters from their fingerprints and kept cases; one without fingerprints is no longer
        listed.
        """
        for cluster in clusters:
            self._select("INSERT OR IGNORE INTO clusters (id) VALUES (?)", cluster)
            units = self._select_where(
                "fingerprints", "cluster = ?", cluster, select=_UNIT, order_by="number"
            )
            if not units:
                self._update("clusters", "id = ?", [cluster], members=0, fingerprints=0)
                continue
            kept = self._select(
                "SELECT f.folder, f.nodes, f.reduced, f.operators, f.fingerprint, p.number FROM"
                " fingerprints p"
                " JOIN failures f INDEXED BY failures_kept ON f.fingerprint = p.key AND f.folder != '' WHERE"
                " p.cluster = ?",
                cluster,
            )
            place, nodes, reduced, operators, key, _ = min(
                kept, key=_order_by_size, default=("", 0, None, "", units[0]["key"], 0)
            )
            speaker = next((unit for unit in units if unit["key"] == key), units[0])
            grave = get_severity(speaker["kind"], valid=not all(unit["invalid"] for unit in units))
            targets = {target for unit in units for target in schema.split_targets(unit["targets"])}
            self._update(
                "clusters",
                "id = ?",
                [cluster],
                title=speaker["title"],
                kind=speaker["kind"],
                backend=speaker["key"].partition(f"-{speaker['kind']}-")[0],
                stage=speaker["stage"],
                members=min(sum(unit["count"] for unit in units), schema.GREATEST),
                fingerprints=len(units),
                nodes=nodes,
                reduced=reduced,
                representative=place,
                targets=schema.join_targets(sorted(targets)),
                operators=f" {operators} ",
                guilty_pass=next((unit["guilty_pass"] for unit in units if unit["guilty_pass"]), ""),
                first_bad=next((unit["first_bad"] for unit in units if unit["first_bad"]), ""),
                first_seen=min(unit["first_seen"] for unit in units),
                last_seen=max(unit["last_seen"] for unit in units),
                severity=grave,
            )
            # A round of triage has ranked it, or its severity stands for its rank.
            self._update("clusters", "id = ? AND rank >= ?", [cluster, UNRANKED // 2], rank=UNRANKED - grave)


def _order_by_size(row: tuple[str, int, int | None, str, str, int]) -> tuple[bool, int, int, int, str]:
    """Return the sort key: reduced members first, the smallest of them; then the smallest others; among
    equals the oldest.
    """
    folder, nodes, reduced, _, _, number = row
    size = (nodes or _UNREDUCED) if reduced is None else reduced
    return reduced is None, size, number, len(folder), folder
