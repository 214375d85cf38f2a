"""Files that hold what compilers answered, one for each compiler and version, line by line: several processes
may add to one.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from opsieve.backends.probing.operator_support import ProbeAnswer
from opsieve.gen.errors import BadInput
from opsieve.gen.model.journal import Journal

_RULES = 3  # how answers are asked for and kept; files of other rules are not read


class AnswerFile(Journal[ProbeAnswer]):
    """The answers of a target's version in `folder`. `of` tells files apart that were asked for in another
    way.
    """

    def __init__(self, folder: Path, target: str, version: str, of: str = "") -> None:
        digest = hashlib.sha256(f"{_RULES} {target} {version}{of and ' '}{of}".encode()).hexdigest()[:12]
        readable = "".join(c if c.isalnum() else "-" for c in f"{target}-{version}")[:60]
        super().__init__(folder / f"{readable}-{digest}.jsonl", ProbeAnswer)

    def keep(self, answers: Sequence[ProbeAnswer]) -> None:
        """Append answers; BadInput where nothing can be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.add(answers, sync=False)
        except OSError as error:
            raise BadInput(
                f"cannot keep what was probed in {self.path}: {error.strerror}; set OPSIEVE_STORE to a"
                " folder that can be written"
            ) from None


def cache_folder(name: str) -> Path:
    """Where answers of compilers are kept: a folder of the user's cache, or of OPSIEVE_STORE."""
    if named := os.environ.get("OPSIEVE_STORE"):
        return Path(named).expanduser() / name
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / name
