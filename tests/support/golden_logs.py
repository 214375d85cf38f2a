"""The raw logs of tests/logs and what is expected of them."""

import json
from dataclasses import dataclass
from pathlib import Path

from repository import CORPUS

from opsieve.backends.observation import Frame
from opsieve.backends.stacks.death_message import summary
from opsieve.backends.stacks.frames import chain_frames, parse_log, read_tracebacks
from opsieve.triage.fingerprint.traces import FailureTrace, read_trace

FOLDER = CORPUS / "logs"
PATHS = sorted(FOLDER.glob("*.log"))
# What the logs are of, the first word of their names. A test is of all logs of a kind: to begin one costs
# more than to read a log.
KINDS = sorted({path.stem.partition("-")[0] for path in PATHS})


@dataclass(frozen=True)
class GoldenLog:
    head: dict[str, str]
    raw: str

    @staticmethod
    def read(path: Path) -> "GoldenLog":
        above, _, raw = path.read_text(encoding="utf-8").partition("\n---\n")
        return GoldenLog(dict(line.split(": ", 1) for line in above.splitlines() if ": " in line), raw)

    def expected(self, key: str) -> str:
        return self.head.get(f"expect {key}", "")

    @property
    def trace(self) -> FailureTrace:
        return read_trace(self.raw)

    @property
    def frames(self) -> tuple[Frame, ...]:
        if self.head["kind"] == "text":
            return self.trace.frames
        return parse_log(self.raw) if self.head["kind"] == "log" else chain_frames(read_tracebacks(self.raw))

    @property
    def message(self) -> str:
        if self.head["kind"] == "text":
            return self.trace.message
        return summary(self.raw) if self.head["kind"] == "log" else json.loads(self.head["message"])


def logs(kind: str) -> list[tuple[str, GoldenLog]]:
    """The logs of a kind by name."""
    return [(path.stem, GoldenLog.read(path)) for path in PATHS if path.stem.partition("-")[0] == kind]
