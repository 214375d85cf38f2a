"""Files with the answers of compilers, one for each compiler and version, line by line; several processes may
append.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from opsieve.backends.probing.operator_support import ProbeAnswer
from opsieve.gen.errors import BadInput
from opsieve.gen.model.journal import Journal

# The version of the probing rules and of their files; other files are ignored.
_RULES = 3


class AnswerFile(Journal[ProbeAnswer]):
    """The answers of a target's version in `folder`. `of` separates files of different kinds of probes."""

    def __init__(self, folder: Path, target: str, version: str, of: str = "") -> None:
        digest = hashlib.sha256(f"{_RULES} {target} {version}{of and ' '}{of}".encode()).hexdigest()[:12]
        readable = "".join(c if c.isalnum() else "-" for c in f"{target}-{version}")[:60]
        super().__init__(folder / f"{readable}-{digest}.jsonl", ProbeAnswer)

    def append_answers(self, answers: Sequence[ProbeAnswer]) -> None:
        """Append answers; raises BadInput if the file cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.add(answers, sync=False)
        except OSError as error:
            raise BadInput(
                f"cannot keep what was probed in {self.path}: {error.strerror}; set OPSIEVE_STORE to a"
                " folder that can be written"
            ) from None


def get_cache_folder(name: str) -> Path:
    """Return the folder for answers of compilers: in the user's cache, or in OPSIEVE_STORE."""
    if named := os.environ.get("OPSIEVE_STORE"):
        return Path(named).expanduser() / name
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / name
