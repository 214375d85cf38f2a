"""What a verdict, a kind of failure, a rule, a hazard or an oracle means, by name.

The texts are in `explanations.toml` and, for oracles, in `oracle_names.ORACLES`; the page
docs/explanation/oracles.md is written from the same file.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from opsieve.backends.judge.oracle_names import ORACLES

_FILE = Path(__file__).with_name("explanations.toml")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A name, what it is the name of (`verdict`, `kind`, `rule`, `hazard`, `oracle`), and its meaning."""

    name: str
    what: str
    text: str


@cache
def read_explanations() -> tuple[Explanation, ...]:
    """Read all explanations; a name such as `memory` can have several."""
    sections = tomllib.loads(_FILE.read_text("utf-8"))
    written = [
        Explanation(name, what, text) for what, texts in sections.items() for name, text in texts.items()
    ]
    return (*written, *(Explanation(each.name, "oracle", each.asks) for each in ORACLES))


def find_explanations(name: str) -> list[Explanation]:
    """Find what a name means, without links; `accumulation:12` is explained as `accumulation:K`."""
    family = name.partition(":")[0]
    return [
        Explanation(each.name, each.what, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each.text))
        for each in read_explanations()
        if each.name == name or (":" in each.name and each.name.partition(":")[0] == family)
    ]
