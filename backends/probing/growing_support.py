"""What a compiler has of which nobody knows anything: a signature is asked about when it first comes up while
a program is made.

What is asked is a program of one operator that follows from the signature alone, so that everybody who asks
makes the same programs of a seed, in whichever order signatures come up, and an answer that somebody was
given before, of the same generator, need not be asked for again. What every compiler has whose table comes
with opsieve is taken to be there.
"""

import functools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from opsieve.backends.probing.answer_file import AnswerFile, cache_folder
from opsieve.backends.probing.operator_support import ProbeAnswer, Support, beginning, support_of
from opsieve.backends.probing.prober import Probe, ending, instances, wheel
from opsieve.backends.probing.support_tables import shipped
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.catalogue import OLDEST, first_dtypes, form, operators
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.generator_version import compute_generator_version
from opsieve.gen.generation.random_graph import SUPPORTED


class Asked(Protocol):
    """Who answers for a compiler; `SignatureProber` does."""

    def signature(self, key: str) -> Sequence[ProbeAnswer]:
        """The answers to the program of a signature; none where there is no such program, or it tells
        nothing.
        """

    def operator(self, key: str) -> Sequence[ProbeAnswer]:
        """The same for a usual instance of the signature's operator and form."""


@dataclass(frozen=True, eq=False)
class GrowingSupport(Support):
    """A table that begins empty. What all `others` were found to have is taken to be there where one instance
    of the operator is.
    """

    asked: Asked | None = None
    others: tuple[Support, ...] = ()
    _of: dict[str, Support] = field(default_factory=dict)

    @functools.cached_property
    def allowed(self) -> Hashable:
        """Another one for every target: nobody knows what it will have."""
        return self.target, self.version

    def has(self, key: str, rank: int) -> bool:
        """Whether an instance of a signature is worth a test."""
        assert self.asked is not None
        if self.others and all(key in other.known and other.has(key, rank) for other in self.others):
            operator = beginning(key)
            if operator not in self._of:
                self._of[operator] = support_of(self.target, self.version, self.asked.operator(key))
            if not self._of[operator].doubtful:
                return True
        if key not in self._of:
            self._of[key] = support_of(self.target, self.version, self.asked.signature(key))
        return self._of[key].has(key, rank)


class SignatureProber:
    """Asks a target about single signatures, and keeps what it answers in `folder` (the user's cache unless
    given).
    """

    def __init__(
        self, workers: Workers, target: ResolvedTarget, version: str, folder: Path | None = None
    ) -> None:
        self._workers, self._target = workers, target
        self._drawn: dict[str, Iterator[tuple[str, int, Test]]] = {}
        self._tests: dict[str, tuple[int, Test]] = {}
        # Another generator may draw other instances.
        of = f"signatures of {compute_generator_version()}"
        self._file = AnswerFile(folder or cache_folder("support"), wheel(target).display, version, of)
        self._kept = {answer.signature: answer for answer in self._file.read()}

    def signature(self, key: str) -> Sequence[ProbeAnswer]:
        """What the target makes of the first instance of a signature that is drawn."""
        probe = probe_of(key)
        if probe is None:
            return ()
        if key in self._kept:
            return (self._kept[key],)
        drawn = self._drawn.setdefault(probe.name, instances(probe, 1))
        while key not in self._tests:
            found = next(drawn, None)
            if found is None:
                return ()
            self._tests.setdefault(found[0], found[1:])
        return self._answers(probe, key, *self._tests.pop(key))

    def operator(self, key: str) -> Sequence[ProbeAnswer]:
        """What it makes of the first instance of an operator with the most usual dtype that it takes."""
        probe = probe_of(key)
        if probe is None:
            return ()
        dtypes = first_dtypes(probe.operator, probe.opset)
        usual = min(dtypes, key=lambda dtype: (dtype != "float32", dtype))
        found = next(instances(replace(probe, dtype=usual), 1), None)
        if found is None:
            return ()
        return (self._kept[found[0]],) if found[0] in self._kept else self._answers(probe, *found)

    def _answers(self, probe: Probe, key: str, rank: int, test: Test) -> Sequence[ProbeAnswer]:
        (observation,) = self._workers.observe_many(self._target, [test])
        outcome, message = ending(test, observation)
        # A lack of the machine says nothing of the operator.
        if outcome == "environment":
            return ()
        self._kept[key] = answer = ProbeAnswer(probe.name, key, rank, outcome, message)
        with suppress(BadInput):  # asked again by the next one
            self._file.keep([answer])
        return (answer,)


def probe_of(key: str) -> Probe | None:
    """What a signature is drawn with; None where its operator is not declared, or its first input takes no
    such dtype.
    """
    name, since, dtypes = (*key.split(" ", 3), "")[:3]
    operator = operators().get(name)
    if operator is None:
        return None
    opsets = [
        opset
        for opset in range(max(OLDEST, operator.since), SUPPORTED + 1)
        if operator.domain or ((had := form(operator.name, opset)) is not None and had.since == int(since))
    ]
    dtype = dtypes.partition(",")[0]
    if not opsets or dtype not in first_dtypes(operator, opsets[-1]):
        return None
    return Probe(operator, opsets[-1], dtype)


def growing(
    support: Support, workers: Workers, target: ResolvedTarget, folder: Path | None = None
) -> Support:
    """The table, or where nothing is known of the target one that grows."""
    if support.known:
        return support
    nothing = frozenset[str]()
    asked = SignatureProber(workers, target, support.version, folder)
    return GrowingSupport(
        support.target, support.version, {}, {}, nothing, nothing, asked=asked, others=_others()
    )


@functools.cache
def _others() -> tuple[Support, ...]:
    return tuple(support_of(table.backend, table.version, table.answers) for table in shipped())
