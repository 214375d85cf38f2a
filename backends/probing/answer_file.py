"""Files that hold what compilers answered, one for each compiler and version, line by line: several processes
may add to one.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opsieve.backends.probing.operator_support import ProbeAnswer
from opsieve.gen.errors import BadInput

_RULES = 3  # how answers are asked for and kept; files of other rules are not read
_MOST = 64 << 20  # bytes of a file that is read


class AnswerFile:
    """The answers of a target's version in `folder`. `of` tells files apart that were asked for in another
    way.
    """

    def __init__(self, folder: Path, target: str, version: str, of: str = "") -> None:
        digest = hashlib.sha256(f"{_RULES} {target} {version}{of and ' '}{of}".encode()).hexdigest()[:12]
        readable = "".join(c if c.isalnum() else "-" for c in f"{target}-{version}")[:60]
        self._path = folder / f"{readable}-{digest}.jsonl"

    def read(self) -> list[ProbeAnswer]:
        """All answers. A line that was cut off by a kill is left out, and asked about anew."""
        try:
            if self._path.stat().st_size > _MOST:
                return []
            data = self._path.read_bytes()
        except OSError:
            return []
        answers = []
        for line in data.splitlines():
            try:
                answers.append(msgspec.json.decode(line, type=ProbeAnswer))
            except msgspec.DecodeError:
                continue
        return answers

    def add(self, answers: Sequence[ProbeAnswer]) -> None:
        """Append them; BadInput where nothing can be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer: one call, which other processes do not come between.
            with self._path.open("ab", buffering=0) as file:
                file.write(b"".join(b"\n" + msgspec.json.encode(answer) for answer in answers))
        except OSError as error:
            raise BadInput(
                f"cannot keep what was probed in {self._path}: {error.strerror}; set OPSIEVE_STORE to a"
                " folder that can be written"
            ) from None


def cache_folder(name: str) -> Path:
    """Where answers of compilers are kept: a folder of the user's cache, or of OPSIEVE_STORE."""
    if named := os.environ.get("OPSIEVE_STORE"):
        return Path(named).expanduser() / name
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / name
