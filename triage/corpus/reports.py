"""The results of a corpus for other tools: JUnit XML, SARIF 2.1.0 and GitHub Actions.

Text from compilers and files is escaped, so that it cannot become markup or a workflow command.

SARIF (OASIS, "Static Analysis Results Interchange Format") has a result for each case that fails:
`baselineState` says new, updated (fails otherwise) or unchanged. What is fixed has no result: GitHub ignores
`baselineState` and would keep its alert open, but closes an alert that an upload lacks. The location is the
file of the case. A case that could not be judged is a notification of the tool; if `red` holds `not-judged`
it is an error, and the execution not successful.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, tostring

from opsieve.gen.model.printable import markdown, single_line
from opsieve.triage.corpus.corpus_file import STATES, CorpusResult, State, count_states

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASELINE: Mapping[State, str] = {
    "newly-failing": "new",
    "changed": "updated",
    "still-failing": "unchanged",
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


def make_sarif(
    results: Sequence[CorpusResult], red: Collection[str], version: str, folder: str = ""
) -> bytes:
    """Make a SARIF log of one run, as JSON.

    `folder` is that of the corpus, relative to the repository's root; `red` are the states that count as
    errors.
    """
    found = [result for result in results if result.state in _BASELINE and not result.refused]
    problems = [result for result in results if result.refused or result.state == "not-judged"]
    kinds = sorted({_get_kind(result) for result in found})
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
            "message": {"text": _escape_text(f"{result.case} {result.target}: {result.sentence}")},
        }
        for result in problems
    ]
    successful = all(note["level"] != "error" for note in notes)
    # GitHub keeps one upload for each id: the results of two compilers must not replace each other.
    targets = "+".join(sorted({result.target for result in results}))
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"opsieve/{_escape_text(targets)}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": successful, "toolExecutionNotifications": notes}],
        "results": [_make_result(result, red, kinds, folder) for result in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1).encode() + b"\n"


def _make_result(result: CorpusResult, red: Collection[str], kinds: list[str], folder: str) -> dict[str, Any]:
    place = "/".join(part for part in (folder, result.case, "case.json") if part)
    kind = _get_kind(result)
    key = result.after.fingerprint if result.after else ""
    return {
        "ruleId": kind,
        "ruleIndex": kinds.index(kind),
        "level": "error" if result.state in red else "warning",
        "message": {
            "text": _escape_text(
                f"{result.case} on {result.target}: {result.state.replace('-', ' ')}: {result.sentence}"
            )
        },
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": quote(place)}, "region": {"startLine": 1}}}
        ],
        # By these GitHub recognises a result in the next upload.
        "partialFingerprints": {"opsieveFailure/v1": f"{result.case} {result.target} {key}"},
        "baselineState": _BASELINE[result.state],
    }


def _get_kind(result: CorpusResult) -> str:
    return (result.after.kind if result.after else None) or _OTHER


def _escape_text(text: str) -> str:
    """Return printable text on one line of bounded length, escaped for SARIF, whose messages take `[text](n)`
    as a link.
    """
    return re.sub(r"[\\\[\]]", r"\\\g<0>", single_line(text)[:_LONGEST])


# What XML 1.0 cannot hold, however it is escaped.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_TEXT = 4000


def make_junit_xml(
    results: Sequence[CorpusResult], red: Collection[str], name: str = "opsieve corpus"
) -> bytes:
    """Make a JUnit test for each case and target.

    Failing states in `red` are failures; unusable cases are errors, and so are cases that could not be judged
    if `red` holds that state; all other cases that do not pass are skipped.
    """
    marks = [_choose_mark(result, red) for result in results]
    failures, errors, skipped = (marks.count(mark) for mark in ("failure", "error", "skipped"))
    numbers = {
        "name": _strip_invalid(name),
        "tests": str(len(results)),
        "failures": str(failures),
        "errors": str(errors),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }
    root = Element("testsuites", numbers)
    # Jenkins' schema has it there alone
    suite = SubElement(root, "testsuite", {**numbers, "skipped": str(skipped)})
    for result, mark in zip(results, marks, strict=True):
        test = SubElement(
            suite,
            "testcase",
            {
                "classname": _strip_invalid(result.target or "case"),
                "name": _strip_invalid(result.case),
                "time": f"{result.seconds:.3f}",
            },
        )
        message = _strip_invalid(f"{result.state}: {result.sentence}")
        if mark in ("error", "failure"):
            kind = "bad-case" if result.refused else result.state
            lines = [f"{result.case} on {result.target}: {result.sentence}"]
            for word, seen in (("before", result.before), ("now", result.after)):
                if seen is not None:
                    version = f" ({seen.version})" if seen.version else ""
                    lines.append(f"{word}: {seen.words} {seen.fingerprint}{version}")
            SubElement(test, mark, {"message": message, "type": kind}).text = _strip_invalid("\n".join(lines))
        elif mark:
            SubElement(test, mark, {"message": message})
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _choose_mark(result: CorpusResult, red: Collection[str]) -> str:
    """Choose the XML element for the end of a test, "" for a success."""
    if result.refused or result.state in red:
        return "error" if result.refused or result.state == "not-judged" else "failure"
    return "" if result.state in ("fixed", "passing") else "skipped"


def _strip_invalid(text: str) -> str:
    return _NO_XML.sub(" ", text)[:_MOST_TEXT]


# GitHub shows ten of a step
_MOST_ANNOTATIONS = 50
# A summary has at most 1 MiB
_MOST_ROWS = 500
_CUT = 400


def make_annotations(results: Sequence[CorpusResult], folder: str, red: Collection[str]) -> list[str]:
    """Make a workflow command for each relevant case: errors first, then known failures, then fixed ones."""
    found: dict[str, list[str]] = {"error": [], "warning": [], "notice": []}
    for result in results:
        if result.refused or result.state in red:
            level = "error"
        elif result.state not in ("fixed", "passing"):
            level = "warning"
        elif result.state == "fixed":
            level = "notice"
        else:
            continue
        title = f"{result.case}: {'bad case' if result.refused else result.state.replace('-', ' ')}"
        words = f"{result.target}: {result.sentence}" if result.target else result.sentence
        place = f"file={_escape_property(f'{folder}/{result.case}/case.json')}," if folder else ""
        found[level].append(f"::{level} {place}title={_escape_property(title)}::{_escape_data(words)}")
    return [line for lines in found.values() for line in lines][:_MOST_ANNOTATIONS]


def make_job_summary(results: Sequence[CorpusResult], name: str) -> str:
    """Summarise in Markdown: the number of cases in each state, and a table of the changes."""
    numbers = ", ".join(
        f"{count} {state.replace('-', ' ')}" for state, count in count_states(results).items() if count
    )
    lines = [f"## opsieve: {markdown(_truncate(name))}", "", (numbers or "no case") + ".", ""]
    rows = [result for state in ("not-judged", *STATES[:4]) for result in results if result.state == state]
    if rows:
        lines += ["| state | case | target | what |", "|---|---|---|---|"]
        for result in rows[:_MOST_ROWS]:
            cells = (result.state.replace("-", " "), result.case, result.target, result.sentence)
            lines.append(f"| {' | '.join(markdown(_truncate(cell)) for cell in cells)} |")
        lines.append("")
    if len(rows) > _MOST_ROWS:
        lines += [f"and {len(rows) - _MOST_ROWS:,} more.", ""]
    return "\n".join(lines) + "\n"


def _escape_data(text: str) -> str:
    """Escape the message of a workflow command, including the runner's older commands, which may begin
    anywhere in a line.
    """
    return single_line(_truncate(text)).replace("##[", "## [").replace("%", "%25")


def _escape_property(text: str) -> str:
    # Colons and commas separate the properties of a command.
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _truncate(text: str) -> str:
    return text if len(text) <= _CUT else f"{text[:_CUT]}..."
