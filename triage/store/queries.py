"""What a store holds, to look at: pages of clusters and of members, a case, counts. Reads only, beside whoever writes.

Every thread has a connection of its own, opened when it first asks. Pages go by key, not by offset: a page costs what it shows, wherever it
lies. `changed` tells whether anything was committed since this thread asked last.
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.triage.store.decision_log import Decision, history
from opsieve.triage.store.failure_record import components_in, read_observations
from opsieve.triage.store.filters import STATUS, condition
from opsieve.triage.store.ids import cluster_of, member_of, name_of
from opsieve.triage.store.index_file import INDEX, joined, sentence
from opsieve.triage.store.pages import MOST, Order, cluster_page, cursor
from opsieve.triage.store.pages import SORTS as SORTS  # part of this interface
from opsieve.triage.store.pages import Sort as Sort
from opsieve.triage.store.rows import (
    CampaignRow,
    CaseDetails,
    ClusterGroup,
    ClusterPage,
    ClusterRow,
    Counts,
    FingerprintRow,
    MemberPage,
    MemberRow,
    NonBugRow,
    RelatedRow,
    RuleRow,
)
from opsieve.triage.store.schema import SCHEMA, bounded, distrust
from opsieve.triage.store.store_folder import case_folder, check_folder

Grouping = Literal["kind", "stage", "status", "backend", "target", "pass", "rule"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
_BUSY = 10.0

_COLUMNS = (
    "id, CASE WHEN name != '' THEN name ELSE title END, title, kind, backend, stage, "
    + STATUS
    + ", issue, note, pinned, rule, members, fingerprints, nodes, reduced, representative, targets, operators, guilty_pass, first_bad,"
    " first_seen, last_seen, severity, rank"
)
_MEMBER = (
    "f.campaign, f.test, f.target, f.version, f.verdict, f.kind, f.stage, f.fingerprint, f.message, f.reason, f.blame, f.digest, f.folder,"
    " f.seen, f.nodes, f.reduced, f.operators"
)


class Queries:
    """A store to look at. Methods may be called from any thread; `close` ends all of its connections.

    BadInput, one sentence, from every method: for a name that means nothing, a store that is not there, damaged, or of another schema
    (an older one is brought up first, where nobody writes it).
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._threads = threading.local()
        self._lock = threading.Lock()
        self._open: list[sqlite3.Connection] = []
        bring_up(folder)

    def __enter__(self) -> "Queries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection; no thread may be asking."""
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()
            self._threads = threading.local()

    def clusters(
        self, text: str = "", *, sort: Sort = "rank", reverse: bool = False, after: str = "", limit: int = 100
    ) -> ClusterPage:
        """A page of the clusters that a filter (`filters.condition`) lets through. `after` is the `next` of the page before."""
        wanted = condition(text) if text.strip() else None
        with self._asking() as connection:
            rows, total, more = cluster_page(connection, _COLUMNS, wanted, Order(sort, reverse, after), limit)
        return ClusterPage(tuple(map(_cluster, rows)), total, more)

    def groups(self, by: Grouping, text: str = "") -> tuple[ClusterGroup, ...]:
        """The clusters that a filter lets through, counted by a property, the largest group first. A cluster of two targets counts in both."""
        column = {"target": "targets", "pass": "guilty_pass", "status": STATUS}.get(by, by)
        if by not in GROUPINGS:
            raise BadInput(f"{shown(by)} is nothing to group by; take one of {', '.join(GROUPINGS)}")
        wanted = condition(text)
        counted: dict[str, tuple[int, int]] = {}
        with self._asking() as connection:
            for value, clusters, members in connection.execute(
                f"SELECT {column}, count(*), sum(members) FROM clusters WHERE {wanted.sql} GROUP BY 1", wanted.values
            ):
                for word in value.split() if by == "target" else [value]:
                    before = counted.get(word, (0, 0))
                    counted[word] = (before[0] + clusters, before[1] + members)
        found = [ClusterGroup(value, *many) for value, many in counted.items()]
        return tuple(sorted(found, key=lambda group: (-group.clusters, group.value)))

    def cluster(self, name: str) -> ClusterRow:
        """The cluster that a name (`names.cluster_of`) means."""
        with self._asking() as connection:
            number = cluster_of(connection, name)
            return _cluster(connection.execute(f"SELECT {_COLUMNS} FROM clusters WHERE id = ?", [number]).fetchone())

    def fingerprints(self, name: str) -> tuple[FingerprintRow, ...]:
        """The fingerprints of a cluster, oldest first, each with its components and why it is here."""
        with self._asking() as connection:
            number = cluster_of(connection, name)
            rows = connection.execute(
                "SELECT f.key, f.number, f.version, f.title, f.count, f.kept, f.apart, f.first_seen, f.last_seen, f.components,"
                " (SELECT a.title FROM alternatives a JOIN alternatives b ON a.title = b.title AND b.number != a.number"
                " JOIN fingerprints g ON g.number = b.number AND g.cluster = f.cluster WHERE a.number = f.number LIMIT 1),"
                " (SELECT action FROM decisions WHERE state = 'done' AND instr(patch, '[\"' || f.key || '\"') ORDER BY id DESC LIMIT 1)"
                " FROM fingerprints f WHERE f.cluster = ? ORDER BY f.number LIMIT ?",
                [number, MOST],
            ).fetchall()
        return tuple(_fingerprint(row, number) for row in rows)

    def members(self, name: str, *, after: str = "", limit: int = 100) -> MemberPage:
        """A page of the failures of a cluster: fingerprint by fingerprint, as they were found, so those with a case first."""
        limit = max(1, min(limit, MOST))
        start, row_id = cursor(after, 2) if after else (0, 0)
        found: list[tuple[Any, ...]] = []
        with self._asking() as connection:
            number = cluster_of(connection, name)
            total = connection.execute("SELECT members FROM clusters WHERE id = ?", [number]).fetchone()[0]
            for key, place in connection.execute(
                "SELECT key, number FROM fingerprints WHERE cluster = ? AND number >= ? ORDER BY number",
                [number, start],
            ):
                found += connection.execute(
                    f"SELECT {_MEMBER}, {int(place)}, f.rowid FROM failures f WHERE f.fingerprint = ? AND f.rowid > ?"
                    " ORDER BY f.rowid LIMIT ?",
                    [key, row_id if place == start else 0, limit + 1 - len(found)],
                ).fetchall()
                if len(found) > limit:
                    break
        more = json.dumps(found[limit - 1][-2:]) if len(found) > limit else ""
        return MemberPage(tuple(_member(row) for row in found[:limit]), total, more)

    def case(self, name: str) -> CaseDetails:
        """A failure: `name` is a case folder, `CAMPAIGN:TEST:TARGET`, or a cluster, of which it is the representative."""
        with self._asking() as connection:
            if "/" not in name and ":" not in name:
                place = connection.execute(
                    "SELECT representative FROM clusters WHERE id = ?", [cluster_of(connection, name)]
                ).fetchone()[0]
                if not place:
                    raise BadInput(f"no case of {shown(name)} was kept; look at its members")
                name = str(place)
            campaign, test, target, key = member_of(connection, name)
            row = connection.execute(
                f"SELECT {_MEMBER} FROM failures f WHERE campaign = ? AND test = ? AND target = ?",
                [campaign, test, target],
            ).fetchone()
            stored, cluster = connection.execute(
                "SELECT components, cluster FROM fingerprints WHERE key = ?", [key]
            ).fetchone()
        member = _member(row)
        folder = case_folder(self.folder, member.folder) if member.folder else None
        observations, problem = (
            read_observations(folder) if folder else ((), "its case was not kept, it is only counted")
        )
        reduced = folder / "reduced" if folder and member.reduced is not None else None
        return CaseDetails(
            member,
            "" if cluster is None else name_of(cluster),
            folder,
            reduced,
            components_in(stored),
            observations,
            problem,
        )

    def related(self, name: str, most: int = 10) -> tuple[RelatedRow, ...]:
        """Clusters that look like this one, with the reason: suggestions, nothing is joined by them."""
        from opsieve.triage.clustering.clusters import related, similarity_features

        with self._asking() as connection:
            number = cluster_of(connection, name)
            backend = connection.execute("SELECT backend FROM clusters WHERE id = ?", [number]).fetchone()[0]
            features: dict[int, list[Any]] = {}
            for cluster, stored in connection.execute(
                "SELECT f.cluster, f.components FROM fingerprints f JOIN clusters c ON c.id = f.cluster WHERE c.backend = ?"
                " ORDER BY f.cluster = ? DESC, c.members DESC LIMIT 2000",
                [backend, number],
            ):
                features.setdefault(cluster, []).append(similarity_features(components_in(stored)))
            own = features.pop(number, [])
            found = related(own, features, most)
            rows = {
                one.cluster: _cluster(
                    connection.execute(f"SELECT {_COLUMNS} FROM clusters WHERE id = ?", [one.cluster]).fetchone()
                )
                for one in found
            }
        return tuple(RelatedRow(rows[one.cluster], one.score, one.reason) for one in found)

    def history(self, name: str = "", most: int = 100) -> tuple[Decision, ...]:
        """Decisions, the latest first; of one cluster where one is named."""
        with self._asking() as connection:
            return tuple(history(connection, cluster_of(connection, name) if name else None, most))

    def counts(self) -> Counts:
        """The whole store in figures."""
        with self._asking() as connection:
            statuses: Counter[str] = Counter()
            clusters: Counter[str] = Counter()
            kinds: Counter[str] = Counter()
            for status, kind, many, members in connection.execute(
                f"SELECT {STATUS}, kind, count(*), sum(members) FROM clusters WHERE members > 0 GROUP BY 1, 2 ORDER BY 1, 2"
            ):
                statuses[status] += many
                clusters[kind] += many
                kinds[kind] += members
            verdicts = dict(
                connection.execute(
                    "SELECT verdict, sum(count) FROM totals GROUP BY verdict ORDER BY verdict"
                ).fetchall()
            )
            tests = connection.execute(
                "SELECT coalesce(sum((SELECT max(number) + 1 FROM tests WHERE campaign = id)), 0) FROM campaigns"
            ).fetchone()[0]
            explained = connection.execute("SELECT coalesce(sum(count), 0) FROM explained").fetchone()[0]
            known = dict(connection.execute("SELECT name, count FROM rules ORDER BY name").fetchall())
        failures = sum(kinds.values())
        return Counts(
            tests=tests,
            failures=failures,
            clusters=sum(clusters.values()),
            by_status=dict(statuses),
            failures_by_kind=dict(sorted(kinds.items())),
            clusters_by_kind=dict(sorted(clusters.items())),
            verdicts=verdicts,
            unsupported=verdicts.get("unsupported", 0),
            environment=verdicts.get("environment", 0),
            flaky=verdicts.get("flaky", 0),
            rules=known,
            unexplained=max(0, failures - explained),
        )

    def non_bugs(self, verdict: str = "", most: int = 100) -> tuple[NonBugRow, ...]:
        """What is no confirmed bug, the most frequent first: an entry for each target, verdict and lack, and for each flaky fingerprint."""
        sql = (
            "SELECT * FROM (SELECT target, verdict, what, message, count, '' FROM aside UNION ALL"
            " SELECT trim(targets), 'flaky', title, message, count, coalesce((SELECT folder FROM failures WHERE fingerprint = key"
            " AND folder != '' ORDER BY rowid LIMIT 1), '') FROM fingerprints WHERE cluster IS NULL)"
            " WHERE ? IN ('', verdict) ORDER BY count DESC, what LIMIT ?"
        )
        with self._asking() as connection:
            return tuple(NonBugRow(*row) for row in connection.execute(sql, [verdict, most]))

    def rules(self) -> tuple[RuleRow, ...]:
        """The rules of known bugs as `opsieve triage` read them last, with how many failures each explains."""
        with self._asking() as connection:
            return tuple(
                RuleRow(*row) for row in connection.execute("SELECT name, title, issue, count FROM rules ORDER BY name")
            )

    def campaigns(self) -> tuple[CampaignRow, ...]:
        """The campaigns as they were begun, each with its tests done."""
        with self._asking() as connection:
            rows = connection.execute(
                "SELECT id, generator, seed, targets, (SELECT coalesce(max(number) + 1, 0) FROM tests WHERE campaign = id)"
                " FROM campaigns ORDER BY rowid"
            ).fetchall()
        return tuple(CampaignRow(row[0], row[1], row[2], tuple(json.loads(row[3])), row[4]) for row in rows)

    def changed(self) -> bool:
        """Whether anybody committed something since this thread asked this last; True the first time."""
        with self._asking() as connection:
            now = int(connection.execute("PRAGMA data_version").fetchone()[0])
        before = getattr(self._threads, "seen", None)
        self._threads.seen = now
        return now != before

    @contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection; what SQLite says becomes one sentence."""
        try:
            connection = getattr(self._threads, "connection", None)
            if connection is None:
                path = self.folder / INDEX
                connection = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY, check_same_thread=False
                )
                distrust(connection, reading=True)
                with self._lock:
                    self._open.append(connection)
                self._threads.connection = connection
            with bounded(connection):
                yield connection
        except sqlite3.Error as error:
            raise BadInput(sentence(self.folder, error)) from None


def bring_up(folder: Path) -> None:
    """Bring the index of an older opsieve to this one's schema. BadInput when there is no store, it is newer, or somebody writes it."""
    check_folder(folder)
    path = folder / INDEX
    if path.is_file():
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY)
            try:
                older = 0 <= int(connection.execute("PRAGMA user_version").fetchone()[0]) < SCHEMA
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise BadInput(sentence(folder, error)) from None
        if older:
            from opsieve.triage.store.store import Store

            Store(folder).close()
    with joined(folder):
        pass


def _why(row: tuple[Any, ...], cluster: int) -> str:
    """Why a fingerprint is in its cluster."""
    shared, action = row[10], row[11]
    if action == "split":
        return "a person split it out"
    if action == "merge":
        return "a person merged it"
    if row[1] == cluster:
        return "the cluster began with it"
    if action == "rekey":
        return "its failures were in this cluster when their fingerprints were computed anew"
    if shared:
        return (
            f"it shares an alternative title with another: {' | '.join(part for part in shared.split(chr(31)) if part)}"
        )
    return "it linked clusters that are one since"


def _cluster(row: tuple[Any, ...]) -> ClusterRow:
    words = (tuple(row[16].split()), tuple(row[17].split()))
    fields = (name_of(row[0]), *row[1:9], bool(row[9]), *row[10:16], *words, *row[18:])
    return ClusterRow(*fields)


def _member(row: tuple[Any, ...]) -> MemberRow:
    fields = (*row[:16], tuple(row[16].split()))
    return MemberRow(*fields)


def _fingerprint(row: tuple[Any, ...], cluster: int) -> FingerprintRow:
    fields = (*row[:6], bool(row[6]), row[7], row[8], components_in(row[9]), _why(row, cluster))
    return FingerprintRow(*fields)
