"""What a reduction leaves on disk: a case folder with the reduced model, its inputs, a script and the whole story.

FOLDER/case.reduced.onnx    the model (model.onnx and case.json too: the folder is a case that every command takes)
FOLDER/test_data_set_0/     its inputs
FOLDER/repro.py             a script that shows the failure without opsieve
FOLDER/reduction.json       figures, certificate and every attempt
FOLDER/other_failures/KEY/         different failures found while reducing, a case folder each
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from opsieve import __version__
from opsieve.gen.case.case import Case, Origin, save
from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.model.files import reason
from opsieve.gen.model.program import OnnxProgram
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.oracle.interestingness import program
from opsieve.reducer.problem.subject import Subject
from opsieve.reducer.reduction import CertificateLine, Reduction

MODEL = "case.reduced.onnx"
STORY = "reduction.json"
SCRIPT = "repro.py"
_KEY = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def save_subject(subject: Subject, folder: Path, name: str, origin: Origin) -> None:
    """Write a subject as a case, all or nothing, and its model under the name that people look for."""
    model = program(subject).data
    save(Case(OnnxProgram(model, name), subject.inputs, None, origin), folder)
    write(folder / MODEL, model)


def save_reduction(
    reduction: Reduction, folder: Path, name: str, origin: Origin, facts: dict[str, Any], journal: Journal, script: str
) -> None:
    """Write everything. `facts` are the keys that `--json` prints."""
    save_subject(reduction.best, folder, name, origin)
    if script:
        write(folder / SCRIPT, script.encode())
    story = {
        "opsieve": __version__,
        **facts,
        "certificate": certificate_rows(reduction.certificate),
        "attempts": [msgspec.to_builtins(attempt) for attempt in journal.attempts],
    }
    write(folder / STORY, msgspec.json.format(msgspec.json.encode(story), indent=1) + b"\n")
    for key, subject in sorted(reduction.slippage.items()):
        if key and set(key) <= _KEY:
            (folder / "other_failures").mkdir(exist_ok=True)
            save_subject(subject, folder / "other_failures" / key, name, origin)


def certificate_rows(certificate: Sequence[CertificateLine]) -> list[dict[str, Any]]:
    """The certificate as JSON; `slipped` is what `slippage` was called before 0.2."""
    return [{**asdict(line), "slipped": line.slippage} for line in certificate]


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; BadInput when it cannot be."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".saving-", delete=False) as file:
            try:
                file.write(data)
                os.chmod(file.name, 0o644)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise BadInput(f"cannot write {shown(path, 200)}: {reason(error)}") from None


def shapes(subject: Subject) -> list[str]:
    """The inputs of a subject, `name type[shape]` each, names shortened and escaped."""
    found: Sequence[tuple[str, Any]] = list(subject.inputs.items())
    return [
        f"{shown(name, 30)} {value.dtype.name if hasattr(value, 'dtype') else 'sequence'}{list(getattr(value, 'shape', []))}"
        for name, value in found
    ]
