"""The results of a corpus as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"), which
code-scanning pages show.

A result for each case that fails or failed: `baselineState` says new, updated (fails otherwise), unchanged or
absent (fixed). The place is the file of the case. What could not be judged is a notification of the tool, no
result; if `red` holds `not-judged` it is an error, and the execution not successful.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from opsieve.gen.model.printable import single_line
from opsieve.triage.corpus.states import CorpusResult, State

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASELINE: Mapping[State, str] = {
    "newly-failing": "new",
    "changed": "updated",
    "still-failing": "unchanged",
    "fixed": "absent",
}
_RULES = {
    "crash": "The compiler dies on a valid model.",
    "error": "The compiler refuses a valid model.",
    "mismatch": "The compiled model computes wrong values.",
    "metamorphic": "A program that means the same computes other values.",
    "hang": "The compiler or the compiled model does not end.",
    "memory": "The compiler or the compiled model needs too much memory.",
    "slowdown": "The optimised model is slower.",
    "accepts-invalid": "The compiler accepts an invalid model.",
    "round-trip": "A round trip changes the model.",
    "nondeterminism": "Equal runs compute different values.",
}
_OTHER = "failure"
_LONGEST = 1000


def sarif(results: Sequence[CorpusResult], red: Collection[str], version: str, folder: str = "") -> bytes:
    """A SARIF log of one run, as JSON. `folder` is that of the corpus, relative to the repository's root;
    `red` the states that are errors.
    """
    found = [result for result in results if result.state in _BASELINE and not result.refused]
    problems = [result for result in results if result.refused or result.state == "not-judged"]
    kinds = sorted({_kind(result) for result in found})
    rules = [
        {"id": kind, "shortDescription": {"text": _RULES.get(kind, "The compiler fails on a valid model.")}}
        for kind in kinds
    ]
    driver = {
        "name": "opsieve",
        "version": version,
        "informationUri": "https://github.com/opsieve/opsieve",
        "rules": rules,
    }
    notes = [
        {
            "level": "error" if result.refused or result.state in red else "warning",
            "message": {"text": _text(f"{result.case} {result.target}: {result.sentence}")},
        }
        for result in problems
    ]
    successful = all(note["level"] != "error" for note in notes)
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": successful, "toolExecutionNotifications": notes}],
        "results": [_result(result, red, kinds, folder) for result in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1).encode() + b"\n"


def _result(result: CorpusResult, red: Collection[str], kinds: list[str], folder: str) -> dict[str, Any]:
    seen = result.before if result.state == "fixed" else result.after
    place = "/".join(part for part in (folder, result.case, "case.json") if part)
    kind = _kind(result)
    return {
        "ruleId": kind,
        "ruleIndex": kinds.index(kind),
        "level": "error" if result.state in red else "note" if result.state == "fixed" else "warning",
        "message": {
            "text": _text(
                f"{result.case} on {result.target}: {result.state.replace('-', ' ')}: {result.sentence}"
            )
        },
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": quote(place)}, "region": {"startLine": 1}}}
        ],
        "partialFingerprints": {
            "opsieveFailure/v1": f"{result.case} {result.target} {seen.fingerprint if seen else ''}"
        },
        "baselineState": _BASELINE[result.state],
    }


def _kind(result: CorpusResult) -> str:
    seen = result.before if result.state == "fixed" else result.after
    return (seen.kind if seen else None) or _OTHER


def _text(text: str) -> str:
    """Text on one line without what is not printable, and of a bounded length. SARIF's message strings take
    `[text](n)` for a link.
    """
    plain = single_line(text)[:_LONGEST]
    return plain.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
