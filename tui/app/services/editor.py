"""Open a case in the user's editor, or with a command of the user's configuration."""

import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from textual.app import SuspendNotSupported

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import read_toml

# What is worth reading of a case, the most telling first.
_MOST = 1 << 16  # bytes of the user's keys
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
    # A link in a stranger's case would open a file of the user's for editing.
    found = next((path for name in _FILES if (path := case / name).is_file() and not path.is_symlink()), None)
    if found is None:
        raise BadInput("the case folder holds nothing to edit")
    return [*words, str(found)]


def read_keys() -> dict[str, list[str]]:
    """Read the user's own keys: the words of a command by key, from `keys.toml` in the user's configuration.

    The file of a directory could be a stranger's, so it sets no keys. Words may hold {case}, {cluster} and
    {store}.

    Raises:
        BadInput: If the file is invalid.
    """
    from platformdirs import user_config_path

    # Never from the working directory or the store: whoever wrote them could bind a key to a command.
    path = user_config_path("opsieve") / "keys.toml"
    try:
        found = read_toml(path, _MOST) if path.is_file() else {}
        return {key: shlex.split(text) for key, text in found.items() if text}
    except (ValueError, AttributeError) as error:
        raise BadInput(
            f"{shown(path, 200)} must hold lines such as f5 = 'netron {{case}}' ({shown(error, 80)})"
        ) from None


def run_editor(
    suspended: Callable[[], AbstractContextManager[None]], command: Sequence[str]
) -> tuple[str, str]:
    """Give the terminal to an editor until it ends; return a notice and its severity."""
    try:
        with suspended():
            # No shell: the path of a case may hold anything.
            code = subprocess.run(command, check=False).returncode
    except SuspendNotSupported:
        return f"this terminal cannot be given to another program; run: {shlex.join(command)}", "warning"
    except OSError as error:
        return f"{command[0]} cannot be run: {error.strerror}; name another program", "error"
    return f"{command[0]} ended{f' with exit code {code}' if code else ''}: {command[-1]}", "information"
