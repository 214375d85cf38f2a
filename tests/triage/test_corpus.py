"""Corpora: states beside a record, and what CI servers are given, whatever a compiler said."""

import json
import re
from xml.etree import ElementTree

import pytest

from opsieve.triage.corpus.github import annotations, job_summary
from opsieve.triage.corpus.junit import junit_xml
from opsieve.triage.corpus.sarif import sarif
from opsieve.triage.corpus.states import FAIL_ON, CorpusResult, SeenVerdict, counts, replayed

PASS, OTHER, ABSENT = SeenVerdict("pass"), SeenVerdict("unsupported"), SeenVerdict("environment")
CRASH = SeenVerdict("fail", "crash", "compile", "crash-1")
WRONG = SeenVerdict("fail", "mismatch", "run", "mismatch-2")
HOSTILE = "a\x00b\x1b[31m ]]> <script> | `x` 100%\n::error::fake ##[error]fake @maintainer \ud800 \ufffe"


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        (None, PASS, "passing"),
        (None, CRASH, "newly-failing"),
        (PASS, PASS, "passing"),
        (PASS, CRASH, "newly-failing"),
        (ABSENT, CRASH, "newly-failing"),
        (CRASH, CRASH, "still-failing"),
        (CRASH, WRONG, "changed"),
        (CRASH, PASS, "fixed"),
        (CRASH, OTHER, "not-judged"),
        (PASS, ABSENT, "not-judged"),
    ],
)
def test_a_verdict_beside_the_record(before: SeenVerdict | None, after: SeenVerdict, state: str) -> None:
    records = {} if before is None else {"tvm": before}
    assert replayed("case", "tvm", records, after).state == state


def test_a_new_release_is_compared_with_the_records_of_its_compiler() -> None:
    records = {"tvm": PASS, "onnxruntime==1.19": PASS, "onnxruntime==1.20:level=all": CRASH, "onnxruntime@/b": WRONG}
    new = "onnxruntime==1.23"
    assert replayed("case", new, records, WRONG).state == "still-failing"
    assert replayed("case", new, records, PASS).state == "fixed"
    assert replayed("case", new, records, SeenVerdict("fail", "hang", "run", "hang-3")).state == "changed"
    assert replayed("case", "onnxruntime==1.19", records, CRASH).state == "newly-failing"
    assert replayed("case", "openvino", records, CRASH).state == "newly-failing"


def hostile() -> list[CorpusResult]:
    return [
        replayed("case,1:a", "tvm", {}, CRASH, HOSTILE, 1.5),
        replayed("old", "tvm", {"tvm": CRASH}, CRASH, HOSTILE),
        replayed("good", "tvm", {"tvm": CRASH}, PASS, HOSTILE),
        replayed("same", "tvm", {}, PASS),
        CorpusResult("bad", "", "not-judged", reason=HOSTILE, refused=True),
    ]


@pytest.mark.parametrize(("fail_on", "failures", "skipped"), [("new", 1, 1), ("any", 2, 0), ("none", 0, 2)])
def test_junit_is_xml_whatever_was_said(fail_on: str, failures: int, skipped: int) -> None:
    suite = ElementTree.fromstring(junit_xml(hostile(), FAIL_ON[fail_on]))[0]
    assert suite.attrib["tests"] == "5"
    for name, count in (("failure", failures), ("skipped", skipped), ("error", 1)):
        assert len(suite.findall(f"testcase/{name}")) == count
        assert suite.attrib["skipped" if name == "skipped" else f"{name}s"] == str(count)
    assert [test.attrib["name"] for test in suite] == ["case,1:a", "old", "good", "same", "bad"]
    assert "<script>" in (suite[4][0].text or "")


def test_sarif_has_a_result_for_each_failure_and_notes_the_rest() -> None:
    """The keys that the schema of SARIF 2.1.0 asks for (the whole schema: docs/benchmarks/tests.md)."""
    results = hostile()
    log = json.loads(sarif(results, FAIL_ON["new"], "1.0", "my corpus"))
    (run,) = log["runs"]
    assert (log["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "opsieve")
    known = {"newly-failing": "new", "changed": "updated", "still-failing": "unchanged", "fixed": "absent"}
    failing = [result for result in results if result.state in known and not result.refused]
    assert [found["baselineState"] for found in run["results"]] == [known[result.state] for result in failing]
    for found, result in zip(run["results"], failing, strict=True):
        assert found["ruleId"] == run["tool"]["driver"]["rules"][found["ruleIndex"]]["id"]
        assert (found["level"] == "error") == (result.state in FAIL_ON["new"])
        place = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"my%20corpus/[A-Za-z0-9._~%/-]+/case\.json", place)
        assert found["message"]["text"].isprintable()
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1  # the bad case


def test_an_annotation_is_one_command_whatever_was_said() -> None:
    lines = annotations(hostile(), "a,b:c", FAIL_ON["new"])
    assert [line.split()[0] for line in lines] == ["::error", "::error", "::warning", "::notice"]
    assert lines[0].startswith(
        "::error file=a%2Cb%3Ac/case%2C1%3Aa/case.json,title=case%2C1%3Aa%3A newly failing::tvm:"
    )
    assert all(len(line.splitlines()) == 1 and line.isprintable() for line in lines)
    assert not any("##[" in line or "100%\n" in line for line in lines)
    assert "100%25" in lines[0]


def test_a_summary_holds_no_markup_of_others() -> None:
    text = job_summary(hostile(), "cases")
    assert "1 newly failing, 1 still failing, 1 fixed, 1 passing, 1 not judged." in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 4  # the head, and what is not as before
    assert "<script>" not in text
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
    assert "\\@maintainer" in text


def test_every_state_is_counted() -> None:
    assert counts(hostile()) == {
        "newly-failing": 1,
        "changed": 0,
        "still-failing": 1,
        "fixed": 1,
        "passing": 1,
        "not-judged": 1,
    }
