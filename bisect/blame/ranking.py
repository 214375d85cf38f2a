"""From evidence to a ranking: which of the commits between two releases changed a behaviour. Pure.

Each kind of evidence adds a weight in nats (a log-likelihood ratio) to a commit, once; a commit's probability is its share of the
exponentials, with a share for "none of these" beside it. The weights are expert priors in the order of what worked on eight changes of
onnxruntime that were found by hand (changed lines of the pass's file, the message's text, the kernel's files, the graph's); they
were not fitted, so a probability here says how the evidence compares, not a frequency that was measured.
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
    Clue.LINES: 4.0,
    Clue.MESSAGE: 4.5,
    Clue.LINE_OPERATOR: 1.0,
    Clue.PASS_FILE: 2.5,
    Clue.NAMED_FILE: 2.0,
    Clue.KERNEL: 1.5,
    Clue.NEAR_KERNEL: 0.8,
    Clue.NOT_BUILT: 0.2,
    Clue.PASS_WORD: 1.5,
    Clue.OPERATOR_WORD: 1.0,
    Clue.SYMPTOM_WORD: 1.5,
    Clue.TEST: 0.5,
    Clue.LARGE: -0.7,
    Clue.REVERT: 0.3,
    Clue.DOCUMENTS: -3.0,
}
NONE = 3.0  # nats of "none of these": a commit needs a strong piece of evidence, or two weak ones, to be likelier


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
    scores = {sha: sum(WEIGHTS[kind] for kind in found.get(sha, {})) for sha in commits}
    top = max([NONE, *scores.values()])
    shares = {sha: math.exp(score - top) for sha, score in scores.items()}
    total = math.exp(NONE - top) + sum(shares.values())
    order = sorted(range(len(commits)), key=lambda place: (-scores[commits[place]], -place))
    suspects = []
    for place in order:
        sha = commits[place]
        kinds = sorted(found.get(sha, {}), key=lambda kind: -abs(WEIGHTS[kind]))
        if kinds and scores[sha] > 0:
            reasons = tuple(kind.value.format(found[sha][kind]) for kind in kinds)
            suspects.append(Suspect(sha, shares[sha] / total, reasons))
    return Ranking(tuple(suspects), math.exp(NONE - top) / total)
