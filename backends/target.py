"""A target: the compiler, release and options that a program is run on.

Written `backend[==release | @path][:option[=value],...]`, for example `onnxruntime`, `onnxruntime:all`,
`onnxruntime==1.20.1:extended`, `onnxruntime@~/venvs/nightly:basic`, `tvm:pipeline=zero`, `reference:float64`.
One kind has no options: all that stands behind `command:` is the command (`command_words`), which is kept as
the path of a build is, for it too is code of the user's own.

The path of a build ends at the first colon. What would end it is percent-encoded as in a URL (RFC 3986,
section 2.1): a colon as `%3A`, a percent sign as `%25`.
"""

import os
import re
import shlex
import urllib.parse
from dataclasses import dataclass, replace

from opsieve.gen.errors import BadInput, shown

_TARGET = re.compile(
    r"(?P<backend>[A-Za-z][A-Za-z0-9_-]*)"
    r"(?:==(?P<release>[A-Za-z0-9.!+_-]+)|@(?P<build>[^:]+))?(?::(?P<options>.*))?",
    re.DOTALL,
)
COMMAND = "command:"
# Targets come from files of strangers too. A longer one is no target, and it would be quoted in messages.
_MAX = 2000
# Characters of a path that stay, beside letters, digits and `_.-`.
_AS_IT_IS = "/~=+@"
_FORM = "backend[==release][:option[=value],...] or backend@path[:option[=value],...]"


def may_be_own(text: str) -> bool:
    """Return whether a target may name the user's own code: a build, a command or a library. It loads no
    backend.
    """
    return "@" in text or text.startswith(COMMAND) or "=" in text.replace("==", "")


class BadTarget(BadInput):
    """A target that cannot be."""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """One compiler under test.

    `release` is "" for what is installed beside opsieve, and for a build by its path, `build` ("" for none).
    `options` are sorted (name, value) pairs; a word without a `=` has the name "" until the backend says
    which of its options that word sets (`Registry.resolve`).
    """

    backend: str
    release: str = ""
    options: tuple[tuple[str, str], ...] = ()
    build: str = ""

    @staticmethod
    def parse(text: str) -> "Target":
        """Return the target that `text` names; raises BadTarget if it does not follow the grammar."""
        if text.startswith(COMMAND) and len(text) <= _MAX:
            # No grammar for the rest: a command may hold colons, equals signs and commas.
            return Target(COMMAND[:-1], build=text.removeprefix(COMMAND))
        match = _TARGET.fullmatch(text) if len(text) <= _MAX else None
        if match is None:
            raise BadTarget(f"{text[:80]!r} is not a target: write {_FORM}")
        # Surrogates carry bytes of a file name that are no UTF-8.
        build = urllib.parse.unquote(match["build"] or "", errors="surrogateescape")
        # Python's own calls raise a ValueError for such a path, far from here.
        if "\0" in build:
            raise BadTarget(f"{text[:80]!r} is not a target: no path holds a null character")
        # The later one of two equal options would win silently.
        pairs: dict[str, str] = {}
        for item in filter(None, (match["options"] or "").split(",")):
            name, sign, value = item.partition("=")
            name, value = (name, value) if sign else ("", name)
            if name in pairs:
                raise BadTarget(f"target {text[:80]!r} sets {name or 'its main option'} twice")
            pairs[name] = value
        return Target(match["backend"], match["release"] or "", tuple(sorted(pairs.items())), build)

    def option(self, name: str, default: str = "") -> str:
        """Return the value of one option."""
        return dict(self.options).get(name, default)

    def with_options(self, **changes: str) -> "Target":
        """Return the same compiler with other values of some options."""
        return replace(self, options=tuple(sorted({**dict(self.options), **changes}.items())))

    def __str__(self) -> str:
        if self.backend == COMMAND[:-1] and not self.options:
            return f"{COMMAND}{self.build}"
        release = f"=={self.release}" if self.release else ""
        if self.build:
            release = f"@{urllib.parse.quote(self.build, safe=_AS_IT_IS, errors='surrogateescape')}"
        options = ",".join(f"{name}={value}" if name else value for name, value in self.options)
        return f"{self.backend}{release}{':' if options else ''}{options}"


# The words of a command that is a target: `command:./compile {model} {inputs} {outputs}`.


PLACES = ("model", "inputs", "outputs")
_COMMAND_FORM = f"{COMMAND}PROGRAM {{model}} {{inputs}} {{outputs}}"
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
        raise BadTarget(f"the command {shown(text)} has no {' and no '.join(missing)}: write {_COMMAND_FORM}")
    for word in words:
        for like in _LIKE_A_PLACE.findall(word):
            if not _PLACE.fullmatch(like):
                raise BadTarget(
                    f"the command {shown(text)} has {shown(like)}, an unknown placeholder: write"
                    f" {_COMMAND_FORM}"
                )
    # The model would be run as a program.
    if _PLACE.search(words[0]):
        raise BadTarget(f"the command {shown(text)} begins with no program: write {_COMMAND_FORM}")
    paths = [_absolute(word, place == 0) for place, word in enumerate(words)]
    return " ".join(shlex.quote(word) if re.search(r"""[\s'"\\]|^$""", word) else word for word in paths)


def command_words(text: str) -> list[str]:
    """Split a command into words; raises BadTarget if there are none, or a quotation does not end."""
    if not text.strip():
        raise BadTarget(f"a command needs a program: write {_COMMAND_FORM}")
    # Control characters could rewrite the line in which the user is asked for consent.
    if not text.isprintable():
        raise BadTarget(f"the command {shown(text)} contains unprintable characters: write it in plain ones")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadTarget(
            f"the command {shown(text)} cannot be split into words: {str(error).lower()}"
        ) from None


def _absolute(word: str, program: bool) -> str:
    path = os.path.expanduser(word)
    # As a shell does it: without a slash the name is looked up on PATH when it runs.
    if program:
        return os.path.abspath(path) if "/" in path else word
    return os.path.abspath(path) if os.path.isfile(path) or ("/" in path and os.path.exists(path)) else word
