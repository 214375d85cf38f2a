"""Probes kept on disk, one file each, so that a finished search costs nothing to repeat and a killed one
loses one probe.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from opsieve.backends.workers.inside import wire
from opsieve.bisect.sources.outcome import VersionOutcome
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import reason
from opsieve.version import VERSION

_FORMAT = 2  # 2: outcomes are good, bad or skip
_MAX_BYTES = 1 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


class _Probe(msgspec.Struct):
    format: int
    version: str
    turn: int
    seconds: float
    outcome: VersionOutcome


class ProbeJournal:
    """The probes of one question: a folder `root/<digest>` with `question.json` and a file for each version
    and turn.
    """

    def __init__(self, root: Path, question: Mapping[str, Any], fresh: bool = False):
        """With `fresh`, probes of earlier calls are not read: a check may depend on more than its own
        text.
        """
        self._fresh = fresh
        self._put: set[tuple[str, int]] = set()
        text = json.dumps({**question, "opsieve": VERSION, "format": _FORMAT}, indent=2, sort_keys=True)
        self.folder = root / hashlib.sha256(text.encode()).hexdigest()[:24]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "question.json").write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"probes cannot be kept in {shown(root, 200)}: {reason(error)}") from None

    def get(self, version: str, turn: int = 0) -> VersionOutcome | None:
        """What the `turn`-th probe of a version saw, None when there was none; a file that is damaged counts
        as none.
        """
        if self._fresh and (version, turn) not in self._put:
            return None
        try:
            data = self._path(version, turn).read_bytes()[:_MAX_BYTES]
            probe = msgspec.json.decode(data, type=_Probe)
        except (OSError, msgspec.DecodeError):
            return None
        return probe.outcome if (probe.version, probe.turn) == (version, turn) else None

    def put(self, version: str, outcome: VersionOutcome, seconds: float, turn: int = 0) -> None:
        """Keep one probe, all or nothing: a reader sees no half of it, whenever this process is killed."""
        self._put.add((version, turn))
        self._write(self._path(version, turn), _Probe(_FORMAT, version, turn, seconds, outcome))

    def conclusion(self, name: str) -> dict[str, Any] | None:
        """What was concluded under a name, None for nothing or for a damaged file."""
        try:
            return msgspec.json.decode(self._named(name).read_bytes()[:_MAX_BYTES], type=dict[str, Any])
        except (OSError, msgspec.DecodeError):
            return None

    def conclude(self, name: str, answer: dict[str, Any]) -> None:
        """Keep what follows from many probes that are not kept themselves, under a name."""
        self._write(self._named(name), answer)

    def _write(self, path: Path, content: Any) -> None:
        try:
            descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".probe-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
            os.replace(name, path)
        except OSError as error:
            raise BadInput(f"a probe cannot be kept in {shown(self.folder, 200)}: {reason(error)}") from None

    def _named(self, name: str) -> Path:
        return self.folder / f"conclusion-{_UNSAFE.sub('_', name)[:100]}.json"

    def _path(self, version: str, turn: int) -> Path:
        return self.folder / f"{_UNSAFE.sub('_', version)[:100]}-{turn}.json"


def case_digest(case: Case) -> str:
    """SHA-256 of model, inputs and expected outputs, in hexadecimal."""
    total = hashlib.sha256(case.program.data)
    for values in (case.inputs, case.expected):
        chunks: list[bytes] = []
        header = wire.pack_values(values, chunks) if values is not None else None
        total.update(json.dumps(header, sort_keys=True).encode())
        for chunk in chunks:
            total.update(chunk)
    if case.expected is not None:
        # which probes of before 2026-11-24 did not know
        total.update(b"expected outputs define good and bad")
    return total.hexdigest()


def default_root() -> Path:
    """`bisect` in the user's cache, or what OPSIEVE_PROBES names."""
    if named := os.environ.get("OPSIEVE_PROBES"):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / "bisect"
