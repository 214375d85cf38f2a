"""What one failure is exported as: a name for a file, and its bytes. The zip holds the folder that every
command takes.

Nothing is written here and no compiler runs; a worker prints the model.
"""

import contextlib
import io
import zipfile
from dataclasses import dataclass, replace
from typing import Literal

from opsieve.backends.record import write_observations
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import save
from opsieve.gen.errors import BadInput
from opsieve.gen.model.scratch import Scratch
from opsieve.gen.model.text import ModelText
from opsieve.triage.export.export_input import ExportedFailure
from opsieve.triage.export.issue import issue
from opsieve.triage.export.program_source import optimised_text, text_of
from opsieve.triage.export.script import script

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip file can tell


def archive(exported: ExportedFailure, text: ModelText) -> bytes:
    """The zip: `case/` with model, inputs, what was observed, and `repro.py` where the failure can be shown
    by one.
    """
    parameters = {**exported.case.parameters, **exported.observation.knobs, "target": exported.target.display}
    with Scratch() as scratch:
        folder = scratch / "case"
        save(replace(exported.case, parameters=parameters), folder)
        write_observations(folder, [exported.observation])
        files = {
            str(path.relative_to(scratch)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
    with contextlib.suppress(BadInput):  # a kind of failure without a script, or a case too large for one
        files["case/repro.py"] = script(exported, text).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            file.writestr(entry, data)
    return made.getvalue()


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
