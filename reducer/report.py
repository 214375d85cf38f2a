"""What a reduction says of itself: the keys of `reduce --json`, of `reduction.json`, and of their
certificate. Pure.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from opsieve.reducer.engine.census import PartLine
from opsieve.reducer.engine.certificate import Certificate
from opsieve.reducer.engine.form import Size, SubjectKind
from opsieve.reducer.oracle.premise import Premise
from opsieve.reducer.reduction import Reduction

_NOTHING: dict[str, Any] = {
    "checks": 0,
    "node_checks": 0,
    "invalid_candidates": 0,
    "seconds": 0.0,
    "level": "",
    "judged": False,
    "same": False,
    "minimal": False,
    "census": {},
    "not_tried": [],
    "census_checks": 0,
    "replays": None,
    "slippage": 0,
    "slipped": 0,  # the name of `slippage` before 0.2
    "rest_fails": "",
    "finished": True,
    "message": "",
}
UNFINISHED = "interrupted: the best so far, which the judge has not seen"


def facts_of(
    form: SubjectKind[Any], reduction: Reduction[Any], premise: Premise | None, level: str, seconds: float
) -> dict[str, Any]:
    """The facts of a finished reduction; without a premise a user's check said what fails."""
    return {
        **_failure(premise),
        **_sizes(form.size(reduction.start), form.size(reduction.best)),
        "checks": reduction.checks,
        "node_checks": reduction.node_checks,
        "invalid_candidates": reduction.invalid,
        "seconds": round(seconds, 3),
        "level": "" if premise is None else "cure" if reduction.judged else level,
        "judged": reduction.judged,
        "same": reduction.same,
        "minimal": reduction.minimal,
        **census_facts(reduction.certificate.parts),
        "census_checks": reduction.census_checks,
        "replays": _replays(reduction.replays),
        "slippage": len(reduction.slippage),
        "slipped": len(reduction.slippage),  # its name before 0.2
        "rest_fails": reduction.rest_fails,
        "finished": True,
        "message": "",
    }


def facts_unfinished(
    form: SubjectKind[Any], start: Any, best: Any, premise: Premise | None, level: str, checks: int
) -> dict[str, Any]:
    """The same keys for a reduction that was interrupted: the last test saw the failure in `best`, the judge
    was not consulted.
    """
    sizes = _sizes(form.size(start), form.size(best))
    found = {"checks": checks, "level": level, "same": True, "finished": False, "message": UNFINISHED}
    return {**_failure(premise), **sizes, **_NOTHING, **found}


def facts_of_none(size: Size, message: str) -> dict[str, Any]:
    """The same keys for a program that does not fail."""
    nothing = {**_NOTHING, "message": message, "output": "", "script": ""}
    return {**_failure(None), "kind": "", **_sizes(size, size), **nothing}


def certificate_rows(certificate: Certificate) -> dict[str, Any]:
    """The certificate as JSON, by dimension and by part; `slipped` is what `slippage` was called before
    0.2.
    """
    lines = [{**asdict(line), "slipped": line.slippage} for line in certificate.lines]
    return {"certificate": lines, "parts": [asdict(part) for part in certificate.parts]}


def census_facts(parts: Sequence[PartLine]) -> dict[str, Any]:
    """How many parts of each kind there are, were tried, and are as simple as can be; those that were not
    tried, by name.
    """
    census: dict[str, dict[str, int]] = {}
    for part in parts:
        row = census.setdefault(part.kind, {"parts": 0, "tried": 0, "simplest": 0})
        row["parts"] += 1
        row["tried"] += not part.why
        row["simplest"] += part.simplest
    left = [{"kind": part.kind, "part": part.part, "why": part.why} for part in parts if part.is_open]
    return {"census": census, "not_tried": left}


def _failure(premise: Premise | None) -> dict[str, Any]:
    return {
        "target": "" if premise is None else premise.target.display,
        "kind": "check" if premise is None else premise.failure.verdict.kind,
        "fingerprint": "" if premise is None else premise.failure.fingerprint.key,
    }


def _sizes(before: Size, after: Size) -> dict[str, Any]:
    return {
        "nodes_before": before.nodes,
        "inner_nodes_before": before.inner_nodes,
        "nodes_after": after.nodes,
        "inner_nodes_after": after.inner_nodes,
        "bytes_before": before.bytes,
        "bytes_after": after.bytes,
    }


def _replays(seen: tuple[int, int] | None) -> dict[str, int] | None:
    return None if seen is None else {"failed": seen[0], "runs": seen[1]}
