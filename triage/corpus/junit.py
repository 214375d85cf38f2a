"""The results of a corpus as JUnit's XML, which CI servers show."""

import re
from collections.abc import Collection, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from opsieve.triage.corpus.states import CorpusResult

# What XML 1.0 cannot hold, however it is escaped.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST = 4000


def junit_xml(results: Sequence[CorpusResult], red: Collection[str], name: str = "opsieve corpus") -> bytes:
    """A test for each case and target. Failing states of `red` are failures, cases that could not be used are
    errors, and so is what was not judged if `red` holds it; all else that does not pass is skipped.
    """
    marks = [_mark(result, red) for result in results]
    failures, errors, skipped = (marks.count(mark) for mark in ("failure", "error", "skipped"))
    numbers = {
        "name": _plain(name),
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
                "classname": _plain(result.target or "case"),
                "name": _plain(result.case),
                "time": f"{result.seconds:.3f}",
            },
        )
        message = _plain(f"{result.state}: {result.sentence}")
        if mark in ("error", "failure"):
            kind = "bad-case" if result.refused else result.state
            SubElement(test, mark, {"message": message, "type": kind}).text = _details(result)
        elif mark:
            SubElement(test, mark, {"message": message})
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _mark(result: CorpusResult, red: Collection[str]) -> str:
    """The element that tells how a test ended, "" for a success."""
    if result.refused or result.state in red:
        return "error" if result.refused or result.state == "not-judged" else "failure"
    return "" if result.state in ("fixed", "passing") else "skipped"


def _details(result: CorpusResult) -> str:
    lines = [f"{result.case} on {result.target}: {result.sentence}"]
    for word, seen in (("before", result.before), ("now", result.after)):
        if seen is not None:
            version = f" ({seen.version})" if seen.version else ""
            lines.append(f"{word}: {seen.words} {seen.fingerprint}{version}")
    return _plain("\n".join(lines))


def _plain(text: str) -> str:
    return _NO_XML.sub(" ", text)[:_MOST]
