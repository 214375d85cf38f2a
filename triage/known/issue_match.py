"""What is compared with public issues, and what is found: as values, and as the index of a store keeps
them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from opsieve.triage.fingerprint.component import Component

_MOST = 5  # issues of a cluster
_LONGEST = 400  # characters of a text


@dataclass(frozen=True, slots=True)
class ClusterSignature:
    """What a cluster is recognised by, among public issues and in another store. `operators` are those of its
    smallest case, `is_small` whether they are few enough to mean something.
    """

    cluster: int
    backend: str
    kind: str
    title: str
    components: tuple[tuple[Component, ...], ...]  # of its fingerprints
    operators: frozenset[str]
    guilty_pass: str = ""
    versions: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()  # of its fingerprints


@dataclass(frozen=True, slots=True)
class ProbableIssue:
    """An issue that a cluster probably is: `owner/repository#number`, its address and title, and why, the
    strongest reason first.

    `score`, 0 to 100, is how alike title and text are (rapidfuzz); it orders, it proves nothing.
    """

    name: str
    url: str
    title: str
    state: str
    score: int
    reasons: tuple[str, ...]


def issues_json(issues: Sequence[ProbableIssue]) -> str:
    """Issues as the index keeps them."""
    return json.dumps([asdict(issue) for issue in issues])


def issues_in(text: str) -> tuple[ProbableIssue, ...]:
    """The issues of an index, which may be a stranger's: () for what is no list of issues, and only addresses
    that are ones.
    """
    if not text:
        return ()
    try:
        return tuple(
            ProbableIssue(
                str(one["name"])[:_LONGEST],
                _address(str(one["url"])),
                str(one["title"])[:_LONGEST],
                str(one["state"])[:10],
                int(one["score"]),
                tuple(str(reason)[:_LONGEST] for reason in list(one["reasons"])[:_MOST]),
            )
            for one in json.loads(text)[:_MOST]
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()


def _address(url: str) -> str:
    return url[:_LONGEST] if url.startswith("https://") else ""
