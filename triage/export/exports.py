"""Export one failure: a file name and its bytes. The zip holds a folder that every command accepts.

Nothing is written and no compiler runs; a worker prints the model.
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
from opsieve.triage.export import export_input, issue, program_source, script

# The earliest date that a zip file can store.
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def make_archive(exported: export_input.ExportedFailure, text: ModelText) -> bytes:
    """Make the zip: `case/` with model, inputs, observations, and `repro.py` if a script can show the
    failure.
    """
    parameters = {**exported.case.parameters, **exported.observation.knobs, "target": exported.target.display}
    with Scratch() as scratch:
        folder = scratch / "case"
        save(replace(exported.case, parameters=parameters), folder)
        write_observations(folder, [exported.observation])
        files = {
            str(path.relative_to(scratch)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
    # A kind of failure without a script, or a case too large for one
    with contextlib.suppress(BadInput):
        files["case/repro.py"] = script.write_script(exported, text).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        # The order of rglob depends on the file system.
        for name, data in sorted(files.items()):
            # A fixed date and mode: equal failures give equal bytes.
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            file.writestr(entry, data)
    return made.getvalue()


Kind = Literal["script", "issue", "pytest", "case"]
KINDS: tuple[Kind, ...] = ("script", "issue", "pytest", "case")


@dataclass(frozen=True, slots=True)
class Export:
    """A file: its name and contents."""

    name: str
    data: bytes


def export_failure(exported: export_input.ExportedFailure, kind: Kind, workers: Workers) -> Export:
    """Export a failure as `repro.py`, `issue.md`, `test_repro.py` or `case.zip`.

    Equal failures give equal bytes on one machine.

    Raises:
        BadInput: If this kind of file cannot show the failure.
    """
    text = program_source.get_text(exported, workers)
    if kind == "case":
        return Export("case.zip", make_archive(exported, text))
    if kind == "issue":
        return Export(
            "issue.md",
            issue.write_issue(exported, text, program_source.get_optimised_text(exported, workers)).encode(),
        )
    if kind == "pytest":
        return Export("test_repro.py", script.write_script(exported, text, test=True).encode())
    return Export("repro.py", script.write_script(exported, text).encode())
