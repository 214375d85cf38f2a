"""A target: the compiler, release and options that a program is run on.

Written `backend[==release | @path][:option[=value],...]`, for example `onnxruntime`, `onnxruntime:all`,
`onnxruntime==1.20.1:extended`, `onnxruntime@~/venvs/nightly:basic`, `tvm:pipeline=zero`, `reference:float64`.
One kind has no options: all that stands behind `command:` is the command (command_words.py), which is kept as
the path of a build is, for it too is code of the user's own.

The path of a build ends at the first colon. What would end it is percent-encoded as in a URL (RFC 3986,
section 2.1): a colon as `%3A`, a percent sign as `%25`.
"""

import re
import urllib.parse
from dataclasses import dataclass, replace

from opsieve.gen.errors import BadInput

_TARGET = re.compile(
    r"(?P<backend>[A-Za-z][A-Za-z0-9_-]*)(?:==(?P<release>[A-Za-z0-9.!+_-]+)|@(?P<build>[^:]+))?(?::(?P<options>.*))?",
    re.DOTALL,
)
COMMAND = "command:"
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
        """The target that `text` names; BadTarget when it does not follow the grammar."""
        if text.startswith(COMMAND) and len(text) <= _MAX:
            return Target(COMMAND[:-1], build=text.removeprefix(COMMAND))
        match = _TARGET.fullmatch(text) if len(text) <= _MAX else None
        if match is None:
            raise BadTarget(f"{text[:80]!r} is not a target: write {_FORM}")
        build = urllib.parse.unquote(match["build"] or "", errors="surrogateescape")
        if "\0" in build:
            raise BadTarget(f"{text[:80]!r} is not a target: no path holds a null character")
        pairs: dict[str, str] = {}
        for item in filter(None, (match["options"] or "").split(",")):
            name, sign, value = item.partition("=")
            name, value = (name, value) if sign else ("", name)
            if name in pairs:
                raise BadTarget(f"target {text[:80]!r} sets {name or 'its main option'} twice")
            pairs[name] = value
        return Target(match["backend"], match["release"] or "", tuple(sorted(pairs.items())), build)

    def option(self, name: str, default: str = "") -> str:
        """The value of one option."""
        return dict(self.options).get(name, default)

    def with_options(self, **changes: str) -> "Target":
        """The same compiler with some options set otherwise."""
        return replace(self, options=tuple(sorted({**dict(self.options), **changes}.items())))

    def __str__(self) -> str:
        if self.backend == COMMAND[:-1] and not self.options:
            return f"{COMMAND}{self.build}"
        release = f"=={self.release}" if self.release else ""
        if self.build:
            release = f"@{urllib.parse.quote(self.build, safe=_AS_IT_IS, errors='surrogateescape')}"
        options = ",".join(f"{name}={value}" if name else value for name, value in self.options)
        return f"{self.backend}{release}{':' if options else ''}{options}"
