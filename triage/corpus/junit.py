"""The results of a corpus as JUnit's XML, which CI servers show."""

import re
from collections.abc import Collection, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from opsieve.triage.corpus.states import CorpusResult

# What XML 1.0 cannot hold, however it is escaped.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST = 4000


def junit_xml(results: Sequence[CorpusResult], red: Collection[str], name: str = "opsieve corpus") -> bytes:
    """A test for each case and target. States of `red` are failures, cases that could not be used errors, what was not judged and
    failures that are known are skipped."""
    failures = sum(result.state in red for result in results)
    errors = sum(result.refused for result in results)
    skipped = sum(_skipped(result, red) for result in results)
    numbers = {
        "name": _plain(name),
        "tests": str(len(results)),
        "failures": str(failures),
        "errors": str(errors),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }
    root = Element("testsuites", numbers)
    suite = SubElement(root, "testsuite", {**numbers, "skipped": str(skipped)})  # Jenkins' schema has it there alone
    for result in results:
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
        if result.refused:
            SubElement(test, "error", {"message": message, "type": "bad-case"}).text = message
        elif result.state in red:
            SubElement(test, "failure", {"message": message, "type": result.state}).text = _details(result)
        elif _skipped(result, red):
            SubElement(test, "skipped", {"message": message})
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _skipped(result: CorpusResult, red: Collection[str]) -> bool:
    return not result.refused and result.state not in red and result.state not in ("fixed", "passing")


def _details(result: CorpusResult) -> str:
    lines = [f"{result.case} on {result.target}: {result.sentence}"]
    for word, seen in (("before", result.before), ("now", result.after)):
        if seen is not None:
            version = f" ({seen.version})" if seen.version else ""
            lines.append(f"{word}: {seen.words} {seen.fingerprint}{version}")
    return _plain("\n".join(lines))


def _plain(text: str) -> str:
    return _NO_XML.sub(" ", text)[:_MOST]
