"""The store of a campaign's failures: case folders as plain files, and an index of them in SQLite.

    STORE/cases/FINGERPRINT/N/   a case, its observations and failure.json, which tells all that the index
    knows of it STORE/index.sqlite           tests done, failures, fingerprints with counts, clusters,
    decisions STORE/decisions.jsonl        what people decided, in order (`opsieve.triage.store.decisions`)
    STORE/known/*.toml           rules of known bugs (`opsieve.triage.rules.rules`)
    STORE/staging/               cases on their way; empty unless a writer was killed
    STORE/lock                   held by the one process that writes case folders

A test is recorded as done in the transaction that records its failures. A case is written to staging inside
that transaction and moved to its place after it, so a writer killed at any moment leaves either a case that
the index knows, which the next writer moves, or one that it does not know, which the next writer removes: its
test was not done and is run again.

The lock guards case folders and campaigns. Decisions need none: each is one short transaction, and waits for
the other writer's.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sqlite_utils import Database

from opsieve.backends.judge.oracle_names import ORACLE, name_optional_oracle
from opsieve.backends.record import write_observations
from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import sync_tree
from opsieve.triage.fingerprint.component import needs_reduction
from opsieve.triage.store import decision_log, store_folder
from opsieve.triage.store.failure_record import (
    NAME,
    FailureRecord,
    bound_text,
    encode_components,
    encode_mismatch,
    read_failure,
    write_failure,
)
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure, get_case
from opsieve.triage.store.index import campaign_index, index, index_file

# Cases kept of one fingerprint; further ones are counted
KEPT = 5
# of one that does not know the operators to blame, since many bugs may hide in it until its cases are reduced
KEPT_VAGUE = 50


class Store(campaign_index.CampaignIndex):
    """A store opened by its one writer; use it as a context manager.

    Raises BadInput, one sentence, if the folder is not writable, another process writes it, or its index is
    damaged or from a newer opsieve; later also if the disk is full.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time):
        self.folder = folder
        # Seconds since 1970
        self._clock = clock
        self._fresh, self._unbegun = not os.path.lexists(folder), False
        self._lock = index_file.lock_store(folder)
        try:
            with self.translate_errors():
                super().__init__(index_file.open_index(folder / index_file.INDEX))
                self.index = index.Index(self._database)
                with self.open_transaction():
                    # Those of an index that an older opsieve wrote
                    self.index.place_new()
                self._place_staged()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._unbegun = kind is not None and self._fresh and not self.list_campaigns()
        self.close()

    def close(self) -> None:
        """Move committed cases to their places and release the lock; a store made for a refused campaign is
        removed.
        """
        try:
            with self.translate_errors():
                self._place_staged()
                self._database.close()
                if self._unbegun:
                    store_folder.remove_empty_store(self.folder)
        finally:
            os.close(self._lock)

    def begin_campaign(self, campaign: Campaign, versions: Mapping[str, str] | None = None) -> None:
        """Insert a campaign with the versions of its targets; an existing one stays as it is."""
        with self.translate_errors(), self.open_transaction():
            self._insert_campaign(campaign, versions or {})

    def write_state(self, campaign: Campaign, learnt: Mapping[str, str]) -> None:
        """Keep texts by name, as `record_tests` does with tests."""
        with self.translate_errors(), self.open_transaction():
            self._write_state(campaign, learnt)

    def record_tests(
        self, campaign: Campaign, tests: Sequence[FinishedTest], learnt: Mapping[str, str] | None = None
    ) -> None:
        """Record finished tests with their failures and the state `learnt`, atomically; keep each
        fingerprint's first cases.
        """
        with self.translate_errors():
            with self.open_transaction():
                now = round(self._clock(), 3)
                # Number and cases kept, by fingerprint
                known: dict[str, tuple[int, int]] = {}
                rows: list[tuple[FailureRecord, str]] = []
                for test in tests:
                    for finding in test.findings:
                        record = _make_failure_record(campaign, test, finding)
                        if record.fingerprint not in known:
                            # Looked up once for each fingerprint: rows of this transaction are added only
                            # further below.
                            known[record.fingerprint] = self._get_number(record.fingerprint, known)
                        record.number, kept = known[record.fingerprint]
                        place = ""
                        if kept < (KEPT_VAGUE if needs_reduction(finding.fingerprint.components) else KEPT):
                            known[record.fingerprint] = (record.number, kept + 1)
                            promised = {free for _, free in rows}
                            number = 1
                            while (
                                free := f"cases/{record.fingerprint}/{number}"
                            ) in promised or os.path.lexists(self.folder / free):
                                number += 1
                            place = free
                            self._stage_case(record, get_case(test), finding, now)
                        rows.append((record, place))
                self._add_tests(
                    campaign,
                    (
                        (test.number, test.digest, {name: word for name, (word, _) in test.answers.items()})
                        for test in tests
                    ),
                )
                self._add_totals(campaign, tests)
                self._write_state(campaign, learnt or {})
                # After the tests: place_new reads what add_failure writes, once for all rows.
                for record, place in rows:
                    self.index.add_failure(record, place, now)
                self.index.place_new()
            self._place_staged()

    def count_all_failures(self) -> int:
        """Count the failures."""
        return sum(self.count_failures().values())

    def count_all_fingerprints(self) -> int:
        """Count the distinct fingerprints."""
        return len(self.count_failures())

    def adopt_cases(self) -> tuple[int, list[str]]:
        """Add case folders that the index lacks; return their number, and a sentence for each unreadable one.

        A failure counts once, by campaign, test and target, however often its folder was copied.
        """
        added = 0
        found, problems = self._read_records()
        with self.translate_errors():
            replay = decision_log.DecisionReplay(self.index, self.folder)
            for record, place, seen in found:
                try:
                    with self.open_transaction():
                        # Decisions come between the fingerprints that they saw, or `c17` would mean another
                        # cluster.
                        replay.take_until(record.number)
                        known = self.index.find_place(record.campaign, record.test, record.target) is not None
                        if not known:
                            self._insert_campaign(
                                Campaign(
                                    record.campaign, record.generator, record.seed, tuple(record.targets)
                                ),
                                {},
                            )
                            self.index.add_failure(record, place, seen)
                            self.index.place_new()
                        added += not known
                except (
                    sqlite3.IntegrityError,
                    sqlite3.DataError,
                    sqlite3.ProgrammingError,
                    ValueError,
                ) as error:
                    problems.append(f"{shown(place, 160)} cannot be entered: {shown(str(error), 100)}")
            with self.open_transaction():
                replay.take_until(None)
        problems += replay.problems
        return added, problems

    def _read_records(self) -> tuple[list[tuple[FailureRecord, str, float]], list[str]]:
        """Read the records of all case folders with place and time, by number, and a sentence for each
        unreadable one.
        """
        found, problems = [], []
        for path in sorted((self.folder / store_folder.CASES).glob(f"*/*/{NAME}")):
            place = path.parent.relative_to(self.folder).as_posix()
            try:
                record = read_failure(store_folder.get_case_folder(self.folder, place))
                found.append((record, place, round(path.stat().st_mtime, 3)))
            except (BadInput, OSError) as error:
                problems.append(str(error))
        # By number, so that the rebuilt index gives each cluster the name it had; records without a number
        # come last.
        return sorted(found, key=lambda one: (one[0].number or 1 << 60, one[1])), problems

    def _add_totals(self, campaign: Campaign, tests: Sequence[FinishedTest]) -> None:
        many: Counter[tuple[str, str]] = Counter()
        spent: dict[tuple[str, str], float] = {}
        for test in tests:
            for target, (verdict, seconds) in test.answers.items():
                many[target, verdict] += 1
                spent[target, verdict] = spent.get((target, verdict), 0.0) + seconds
        self._add_counts(
            campaign,
            [(*key, count, spent[key]) for key, count in many.items()],
            (
                (each.target, each.verdict, bound_text(each.what[:300]), bound_text(each.message[:1000]))
                for test in tests
                for each in test.non_bugs
            ),
        )

    def _get_number(self, key: str, promised: dict[str, tuple[int, int]]) -> tuple[int, int]:
        """Return the number of a fingerprint and its kept cases; for a new one, a number beyond the promised
        ones.
        """
        found = self.index.find_fingerprint(key)
        if found is not None:
            return found.number, found.kept
        # Numbers of this transaction are not in the index yet.
        return max([self.index.get_free_number(), *(number + 1 for number, _ in promised.values())]), 0

    # -- folders

    def _stage_case(self, record: FailureRecord, case: Case, finding: FoundFailure, seen: float) -> None:
        first = finding.observations[0]
        parameters = {**case.parameters, **first.knobs, "target": finding.target}
        if oracle := name_optional_oracle(finding.verdict, case.program):
            parameters[ORACLE] = oracle
        origin = replace(case.origin, versions={**case.origin.versions, finding.target: first.version})
        # The target may be none of the campaign's: a rewrite can be part of it (backends/registry).
        digest = hashlib.sha256(record.target.encode()).hexdigest()[:12]
        folder = self.folder / store_folder.STAGING / f"{record.campaign}-{record.test}-{digest}"
        # A writer that was killed may have left half of it.
        shutil.rmtree(folder, ignore_errors=True)
        save(replace(case, parameters=parameters, origin=origin), folder)
        write_observations(folder, finding.observations)
        write_failure(folder, record)
        # When it was seen is recorded by the file's date alone: equal campaigns leave equal files.
        os.utime(folder / NAME, (seen, seen))
        # On the disk before the transaction commits: a row must not outlive its case in a power cut.
        sync_tree(folder)

    def _place_staged(self) -> None:
        """Move staged cases to their places in the index; remove those of unrecorded tests."""
        with store_folder.Staging(self.folder) as staging:
            for name in staging.list_names():
                place = self._find_staged_place(self.folder / store_folder.STAGING / name)
                if not place or not staging.move_case(name, place):
                    staging.remove_entry(name)

    def _find_staged_place(self, staged: Path) -> str:
        try:
            record = read_failure(staged)
        except BadInput:
            # Its writer was killed while it wrote
            return ""
        return self.index.find_place(record.campaign, record.test, record.target) or ""

    @contextlib.contextmanager
    def _connect(self) -> Iterator[Database]:
        with self.translate_errors():
            yield self._database

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate errors of SQLite and the system to one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise index_file.translate_error(self.folder, error) from None
        except BadInput as error:
            # From who writes a case: a disk that is full is waited for
            if isinstance(error.__cause__, OSError) and isinstance(
                full := index_file.translate_error(self.folder, error.__cause__), index_file.DiskFull
            ):
                raise full from None
            raise


def _make_failure_record(campaign: Campaign, test: FinishedTest, finding: FoundFailure) -> FailureRecord:
    verdict, key = finding.verdict, finding.fingerprint.key
    first = finding.observations[0]
    operators = get_case(test).program.operators()
    mismatch = verdict.mismatch
    output = (first.outputs or {}).get(mismatch.output) if mismatch else None
    return FailureRecord(
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
        # Flaky failures have keys of their own, so that they join no confirmed cluster.
        fingerprint=key if verdict.verdict == "fail" else f"{verdict.verdict}-{key}",
        fingerprint_version=finding.fingerprint.version,
        message=bound_text(verdict.message),
        reason=bound_text(verdict.reason),
        blame=verdict.blame,
        version=first.version,
        digest=test.digest,
        components=encode_components(finding.fingerprint),
        operators=sorted({bound_text(name[:100]) for name in operators}),
        nodes=len(operators),
        mismatch=None if mismatch is None else encode_mismatch(mismatch),
        dtype=str(getattr(output, "dtype", "")),
    )
