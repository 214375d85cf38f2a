"""The tables of an index that campaigns write: campaigns, tests done, verdicts and seconds by target, what is
no bug.

All changes expect to be inside a transaction (`OpenIndex.changing`).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.index.index_file import OpenIndex
from opsieve.triage.store.index.row_types import decoded

_FAILED = "FROM failures WHERE campaign = ? AND verdict = 'fail'"


class CampaignIndex(OpenIndex):
    """The campaigns of an open index."""

    # -- questions

    def campaigns(self) -> list[Campaign]:
        """Every campaign, in the order in which they were begun."""
        return [
            Campaign(row["id"], row["generator"], row["seed"], decoded(row["targets"], tuple[str, ...]))
            for row in self._where("campaigns", order_by="rowid")
        ]

    def versions(self, campaign: Campaign) -> dict[str, str]:
        """The versions that its targets had when it began; {} where nobody knows."""
        text = self._value("SELECT versions FROM campaigns WHERE id = ?", campaign.id)
        return decoded(text or "{}", dict[str, str])

    def done(self, campaign: Campaign) -> int:
        """How many tests of it are done: those with the numbers below."""
        sql = "SELECT coalesce(max(number) + 1, 0) AS number FROM tests WHERE campaign = ?"
        return int(self._value(sql, campaign.id))

    def digests(self, campaign: Campaign, most: int) -> dict[int, str]:
        """The digests of the programs of at most so many of its tests, by number, evenly from the first
        on.
        """
        step = max(1, -(-self.done(campaign) // most))
        sql = "SELECT number, digest FROM tests WHERE campaign = ? AND number % ? = 0 ORDER BY number LIMIT ?"
        return dict(self._rows(sql, campaign.id, step, most))

    def totals(self, campaign: Campaign) -> dict[str, dict[str, int]]:
        """Verdicts counted, by target."""
        found: dict[str, dict[str, int]] = {target: {} for target in campaign.targets}
        for row in self._where("totals", "campaign = ?", campaign.id, order_by="verdict"):
            found.setdefault(row["target"], {})[row["verdict"]] = row["count"]
        return found

    def seconds(self, campaign: Campaign) -> dict[str, float]:
        """Wall seconds that each target took for its tests."""
        sql = "SELECT target, sum(seconds) AS seconds FROM totals WHERE campaign = ? GROUP BY target ORDER BY target"
        return dict(self._rows(sql, campaign.id))

    def kinds(self, campaign: Campaign) -> dict[str, int]:
        """Confirmed failures counted, by kind."""
        return dict(self._rows(f"SELECT kind, count(*) {_FAILED} GROUP BY kind ORDER BY kind", campaign.id))

    def clusters(self, campaign: Campaign) -> int:
        """Clusters that its confirmed failures belong to."""
        keys = f"SELECT DISTINCT fingerprint {_FAILED}"
        sql = f"SELECT count(DISTINCT cluster) FROM fingerprints WHERE key IN ({keys})"
        return int(self._value(sql, campaign.id))

    def new_clusters(self, campaign: Campaign, most: int = 20) -> list[tuple[int, str, int]]:
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
        return self._rows(sql, campaign.id, campaign.id, most)

    def different(self, campaign: Campaign) -> int:
        """Distinct fingerprints of its confirmed failures."""
        return int(self._value(f"SELECT count(DISTINCT fingerprint) {_FAILED}", campaign.id))

    def learnt(self, campaign: Campaign) -> dict[str, str]:
        """What was kept with its tests, by name."""
        return dict(self._rows("SELECT name, value FROM learnt WHERE campaign = ?", campaign.id))

    def failures(self) -> list[dict[str, Any]]:
        """Every failure, by campaign, test and target: its columns by name."""
        return self._where("failures", order_by="campaign, test, target")

    def counts(self) -> dict[str, int]:
        """How many failures each fingerprint has."""
        return dict(self._rows("SELECT key, count FROM fingerprints"))

    # -- changes

    def _enter(self, campaign: Campaign, versions: Mapping[str, str]) -> None:
        """Enter a campaign; one that is there stays as it is."""
        row = {"id": campaign.id, "generator": campaign.generator, "seed": campaign.seed}
        row |= {"targets": json.dumps(campaign.targets), "versions": json.dumps(dict(versions))}
        self._database.table("campaigns").insert(row, ignore=True)

    def _add_tests(self, campaign: Campaign, tests: Iterable[tuple[int, str, Mapping[str, str]]]) -> None:
        """Enter tests as done: number, digest of the program, verdicts by target."""
        self._database.table("tests").insert_all(
            {"campaign": campaign.id, "number": number, "digest": digest, "verdicts": json.dumps(verdicts)}
            for number, digest, verdicts in tests
        )

    def _keep(self, campaign: Campaign, learnt: Mapping[str, str]) -> None:
        """Keep texts by name; a name that is there has another text from now on."""
        self._database.conn.executemany(
            "INSERT INTO learnt (campaign, name, value) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value ="
            " excluded.value",
            [(campaign.id, name, value) for name, value in learnt.items()],
        )

    def _count(
        self,
        campaign: Campaign,
        totals: Iterable[tuple[str, str, int, float]],
        non_bugs: Iterable[tuple[str, str, str, str]],
    ) -> None:
        """Count more answers (target, verdict, how many, wall seconds), and more of what is no bug (target,
        verdict, template, what was said first).
        """
        self._database.conn.executemany(
            "INSERT INTO totals (campaign, target, verdict, count, seconds) VALUES (?, ?, ?, ?, ?) ON"
            " CONFLICT DO UPDATE SET count = count + excluded.count, seconds = seconds + excluded.seconds",
            [(campaign.id, *total) for total in totals],
        )
        self._database.conn.executemany(
            "INSERT INTO aside (target, verdict, what, message, count) VALUES (?, ?, ?, ?, 1) ON CONFLICT DO"
            " UPDATE SET count = count + 1",
            non_bugs,
        )
