"""Order clusters for reading. Pure.

Furthest point first (Chen and others, Taming compiler fuzzers, PLDI 2013, section 3): begin with the most
severe cluster, then continue with the one that is least like all those before it, so that the first page
shows as many different bugs as possible. Equal distances, and all clusters behind the first `DIVERSE`, are
ordered by severity, breadth and the size of the representative.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The number of clusters ordered furthest-point-first; readers rarely go further.
DIVERSE = 200
# Of a cluster's features, hashed
_BITS = 512

# A failure is the worse the less it can be noticed or worked around, and the more valid the program was.
SEVERITY = {
    "crash": 7,
    "mismatch": 6,
    "metamorphic": 6,
    "nondeterminism": 5,
    "round-trip": 5,
    "hang": 4,
    "error": 3,
    "memory": 3,
    "accepts-invalid": 2,
    "slowdown": 1,
}
CRASH_ON_INVALID = 3


@dataclass(frozen=True, slots=True)
class RankFeatures:
    """The properties that determine a cluster's place in the order.

    `size` is the representative's nodes, `breadth` its targets; `open` is False once a person has dealt with
    it (known, fixed, wontfix).
    """

    cluster: int
    severity: int
    breadth: int
    reduced: bool
    size: int
    members: int
    features: frozenset[str]
    open: bool = True
    pinned: bool = False


def get_severity(kind: str, *, valid: bool = True) -> int:
    """Return a severity from 0 to 7: crash on a valid program, wrong result, others, crash on an invalid one,
    slowdown.
    """
    return CRASH_ON_INVALID if kind == "crash" and not valid else SEVERITY.get(kind, 0)


def rank_clusters(places: Sequence[RankFeatures]) -> list[int]:
    """Order the clusters for reading: pinned ones, then open ones, then closed ones."""
    pinned = sorted((place for place in places if place.pinned), key=_make_sort_key)
    going = sorted((place for place in places if place.open and not place.pinned), key=_make_sort_key)
    done = sorted((place for place in places if not place.open and not place.pinned), key=_make_sort_key)
    return [place.cluster for place in (*pinned, *_order_by_distance(going), *done)]


def _make_sort_key(place: RankFeatures) -> tuple[int, int, bool, int, int, int]:
    return (-place.severity, -place.breadth, not place.reduced, place.size, -place.members, place.cluster)


def _order_by_distance(places: Sequence[RankFeatures]) -> list[RankFeatures]:
    """Order `places`, most severe first, so that each of the first ones is as far as possible from those
    before it.
    """
    if len(places) < 3:
        return list(places)
    # Hashed to a fixed width: one product of matrices compares a cluster with all others.
    marks = np.zeros((len(places), _BITS), dtype=np.float32)
    for row, place in enumerate(places):
        for feature in place.features:
            # Equal in every process, unlike `hash`
            number = 2166136261
            for byte in feature.encode("utf-8", "surrogatepass"):
                # FNV-1a
                number = (number ^ byte) * 16777619 & 0xFFFFFFFF
            marks[row, number % _BITS] = 1.0
    sizes = marks.sum(axis=1)
    # To the chosen ones, by Jaccard's distance
    nearest = np.full(len(places), 2.0, dtype=np.float32)
    chosen: list[int] = []
    for _ in range(min(DIVERSE, len(places))):
        # The first of equals, so the gravest
        furthest = int(np.argmax(nearest))
        chosen.append(furthest)
        common = marks @ marks[furthest]
        # Two clusters without features have an empty union.
        either = np.maximum(sizes + sizes[furthest] - common, 1.0)
        nearest = np.minimum(nearest, 1.0 - common / either)
        # Never chosen again: distances are at least 0.
        nearest[chosen] = -1.0
    taken = set(chosen)
    return [places[row] for row in chosen] + [place for row, place in enumerate(places) if row not in taken]
