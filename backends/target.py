"""A target: the compiler, release and options that a program is run on.

Written `backend[==release][:option[=value],...]`, for example `onnxruntime`, `onnxruntime:all`,
`onnxruntime==1.20.1:extended`, `tvm:pipeline=zero`, `reference:float64`.
"""

import re
from dataclasses import dataclass, replace

from opsieve.gen.model.bad_input import BadInput

_TARGET = re.compile(
    r"(?P<backend>[A-Za-z][A-Za-z0-9_-]*)(?:==(?P<release>[A-Za-z0-9.!+_-]+))?(?::(?P<options>.*))?", re.DOTALL
)
_MAX = 2000


class BadTarget(BadInput):
    """A target that cannot be."""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """One compiler under test.

    `release` is "" for what is installed beside opsieve. `options` are sorted (name, value) pairs; a word without a `=`
    has the name "" until the backend says which of its options that word sets (`Registry.resolve`).
    """

    backend: str
    release: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def parse(text: str) -> "Target":
        """The target that `text` names; BadTarget when it does not follow the grammar."""
        match = _TARGET.fullmatch(text) if len(text) <= _MAX else None
        if match is None:
            raise BadTarget(f"{text[:80]!r} is not a target: write backend[==release][:option[=value],...]")
        pairs: dict[str, str] = {}
        for item in filter(None, (match["options"] or "").split(",")):
            name, sign, value = item.partition("=")
            name, value = (name, value) if sign else ("", name)
            if name in pairs:
                raise BadTarget(f"target {text[:80]!r} sets {name or 'its main option'} twice")
            pairs[name] = value
        return Target(match["backend"], match["release"] or "", tuple(sorted(pairs.items())))

    def option(self, name: str, default: str = "") -> str:
        """The value of one option."""
        return dict(self.options).get(name, default)

    def with_options(self, **changes: str) -> "Target":
        """The same compiler with some options set otherwise."""
        return replace(self, options=tuple(sorted({**dict(self.options), **changes}.items())))

    def __str__(self) -> str:
        release = f"=={self.release}" if self.release else ""
        options = ",".join(f"{name}={value}" if name else value for name, value in self.options)
        return f"{self.backend}{release}{':' if options else ''}{options}"
