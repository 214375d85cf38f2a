"""The verdict of the oracles on a program on a target."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from opsieve.backends.observation import Stage

Judgement = Literal["pass", "fail", "undecided", "invalid", "environment", "unsupported", "flaky"]
Kind = Literal[
    "crash",
    "error",
    "mismatch",
    "hang",
    "memory",
    "slowdown",
    "accepts-invalid",
    "round-trip",
    "nondeterminism",
    "metamorphic",
]
# The kind of failure that a run shows by how it ended. `unsupported` and `environment` are none, `ok` may be
# a wrong result.
KIND_OF_OUTCOME: Mapping[str, Kind] = {
    "crash": "crash",
    "hang": "hang",
    "out-of-memory": "memory",
    "error": "error",
    "rejected": "error",
}
DEATHS: Mapping[str, Kind] = {outcome: kind for outcome, kind in KIND_OF_OUTCOME.items() if kind != "error"}
# Failures of a run that gave outputs, other ones than it should.
WRONG_OUTPUTS: frozenset[Kind | None] = frozenset(["mismatch", "metamorphic"])

# Verdicts that say that a target fails, and those that say whether it does: every other one leaves that open.
FAILING: frozenset[str] = frozenset(["fail", "flaky"])
JUDGED: frozenset[str] = FAILING | {"pass"}
# Mismatches that no rounding makes
STRUCTURE = frozenset(["missing", "type", "shape", "dtype"])


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The difference between one output and its expected value.

    `max_abs`, `max_scaled` (largest absolute error over the largest magnitude of the expected output),
    `max_rel` and `max_ulps` are over elements finite on both sides; `fraction` is the share of elements that
    differ. `index` is the worst element, `got` and `expected` its values as text.
    """

    output: str
    what: Literal["missing", "type", "shape", "dtype", "nan", "inf", "value", "sign-of-zero"]
    max_abs: float = 0.0
    max_scaled: float = 0.0
    max_rel: float = 0.0
    max_ulps: float = 0.0
    fraction: float = 0.0
    index: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one program on one target.

    `reason` is a sentence for a person. `rules` are the names of the tolerance and undefined-behaviour rules
    that decided (docs/explanation/oracles.md explains each). `oracles` are the targets whose answers were
    consulted. `blame` is where the fault lies as far as the oracles tell: `optimiser` when the unoptimised
    build of the same compiler is right, `compiler` otherwise, "" when unknown. `operator` is the first
    operator that differs given equal inputs, where it was looked for.
    """

    verdict: Judgement
    reason: str
    kind: Kind | None = None
    stage: Stage | None = None
    message: str = ""
    rules: tuple[str, ...] = ()
    oracles: tuple[str, ...] = ()
    mismatch: Mismatch | None = None
    blame: str = ""
    operator: str = ""

    @property
    def is_judged(self) -> bool:
        """Whether it says that the target passes or fails; `environment`, `unsupported`, `invalid` and
        `undecided` leave that open.
        """
        return self.verdict in JUDGED


def reword_oracles(reason: str, target: str) -> str:
    """Name the oracles of a reason in words: `the float64 reference`, builds of `target` by their options."""
    reason = reason.replace("reference:float64", "the float64 reference")
    return re.sub(rf"(?<!\S){re.escape(target)}[:,](?=\w)", "", reason)


def leave_target_out(reason: str, target: str) -> str:
    """Word a reason for a line that names the target already."""
    return reword_oracles(reason.removeprefix(target).lstrip(": "), target)
