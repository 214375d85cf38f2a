"""What a reduction leaves on disk: a case folder with the reduced model, its inputs, a script and the whole
story.

FOLDER/case.reduced.onnx    the model (.json for a module of TVM; model.onnx and case.json too: the folder is
a case that every command takes) FOLDER/test_data_set_0/     its inputs
FOLDER/repro.py             a script that shows the failure without opsieve
FOLDER/reduction.json       figures, certificate and every attempt
FOLDER/other_failures/KEY/  different failures found while reducing, a case folder each
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsieve.backends.judge.oracle_names import ORACLE
from opsieve.gen.case.case import Case, Origin, save
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.forms.registry import form_of, named
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import reason
from opsieve.gen.model.program import Program
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.oracle.target_test import Runnable
from opsieve.reducer.reduction import Reduction
from opsieve.reducer.report import certificate_rows
from opsieve.version import VERSION

MODEL = "case.reduced"  # and what its form is called by: `.onnx`, `.json`
STORY = "reduction.json"
SCRIPT = "repro.py"
OTHERS = "other_failures"
_KEY = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def save_subject(
    subject: Runnable, folder: Path, name: str, origin: Origin, target: str, oracle: str = ""
) -> None:
    """Write a subject as a case, all or nothing, and its model under the name that people look for.

    `target` is where it fails, "" when a user's check says that it does: commands that take the case run it
    there, and ask the further `oracle` that says so (`further_oracle`).
    """
    parameters = {name: value for name, value in (("target", target), (ORACLE, oracle)) if value}
    save(Case(named(subject.program, name), subject.inputs, None, origin, parameters), folder)
    write(folder / model_name(subject.program), subject.program.chunks())


def model_name(program: Program) -> str:
    """The name of the file that people look for."""
    return f"{MODEL}{form_of(program).suffix}"


def save_reduction(
    reduction: Reduction[Any],
    folder: Path,
    name: str,
    origin: Origin,
    facts: dict[str, Any],
    journal: Journal,
    script: str,
    oracle: str,
) -> None:
    """Write everything. `facts` are the keys that `--json` prints."""
    save_subject(reduction.best, folder, name, origin, facts["target"], oracle)
    if script:
        write(folder / SCRIPT, script.encode())
    attempts = [msgspec.to_builtins(attempt) for attempt in journal.attempts]
    save_story(folder, {**facts, **certificate_rows(reduction.certificate), "attempts": attempts})
    for key, subject in sorted(reduction.slippage.items()):
        if key and set(key) <= _KEY:
            (folder / OTHERS).mkdir(exist_ok=True)
            save_subject(subject, folder / OTHERS / key, name, origin, facts["target"])


def save_story(folder: Path, facts: dict[str, Any]) -> None:
    """Write `reduction.json`."""
    story = {"opsieve": VERSION, **facts}
    write(folder / STORY, msgspec.json.format(msgspec.json.encode(story), indent=1) + b"\n")


def write(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file whole or not at all; BadInput when it cannot be."""
    try:
        write_file(path, data)
    except OSError as error:
        raise BadInput(f"cannot write {shown(path, 200)}: {reason(error)}") from None


def shapes(subject: Runnable) -> list[str]:
    """The inputs of a subject, `name type[shape]` each, names shortened and escaped."""
    found: Sequence[tuple[str, Any]] = list(subject.inputs.items())
    return [
        f"{shown(name, 30)}"
        f" {value.dtype.name if hasattr(value, 'dtype') else 'sequence'}{list(getattr(value, 'shape', []))}"
        for name, value in found
    ]
