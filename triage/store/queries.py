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
from opsieve.triage.known.issues import ClusterSignature
from opsieve.triage.store.failure_record import read_observations
from opsieve.triage.store.index.filters import SORTS as SORTS
from opsieve.triage.store.index.filters import Order, condition
from opsieve.triage.store.index.filters import Sort as Sort
from opsieve.triage.store.index.index_file import INDEX, joined, looking, sentence, version_of
from opsieve.triage.store.index.index_reader import GROUPINGS as GROUPINGS  # part of this interface
from opsieve.triage.store.index.index_reader import Grouping as Grouping
from opsieve.triage.store.index.index_reader import IndexReader
from opsieve.triage.store.index.schema import SCHEMA, bounded
from opsieve.triage.store.rows import (
    CampaignRow,
    CaseDetails,
    ClusterGroup,
    ClusterPage,
    ClusterRow,
    Counts,
    Decision,
    FingerprintRow,
    MemberPage,
    NonBugRow,
    RelatedRow,
    RuleRow,
    name_of,
)
from opsieve.triage.store.store_folder import case_folder, check_folder


class Queries:
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

    def clusters(
        self, text: str = "", *, sort: Sort = "rank", reverse: bool = False, after: str = "", limit: int = 100
    ) -> ClusterPage:
        """A page of the clusters that a filter (`filters.condition`) lets through. `after` is the `next` of
        the page before.
        """
        wanted = condition(text) if text.strip() else None
        with self._asking() as index:
            return index.cluster_page(wanted, Order(sort, reverse, after), limit)

    def groups(self, by: Grouping, text: str = "") -> tuple[ClusterGroup, ...]:
        """The clusters that a filter lets through, counted by a property, the largest group first. A cluster
        of two targets counts in both.
        """
        with self._asking() as index:
            return index.groups(by, condition(text))

    def cluster(self, name: str) -> ClusterRow:
        """The cluster that a name (`IndexReader.cluster_of`) means."""
        with self._asking() as index:
            return index.cluster(index.cluster_of(name))

    def fingerprints(self, name: str) -> tuple[FingerprintRow, ...]:
        """The fingerprints of a cluster, oldest first, each with its components and why it is here."""
        with self._asking() as index:
            return index.fingerprint_rows(index.cluster_of(name))

    def members(self, name: str, *, after: str = "", limit: int = 100) -> MemberPage:
        """A page of the failures of a cluster: fingerprint by fingerprint, as they were found, so those with
        a case first.
        """
        with self._asking() as index:
            return index.member_page(index.cluster_of(name), after, limit)

    def case(self, name: str) -> CaseDetails:
        """A failure: `name` is a case folder, `CAMPAIGN:TEST:TARGET`, or a cluster, of which it is the
        representative.
        """
        with self._asking() as index:
            if "/" not in name and ":" not in name:
                place = index.representative(index.cluster_of(name))
                if not place:
                    raise BadInput(f"no case of {shown(name)} was kept; look at its members")
                name = place
            member, components, cluster = index.member(name)
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

        with self._asking() as index:
            number = index.cluster_of(name)
            features: dict[int, list[SimilarityFeatures]] = {}
            for cluster, components in index.same_backend(number):
                features.setdefault(cluster, []).append(similarity_features(components))
            own = features.pop(number, [])
            blamed = self._blamed(index.bisected(number))
            found = likeliest(
                related(own, features, most), same_commit(blamed.pop(number, {}), blamed, most), most=most
            )
            return tuple(RelatedRow(index.cluster(one.cluster), one.score, one.reason) for one in found)

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

    def history(self, name: str = "", most: int = 100) -> tuple[Decision, ...]:
        """Decisions, the latest first; of one cluster where one is named."""
        with self._asking() as index:
            return index.decisions(index.cluster_of(name) if name else None, most)

    def signatures(self) -> tuple[ClusterSignature, ...]:
        """What every cluster is recognised by in another store."""
        with self._asking() as index:
            return tuple(index.signatures())

    def met(self, campaign: str) -> tuple[set[int], set[int]]:
        """The clusters (by number) of a campaign, and those of them that other campaigns met, too."""
        with self._asking() as index:
            return index.met(campaign)

    def counts(self) -> Counts:
        """The whole store in figures."""
        with self._asking() as index:
            return index.counts()

    def non_bugs(self, verdict: str = "", most: int = 100) -> tuple[NonBugRow, ...]:
        """What is no confirmed bug, the most frequent first: an entry for each target, verdict and lack, and
        for each flaky fingerprint.
        """
        with self._asking() as index:
            return index.non_bugs(verdict, most)

    def rules(self) -> tuple[RuleRow, ...]:
        """The rules of known bugs as `opsieve triage` read them last, with how many failures each
        explains.
        """
        with self._asking() as index:
            return index.rules()

    def campaigns(self) -> tuple[CampaignRow, ...]:
        """The campaigns as they were begun, each with its tests done."""
        with self._asking() as index:
            return index.campaigns()

    def changed(self) -> bool:
        """Whether anybody committed something since this thread asked this last; True the first time."""
        with self._asking() as index:
            now = index.data_version()
        before = getattr(self._threads, "seen", None)
        self._threads.seen = now
        return now != before

    @contextmanager
    def _asking(self) -> Iterator[IndexReader]:
        """The index over this thread's connection; what SQLite says becomes one sentence."""
        try:
            database: Database | None = getattr(self._threads, "database", None)
            if database is None:
                database = looking(self.folder / INDEX)
                with self._lock:
                    self._open.append(database)
                self._threads.database = database
            with bounded(database.conn):
                yield IndexReader(database)
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
