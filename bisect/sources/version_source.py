"""Sources of versions: what a case can be bisected over, found by entry point in the group
`opsieve.version_sources`.

An entry is a function `open_source(case, target, argument, offline)` that returns a context manager of a
`VersionSource`; `opsieve bisect CASE --source NAME:ARGUMENT` opens it. docs/how-to/bisect.md shows a whole
one. Commits are no row, and have a search of their own.
"""

import importlib.metadata
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast

from opsieve.backends.registry import ResolvedTarget
from opsieve.bisect.sources.outcome import VersionOutcome
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown

GROUP = "opsieve.version_sources"


class VersionSource(Protocol):
    """Versions in a row, oldest first, and what each shows of a case."""

    versions: Sequence[str]

    def evaluate(self, version: str) -> VersionOutcome:
        """Try the case on a version; `skip` where it cannot be tried, never an exception for a version that
        is broken.
        """


class Opener(Protocol):
    """What an entry point names."""

    def __call__(
        self, case: Case, target: ResolvedTarget, argument: str, offline: bool
    ) -> AbstractContextManager[VersionSource]:
        """The source, for a case on a target; `argument` is what the user wrote behind the name. BadInput for
        one that is no good.
        """


def opener(name: str) -> Opener:
    """The source called `name`; BadInput when there is none, or it cannot be loaded."""
    entries = importlib.metadata.entry_points(group=GROUP)
    found = [entry for entry in entries if entry.name == name]
    if not found:
        there = ", ".join(sorted({entry.name for entry in entries})) or "none"
        raise BadInput(f"there is no source of versions {shown(name)}; there are {there}")
    try:
        return cast(Opener, found[0].load())
    except (ImportError, AttributeError, SyntaxError) as error:
        raise BadInput(
            f"the source of versions {shown(name)} cannot be loaded ({error}): reinstall its package"
        ) from None
