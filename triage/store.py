"""Where a campaign keeps what it found: case folders that anybody can read, and an index of them in SQLite.

    STORE/cases/FINGERPRINT/N/   a case, its observations and failure.json, which tells all that the index knows of it
    STORE/index.sqlite           tests done, failures, fingerprints with counts
    STORE/staging/               cases on their way; empty unless a writer was killed
    STORE/lock                   held by the one process that writes

A test is recorded as done in the transaction that records its failures. A case is written to staging before that
transaction and moved to its place after it, so a writer killed at any moment leaves either a case that the index knows, which the
next writer moves, or one that it does not know, which the next writer removes: its test was not done and is run again.
"""

import contextlib
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from opsieve.backends.observation import Observation
from opsieve.backends.record import write_observations
from opsieve.backends.verdict import Verdict
from opsieve.gen.bad_input import BadInput, shown
from opsieve.gen.case import Case, save
from opsieve.gen.files import read_file, reason
from opsieve.triage.fingerprint import Fingerprint
from opsieve.triage.index_file import INDEX, locked, opened, sentence

KEPT = 5  # cases kept of one fingerprint; further ones are counted
_MAX_JSON = 1 << 20
_MAX_TEXT = 4000


@dataclass(frozen=True, slots=True)
class Campaign:
    """What determines the tests of a campaign; `id` is a digest of the rest."""

    id: str
    generator: str
    seed: int
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure, confirmed or flaky: the observations that its verdict stands on, that of the target blamed first."""

    target: str
    verdict: Verdict
    fingerprint: Fingerprint
    observations: Sequence[Observation]


@dataclass(frozen=True, slots=True)
class Done:
    """A test that was done: a verdict and the wall seconds by target, and what was found."""

    number: int
    case: Case
    answers: dict[str, tuple[str, float]]
    findings: Sequence[Finding]


class _Told(msgspec.Struct, kw_only=True):
    """failure.json: what the index knows of a case, and what an index needs to know it again."""

    format: int
    generator: str
    seed: int
    campaign: str
    targets: list[str]
    test: int
    target: str
    verdict: str
    kind: str
    stage: str
    fingerprint: str
    fingerprint_version: int
    message: str
    reason: str
    blame: str
    version: str
    digest: str
    components: list[dict[str, Any]]


class Store:
    """A store opened by its one writer; use it as a context manager.

    BadInput, one sentence, when the folder cannot be written, another process writes it, its index is damaged or written by a
    newer opsieve, and later when the disk is full.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = locked(folder)
        try:
            with self._guard():
                self._db = opened(folder / INDEX)
                self._settle()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Put what was committed in its place and let others write."""
        try:
            with self._guard():
                self._settle()
                self._db.conn.close()
        finally:
            os.close(self._lock)

    def begin(self, campaign: Campaign) -> None:
        """Enter a campaign; one that is there already stays as it is."""
        with self._guard(), self._db.atomic():
            self._enter(campaign)

    def campaigns(self) -> list[Campaign]:
        """Every campaign, in the order in which they were begun."""
        with self._guard():
            rows = list(self._db.query("SELECT * FROM campaigns ORDER BY rowid"))
        return [Campaign(row["id"], row["generator"], row["seed"], tuple(json.loads(row["targets"]))) for row in rows]

    def done(self, campaign: Campaign) -> int:
        """How many tests of it are done: those with the numbers below."""
        return int(self._one("SELECT coalesce(max(number) + 1, 0) FROM tests WHERE campaign = ?", campaign.id))

    def record(self, campaign: Campaign, tests: Sequence[Done]) -> None:
        """Enter tests as done, together with their failures, all or none; keep the first cases of each fingerprint."""
        with self._guard():
            kept = {str(row["key"]): int(row["kept"]) for row in self._db.query("SELECT key, kept FROM fingerprints")}
            rows: list[tuple[_Told, str]] = []
            for test in tests:
                for finding in test.findings:
                    told = _told(campaign, test, finding)
                    place = ""
                    if kept.get(told.fingerprint, 0) < KEPT:
                        kept[told.fingerprint] = kept.get(told.fingerprint, 0) + 1
                        place = self._free(told.fingerprint, rows)
                        self._stage(told, test.case, finding)
                    rows.append((told, place))
            with self._db.atomic():
                for test in tests:
                    verdicts = json.dumps({target: verdict for target, (verdict, _) in test.answers.items()})
                    self._db["tests"].insert(  # type: ignore[union-attr]
                        {
                            "campaign": campaign.id,
                            "number": test.number,
                            "digest": test.case.program.digest,
                            "verdicts": verdicts,
                        }
                    )
                self._add_totals(campaign, tests)
                for told, place in rows:
                    self._add_failure(told, place)
            self._settle()

    def totals(self, campaign: Campaign) -> dict[str, dict[str, int]]:
        """Verdicts counted, by target."""
        found: dict[str, dict[str, int]] = {target: {} for target in campaign.targets}
        with self._guard():
            for row in self._db.query("SELECT * FROM totals WHERE campaign = ? ORDER BY verdict", [campaign.id]):
                found.setdefault(row["target"], {})[row["verdict"]] = row["count"]
        return found

    def seconds(self, campaign: Campaign) -> dict[str, float]:
        """Wall seconds that each target took for its tests."""
        with self._guard():
            rows = self._db.query(
                "SELECT target, sum(seconds) AS spent FROM totals WHERE campaign = ? GROUP BY target", [campaign.id]
            )
            return {row["target"]: float(row["spent"]) for row in rows}

    def kinds(self, campaign: Campaign) -> dict[str, int]:
        """Confirmed failures counted, by kind."""
        with self._guard():
            rows = self._db.query(
                "SELECT kind, count(*) AS many FROM failures WHERE campaign = ? AND verdict = 'fail' GROUP BY kind ORDER BY kind",
                [campaign.id],
            )
            return {row["kind"]: row["many"] for row in rows}

    def clusters(self, campaign: Campaign) -> int:
        """Distinct fingerprints of confirmed failures."""
        sql = "SELECT count(DISTINCT fingerprint) FROM failures WHERE campaign = ? AND verdict = 'fail'"
        return int(self._one(sql, campaign.id))

    def failures(self) -> list[dict[str, Any]]:
        """Every failure as the index has it, by campaign, test and target."""
        with self._guard():
            return list(self._db.query("SELECT * FROM failures ORDER BY campaign, test, target"))

    def counts(self) -> dict[str, int]:
        """How many failures each fingerprint has."""
        with self._guard():
            return {row["key"]: row["count"] for row in self._db.query("SELECT key, count FROM fingerprints")}

    def adopt(self) -> tuple[int, list[str]]:
        """Enter case folders that the index does not know; how many, and a sentence for each that cannot be read.

        A failure counts once, by campaign, test and target, however often its folder was copied.
        """
        added, problems = 0, []
        with self._guard():
            for path in sorted((self.folder / "cases").glob("*/*/failure.json")):
                try:
                    told = msgspec.json.decode(read_file(path, _MAX_JSON), type=_Told)
                except (BadInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    problems.append(f"{shown(path, 160)} does not tell of a failure: {shown(str(error), 100)}")
                    continue
                campaign = Campaign(told.campaign, told.generator, told.seed, tuple(told.targets))
                with self._db.atomic():
                    known = self._one(
                        "SELECT count(*) FROM failures WHERE campaign = ? AND test = ? AND target = ?",
                        told.campaign, told.test, told.target,
                    )  # fmt: skip
                    if not known:
                        self._enter(campaign)
                        self._add_failure(told, str(path.parent.relative_to(self.folder)))
                        added += 1
        return added, problems

    # -- rows

    def _one(self, sql: str, *values: object) -> Any:
        with self._guard():
            return self._db.execute(sql, values).fetchone()[0]

    def _enter(self, campaign: Campaign) -> None:
        row = {**asdict(campaign), "targets": json.dumps(campaign.targets)}
        self._db["campaigns"].insert(row, ignore=True)  # type: ignore[union-attr]

    def _add_totals(self, campaign: Campaign, tests: Sequence[Done]) -> None:
        many: Counter[tuple[str, str]] = Counter()
        spent: dict[tuple[str, str], float] = {}
        for test in tests:
            for target, (verdict, seconds) in test.answers.items():
                many[target, verdict] += 1
                spent[target, verdict] = spent.get((target, verdict), 0.0) + seconds
        for (target, verdict), count in many.items():
            self._db.execute(
                "INSERT INTO totals (campaign, target, verdict, count, seconds) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET count = count + excluded.count, seconds = seconds + excluded.seconds",
                [campaign.id, target, verdict, count, spent[target, verdict]],
            )

    def _add_failure(self, told: _Told, place: str) -> None:
        names = ("campaign", "test", "target", "verdict", "kind", "stage", "fingerprint", "message", "reason", "blame")
        row = {name: getattr(told, name) for name in (*names, "version", "digest")}
        self._db["failures"].insert({**row, "folder": place})  # type: ignore[union-attr]
        self._db.execute(
            "INSERT INTO fingerprints (key, version, kind, components, count, kept) VALUES (?, ?, ?, ?, 1, ?)"
            " ON CONFLICT DO UPDATE SET count = count + 1, kept = kept + excluded.kept",
            [told.fingerprint, told.fingerprint_version, told.kind, json.dumps(told.components), int(bool(place))],
        )

    # -- folders

    def _free(self, key: str, rows: Sequence[tuple[_Told, str]]) -> str:
        """The next free place for a case of a fingerprint, those promised to `rows` aside."""
        promised = {place for _, place in rows}
        number = 1
        while (place := f"cases/{key}/{number}") in promised or os.path.lexists(self.folder / place):
            number += 1
        return place

    def _staged(self, told: _Told) -> Path:
        return self.folder / "staging" / f"{told.campaign}-{told.test}-{told.targets.index(told.target)}"

    def _stage(self, told: _Told, case: Case, finding: Finding) -> None:
        first = finding.observations[0]
        knobs = {**case.knobs, **first.knobs, "target": finding.target}
        origin = replace(case.origin, versions={**case.origin.versions, finding.target: first.version})
        folder = self._staged(told)
        shutil.rmtree(folder, ignore_errors=True)
        save(replace(case, knobs=knobs, origin=origin), folder)
        write_observations(folder, finding.observations)
        text = msgspec.json.format(msgspec.json.encode(told), indent=2)
        (folder / "failure.json").write_bytes(text + b"\n")

    def _settle(self) -> None:
        """Move staged cases to the places that the index has for them; remove those of tests that were not recorded."""
        for folder in sorted((self.folder / "staging").glob("*")):
            place = self._place_of(folder)
            if place and not os.path.lexists(self.folder / place):
                (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
                folder.rename(self.folder / place)
            else:
                shutil.rmtree(folder, ignore_errors=True)

    def _place_of(self, staged: Path) -> str:
        try:
            told = msgspec.json.decode(read_file(staged / "failure.json", _MAX_JSON), type=_Told)
        except (BadInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""  # its writer was killed while it wrote
        rows = self._db.query(
            "SELECT folder FROM failures WHERE campaign = ? AND test = ? AND target = ?",
            [told.campaign, told.test, told.target],
        )
        return next((str(row["folder"]) for row in rows), "")

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """What SQLite and the system say, as one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise BadInput(sentence(self.folder, error)) from None
        except OSError as error:
            raise BadInput(
                f"cannot write the store {shown(self.folder, 200)}: {reason(error)}; mend that, then go on with --resume"
            ) from None


def _told(campaign: Campaign, test: Done, finding: Finding) -> _Told:
    verdict, key = finding.verdict, finding.fingerprint.key
    return _Told(
        format=1,
        campaign=campaign.id,
        generator=campaign.generator,
        seed=campaign.seed,
        targets=list(campaign.targets),
        test=test.number,
        target=finding.target,
        verdict=verdict.verdict,
        kind=verdict.kind or "",
        stage=verdict.stage or "",
        fingerprint=key if verdict.verdict == "fail" else f"{verdict.verdict}-{key}",
        fingerprint_version=finding.fingerprint.version,
        message=_text(verdict.message),
        reason=_text(verdict.reason),
        blame=verdict.blame,
        version=finding.observations[0].version,
        digest=test.case.program.digest,
        components=[{**asdict(part), "value": _text(part.value)} for part in finding.fingerprint.components],
    )


def _text(text: str) -> str:
    """Text of a compiler that JSON and SQLite take, bounded."""
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()
