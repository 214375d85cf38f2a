"""What reduction, attribution and bisection left beside a case: `reduced/reduction.json`, `culprit.json`,
`attribution.json`.

`culprit.json` holds what `bisect` and `attribute` print with `--json`, under `releases`, `commits` and
`passes`; where only the reduced case was asked it lies in `reduced`. `attribution.json` is what `attribute
--json` prints, put there by a person.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsieve.gen.case.case import load_case_program
from opsieve.gen.errors import BadInput
from opsieve.gen.model.files import read_file
from opsieve.triage.store.rows import BlamedCommit

REDUCED = "reduced"
_MAX_JSON = 64 << 20
_MOST = 20  # passes of a set
_SUBJECT = 100  # characters
_LIKELY = 0.2  # of a ranked commit to be worth a line


@dataclass(frozen=True, slots=True)
class CaseArtifacts:
    """`nodes` and operators of the reduced program, bodies included (None: not reduced to the same failure);
    the guilty passes; the level of optimisation that cures it; the first bad release, else commit; the
    commits that were found or are suspected, the likeliest first.
    """

    nodes: int | None = None
    operators: tuple[str, ...] = ()
    guilty_passes: tuple[str, ...] = ()
    cure: tuple[str, ...] = ()
    first_bad: str = ""
    commits: tuple[BlamedCommit, ...] = ()


def case_artifacts(case: Path) -> CaseArtifacts:
    """What lies beside a case. Files that cannot be read, or tell something else, tell nothing."""
    reduction, culprit = _facts(case / REDUCED / "reduction.json"), culprit_of(case)
    releases, commits = _facts(culprit.get("releases")), _facts(culprit.get("commits"))
    passes, cure = _blamed(_facts(case / "attribution.json") or _facts(culprit.get("passes")))
    if not passes and isinstance(guilty := releases.get("guilty_passes"), list):
        passes = _words(guilty)
    nodes, inner = reduction.get("nodes_after"), reduction.get("inner_nodes_after", 0)
    counted = (
        nodes + inner if reduction.get("same") and isinstance(nodes, int) and isinstance(inner, int) else None
    )
    bad = releases.get("first_bad") or commits.get("first_bad")
    operators: tuple[str, ...] = ()
    if counted is not None:
        try:
            operators = tuple(sorted(set(map(_word, load_case_program(case / REDUCED).operators()))))
        except BadInput:
            counted = None
    first = _word(bad) if isinstance(bad, str) else ""
    return CaseArtifacts(counted, operators, passes, cure, first, _commits(culprit))


def blamed_commits(case: Path) -> tuple[BlamedCommit, ...]:
    """The commit that a search found for a case, else those that a ranking of the history holds for
    likely.
    """
    return _commits(culprit_of(case))


def _commits(culprit: dict[str, Any]) -> tuple[BlamedCommit, ...]:
    releases, commits = _facts(culprit.get("releases")), _facts(culprit.get("commits"))
    found, ranked = commits.get("culprits"), _facts(releases.get("history")).get("ranked")
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        return (_commit(found[0], 1.0),)
    likely = [one for one in ranked[:_MOST] if isinstance(one, dict)] if isinstance(ranked, list) else []
    shares = [(one, one.get("probability")) for one in likely]
    return tuple(
        _commit(one, min(share, 0.999))
        for one, share in shares
        if isinstance(share, float) and share >= _LIKELY
    )


def _commit(facts: dict[str, Any], share: float) -> BlamedCommit:
    subject = "".join(c for c in str(facts.get("subject", ""))[:_SUBJECT] if c.isprintable())
    return BlamedCommit(_word(str(facts.get("sha", "")))[:12], subject, share)


def culprit_of(case: Path) -> dict[str, Any]:
    """`culprit.json` of a case, with what only its reduced form was asked; {} when there is none that can be
    read.
    """
    return {**_facts(case / REDUCED / "culprit.json"), **_facts(case / "culprit.json")}


def _blamed(attribution: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The guilty passes, and the highest level of optimisation that is well, of an answer of `attribute`."""
    passes, levels = attribution.get("passes"), attribution.get("levels")
    named = (
        _words(passes) if isinstance(passes, list) and attribution.get("answer") in ("pass", "set") else ()
    )
    well = [name for name, found in levels.items() if found == "good"] if isinstance(levels, dict) else []
    return named, _words([f"level={well[-1]}"]) if well and attribution.get(
        "answer"
    ) != "does-not-fail" else ()


def _words(names: list[Any]) -> tuple[str, ...]:
    return tuple(sorted(filter(None, (_word(one) for one in names[:_MOST] if isinstance(one, str)))))


def _facts(place: object) -> dict[str, Any]:
    """A JSON object in a file, or one that is there already; {} when there is none that can be read."""
    found = place
    if isinstance(place, Path):
        with suppress(BadInput, ValueError, RecursionError):
            found = json.loads(read_file(place, _MAX_JSON)) if place.is_file() else {}
    return found if isinstance(found, dict) else {}


def _word(text: str) -> str:
    return "".join(c for c in text[:100] if c.isprintable() and not c.isspace())
