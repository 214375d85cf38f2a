"""What a store holds, to look at: pages of clusters and of members, a case, counts. Reads only, beside
whoever writes.

Every thread has a connection of its own, opened when it first asks. Pages go by key, not by offset: a page
costs what it shows, wherever it lies. `changed` tells whether anything was committed since this thread asked
last.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.failure_record import read_observations
from opsieve.triage.store.index.filters import SORTS as SORTS
from opsieve.triage.store.index.filters import Sort as Sort
from opsieve.triage.store.index.index_file import INDEX, joined, looking, sentence, version_of
from opsieve.triage.store.index.index_reader import GROUPINGS as GROUPINGS  # part of this interface
from opsieve.triage.store.index.index_reader import Grouping as Grouping
from opsieve.triage.store.index.index_reader import IndexReader
from opsieve.triage.store.index.schema import SCHEMA, bounded
from opsieve.triage.store.rows import (
    CaseDetails,
    RelatedRow,
    name_of,
)
from opsieve.triage.store.store_folder import case_folder, check_folder


class Queries(IndexReader):
    """A store to look at. Methods may be called from any thread; `close` ends all of its connections.

    BadInput, one sentence, from every method: for a name that means nothing, a store that is not there,
    damaged, or of another schema (an older one is brought up first, where nobody writes it).
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._threads = threading.local()
        self._lock = threading.Lock()
        self._open: list[Database] = []
        bring_up(folder)

    def __enter__(self) -> "Queries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection; no thread may be asking."""
        with self._lock:
            for database in self._open:
                database.close()
            self._open.clear()
            self._threads = threading.local()

    def case(self, name: str) -> CaseDetails:
        """A failure: `name` is a case folder, `CAMPAIGN:TEST:TARGET`, or a cluster, of which it is the
        representative.
        """
        if "/" not in name and ":" not in name:
            place = self.cluster(name).representative
            if not place:
                raise BadInput(f"no case of {shown(name)} was kept; look at its members")
            name = place
        member, components, cluster = self.member(name)
        folder = case_folder(self.folder, member.folder) if member.folder else None
        observations, problem = (
            read_observations(folder) if folder else ((), "its case was not kept, it is only counted")
        )
        reduced = folder / "reduced" if folder and member.reduced is not None else None
        of = "" if cluster is None else name_of(cluster)
        from opsieve.triage.store.artifacts import blamed_commits  # not at the start of the terminal app

        commits = blamed_commits(folder) if folder else ()
        return CaseDetails(member, of, folder, reduced, components, observations, problem, commits)

    def related(self, name: str, most: int = 10) -> tuple[RelatedRow, ...]:
        """Clusters that look like this one, with the reason: suggestions, nothing is joined by them."""
        from opsieve.triage.clustering.clusters import (
            SimilarityFeatures,
            likeliest,
            related,
            same_commit,
            similarity_features,
        )

        number = self.cluster_of(name)
        features: dict[int, list[SimilarityFeatures]] = {}
        for cluster, components in self.same_backend(number):
            features.setdefault(cluster, []).append(similarity_features(components))
        own = features.pop(number, [])
        blamed = self._blamed(self.bisected(number))
        alike = related(own, features, most)
        found = likeliest(alike, same_commit(blamed.pop(number, {}), blamed, most), most=most)
        return tuple(RelatedRow(self.cluster(name_of(one.cluster)), one.score, one.reason) for one in found)

    def _blamed(self, cases: Sequence[tuple[int, str]]) -> dict[int, dict[str, float]]:
        """The commits behind clusters with their probabilities: of each the first of its cases that has
        any.
        """
        from opsieve.triage.store.artifacts import blamed_commits

        found: dict[int, dict[str, float]] = {}
        for cluster, place in cases:
            if not found.get(cluster):
                try:
                    commits = blamed_commits(case_folder(self.folder, place))
                    found[cluster] = {f"{one.sha} {one.subject}": one.share for one in commits if one.sha}
                except BadInput:  # a place that leads elsewhere, or nowhere
                    continue
        return found

    def changed(self) -> bool:
        """Whether anybody committed something since this thread asked this last; True the first time."""
        now = int(self._value("PRAGMA data_version"))
        before = getattr(self._threads, "seen", None)
        self._threads.seen = now
        return now != before

    @contextmanager
    def _asking(self) -> Iterator[Database]:
        """This thread's connection; what SQLite says becomes one sentence."""
        try:
            database: Database | None = getattr(self._threads, "database", None)
            if database is None:
                database = looking(self.folder / INDEX)
                with self._lock:
                    self._open.append(database)
                self._threads.database = database
            with bounded(database.conn):
                yield database
        except sqlite3.Error as error:
            raise BadInput(sentence(self.folder, error)) from None


def bring_up(folder: Path) -> None:
    """Bring the index of an older opsieve to this one's schema. BadInput when there is no store, it is newer,
    or somebody writes it.
    """
    check_folder(folder)
    path = folder / INDEX
    if path.is_file():
        try:
            older = 0 <= version_of(path) < SCHEMA
        except sqlite3.Error as error:
            raise BadInput(sentence(folder, error)) from None
        if older:
            from opsieve.triage.store.store import Store

            Store(folder).close()
    with joined(folder):
        pass
