"""Open a case in the user's editor."""

import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from textual.app import SuspendNotSupported

from opsieve.gen.errors import BadInput

# What is worth reading of a case, the most telling first.
_FILES = ("reduced/repro.py", "repro.py", "reduced/module.py", "module.py", "notes.md", "case.json")


def choose_command(case: Path, environment: Mapping[str, str]) -> list[str]:
    """Choose the command that shows a case folder: $VISUAL or $EDITOR with its script, module, notes or
    description.

    Raises:
        BadInput: If no editor is set, or there is no file.
    """
    try:
        words = shlex.split(environment.get("VISUAL") or environment.get("EDITOR") or "")
    except ValueError:
        words = []
    if not words:
        raise BadInput("no editor is named; set EDITOR, to vim say")
    found = next((path for name in _FILES if (path := case / name).is_file() and not path.is_symlink()), None)
    if found is None:
        raise BadInput("the case folder holds nothing to edit")
    return [*words, str(found)]


def run_editor(
    suspended: Callable[[], AbstractContextManager[None]], command: Sequence[str]
) -> tuple[str, str]:
    """Give the terminal to an editor until it ends; return a notice and its severity."""
    try:
        with suspended():
            code = subprocess.run(command, check=False).returncode
    except SuspendNotSupported:
        return f"this terminal cannot be given to another program; run: {shlex.join(command)}", "warning"
    except OSError as error:
        return f"{command[0]} cannot be run: {error.strerror}; set EDITOR to an editor", "error"
    return f"{command[0]} ended{f' with exit code {code}' if code else ''}: {command[-1]}", "information"
