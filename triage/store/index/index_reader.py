"""The index of a store for readers: names, rows of clusters, members and decisions, counts.

One connection, one thread. The caller translates errors of SQLite (`index_file.describe_error`).
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.fingerprint.component import Component, is_graph_counted, needs_reduction
from opsieve.triage.known.issues import ClusterSignature, decode_issues
from opsieve.triage.store.failure_record import read_components
from opsieve.triage.store.index import filters, index_file, schema
from opsieve.triage.store.rows import (
    CampaignRow,
    Candidate,
    ClusterGroup,
    ClusterPage,
    ClusterRow,
    Counts,
    Decision,
    FingerprintRow,
    MemberPage,
    MemberRow,
    NonBugRow,
    RuleRow,
    format_cluster,
)

Grouping = Literal["kind", "stage", "status", "backend", "target", "pass", "rule"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
_CLUSTER = re.compile(r"c?(\d{1,12})")
_PLACE = re.compile(r"(?:^|/)(cases/[^/]+/[^/]+)(?:/reduced)?/?$")
_MEMBER_NAME = re.compile(r"([^/:\s]+):(\d+):(.+)", re.DOTALL)
# Cases whose commits are compared
_MOST_BISECTED = 500
# Fingerprints of a cluster that it is recognised by
_MOST_UNITS = 12
# Fingerprints looked at for clusters that look alike
_MOST_COMPARED = 2000

# Columns of rows that an expression gives
_GIVEN_BY = {
    "title": "CASE WHEN name != '' THEN name ELSE title END",
    "own_title": "title",
    "status": filters.STATUS,
}
_COLUMNS = ", ".join(_GIVEN_BY.get(field.name, field.name) for field in fields(ClusterRow))
_MEMBER = ", ".join(f"f.{field.name}" for field in fields(MemberRow))
_Row = TypeVar("_Row", ClusterRow, MemberRow, FingerprintRow)
# Fields of rows that hold another type than their columns
_READ: dict[str, Callable[[Any], Any]] = {
    "id": format_cluster,
    "pinned": bool,
    "apart": bool,
    "targets": schema.split_targets,
    "operators": lambda words: tuple(words.split()),
    "probably": decode_issues,
    "components": read_components,
}


class IndexReader(index_file.OpenIndex):
    """An open index to read."""

    # -- names

    def find_cluster(self, name: str) -> int:
        """Find the cluster with this name; one that was merged gives the cluster that holds it today.

        `name` is `c17`, `17`, a fingerprint's key or a tail of it, or a name for `find_member`.

        Raises:
            BadInput: If the name matches no cluster, or several.
        """
        text = name.encode("utf-8", "replace").decode().strip()
        match = _CLUSTER.fullmatch(text)
        if match:
            number = int(match[1])
            found = self._select_value(
                "SELECT id FROM clusters WHERE id = ? AND members > 0", number
            ) or self._select_value(
                # A merged cluster has no members; the fingerprint that gave it its number tells where it
                # went.
                "SELECT cluster FROM fingerprints WHERE number = ? AND cluster IS NOT NULL",
                number,
            )
            if found is not None:
                return int(found)
            if text.startswith("c"):
                raise BadInput(f"there is no cluster {shown(text)}; opsieve clusters lists them")
        key = self.find_member(text)[3] if "/" in text or ":" in text else self._find_key(text)
        cluster = self._select_value("SELECT cluster FROM fingerprints WHERE key = ?", key)
        if cluster is None:
            raise BadInput(
                f"{shown(text, 120)} is flaky and in no cluster; opsieve clusters --non-bugs lists what is"
                " flaky"
            )
        return int(cluster)

    def find_member(self, name: str) -> tuple[str, int, str, str]:
        """Find campaign, test, target and fingerprint of a failure by case folder, or
        `CAMPAIGN:TEST:TARGET`.
        """
        # A command line may hold bytes that are no text
        name = name.encode("utf-8", "replace").decode()
        columns = "SELECT campaign, test, target, fingerprint FROM failures"
        place, match = _PLACE.search(Path(name).as_posix()), _MEMBER_NAME.fullmatch(name)
        row = self._select_row(f"{columns} WHERE folder = ? AND folder != ''", place[1]) if place else None
        # More digits do not fit into an integer of SQLite.
        if row is None and match and len(match[2]) < 18:
            row = self._select_row(
                f"{columns} WHERE campaign = ? AND test = ? AND target = ?", match[1], int(match[2]), match[3]
            )
        if row is None:
            raise BadInput(
                f"{shown(name)} names a whole cluster; name one of the fingerprints or failures that opsieve"
                f" show {name} lists"
                if _CLUSTER.fullmatch(name)
                else f"{shown(name, 120)} is not a member of the store; name a case folder of it, or"
                " CAMPAIGN:TEST:TARGET as opsieve show lists them"
            )
        return str(row[0]), int(row[1]), str(row[2]), str(row[3])

    def _find_key(self, text: str) -> str:
        rows = self._select("SELECT key FROM fingerprints WHERE key = ?", text)
        if not rows and len(text) >= 4 and re.fullmatch(r"[\w~@-]+", text):
            # In LIKE, an underscore stands for any character.
            like = text.replace("_", r"\_")
            # Two rows are enough to know that the tail is ambiguous.
            sql = "SELECT key FROM fingerprints WHERE key LIKE ? ESCAPE '\\' AND cluster IS NOT NULL LIMIT 2"
            rows = self._select(sql, f"%{like}")
        if len(rows) != 1:
            many = (
                "more than one fingerprint ends so; write more of it"
                if rows
                else "opsieve clusters lists the clusters"
            )
            raise BadInput(f"{shown(text, 120)} names no cluster, fingerprint or case of the store; {many}")
        return str(rows[0][0])

    # -- clusters

    def clusters(
        self,
        text: str = "",
        *,
        sort: filters.Sort = "rank",
        reverse: bool = False,
        after: str = "",
        limit: int = 100,
    ) -> ClusterPage:
        """Return a page of the clusters that match a filter (`filters.parse_filter`).

        `after` is the `next` of the page before.
        """
        wanted, order = (
            filters.parse_filter(text) if text.strip() else None,
            filters.Order(sort, reverse, after),
        )
        with self._connect() as database:
            rows, total, more = filters.read_page(database.conn, _COLUMNS, wanted, order, limit)
        return ClusterPage(tuple(_make_row(ClusterRow, row) for row in rows), total, more)

    def check_filter(self, text: str) -> None:
        """Refuse a filter with an unknown value that no cluster of the store has.

        A misspelled operator would otherwise look like a store without such failures. A store without
        clusters refuses nothing but what `split_filter` refuses.
        """
        terms, now = filters.split_filter(text), time.time()
        if not self._select("SELECT 1 FROM clusters WHERE members > 0 LIMIT 1"):
            return
        for term in terms:
            for value in term.values if term.field not in (*filters.VALUES, filters.SINCE) else ():
                wanted = filters.Term(term.field, False, (value,)).to_condition(now)
                # The plus keeps SQLite from the index over members, which nearly every row matches.
                sql = f"SELECT 1 FROM clusters WHERE +members > 0 AND {wanted.sql} LIMIT 1"
                if not self._select(sql, *wanted.values) and not filters.is_known_name(term.field, value):
                    raise BadInput(filters.describe_absence(term.field, value))

    def groups(self, by: Grouping, text: str = "") -> tuple[ClusterGroup, ...]:
        """Count the clusters that match a filter by a property, the largest group first.

        A cluster with two targets counts in both.
        """
        wanted = filters.parse_filter(text)
        if by not in GROUPINGS:
            raise BadInput(f"{shown(by)} cannot be grouped by; take one of {', '.join(GROUPINGS)}")
        column = {"target": "targets", "pass": "guilty_pass", "status": filters.STATUS}.get(by, by)
        counted: dict[str, tuple[int, int]] = {}
        for value, clusters, members in self._select(
            f"SELECT {column}, count(*), sum(members) AS members FROM clusters WHERE {wanted.sql} GROUP BY 1",
            *wanted.values,
        ):
            # The column holds all targets of a cluster, separated by spaces.
            for word in schema.split_targets(value) if by == "target" else [value]:
                before = counted.get(word, (0, 0))
                counted[word] = (before[0] + clusters, before[1] + members)
        found = [ClusterGroup(value, *many) for value, many in counted.items()]
        return tuple(sorted(found, key=lambda group: (-group.clusters, group.value)))

    def cluster(self, name: str) -> ClusterRow:
        """Return the cluster with this name (`find_cluster`)."""
        row = self._select_row(f"SELECT {_COLUMNS} FROM clusters WHERE id = ?", self.find_cluster(name))
        return _make_row(ClusterRow, row)

    def list_clusters(self) -> list[ClusterRow]:
        """List all clusters, in no order."""
        rows = self._select(f"SELECT {_COLUMNS} FROM clusters WHERE members > 0")
        return [_make_row(ClusterRow, row) for row in rows]

    def titles(self) -> dict[int, str]:
        """Return the title of every cluster."""
        return dict(self._select("SELECT id, title FROM clusters"))

    def fingerprints(self, name: str) -> tuple[FingerprintRow, ...]:
        """Return the fingerprints of a cluster, oldest first, with their components and the reason for their
        membership.
        """
        cluster = self.find_cluster(name)
        rows = self._select(
            # The two subqueries explain the membership: a title shared with another fingerprint of the
            # cluster, and the latest decision whose patch names the key.
            "SELECT f.key, f.number, f.version, f.title, f.count, f.kept, f.apart, f.first_seen, f.last_seen,"
            " f.components, (SELECT a.title FROM alternatives a JOIN alternatives b ON a.title = b.title AND"
            " b.number != a.number JOIN fingerprints g ON g.number = b.number AND g.cluster = f.cluster WHERE"
            " a.number = f.number LIMIT 1), (SELECT action FROM decisions WHERE state = 'done' AND"
            " instr(patch, '[\"' || f.key || '\"') ORDER BY id DESC LIMIT 1) FROM fingerprints f WHERE"
            " f.cluster = ? ORDER BY f.number LIMIT ?",
            cluster,
            filters.MOST,
        )
        return tuple(
            _make_row(FingerprintRow, (*row[:10], _explain_membership(row, cluster))) for row in rows
        )

    def members(self, name: str, *, after: str = "", limit: int = 100) -> MemberPage:
        """Return a page of a cluster's failures, fingerprint by fingerprint in the order found, so cases come
        first.
        """
        cluster, limit = self.find_cluster(name), max(1, min(limit, filters.MOST))
        start, row_id = filters.parse_cursor(after, 2) if after else (0, 0)
        found: list[tuple[Any, ...]] = []
        total = self._select_value("SELECT members FROM clusters WHERE id = ?", cluster)
        sql = "SELECT key, number FROM fingerprints WHERE cluster = ? AND number >= ? ORDER BY number"
        for key, place in self._select(sql, cluster, start):
            found += self._select(
                f"SELECT {_MEMBER}, {int(place)}, f.rowid FROM failures f WHERE f.fingerprint = ? AND f.rowid"
                " > ? ORDER BY f.rowid LIMIT ?",
                key,
                row_id if place == start else 0,
                # One row more than the page: it tells whether another page follows.
                limit + 1 - len(found),
            )
            if len(found) > limit:
                break
        more = json.dumps(found[limit - 1][-2:]) if len(found) > limit else ""
        return MemberPage(tuple(_make_row(MemberRow, row) for row in found[:limit]), total, more)

    def member(self, name: str) -> tuple[MemberRow, tuple[Component, ...], int | None]:
        """Return the failure with this name (`find_member`), the components of its fingerprint, and its
        cluster.
        """
        campaign, test, target, key = self.find_member(name)
        row = self._select_row(
            f"SELECT {_MEMBER} FROM failures f WHERE campaign = ? AND test = ? AND target = ?",
            campaign,
            test,
            target,
        )
        stored, cluster = self._select_row("SELECT components, cluster FROM fingerprints WHERE key = ?", key)
        return _make_row(MemberRow, row), read_components(stored), cluster

    def iter_same_backend(self, cluster: int) -> Iterator[tuple[int, tuple[Component, ...]]]:
        """Yield clusters of the same backend with the components of their fingerprints, `cluster` first, then
        the largest.
        """
        for number, stored in self._select(
            "SELECT f.cluster, f.components FROM fingerprints f JOIN clusters c ON c.id = f.cluster"
            " WHERE c.backend = (SELECT backend FROM clusters WHERE id = ?)"
            # A comparison is 0 or 1 in SQLite, so that the asked cluster comes first.
            " ORDER BY f.cluster = ? DESC, c.members DESC LIMIT ?",
            cluster,
            cluster,
            _MOST_COMPARED,
        ):
            yield number, read_components(stored)

    def list_bisected(self, cluster: int) -> list[tuple[int, str]]:
        """List bisected cases of the clusters of the same backend, `cluster` first, then the largest."""
        return self._select(
            "SELECT p.cluster, f.folder FROM fingerprints p JOIN clusters c ON c.id = p.cluster"
            " JOIN failures f ON f.fingerprint = p.key WHERE p.first_bad != '' AND f.folder != ''"
            " AND c.backend = (SELECT backend FROM clusters WHERE id = ?)"
            " ORDER BY p.cluster = ? DESC, c.members DESC, f.nodes LIMIT ?",
            cluster,
            cluster,
            _MOST_BISECTED,
        )

    def list_candidates(self, members: int = 1) -> list[Candidate]:
        """List cases to reduce, the most useful first: the smallest of every fingerprint, then the second
        ones.

        Fingerprints identified by their graphs come first, because those identified by a place in the code
        will mostly keep it; then the order of clusters decides. For each fingerprint `members` cases are
        listed, reduced ones counted. All are listed if the fingerprint depends on a set of operators without
        a known culprit, since each of its cases may then be another bug.
        """
        found: list[tuple[int, bool, int, Candidate]] = []
        for key, stored, rank, cluster in self._select(
            "SELECT f.key, f.components, c.rank, c.id FROM fingerprints f JOIN clusters c ON c.id = f.cluster"
            " WHERE c.status NOT IN ('fixed', 'wontfix') ORDER BY (1 - c.pinned), c.rank, f.number"
        ):
            cases = self._select(
                "SELECT folder, target, nodes, reduced, campaign || ' ' || test, coalesce((SELECT folder FROM"
                " failures t WHERE t.campaign = f.campaign AND t.test = f.test AND t.reduced IS NOT NULL AND"
                " folder != ''), '') FROM failures f INDEXED BY failures_kept"
                " WHERE fingerprint = ? AND folder != '' ORDER BY nodes, rowid",
                key,
            )
            components = read_components(stored)
            # Sorted by turn first: one case of every fingerprint before the second of any.
            done = sum(reduced is not None for _, _, _, reduced, *_ in cases)
            wanted = len(cases) if needs_reduction(components) else max(0, members - done)
            waiting = [
                Candidate(place, target, key, format_cluster(cluster), nodes, test, twin)
                for place, target, nodes, reduced, test, twin in cases
                if reduced is None
            ]
            elsewhere = not is_graph_counted(components)
            found += [(done + turn, elsewhere, rank, one) for turn, one in enumerate(waiting[:wanted])]
        # The first three fields only, because candidates themselves have no order; sorting is stable.
        return [candidate for *_, candidate in sorted(found, key=lambda one: one[:3])]

    def list_signatures(self) -> tuple[ClusterSignature, ...]:
        """List the features by which every cluster is recognised in another store and among public issues."""
        parts: dict[int, list[tuple[Component, ...]]] = {}
        keys: dict[int, set[str]] = {}
        versions: dict[int, set[str]] = {}
        for cluster, key, stored in self._select(
            "SELECT cluster, key, components FROM fingerprints WHERE cluster IS NOT NULL ORDER BY number"
        ):
            keys.setdefault(cluster, set()).add(key)
            if len(parts.setdefault(cluster, [])) < _MOST_UNITS:
                parts[cluster].append(read_components(stored))
        for cluster, version in self._select(
            "SELECT DISTINCT p.cluster, f.version FROM failures f JOIN fingerprints p ON p.key ="
            " f.fingerprint WHERE p.cluster IS NOT NULL"
        ):
            versions.setdefault(cluster, set()).add(version)
        return tuple(
            ClusterSignature(
                number,
                backend,
                kind,
                title,
                tuple(parts.get(number, ())),
                frozenset(operators.split()),
                guilty,
                frozenset(versions.get(number, ())),
                frozenset(keys.get(number, ())),
            )
            for number, backend, kind, title, operators, guilty in self._select(
                "SELECT id, backend, kind, title, operators, guilty_pass FROM clusters WHERE members > 0"
            )
        )

    def compare_campaigns(self, campaign: str) -> tuple[set[int], set[int]]:
        """Return the clusters of a campaign's confirmed failures, and those of them that other campaigns met
        too.
        """
        sql = (
            "SELECT DISTINCT p.cluster FROM failures f JOIN fingerprints p ON p.key = f.fingerprint"
            " WHERE f.campaign {} ? AND f.verdict = 'fail' AND p.cluster IS NOT NULL"
        )
        mine, others = (
            {int(row[0]) for row in self._select(sql.format(sign), campaign)} for sign in ("=", "!=")
        )
        return mine, mine & others

    # -- the store

    def history(self, name: str = "", most: int = 100) -> tuple[Decision, ...]:
        """Return decisions, the latest first; with a name, those of one cluster."""
        # Punctuation becomes spaces, so that `c1` is found as a word and not inside `c17`.
        words = "' ' || replace(replace(replace(text, ',', ' '), ':', ' '), '.', ' ') || ' '"
        rows = self._select(
            f"SELECT id, at, action, text, state FROM decisions WHERE {words} LIKE ? ORDER BY id DESC"
            " LIMIT ?",
            f"% {format_cluster(self.find_cluster(name))} %" if name else "%",
            most,
        )
        return tuple(Decision(*row) for row in rows)

    def counts(self) -> Counts:
        """Return the whole store in figures."""
        statuses: Counter[str] = Counter()
        clusters: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for status, kind, many, members in self._select(
            f"SELECT {filters.STATUS}, kind, count(*), sum(members) AS members FROM clusters"
            " WHERE members > 0 GROUP BY 1, 2 ORDER BY 1, 2"
        ):
            statuses[status] += many
            clusters[kind] += many
            kinds[kind] += members
        verdicts = dict(
            self._select("SELECT verdict, sum(count) AS count FROM totals GROUP BY verdict ORDER BY verdict")
        )
        tests = (
            # Tests are recorded in order, so the greatest number gives their count without reading all rows.
            "SELECT coalesce(sum((SELECT max(number) + 1 FROM tests WHERE campaign = id)), 0) AS number FROM"
            " campaigns"
        )
        failures = sum(kinds.values())
        return Counts(
            tests=self._select_value(tests),
            failures=failures,
            clusters=sum(clusters.values()),
            by_status=dict(statuses),
            failures_by_kind=dict(sorted(kinds.items())),
            clusters_by_kind=dict(sorted(clusters.items())),
            verdicts=verdicts,
            unsupported=verdicts.get("unsupported", 0),
            environment=verdicts.get("environment", 0),
            flaky=verdicts.get("flaky", 0),
            rules=dict(self._select("SELECT name, count FROM rules ORDER BY name")),
            unexplained=max(
                0, failures - self._select_value("SELECT coalesce(sum(count), 0) AS count FROM explained")
            ),
        )

    def non_bugs(self, verdict: str = "", most: int = 100) -> tuple[NonBugRow, ...]:
        """Return verdicts that are not confirmed bugs, the most frequent first; of one verdict, or of all for
        "".

        There is an entry for each target, verdict and message template, and for each flaky fingerprint.
        """
        sql = (
            "SELECT * FROM (SELECT target, verdict, what, message, count, '' FROM aside UNION ALL SELECT"
            " replace(trim(targets), char(31), ' '), 'flaky', title, message, count, coalesce((SELECT"
            " folder FROM failures WHERE fingerprint = key AND folder != '' ORDER BY rowid LIMIT 1), '') FROM"
            " fingerprints WHERE cluster IS NULL) WHERE ? IN ('', verdict) ORDER BY count DESC, what LIMIT ?"
        )
        return tuple(NonBugRow(*row) for row in self._select(sql, verdict, most))

    def rules(self) -> tuple[RuleRow, ...]:
        """Return the rules of known bugs as they were read last."""
        return tuple(RuleRow(**row) for row in self._select_where("rules", order_by="name"))

    def campaigns(self) -> tuple[CampaignRow, ...]:
        """Return the campaigns in the order of their starts, each with its finished tests."""
        rows = self._select(
            "SELECT id, generator, seed, targets, (SELECT coalesce(max(number) + 1, 0) FROM tests WHERE"
            " campaign = id) AS number FROM campaigns ORDER BY rowid"
        )
        # A value that is no JSON is a damaged index
        with self._connect():
            return tuple(
                CampaignRow(row[0], row[1], row[2], schema.decode_json(row[3], tuple[str, ...]), row[4])
                for row in rows
            )


def _explain_membership(row: tuple[Any, ...], cluster: int) -> str:
    """Explain why a fingerprint is in its cluster."""
    shared, action = row[10], row[11]
    if action == "split":
        return "a person split it out"
    if action == "merge":
        return "a person merged it"
    if row[1] == cluster:
        return "the cluster began with it"
    if action in ("rekey", "regroup"):
        return "its failures were in this cluster when their fingerprints were computed anew"
    if shared:
        return (
            "it shares an alternative title with another:"
            f" {' | '.join(part for part in shared.split(chr(31)) if part)}"
        )
    return "it linked clusters that are one since"


def _make_row(kind: type[_Row], columns: Sequence[Any]) -> _Row:
    """Make a row of its columns, which stand in the order of its fields; further columns are left out."""
    values: list[Any] = [
        _READ[field.name](value) if field.name in _READ else value
        for field, value in zip(fields(kind), columns, strict=False)
    ]
    return kind(*values)
