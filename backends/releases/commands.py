"""The files of a command that is a target: whether they are there, which of them change with it, what such
code reads.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from opsieve.backends.command_words import command_words
from opsieve.gen.errors import BadInput, shown


def check_command(text: str) -> None:
    """BadInput unless the program of a command is there and may be run."""
    word = command_words(text)[0]
    path = _program(word)
    if path is None:
        where = "nothing is there" if "/" in word else "it is not on PATH"
        raise BadInput(f"the program {shown(word)} of the command cannot be run: {where}")
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise BadInput(
            f"the program {shown(word)} of the command cannot be run: it is no executable file (chmod +x)"
        )


def command_files(text: str) -> tuple[Path, ...]:
    """The program and the files among the other words: what makes another version of it."""
    first, *others = command_words(text)
    program = _program(first)
    files = [Path(word) for word in others if os.path.isabs(word) and os.path.exists(word)]
    return (*([program] if program else []), *files)


def reads_of(files: Iterable[Path]) -> list[Path]:
    """What programs and libraries of the user's read: the files, and what lies beside them, though never all
    of a home.
    """
    home = Path.home()
    found: list[Path] = []
    for file in files:
        folder = file.parent.resolve()
        found += [
            file,
            *([folder] if file.is_file() and folder != home and folder not in home.parents else []),
        ]
    return found


def _program(word: str) -> Path | None:
    if "/" in word:
        return Path(word) if os.path.exists(word) else None
    found = shutil.which(word)
    return Path(found) if found else None
