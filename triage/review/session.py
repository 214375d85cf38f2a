"""A round of triage as a whole: evidence taken up, fingerprints computed anew where there is some, clusters
matched and ranked.
"""

from dataclasses import dataclass
from pathlib import Path

from opsieve.gen.errors import BadInput
from opsieve.triage.clustering.reassign import Difference
from opsieve.triage.review.refingerprint import refingerprint
from opsieve.triage.review.review import TriageRound, review
from opsieve.triage.store.ids import name_of
from opsieve.triage.store.store import Store


@dataclass(frozen=True, slots=True)
class Move:
    """Failures whose fingerprint became another: how many, both fingerprints, both clusters by name (`new`
    for one that is not there yet) with their titles before, why, and which components differ.
    """

    failures: int
    fingerprint: str
    to: str
    cluster: str
    to_cluster: str
    reason: str
    title: str
    to_title: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class TriageOutcome:
    """What a round did, what it moved, and sentences about fingerprints that could not be computed anew."""

    round: TriageRound
    moves: tuple[Move, ...] | None  # None where nothing had to be computed anew
    unread: tuple[str, ...] = ()


def triage(folder: Path, *, refingerprinted: bool = False) -> TriageOutcome:
    """A round over the store; what evidence says anew moves at once, unless that was done just now. BadInput
    when the store cannot be used.

    While a campaign holds the store fingerprints stay as they are, and the rest of the round is as good
    without.
    """
    done = review(folder)
    if refingerprinted or not done.evidence:
        return TriageOutcome(done, None)
    try:
        moves, unread = compute_anew(folder, places=done.evidence)
    except BadInput as error:
        return TriageOutcome(done, None, (f"fingerprints were not updated: {error}",))
    return TriageOutcome(review(folder) if moves else done, moves, unread)


def compute_anew(
    folder: Path, *, places: tuple[str, ...] | None = None, dry_run: bool = False
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """Fingerprints by today's rules, of the cases at `places` (of all for None): what moves, or would, and a
    sentence for each case that cannot be read and stays. BadInput when another process writes the store.
    """
    with Store(folder) as store, store.guarded():
        titles = store.index.titles()
        outcome = refingerprint(store.index, folder, places=places, dry_run=dry_run)
    moves = tuple(
        Move(
            len(group.rows),
            group.key,
            group.to_key,
            name_of(group.cluster),
            name_of(group.to_cluster) if group.to_cluster else "new",
            group.reason,
            titles.get(group.cluster, ""),
            titles.get(group.to_cluster, ""),
            apart,
        )
        for group, apart in zip(outcome.groups, outcome.differences, strict=True)
    )
    return moves, outcome.problems
