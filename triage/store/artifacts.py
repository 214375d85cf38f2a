"""Read the results of reduction, attribution and bisection beside a case.

`reduced/reduction.json` is written by the reducer. `culprit.json` holds the output of `bisect --json` and
`attribute --json` under `releases`, `commits` and `passes`; for searches with the reduced case it is in
`reduced`. `attribution.json` is the output of `attribute --json`, saved by a person.
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
# Passes of a set
_MOST = 20
# Characters
_SUBJECT = 100
# Of a ranked commit to be worth a line
_LIKELY = 0.2


@dataclass(frozen=True, slots=True)
class CaseArtifacts:
    """Facts about a case from later steps.

    `nodes` and `operators` of the reduced program, bodies included (None: not reduced to the same failure);
    the guilty passes; the optimisation level that cures the failure; the first bad release, else commit; the
    commits found or suspected, the likeliest first.
    """

    nodes: int | None = None
    operators: tuple[str, ...] = ()
    guilty_passes: tuple[str, ...] = ()
    cure: tuple[str, ...] = ()
    first_bad: str = ""
    commits: tuple[BlamedCommit, ...] = ()


def read_artifacts(case: Path) -> CaseArtifacts:
    """Read the results beside a case; unreadable files and other contents are passed over."""
    reduction, culprit = _read_object(case / REDUCED / "reduction.json"), read_both_culprits(case)
    releases, commits = _read_object(culprit.get("releases")), _read_object(culprit.get("commits"))
    passes, cure = _read_attribution(
        _read_object(case / "attribution.json") or _read_object(culprit.get("passes"))
    )
    if not passes and isinstance(guilty := releases.get("guilty_passes"), list):
        passes = _clean_words(guilty)
    nodes, inner = reduction.get("nodes_after"), reduction.get("inner_nodes_after", 0)
    counted = (
        nodes + inner
        if reduction.get("same")
        # Else the next reduction of the store goes on with it
        and reduction.get("finished", True)
        and isinstance(nodes, int)
        and isinstance(inner, int)
        else None
    )
    bad = releases.get("first_bad") or commits.get("first_bad")
    operators: tuple[str, ...] = ()
    if counted is not None:
        try:
            operators = tuple(sorted(set(map(_clean_word, load_case_program(case / REDUCED).operators()))))
        except BadInput:
            counted = None
    first = _clean_word(bad) if isinstance(bad, str) else ""
    return CaseArtifacts(counted, operators, passes, cure, first, _list_commits(culprit))


def read_blamed_commits(case: Path) -> tuple[BlamedCommit, ...]:
    """Return the commit that a search found for a case, else the likely commits of a ranking."""
    return _list_commits(read_both_culprits(case))


def _list_commits(culprit: dict[str, Any]) -> tuple[BlamedCommit, ...]:
    releases, commits = _read_object(culprit.get("releases")), _read_object(culprit.get("commits"))
    found, ranked = commits.get("culprits"), _read_object(releases.get("history")).get("ranked")
    # Several culprits mean that untestable commits hid the answer.
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        return (_make_commit(found[0], 1.0),)
    likely = [one for one in ranked[:_MOST] if isinstance(one, dict)] if isinstance(ranked, list) else []
    shares = [(one, one.get("probability")) for one in likely]
    return tuple(
        # Below 1, which marks a commit that was found by running it.
        _make_commit(one, min(share, 0.999))
        for one, share in shares
        if isinstance(share, float) and share >= _LIKELY
    )


def _make_commit(facts: dict[str, Any], share: float) -> BlamedCommit:
    subject = "".join(c for c in str(facts.get("subject", ""))[:_SUBJECT] if c.isprintable())
    return BlamedCommit(_clean_word(str(facts.get("sha", "")))[:12], subject, share)


def read_both_culprits(case: Path) -> dict[str, Any]:
    """Read `culprit.json` of a case, with the answers for its reduced form; {} without a readable one."""
    # The answers for the whole case win: the reduced one may have drifted to another bug.
    return {**_read_object(case / REDUCED / "culprit.json"), **_read_object(case / "culprit.json")}


def _read_attribution(attribution: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the guilty passes of an answer of `attribute`, and the highest optimisation level that
    passes.
    """
    passes, levels = attribution.get("passes"), attribution.get("levels")
    named = (
        _clean_words(passes)
        if isinstance(passes, list) and attribution.get("answer") in ("pass", "set")
        else ()
    )
    well = [name for name, found in levels.items() if found == "good"] if isinstance(levels, dict) else []
    return named, _clean_words([f"level={well[-1]}"]) if well and attribution.get(
        "answer"
    ) != "does-not-fail" else ()


def _clean_words(names: list[Any]) -> tuple[str, ...]:
    return tuple(sorted(filter(None, (_clean_word(one) for one in names[:_MOST] if isinstance(one, str)))))


def _read_object(place: object) -> dict[str, Any]:
    """Return a JSON object, read from a file if `place` is a path; {} if it is unreadable."""
    found = place
    if isinstance(place, Path):
        # Artifacts beside a case are extra information; the case counts without them.
        with suppress(BadInput, ValueError, RecursionError):
            found = json.loads(read_file(place, _MAX_JSON)) if place.is_file() else {}
    return found if isinstance(found, dict) else {}


def _clean_word(text: str) -> str:
    # Words are joined with spaces in the index, and shown in terminals.
    return "".join(c for c in text[:100] if c.isprintable() and not c.isspace())
