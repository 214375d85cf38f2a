"""From evidence to a ranking: which of the commits between two releases changed a behaviour. Pure.

Each kind of evidence adds a weight in nats (a log-likelihood ratio) to a commit, once; a commit's probability is its share of the
exponentials, with a share for "none of these" beside it. Their order was set by hand, from what led to the commit in changes of onnxruntime that were read;
their scale, `NONE` and `NOTHING` were fitted to 16 changes whose commit is known (`benchmarks/blame.py`; docs/benchmarks/bisect.md has what that is
worth). Sixteen are few: a probability here says how the evidence compares more than how often it is right.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Clue(Enum):
    """What speaks for a commit, or against it; the value is the reason that people read."""

    LINES = "changed lines that differ between the releases in {}"
    MESSAGE = "added or removed the text {}"
    LINE_OPERATOR = "those lines name the operator {}"
    PASS_FILE = "touches {}, which names the guilty pass"
    NAMED_FILE = "touches {}, which the message names"
    KERNEL = "touches {}, named as an operator of the case"
    NEAR_KERNEL = "touches {}, whose name holds that of an operator of the case"
    NOT_BUILT = "touches {}, named like an operator of the case, but not in the release"
    PASS_WORD = "its subject names the pass {}"
    OPERATOR_WORD = "its subject names the operator {}"
    SYMPTOM_WORD = "its subject speaks of {}"
    TEST = "changes a test of {}"
    LARGE = "changes {} files"
    REVERT = "is a revert"
    DOCUMENTS = "changes documents only"


WEIGHTS: Mapping[Clue, float] = {
    Clue.LINES: 6.4,
    Clue.MESSAGE: 7.2,
    Clue.LINE_OPERATOR: 1.6,
    Clue.PASS_FILE: 4.0,
    Clue.NAMED_FILE: 3.2,
    Clue.KERNEL: 2.4,
    Clue.NEAR_KERNEL: 1.3,
    Clue.NOT_BUILT: 0.3,
    Clue.PASS_WORD: 2.4,
    Clue.OPERATOR_WORD: 1.6,
    Clue.SYMPTOM_WORD: 2.4,
    Clue.TEST: 0.8,
    Clue.LARGE: -1.1,
    Clue.REVERT: 0.5,
    Clue.DOCUMENTS: -4.8,
}
NONE = 4.0  # nats of "none of these": a commit needs a strong piece of evidence, or some weak ones, to be likelier
NOTHING = -3.0  # nats of a commit that nothing speaks for or against


@dataclass(frozen=True, slots=True)
class Suspect:
    """A commit with its probability and the reasons, the strongest first."""

    sha: str
    probability: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Commits, the likeliest first, as far as there is evidence for them; `none` is the probability of none of all."""

    suspects: tuple[Suspect, ...]
    none: float


def rank(commits: Sequence[str], found: Mapping[str, Mapping[Clue, str]]) -> Ranking:
    """Rank `commits` (the newest last) by the evidence found for each: what it is about, by kind. Equal ones: the newest first."""
    scores = {sha: sum(WEIGHTS[kind] for kind in kinds) if (kinds := found.get(sha)) else NOTHING for sha in commits}
    top = max([NONE, *scores.values()])
    shares = {sha: math.exp(score - top) for sha, score in scores.items()}
    total = math.exp(NONE - top) + sum(shares.values())
    order = sorted(range(len(commits)), key=lambda place: (-scores[commits[place]], -place))
    suspects = []
    for place in order:
        sha = commits[place]
        clues = sorted(found.get(sha, {}), key=lambda kind: -abs(WEIGHTS[kind]))
        if clues and scores[sha] > 0:
            reasons = tuple(kind.value.format(found[sha][kind]) for kind in clues)
            suspects.append(Suspect(sha, shares[sha] / total, reasons))
    return Ranking(tuple(suspects), math.exp(NONE - top) / total)
