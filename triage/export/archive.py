"""A case as one zip file: the folder that every command takes, a script beside it."""

import contextlib
import io
import zipfile
from dataclasses import replace

from opsieve.backends.record import write_observations
from opsieve.gen.case.case import save
from opsieve.gen.errors import BadInput
from opsieve.gen.model.scratch import Scratch
from opsieve.gen.model.text import ModelText
from opsieve.triage.export.export_input import ExportedFailure
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
