"""Keep the probes of a search on disk: a finished search costs nothing to repeat, a killed one loses one
probe.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from opsieve.backends.judge.oracle_names import ORACLE
from opsieve.backends.workers.inside import wire
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.sources.outcome import VersionOutcome
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import Journal
from opsieve.gen.model.files import reason
from opsieve.version import VERSION

# 3: a journal instead of a file for each probe
_FORMAT = 3


class _Probe(msgspec.Struct):
    version: str
    turn: int
    seconds: float
    outcome: VersionOutcome


class _Conclusion(msgspec.Struct):
    name: str
    answer: dict[str, Any]


class ProbeJournal:
    """The probes of one question: a folder `root/<digest>` with `question.json` and journals of outcomes."""

    def __init__(self, root: Path, question: Mapping[str, Any], fresh: bool = False):
        """With `fresh`, probes of earlier calls are not read: a check may depend on more than its own
        text.
        """
        text = json.dumps({**question, "opsieve": VERSION, "format": _FORMAT}, indent=2, sort_keys=True)
        self.folder = root / hashlib.sha256(text.encode()).hexdigest()[:24]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "question.json").write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"probes cannot be kept in {shown(root, 200)}: {reason(error)}") from None
        self._probes = Journal(self.folder / "probes.jsonl", _Probe)
        self._conclusions = Journal(self.folder / "conclusions.jsonl", _Conclusion)
        probes = () if fresh else self._probes.read()
        self._outcomes = {(probe.version, probe.turn): probe.outcome for probe in probes}
        self._answers = {each.name: each.answer for each in self._conclusions.read()}

    def get_probe(self, version: str, turn: int = 0) -> VersionOutcome | None:
        """Return the outcome of the `turn`-th probe of a version, if it was made."""
        return self._outcomes.get((version, turn))

    def add_probe(self, version: str, outcome: VersionOutcome, seconds: float, turn: int = 0) -> None:
        """Keep one probe."""
        self._outcomes[version, turn] = outcome
        self._append_record(self._probes, _Probe(version, turn, seconds, outcome))

    def get_conclusion(self, name: str) -> dict[str, Any] | None:
        """Return the conclusion kept under a name, if any."""
        return self._answers.get(name)

    def add_conclusion(self, name: str, answer: dict[str, Any]) -> None:
        """Keep a conclusion from many unrecorded probes under a name."""
        self._answers[name] = answer
        self._append_record(self._conclusions, _Conclusion(name, answer))

    def _append_record(self, journal: Journal[Any], record: msgspec.Struct) -> None:
        try:
            journal.add([record])
        except OSError as error:
            raise BadInput(f"a probe cannot be kept in {shown(self.folder, 200)}: {reason(error)}") from None


def describe_limits(limits: Limits) -> dict[str, object]:
    """Return the part of a question that names the limits of a run; {} for the usual ones, as in old journals."""
    usual = (limits.seconds, limits.memory) == (Limits().seconds, Limits().memory)
    return {} if usual else {"limits": [limits.seconds, limits.memory]}


def hash_case(case: Case) -> str:
    """Return the SHA-256 of model, inputs, expected outputs and chosen oracle in hexadecimal."""
    total = hashlib.sha256(case.program.data)
    for values in (case.inputs, case.expected):
        chunks: list[bytes] = []
        header = wire.pack_values(values, chunks) if values is not None else None
        total.update(json.dumps(header, sort_keys=True).encode())
        for chunk in chunks:
            total.update(chunk)
    if oracle := case.parameters.get(ORACLE):
        total.update(oracle.encode())
    if case.expected is not None:
        # which probes of before 2026-11-24 did not know
        total.update(b"expected outputs define good and bad")
    return total.hexdigest()


def get_default_root() -> Path:
    """Return `bisect` in the user's cache, or the folder in OPSIEVE_PROBES."""
    if named := os.environ.get("OPSIEVE_PROBES"):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / "bisect"
