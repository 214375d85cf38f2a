"""A failure with its label: what the benchmark clusters, and how it is kept to be fingerprinted again without
running anything.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from triaging.drawing_faults import Seed
from triaging.published_rules import Shown

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Verdict
from opsieve.gen.case.case import Case
from opsieve.triage.clustering.clusters import (
    MOST_COMPARED,
    find_common_texts,
    get_statement,
    make_alternative_titles,
)
from opsieve.triage.external.external_records import Record, make_record
from opsieve.triage.fingerprint.component import NOTHING, Component, Evidence
from opsieve.triage.fingerprint.fingerprint import Fingerprint, make_fingerprint
from opsieve.triage.store.failure_record import AbsentOutput


@dataclass(frozen=True)
class Failure:
    """One failure of a fault: what the judge said and what the compiler showed on a program with these
    operators.

    `reduced` is the number of nodes that reduction left (0: not reduced), `left` their operators, `evidence`
    what is known since. `names` are those that the program gives. `case` is None for a failure that was read
    from a file.
    """

    seed: Seed
    verdict: Verdict
    observation: Observation
    operators: tuple[str, ...]
    case: Case | None = None
    evidence: Evidence = NOTHING
    reduced: int = 0
    left: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def before(self) -> Fingerprint:
        """The fingerprint as the failure was found."""
        return make_fingerprint(
            self.verdict, self.observation, self.operators, NOTHING, frozenset(self.names)
        )

    @property
    def after(self) -> Fingerprint:
        """The fingerprint with all that is known."""
        return make_fingerprint(
            self.verdict, self.observation, self.left or self.operators, self.evidence, frozenset(self.names)
        )

    def record(self) -> Record:
        """The failure as another tool's log has it: no program, no names, no graph; qualified names of
        functions only as text shows them.
        """
        seen = self.observation
        return make_record(
            {
                "backend": self.seed.layer,
                "phase": seen.stage,
                "exc_type": seen.exception,
                "message": seen.message or self.verdict.message,
                "traceback": seen.traceback,
                "output": seen.log,
                "signal": seen.signal,
            }
        )

    def shown(self) -> Shown:
        """What the rules of others see; of a wrong result what a harness's own comparison would say."""
        frames = tuple(
            f"{frame.file.rpartition('/')[2]} {frame.function}"
            for frame in self.observation.frames[::-1]
            if not frame.file.endswith(".pxi")  # the bridge that every call of TVM's C++ passes
        )
        if self.verdict.mismatch:
            return Shown(
                self.seed.layer,
                ("harness compare", "numpy assert_allclose"),
                "AssertionError",
                self.verdict.reason,
            )
        return Shown(
            self.seed.layer,
            frames,
            self.observation.exception,
            self.observation.message or self.verdict.message,
        )


class Links:
    """Fingerprints in order of arrival; `find_cluster` gives the key of the first one linked to a key."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._titled: dict[str, str] = {}
        self._statements: dict[str, list[tuple[str, Sequence[Component]]]] = {}

    def add_fingerprint(self, key: str, components: Sequence[Component]) -> None:
        """Add a fingerprint; an existing one stays as it is."""
        if key in self._parents:
            return
        self._parents[key] = key
        for title in make_alternative_titles(components):
            self._link_keys(key, self._titled.setdefault(title, key))
        if statement := get_statement(components):
            others = self._statements.setdefault(statement, [])
            for (other, _), text in zip(
                others, find_common_texts(components, [its for _, its in others]), strict=True
            ):
                if text is not None:
                    self._link_keys(key, other)
            # Bounded, because every new failure of the statement is compared with each of them.
            if len(others) < MOST_COMPARED:
                others.append((key, components))

    def find_cluster(self, key: str) -> str:
        """Return the first key of the cluster of a key."""
        while (parent := self._parents[key]) != key:
            key = parent
        return key

    def _link_keys(self, key: str, other: str) -> None:
        order = list(dict.fromkeys([self.find_cluster(other), self.find_cluster(key)]))
        for later in order[1:]:
            self._parents[later] = order[0]


def joined(found: Sequence[Fingerprint]) -> list[int]:
    """A cluster for each fingerprint, as a store makes them: equal keys are one, and those that are
    linked.
    """
    links = Links()
    for one in found:
        links.add_fingerprint(one.key, one.components)
    numbers: dict[str, int] = {}
    return [numbers.setdefault(links.find_cluster(one.key), len(numbers)) for one in found]


def save(path: Path, failures: Sequence[Failure]) -> None:
    """Write failures, without their programs and outputs, as a JSON list that `load` reads."""
    told = []
    for one in failures:
        wrong = one.verdict.mismatch.output if one.verdict.mismatch else ""
        dtype = str(getattr((one.observation.outputs or {}).get(wrong), "dtype", ""))
        bare = replace(one, case=None, observation=replace(one.observation, outputs=None))
        parts = {part.name: [part.value, part.kept] for part in one.after.components}
        told.append({**asdict(bare), "dtype": dtype, "key": one.after.key, "components": parts})
    path.write_text(json.dumps(told), encoding="utf-8")


def load(path: Path) -> list[Failure]:
    """What `save` wrote."""
    found = []
    for told in json.loads(path.read_text(encoding="utf-8")):
        one = msgspec.convert({name: told[name] for name in _KEPT if name in told}, Failure, strict=False)
        if one.verdict.mismatch:
            outputs: dict[str, Any] = {one.verdict.mismatch.output: AbsentOutput(told["dtype"])}
            one = replace(one, observation=replace(one.observation, outputs=outputs))
        found.append(one)
    return found


_KEPT = ("seed", "verdict", "observation", "operators", "evidence", "reduced", "left", "names")
