"""Which cases to reduce first, so that a budget buys the most knowledge."""

from collections.abc import Sequence
from dataclasses import dataclass

from opsieve.triage.fingerprint.component import Component, ComponentName
from opsieve.triage.store.index.index_reader import IndexReader
from opsieve.triage.store.rows import name_of


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kept case that is not reduced: its folder in the store, the target that fails, its fingerprint,
    cluster and nodes.
    """

    place: str
    target: str
    fingerprint: str
    cluster: str
    nodes: int


def candidates(index: IndexReader, members: int = 1) -> list[Candidate]:
    """Cases to reduce, the most telling first: of every fingerprint its smallest case, then the second ones.

    First come those that are identified by their graphs, since the others, identified by the place where they
    failed, will most often stay where they are; then the order of clusters decides. Of each fingerprint
    `members` cases, those reduced already counted; all of them where the fingerprint would count operators
    and does not know which to blame, since each of its cases may be another bug.
    """
    found: list[tuple[int, bool, int, Candidate]] = []
    for one in index.to_reduce():
        done = sum(reduced is not None for _, _, _, reduced in one.cases)
        wanted = len(one.cases) if needs_reduction(one.components) else max(0, members - done)
        name = name_of(one.cluster)
        waiting = [
            Candidate(place, target, one.key, name, nodes)
            for place, target, nodes, reduced in one.cases
            if reduced is None
        ]
        elsewhere = not _counts_graph(one.components)
        found += [
            (done + turn, elsewhere, one.rank, candidate) for turn, candidate in enumerate(waiting[:wanted])
        ]
    return [candidate for *_, candidate in sorted(found, key=lambda one: one[:3])]


def needs_reduction(components: Sequence[Component]) -> bool:
    """Whether a fingerprint would count the operators of the program, but they are too many to say which to
    blame.
    """
    return any(part.needs_reduction for part in components)


def _counts_graph(components: Sequence[Component]) -> bool:
    """Whether a fingerprint counts operators, or would once they are few."""
    return any(
        part.needs_reduction or (part.kept and part.name is ComponentName.OPERATORS) for part in components
    )
