"""Move failures whose fingerprints change, through new rules or a reduced graph. Pure.

Decisions of people stay: a failure in a decided cluster does not leave it. If a new fingerprint would stand
in two clusters that must stay apart, the failures of the second one get a fingerprint of their own,
`KEY@c17`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from opsieve.triage.fingerprint.component import Component

# The pseudo-cluster of a failure that starts its own, or joins by alternative titles.
NEW = 0


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A failure with a recomputed fingerprint: its row, its present key and cluster, and its new key."""

    row: int
    key: str
    cluster: int
    new: str


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Failures that move together: from a fingerprint in a cluster to one in another cluster (`NEW`: its
    own).
    """

    key: str
    cluster: int
    to_key: str
    to_cluster: int
    rows: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A component whose part in the fingerprint changed; "" on a side without it."""

    name: str
    before: str
    after: str


def find_differences(before: Sequence[Component], after: Sequence[Component]) -> tuple[Difference, ...]:
    """List the differences between the kept parts of two fingerprints, in their order."""
    old, new = ({part.name: part.value for part in parts if part.kept} for parts in (before, after))
    names = dict.fromkeys([*old, *new])
    return tuple(
        Difference(name, old.get(name, ""), new.get(name, ""))
        for name in names
        if old.get(name) != new.get(name)
    )


def plan_moves(
    failures: Sequence[KeyChange],
    existing: Mapping[str, int],
    decided: Collection[int],
    rest: Collection[str],
) -> list[Reassignment]:
    """Group the failures by old and new fingerprint and cluster.

    `existing` maps present fingerprints to clusters, `decided` are clusters with decisions, `rest` are
    fingerprints that some failures keep. If a fingerprint falls apart, its largest part stays in the cluster;
    fingerprints of one cluster stay in it.
    """
    rows: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for each in failures:
        rows[each.key, each.cluster, each.new].append(each.row)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    origins: dict[str, set[int]] = defaultdict(set)
    for (key, cluster, new), found in rows.items():
        outcomes[key][new] += len(found)
        origins[new].add(cluster)
    # The largest part keeps the cluster, so that its title, notes and number stay with most failures.
    successors = {key: _choose_successor(counts, key in rest) for key, counts in outcomes.items()}
    succeeded: dict[str, set[int]] = defaultdict(set)
    for key, cluster, new in rows:
        if successors[key] == new:
            succeeded[new].add(cluster)
    groups = []
    for (key, cluster, new), found in sorted(rows.items()):
        goal, reason = _choose_goal(new, origins[new], existing, decided, succeeded[new])
        if cluster in decided and cluster != goal:
            groups.append(
                Reassignment(
                    key,
                    cluster,
                    f"{new}@c{cluster}",
                    cluster,
                    tuple(found),
                    "a person decided of its cluster: it stays",
                )
            )
        else:
            groups.append(
                Reassignment(
                    key,
                    cluster,
                    new,
                    goal,
                    tuple(found),
                    "it stays in its cluster" if goal == cluster else reason,
                )
            )
    return groups


def _choose_goal(
    new: str,
    origins: Collection[int],
    existing: Mapping[str, int],
    decided: Collection[int],
    succeeded: Collection[int],
) -> tuple[int, str]:
    """Choose the cluster of a key, and the reason for failures that come from another one."""
    if new in existing:
        return existing[new], "its fingerprint is there already"
    kept = sorted(cluster for cluster in origins if cluster in decided)
    if kept:
        # The oldest one, if people decided about several.
        return kept[0], "its fingerprint is that of a cluster that a person decided of"
    if succeeded:
        return min(succeeded), "failures of both clusters have one fingerprint now"
    return NEW, "its fingerprint differs from those of its cluster now"


def _choose_successor(counts: Counter[str], has_rest: bool) -> str:
    """Return the most frequent new key of a fingerprint; "" if some failures keep the old one and the others
    disagree.
    """
    if has_rest and len(counts) > 1:
        return ""
    # The key as a tie-break makes the plan the same on every machine.
    return min(counts, key=lambda key: (-counts[key], key))
