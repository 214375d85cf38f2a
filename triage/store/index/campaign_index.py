"""The tables that campaigns write: campaigns, finished tests, verdicts and seconds by target, non-bugs.

All changes must happen inside a transaction (`OpenIndex.open_transaction`).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.index import index_file, schema

_FAILED = "FROM failures WHERE campaign = ? AND verdict = 'fail'"


class CampaignIndex(index_file.OpenIndex):
    """The campaigns in an open index."""

    # -- questions

    def list_campaigns(self) -> list[Campaign]:
        """List every campaign in the order of their starts."""
        return [
            Campaign(
                row["id"], row["generator"], row["seed"], schema.decode_json(row["targets"], tuple[str, ...])
            )
            for row in self._select_where("campaigns", order_by="rowid")
        ]

    def get_versions(self, campaign: Campaign) -> dict[str, str]:
        """Return the versions that the targets had at the start; {} if unknown."""
        text = self._select_value("SELECT versions FROM campaigns WHERE id = ?", campaign.id)
        return schema.decode_json(text or "{}", dict[str, str])

    def count_done(self, campaign: Campaign) -> int:
        """Count the finished tests, which have the numbers below that count."""
        sql = "SELECT coalesce(max(number) + 1, 0) AS number FROM tests WHERE campaign = ?"
        return int(self._select_value(sql, campaign.id))

    def sample_digests(self, campaign: Campaign, most: int) -> dict[int, str]:
        """Return the program digests of at most `most` tests by number, evenly spaced from the first."""
        step = max(1, -(-self.count_done(campaign) // most))
        sql = "SELECT number, digest FROM tests WHERE campaign = ? AND number % ? = 0 ORDER BY number LIMIT ?"
        return dict(self._select(sql, campaign.id, step, most))

    def count_verdicts(self, campaign: Campaign) -> dict[str, dict[str, int]]:
        """Count verdicts by target."""
        found: dict[str, dict[str, int]] = {target: {} for target in campaign.targets}
        for row in self._select_where("totals", "campaign = ?", campaign.id, order_by="verdict"):
            found.setdefault(row["target"], {})[row["verdict"]] = row["count"]
        return found

    def sum_seconds(self, campaign: Campaign) -> dict[str, float]:
        """Sum the wall seconds of each target's tests."""
        sql = (
            "SELECT target, sum(seconds) AS seconds FROM totals WHERE campaign = ? GROUP BY target"
            " ORDER BY target"
        )
        return dict(self._select(sql, campaign.id))

    def count_kinds(self, campaign: Campaign) -> dict[str, int]:
        """Count confirmed failures by kind."""
        return dict(self._select(f"SELECT kind, count(*) {_FAILED} GROUP BY kind ORDER BY kind", campaign.id))

    def count_clusters(self, campaign: Campaign) -> int:
        """Count the clusters of the campaign's confirmed failures."""
        keys = f"SELECT DISTINCT fingerprint {_FAILED}"
        sql = f"SELECT count(DISTINCT cluster) FROM fingerprints WHERE key IN ({keys})"
        return int(self._select_value(sql, campaign.id))

    def list_new_clusters(self, campaign: Campaign, most: int = 20) -> list[tuple[int, str, int]]:
        """List clusters that only this campaign has met: number, title, members; the largest first."""
        met = (
            "SELECT f.cluster FROM failures x JOIN fingerprints f ON f.key = x.fingerprint WHERE x.campaign"
            " {} ? AND x.verdict = 'fail'"
        )
        sql = (
            f"SELECT id, title, members FROM clusters WHERE id IN ({met.format('=')}) AND id NOT IN"
            f" ({met.format('!=')}) ORDER BY members DESC, id LIMIT ?"
        )
        return self._select(sql, campaign.id, campaign.id, most)

    def count_fingerprints(self, campaign: Campaign) -> int:
        """Count the distinct fingerprints of the campaign's confirmed failures."""
        return int(self._select_value(f"SELECT count(DISTINCT fingerprint) {_FAILED}", campaign.id))

    def read_state(self, campaign: Campaign) -> dict[str, str]:
        """Read the texts kept with the campaign's tests, by name."""
        return dict(self._select("SELECT name, value FROM learnt WHERE campaign = ?", campaign.id))

    def list_failures(self) -> list[dict[str, Any]]:
        """List every failure by campaign, test and target: its columns by name."""
        return self._select_where("failures", order_by="campaign, test, target")

    def count_failures(self) -> dict[str, int]:
        """Count the failures of each fingerprint."""
        return dict(self._select("SELECT key, count FROM fingerprints"))

    # -- changes

    def _insert_campaign(self, campaign: Campaign, versions: Mapping[str, str]) -> None:
        """Insert a campaign; an existing one stays as it is."""
        row = {"id": campaign.id, "generator": campaign.generator, "seed": campaign.seed}
        row |= {"targets": json.dumps(campaign.targets), "versions": json.dumps(dict(versions))}
        # A resumed campaign keeps the versions with which it began.
        self._database.table("campaigns").insert(row, ignore=True)

    def _add_tests(self, campaign: Campaign, tests: Iterable[tuple[int, str, Mapping[str, str]]]) -> None:
        """Insert finished tests: number, digest of the program, verdicts by target."""
        self._database.table("tests").insert_all(
            {"campaign": campaign.id, "number": number, "digest": digest, "verdicts": json.dumps(verdicts)}
            for number, digest, verdicts in tests
        )

    def _write_state(self, campaign: Campaign, learnt: Mapping[str, str]) -> None:
        """Keep texts by name; an existing name gets the new text."""
        self._database.conn.executemany(
            "INSERT INTO learnt (campaign, name, value) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value ="
            " excluded.value",
            [(campaign.id, name, value) for name, value in learnt.items()],
        )

    def _add_counts(
        self,
        campaign: Campaign,
        totals: Iterable[tuple[str, str, int, float]],
        non_bugs: Iterable[tuple[str, str, str, str]],
    ) -> None:
        """Add answers (target, verdict, count, wall seconds) and non-bugs (target, verdict, template, first
        message).
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
