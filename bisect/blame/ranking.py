"""Rank the commits between two releases by the evidence that they changed a behaviour. Pure.

Each kind of evidence adds a weight in nats (a log-likelihood ratio) to a commit, once; a commit's probability
is its share of the exponentials, with a share for "a commit without evidence" beside it. The weights were set
by hand from changes that were read, and moved a little towards 16 changes with a known commit (the maximum a
posteriori with a Gaussian prior of 0.5 nats around them; `benchmarks/blame.py`, results in
docs/benchmarks/bisect.md). Sixteen is a small sample: a probability here compares evidence rather than
predicting how often the answer is right.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Clue(Enum):
    """A kind of evidence for or against a commit; the value is the reason shown to people."""

    LINES = "changed lines that differ between the releases in {}"
    MESSAGE = "added or removed the text {}"
    LINE_OPERATOR = "those lines name the operator {}"
    FUNCTION = "changes the function {}, which the stack names"
    CODE_OPERATOR = "changes code that names the operator {}"
    CODE_PASS = "changes code that names the pass {}"
    PASS_FILE = "touches {}, which names the guilty pass"
    NAMED_FILE = "touches {}, which the message names"
    REGISTERS = (
        "touches {}, where an operator of the case is registered, or a file beside it of the same name"
    )
    KERNEL = "touches {}, named as an operator of the case"
    NEAR_KERNEL = "touches {}, whose name holds that of an operator of the case"
    PASS_WORD = "its subject names the pass {}"
    OPERATOR_WORD = "its subject names the operator {}"
    SYMPTOM_WORD = "its subject speaks of {}"
    RARE_WORD = "its text has the word {} of the failure, which few of the commits have"
    RARE_WORDS = "its text has the words {} of the failure, which few of the commits have"
    QUOTES = "its description has the text {}"
    DESCRIBES_PASS = "its description names the pass {}"
    DESCRIBES_OPERATOR = "its description names the operator {}"
    MENDS = "its subject says that it mends something: {}"
    TEST = "changes a test of {}"
    ELSEWHERE = "changes nothing that is in the release"
    LARGE = "changes {} files"
    HUGE = "changes as many as {} files"
    REVERT = "is a revert"
    DOCUMENTS = "changes documents only"


# Nats add up, so 7 nats make a commit e^7 (about 1,100) times as likely as one without evidence: enough to
# stand out among the 692 commits of the longest range measured.
WEIGHTS: Mapping[Clue, float] = {
    Clue.LINES: 6.4,
    Clue.MESSAGE: 7.2,
    Clue.LINE_OPERATOR: 1.6,
    Clue.FUNCTION: 3.2,
    Clue.CODE_OPERATOR: 1.3,
    Clue.CODE_PASS: 1.6,
    Clue.PASS_FILE: 4.0,
    Clue.NAMED_FILE: 3.2,
    Clue.REGISTERS: 1.8,
    Clue.KERNEL: 2.4,
    Clue.NEAR_KERNEL: 1.3,
    Clue.PASS_WORD: 2.4,
    Clue.OPERATOR_WORD: 1.5,
    Clue.SYMPTOM_WORD: 2.5,
    Clue.RARE_WORD: 1.2,
    Clue.RARE_WORDS: 2.4,
    Clue.QUOTES: 4.0,
    Clue.DESCRIBES_PASS: 2.0,
    Clue.DESCRIBES_OPERATOR: 0.9,
    Clue.MENDS: 1.5,
    Clue.TEST: 0.5,
    Clue.ELSEWHERE: -3.2,
    Clue.LARGE: -2.4,
    Clue.HUGE: -4.8,
    Clue.REVERT: 0.5,
    Clue.DOCUMENTS: -4.8,
}
# nats of "none of these": a commit needs a strong piece of evidence, or some weak ones, to be likelier
NONE = 4.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """A commit with its probability and the reasons, the strongest first."""

    sha: str
    probability: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Commits with evidence, the likeliest first; `none` is the probability that the culprit is another
    commit.
    """

    suspects: tuple[Suspect, ...]
    none: float


def rank_by_evidence(
    commits: Sequence[str], found: Mapping[str, Mapping[Clue, str]], is_exact: bool = False
) -> Ranking:
    """Rank `commits` (the newest last) by the clues found for each; among equals the newest comes first.

    If the range `is_exact`, the culprit is hardly outside: that weighs no more than all of its commits.
    """
    scores = {sha: sum(WEIGHTS[kind] for kind in found.get(sha, ())) for sha in commits}
    # log(n) nats for "outside" equal n commits of weight 0, the whole range without evidence.
    outside = min(NONE, math.log(max(1, len(commits)))) if is_exact else NONE
    # The largest score is subtracted first, so that exp() neither overflows nor makes every share 0.
    top = max([outside, *scores.values()])
    shares = {sha: math.exp(score - top) for sha, score in scores.items()}
    total = math.exp(outside - top) + sum(shares.values())
    # Ties go to the newest commit: maintainers review a range from its end, and a late commit is nearer to
    # the release in which people saw the change.
    order = sorted(range(len(commits)), key=lambda place: (-scores[commits[place]], -place))
    suspects = []
    for place in order:
        sha = commits[place]
        clues = sorted(found.get(sha, {}), key=lambda kind: -abs(WEIGHTS[kind]))
        # A sum of 0 or less says only that the commit is unlikely, which is not worth a line of the answer.
        if clues and scores[sha] > 0:
            reasons = tuple(kind.value.format(found[sha][kind]) for kind in clues)
            suspects.append(Suspect(sha, shares[sha] / total, reasons))
    # A commit without evidence is none of these, too.
    return Ranking(tuple(suspects), max(0.0, 1 - sum(suspect.probability for suspect in suspects)))
