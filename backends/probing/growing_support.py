"""Support tables that grow: a signature of an unknown compiler is probed when it first comes up in
generation.

The probe is a program of one operator that follows from the signature alone, so that every process makes the
same programs from a seed, in any order of signatures, and a known answer of the same generator can be reused.
Signatures that every shipped table supports are assumed to be supported.
"""

import functools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from opsieve.backends.probing import operator_support, prober, support_tables
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.catalogue import OLDEST, first_dtypes, form, operators
from opsieve.gen.errors import BadInput
from opsieve.gen.generation import generator_version, random_graph


class Asked(Protocol):
    """The source of answers for a compiler; `SignatureProber` is one."""

    def probe_signature(self, key: str) -> Sequence[operator_support.ProbeAnswer]:
        """Return the answers to the program of a signature; empty without a program or a clear result."""

    def probe_operator(self, key: str) -> Sequence[operator_support.ProbeAnswer]:
        """Return the answers for a usual instance of the signature's operator and form."""


@dataclass(frozen=True, eq=False)
class GrowingSupport(operator_support.Support):
    """A table that begins empty; signatures that all `others` support are assumed if one instance of the
    operator works.
    """

    asked: Asked | None = None
    others: tuple[operator_support.Support, ...] = ()
    _of: dict[str, operator_support.Support] = field(default_factory=dict)

    @functools.cached_property
    def support_key(self) -> Hashable:
        """A distinct value for every target, because its support is unknown."""
        return self.target, self.version

    def has(self, key: str, rank: int) -> bool:
        """Whether an instance of a signature is worth a test."""
        assert self.asked is not None
        # A signature that every known compiler has is rarely missing; one probe of the operator tells.
        if self.others and all(key in other.known and other.has(key, rank) for other in self.others):
            operator = operator_support.get_beginning(key)
            if operator not in self._of:
                self._of[operator] = operator_support.collect_support(
                    self.target, self.version, self.asked.probe_operator(key)
                )
            if not self._of[operator].doubtful:
                return True
        if key not in self._of:
            self._of[key] = operator_support.collect_support(
                self.target, self.version, self.asked.probe_signature(key)
            )
        return self._of[key].has(key, rank)


class SignatureProber:
    """Probes single signatures of a target, and keeps the answers in `folder` (default: the user's cache)."""

    def __init__(
        self, workers: Workers, target: ResolvedTarget, version: str, folder: Path | None = None
    ) -> None:
        self._workers, self._target = workers, target
        self._drawn: dict[str, Iterator[tuple[str, int, Test]]] = {}
        self._tests: dict[str, tuple[int, Test]] = {}
        # Another generator may draw other instances.
        of = f"signatures of {generator_version.compute_generator_version()}"
        self._file = operator_support.AnswerFile(
            folder or operator_support.get_cache_folder("support"),
            prober.strip_level(target).display,
            version,
            of,
        )
        self._kept = {answer.signature: answer for answer in self._file.read()}

    def probe_signature(self, key: str) -> Sequence[operator_support.ProbeAnswer]:
        """Probe the first drawn instance of a signature."""
        probe = make_probe(key)
        if probe is None:
            return ()
        if key in self._kept:
            return (self._kept[key],)
        drawn = self._drawn.setdefault(probe.name, prober.iter_instances(probe, 1))
        # Drawn until the signature comes; others that come before are kept for later questions.
        while key not in self._tests:
            found = next(drawn, None)
            if found is None:
                return ()
            self._tests.setdefault(found[0], found[1:])
        return self._run_probe(probe, key, *self._tests.pop(key))

    def probe_operator(self, key: str) -> Sequence[operator_support.ProbeAnswer]:
        """Probe the first instance of an operator with its most usual dtype."""
        probe = make_probe(key)
        if probe is None:
            return ()
        dtypes = first_dtypes(probe.operator, probe.opset)
        # float32 first, as every compiler has it if it has the operator.
        usual = min(dtypes, key=lambda dtype: (dtype != "float32", dtype))
        found = next(prober.iter_instances(replace(probe, dtype=usual), 1), None)
        if found is None:
            return ()
        return (self._kept[found[0]],) if found[0] in self._kept else self._run_probe(probe, *found)

    def _run_probe(
        self, probe: prober.Probe, key: str, rank: int, test: Test
    ) -> Sequence[operator_support.ProbeAnswer]:
        (observation,) = self._workers.observe_many(self._target, [test])
        outcome, message = prober.classify_ending(test, observation)
        # A lack of the machine says nothing of the operator.
        if outcome == "environment":
            return ()
        self._kept[key] = answer = operator_support.ProbeAnswer(probe.name, key, rank, outcome, message)
        # The next call repeats it.
        with suppress(BadInput):
            self._file.append_answers([answer])
        return (answer,)


def make_probe(key: str) -> prober.Probe | None:
    """Make the probe that draws a signature; None for an undeclared operator or an impossible dtype."""
    name, since, dtypes = (*key.split(" ", 3), "")[:3]
    operator = operators().get(name)
    if operator is None:
        return None
    opsets = [
        opset
        for opset in range(max(OLDEST, operator.since), random_graph.SUPPORTED + 1)
        if operator.domain or ((had := form(operator.name, opset)) is not None and had.since == int(since))
    ]
    dtype = dtypes.partition(",")[0]
    if not opsets or dtype not in first_dtypes(operator, opsets[-1]):
        return None
    return prober.Probe(operator, opsets[-1], dtype)


def make_growing(
    support: operator_support.Support, workers: Workers, target: ResolvedTarget, folder: Path | None = None
) -> operator_support.Support:
    """Return the table, or a growing one if it is empty."""
    if support.known:
        return support
    nothing = frozenset[str]()
    asked = SignatureProber(workers, target, support.version, folder)
    return GrowingSupport(
        support.target, support.version, {}, {}, nothing, nothing, asked=asked, others=_load_others()
    )


@functools.cache
def _load_others() -> tuple[operator_support.Support, ...]:
    return tuple(
        operator_support.collect_support(table.backend, table.version, table.answers)
        for path in sorted(support_tables.FOLDER.glob(f"*{support_tables.SUFFIX}"))
        for table in [support_tables.read_table(path)]
    )
