"""What was found of a case, kept beside it: `culprit.json`, for triage and for people.

One object with a key for each kind of search that was made, `releases`, `commits` and `passes`; its value is
what the command prints with `--json`. A new answer takes the place of the old one of its kind.
"""

import json
from pathlib import Path
from typing import Any, Literal

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import read_file, reason

NAME = "culprit.json"
_MAX_BYTES = 4 << 20
Kind = Literal["releases", "commits", "passes"]


def keep_culprit(case: Path, kind: Kind, answer: dict[str, Any]) -> None:
    """Write an answer beside `case.json`, all or nothing. A folder without one is not ours, and a sample
    stays as it came.
    """
    if not (case / "case.json").is_file() or (case / "sample.toml").is_file():
        return
    text = json.dumps({**read_culprit(case), kind: answer}, indent=2)
    try:
        write_file(case / NAME, text.encode() + b"\n")
    except OSError as error:
        raise BadInput(f"{NAME} cannot be written in {shown(case, 200)}: {reason(error)}") from None


def read_culprit(case: Path) -> dict[str, Any]:
    """What is kept of a case, {} for nothing; a file that is damaged, or too long to be ours, counts as
    none.
    """
    try:
        found = json.loads(read_file(case / NAME, _MAX_BYTES))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
