"""Read the contents of a store beside its writer: pages of clusters and of members, a case, counts.

Every thread has a connection of its own, opened at its first query. Pages go by key, not by offset, so that a
page costs the same wherever it is. `changed` tells whether there was a commit since this thread's last call.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store import failure_record, rows, store_folder
from opsieve.triage.store.index import index_file, schema
from opsieve.triage.store.index.filters import SORTS as SORTS, Sort as Sort

# Part of this interface
from opsieve.triage.store.index.index_reader import GROUPINGS as GROUPINGS, Grouping as Grouping, IndexReader


class Queries(IndexReader):
    """A store to read. Its methods may be called from any thread; `close` closes all connections.

    Every method raises BadInput, one sentence, for an unknown name and for a store that is missing, damaged,
    or of another schema (an older one is upgraded first, unless it has a writer).
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._threads = threading.local()
        self._lock = threading.Lock()
        # A thread's own storage is out of reach for others, so `close` needs a list.
        self._open: list[Database] = []
        upgrade_index(folder)

    def __enter__(self) -> "Queries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; no thread may be in a query."""
        with self._lock:
            for database in self._open:
                database.close()
            self._open.clear()
            self._threads = threading.local()

    def case(self, name: str) -> rows.CaseDetails:
        """Return a failure: `name` is a case folder, `CAMPAIGN:TEST:TARGET`, or a cluster, which gives its
        representative.
        """
        if "/" not in name and ":" not in name:
            place = self.cluster(name).representative
            if not place:
                raise BadInput(f"no case of {shown(name)} was kept; look at its members")
            name = place
        member, components, cluster = self.member(name)
        folder = store_folder.get_case_folder(self.folder, member.folder) if member.folder else None
        observations, problem = (
            failure_record.read_observations(folder)
            if folder
            else ((), "its case was not kept, it is only counted")
        )
        reduced = folder / "reduced" if folder and member.reduced is not None else None
        of = "" if cluster is None else rows.format_cluster(cluster)
        # Not at the start of the terminal app
        from opsieve.triage.store.artifacts import read_blamed_commits

        commits = read_blamed_commits(folder) if folder else ()
        return rows.CaseDetails(member, of, folder, reduced, components, observations, problem, commits)

    def related(self, name: str, most: int = 10) -> tuple[rows.RelatedRow, ...]:
        """Return clusters that look like this one, with the reason; they are suggestions and stay
        separate.
        """
        from opsieve.triage.clustering.clusters import (
            SimilarityFeatures,
            find_related,
            find_same_commit,
            make_features,
            merge_suggestions,
        )

        number = self.find_cluster(name)
        features: dict[int, list[SimilarityFeatures]] = {}
        for cluster, components in self.iter_same_backend(number):
            features.setdefault(cluster, []).append(make_features(components))
        own = features.pop(number, [])
        blamed = self._read_blame(self.list_bisected(number))
        alike = find_related(own, features, most)
        found = merge_suggestions(alike, find_same_commit(blamed.pop(number, {}), blamed, most), most=most)
        return tuple(
            rows.RelatedRow(self.cluster(rows.format_cluster(one.cluster)), one.score, one.reason)
            for one in found
        )

    def _read_blame(self, cases: Sequence[tuple[int, str]]) -> dict[int, dict[str, float]]:
        """Return the blamed commits of clusters with probabilities, from the first case of each that
        has any.
        """
        from opsieve.triage.store.artifacts import read_blamed_commits

        found: dict[int, dict[str, float]] = {}
        for cluster, place in cases:
            if not found.get(cluster):
                try:
                    commits = read_blamed_commits(store_folder.get_case_folder(self.folder, place))
                    found[cluster] = {f"{one.sha} {one.subject}": one.share for one in commits if one.sha}
                except BadInput:
                    # A place that leads elsewhere, or nowhere
                    continue
        return found

    def changed(self) -> bool:
        """Return whether there was a commit since the last call of this thread; True the first time."""
        # SQLite counts commits of other connections, which costs less than any query.
        now = int(self._select_value("PRAGMA data_version"))
        before = getattr(self._threads, "seen", None)
        self._threads.seen = now
        return now != before

    @contextmanager
    def _connect(self) -> Iterator[Database]:
        """Yield this thread's connection; an error of SQLite becomes one sentence."""
        try:
            database: Database | None = getattr(self._threads, "database", None)
            if database is None:
                database = index_file.open_read_only(self.folder / index_file.INDEX)
                with self._lock:
                    self._open.append(database)
                self._threads.database = database
            # The index may be a stranger's, whose rows make a harmless query slow.
            with schema.limit_time(database.conn):
                yield database
        except sqlite3.Error as error:
            raise BadInput(index_file.describe_error(self.folder, error)) from None


def upgrade_index(folder: Path) -> None:
    """Upgrade the index of an older opsieve to the current schema.

    Raises:
        BadInput: If the store is missing, newer, or has a writer.
    """
    store_folder.check_folder(folder)
    path = folder / index_file.INDEX
    if path.is_file():
        try:
            older = 0 <= index_file.read_version(path) < schema.SCHEMA
        except sqlite3.Error as error:
            raise BadInput(index_file.describe_error(folder, error)) from None
        if older:
            from opsieve.triage.store.store import Store

            Store(folder).close()
    with index_file.join_index(folder):
        pass
