"""The tables of an index that campaigns write: campaigns, tests done, verdicts and seconds by target, what is
no bug.

All changes expect to be inside a transaction (`index_file.writing`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlite_utils import Database

from opsieve.triage.store.index.row_types import decoded

_FAILED = "FROM failures WHERE campaign = ? AND verdict = 'fail'"


class CampaignIndex:
    """The campaigns of an open index, by their ids."""

    def __init__(self, database: Database):
        self._db, self._connection = database, database.conn

    def _value(self, sql: str, *values: object) -> Any:
        return self._connection.execute(sql, values).fetchone()[0]

    # -- questions

    def rows(self) -> list[tuple[str, str, int, tuple[str, ...]]]:
        """Id, generator, seed and targets of every campaign, in the order in which they were begun."""
        rows = self._db.table("campaigns").rows_where(order_by="rowid")
        return [
            (row["id"], row["generator"], row["seed"], decoded(row["targets"], tuple[str, ...]))
            for row in rows
        ]

    def versions(self, campaign: str) -> dict[str, str]:
        """The versions that its targets had when it began; {} where nobody knows."""
        text = self._value("SELECT coalesce(max(versions), '') FROM campaigns WHERE id = ?", campaign)
        return decoded(text or "{}", dict[str, str])

    def done(self, campaign: str) -> int:
        """How many of its tests are done."""
        return int(
            self._value(
                "SELECT coalesce(max(number) + 1, 0) AS number FROM tests WHERE campaign = ?", campaign
            )
        )

    def digests(self, campaign: str, most: int) -> dict[int, str]:
        """The digests of the programs of at most so many of its tests, by number, evenly from the first
        on.
        """
        step = max(1, -(-self.done(campaign) // most))
        sql = "SELECT number, digest FROM tests WHERE campaign = ? AND number % ? = 0 ORDER BY number LIMIT ?"
        return dict(self._connection.execute(sql, [campaign, step, most]).fetchall())

    def totals(self, campaign: str) -> list[tuple[str, str, int, float]]:
        """Target, verdict, how many tests, and the wall seconds that these took."""
        rows = self._db.table("totals").rows_where("campaign = ?", [campaign], order_by="verdict")
        return [(row["target"], row["verdict"], row["count"], row["seconds"]) for row in rows]

    def kinds(self, campaign: str) -> dict[str, int]:
        """Confirmed failures counted, by kind."""
        sql = f"SELECT kind, count(*) {_FAILED} GROUP BY kind ORDER BY kind"
        return dict(self._connection.execute(sql, [campaign]).fetchall())

    def clusters(self, campaign: str) -> int:
        """Clusters that its confirmed failures belong to."""
        keys = f"SELECT DISTINCT fingerprint {_FAILED}"
        return int(
            self._value(f"SELECT count(DISTINCT cluster) FROM fingerprints WHERE key IN ({keys})", campaign)
        )

    def new_clusters(self, campaign: str, most: int) -> list[tuple[int, str, int]]:
        """Clusters of its confirmed failures that no other campaign has met: number, title, members; those
        with most members first.
        """
        met = (
            "SELECT f.cluster FROM failures x JOIN fingerprints f ON f.key = x.fingerprint WHERE x.campaign"
            " {} ? AND x.verdict = 'fail'"
        )
        sql = (
            f"SELECT id, title, members FROM clusters WHERE id IN ({met.format('=')}) AND id NOT IN"
            f" ({met.format('!=')}) ORDER BY members DESC, id LIMIT ?"
        )
        return [
            (int(row[0]), str(row[1]), int(row[2]))
            for row in self._connection.execute(sql, [campaign, campaign, most])
        ]

    def different(self, campaign: str) -> int:
        """Distinct fingerprints of its confirmed failures."""
        return int(self._value(f"SELECT count(DISTINCT fingerprint) {_FAILED}", campaign))

    def learnt(self, campaign: str) -> dict[str, str]:
        """What was kept with its tests, by name."""
        sql = "SELECT name, value FROM learnt WHERE campaign = ?"
        return {str(name): str(value) for name, value in self._connection.execute(sql, [campaign])}

    # -- changes

    def enter(
        self, campaign: str, generator: str, seed: int, targets: Sequence[str], versions: Mapping[str, str]
    ) -> None:
        """Enter a campaign; one that is there stays as it is."""
        row = {"id": campaign, "generator": generator, "seed": seed, "targets": json.dumps(targets)}
        self._db.table("campaigns").insert({**row, "versions": json.dumps(versions)}, ignore=True)

    def add_tests(self, campaign: str, tests: Iterable[tuple[int, str, Mapping[str, str]]]) -> None:
        """Enter tests as done: number, digest of the program, verdicts by target."""
        self._db.table("tests").insert_all(
            {"campaign": campaign, "number": number, "digest": digest, "verdicts": json.dumps(verdicts)}
            for number, digest, verdicts in tests
        )

    def learn(self, campaign: str, changes: Mapping[str, str]) -> None:
        """Keep texts by name; a name that is there has another text from now on."""
        self._connection.executemany(
            "INSERT INTO learnt (campaign, name, value) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value ="
            " excluded.value",
            [(campaign, name, value) for name, value in changes.items()],
        )

    def add_totals(self, campaign: str, totals: Iterable[tuple[str, str, int, float]]) -> None:
        """Count more answers: target, verdict, how many, wall seconds."""
        self._connection.executemany(
            "INSERT INTO totals (campaign, target, verdict, count, seconds) VALUES (?, ?, ?, ?, ?) ON"
            " CONFLICT DO UPDATE SET count = count + excluded.count, seconds = seconds + excluded.seconds",
            [(campaign, *total) for total in totals],
        )

    def add_non_bugs(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """Count more of what is no bug: target, verdict, template, what was said first."""
        self._connection.executemany(
            "INSERT INTO aside (target, verdict, what, message, count) VALUES (?, ?, ?, ?, 1) ON CONFLICT DO"
            " UPDATE SET count = count + 1",
            rows,
        )
