"""Which fingerprints are one cluster, where all of them are in memory: the rules of a store, without a
store.
"""

from collections.abc import Sequence

from opsieve.triage.clustering.clusters import alternatives
from opsieve.triage.clustering.statements import MOST_COMPARED, common_texts, statement_of
from opsieve.triage.fingerprint.component import Component


class Links:
    """Fingerprints as they come; `cluster` gives the key of the first one of those that are linked."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._titled: dict[str, str] = {}
        self._statements: dict[str, list[tuple[str, Sequence[Component]]]] = {}

    def add(self, key: str, components: Sequence[Component]) -> None:
        """Enter a fingerprint; one that is there already stays as it is."""
        if key in self._parents:
            return
        self._parents[key] = key
        for title in alternatives(components):
            self._link(key, self._titled.setdefault(title, key))
        if statement := statement_of(components):
            others = self._statements.setdefault(statement, [])
            for (other, _), text in zip(
                others, common_texts(components, [its for _, its in others]), strict=True
            ):
                if text is not None:
                    self._link(key, other)
            if len(others) < MOST_COMPARED:
                others.append((key, components))

    def cluster(self, key: str) -> str:
        """The first key of the cluster that a key belongs to."""
        while (parent := self._parents[key]) != key:
            key = parent
        return key

    def _link(self, key: str, other: str) -> None:
        order = list(dict.fromkeys([self.cluster(other), self.cluster(key)]))
        for later in order[1:]:
            self._parents[later] = order[0]
