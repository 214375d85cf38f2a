"""What one failure is exported as: a name for a file, and its bytes. Nothing is written here and no compiler
runs; a worker prints the model.
"""

from dataclasses import dataclass
from typing import Literal

from opsieve.backends.workers.workers import Workers
from opsieve.triage.export.archive import archive
from opsieve.triage.export.export_input import ExportedFailure
from opsieve.triage.export.issue import issue
from opsieve.triage.export.program_source import optimised_text, text_of
from opsieve.triage.export.script import script

Kind = Literal["script", "issue", "pytest", "case"]
KINDS: tuple[Kind, ...] = ("script", "issue", "pytest", "case")


@dataclass(frozen=True, slots=True)
class Export:
    """A file: the name it goes by, and what is in it."""

    name: str
    data: bytes


def export(exported: ExportedFailure, kind: Kind, workers: Workers) -> Export:
    """A failure as `repro.py`, `issue.md`, `test_repro.py` or `case.zip`. Equal exported failures give equal
    bytes on one machine.

    BadInput, one sentence, for a failure that this kind of file cannot show.
    """
    text = text_of(exported, workers)
    if kind == "case":
        return Export("case.zip", archive(exported, text))
    if kind == "issue":
        return Export("issue.md", issue(exported, text, optimised_text(exported, workers)).encode())
    if kind == "pytest":
        return Export("test_repro.py", script(exported, text, test=True).encode())
    return Export("repro.py", script(exported, text).encode())
