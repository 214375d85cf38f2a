"""A clustering against labels: BCubed (Amigo et al., 2009), pairs, and the adjusted Rand index (Hubert and
Arabie, 1985).
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """`failures` of `faults` in `clusters`; P and R are precision and recall."""

    failures: int
    faults: int
    clusters: int
    bcubed_p: float
    bcubed_r: float
    bcubed_f1: float
    pair_p: float
    pair_r: float
    ari: float


def scores(keys: Sequence[Hashable], labels: Sequence[Hashable]) -> Scores:
    """How well `keys`, the clusters of failures, tell their `labels`."""
    both, mine, true = Counter(zip(keys, labels, strict=True)), Counter(keys), Counter(labels)
    total = len(keys)
    precision = sum(n * n / mine[key] for (key, _), n in both.items()) / max(total, 1)
    recall = sum(n * n / true[label] for (_, label), n in both.items()) / max(total, 1)
    hit, said, is_so = (sum(n * (n - 1) / 2 for n in count.values()) for count in (both, mine, true))
    every = total * (total - 1) / 2
    chance = said * is_so / every if every else 0.0
    most = (said + is_so) / 2
    return Scores(
        total,
        len(true),
        len(mine),
        precision,
        recall,
        2 * precision * recall / max(precision + recall, 1e-12),
        hit / said if said else 1.0,
        hit / is_so if is_so else 1.0,
        (hit - chance) / (most - chance) if most != chance else 1.0,
    )
