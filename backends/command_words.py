"""The words of a command that is a target: `command:./compile {model} {inputs} {outputs}`.

They are split as a POSIX shell splits them (shlex), and no shell runs. `{model}` becomes the path of the
model's file, `{inputs}` that of a folder with a file for each input, `{outputs}` that of an empty folder for
the outputs; the files are numpy's `.npy`, or ONNX's TensorProto where `{inputs:pb}` or `{outputs:pb}` stands.
"""

import os
import re
import shlex

from opsieve.backends.target import COMMAND, BadTarget
from opsieve.gen.errors import shown

PLACES = ("model", "inputs", "outputs")
_FORM = f"{COMMAND}PROGRAM {{model}} {{inputs}} {{outputs}}"
_PLACE = re.compile(r"\{(model|(?:inputs|outputs)(?::pb)?)\}")
_LIKE_A_PLACE = re.compile(r"\{[\w:]*\}")


def absolute_command(text: str) -> str:
    """Return the command with its files as absolute paths, each word quoted where necessary. Raises BadTarget
    for an invalid command.

    The program is a path if it has a slash, otherwise it is looked up on PATH when it runs; other words are
    paths if they name an existing file.
    """
    words = command_words(text)
    found = {name.partition(":")[0] for word in words for name in _PLACE.findall(word)}
    missing = [f"{{{name}}}" for name in PLACES if name not in found]
    if missing:
        raise BadTarget(f"the command {shown(text)} has no {' and no '.join(missing)}: write {_FORM}")
    for word in words:
        for like in _LIKE_A_PLACE.findall(word):
            if not _PLACE.fullmatch(like):
                raise BadTarget(
                    f"the command {shown(text)} has {shown(like)}, which stands for nothing: write {_FORM}"
                )
    if _PLACE.search(words[0]):
        raise BadTarget(f"the command {shown(text)} begins with no program: write {_FORM}")
    paths = [_absolute(word, place == 0) for place, word in enumerate(words)]
    return " ".join(shlex.quote(word) if re.search(r"""[\s'"\\]|^$""", word) else word for word in paths)


def command_words(text: str) -> list[str]:
    """The words of a command; BadTarget when there are none, or a quotation does not end."""
    if not text.strip():
        raise BadTarget(f"command needs what it runs: write {_FORM}")
    if not text.isprintable():
        raise BadTarget(
            f"the command {shown(text)} holds what cannot be printed: write it in plain characters"
        )
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadTarget(
            f"the command {shown(text)} cannot be split into words: {str(error).lower()}"
        ) from None


def _absolute(word: str, program: bool) -> str:
    path = os.path.expanduser(word)
    if program:
        return os.path.abspath(path) if "/" in path else word
    return os.path.abspath(path) if os.path.isfile(path) or ("/" in path and os.path.exists(path)) else word
