"""Corpora: states beside a record, and what CI servers are given, whatever a compiler said."""

import json
import random
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from opsieve.backends.verdict import JUDGED
from opsieve.triage.corpus.corpus_file import FAIL_ON, CorpusResult, SeenVerdict, count_states, make_result
from opsieve.triage.corpus.reports import make_annotations, make_job_summary, make_junit_xml, make_sarif

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
    assert make_result("case", "tvm", records, after).state == state


def test_keys_by_two_versions_of_the_rules_are_not_compared() -> None:
    """A record of an older opsieve is the same failure if kind and stage are; its key tells nothing."""
    renamed = replace(CRASH, fingerprint="crash-9", key_version=6)
    found = make_result("case", "tvm", {"tvm": CRASH}, renamed)
    assert (found.state, "was" in found.sentence) == ("still-failing", False)
    elsewhere = make_result("case", "tvm", {"tvm": CRASH}, replace(renamed, stage="run"))
    assert (elsewhere.state, "was fail (crash at compile)" in elsewhere.sentence) == ("changed", True)
    known = replace(CRASH, key_version=6)
    assert make_result("case", "tvm", {"tvm": known}, renamed).state == "changed"


def test_a_new_release_is_compared_with_the_records_of_its_compiler() -> None:
    records = {
        "tvm": PASS,
        "onnxruntime==1.19": PASS,
        "onnxruntime==1.20:level=all": CRASH,
        "onnxruntime@/b": WRONG,
    }
    new = "onnxruntime==1.23"
    assert (
        make_result("case", new, records, CRASH).state == "newly-failing"
    )  # 1.19 passes with the same options
    assert make_result("case", f"{new}:level=all", records, CRASH).state == "still-failing"
    assert make_result("case", f"{new}:level=all", records, PASS).state == "fixed"
    hang = SeenVerdict("fail", "hang", "run", "hang-3")
    assert make_result("case", f"{new}:level=all", records, hang).state == "changed"
    assert make_result("case", "onnxruntime==1.19", records, CRASH).state == "newly-failing"
    assert make_result("case", "openvino", records, CRASH).state == "newly-failing"


def seen(releases: dict[str, SeenVerdict]) -> dict[str, SeenVerdict]:
    return {f"onnxruntime=={release}": verdict for release, verdict in releases.items()}


@pytest.mark.parametrize(
    ("records", "target", "state"),
    [
        (seen({"1.20.1": CRASH, "1.31.1": PASS}), "onnxruntime==1.32.0", "newly-failing"),
        (seen({"1.20.1": CRASH, "1.31.1": PASS}), "onnxruntime==1.25.0", "still-failing"),
        # by number, not by letter
        (
            seen({"1.9.0": CRASH, "1.10.0": PASS}),
            "onnxruntime==1.11",
            "newly-failing",
        ),
        (seen({"1.20.1": PASS, "1.31.1": CRASH}), "onnxruntime==1.32.0", "still-failing"),
        (seen({"1.31.1": CRASH}), "onnxruntime==1.20.1", "still-failing"),  # only a later one is on record
        (seen({"1.31.1": PASS}), "onnxruntime==1.20.1", "newly-failing"),
        # which says nothing
        (
            seen({"1.20.1": CRASH, "1.21.0": ABSENT}),
            "onnxruntime==1.22.0",
            "still-failing",
        ),
        ({"onnxruntime@/b": CRASH, **seen({"1.20.1": PASS})}, "onnxruntime@/b", "still-failing"),
        ({"onnxruntime@/b": PASS, **seen({"1.20.1": CRASH})}, "onnxruntime@/b", "newly-failing"),
        ({"onnxruntime@/b": PASS, **seen({"1.20.1": CRASH})}, "onnxruntime@/other", "still-failing"),
        ({"onnxruntime:extended": CRASH, **seen({"1.20.1": PASS})}, "onnxruntime==1.22.0", "newly-failing"),
        ({"onnxruntime:extended": CRASH}, "onnxruntime==1.22.0", "still-failing"),
        ({"not a target!": CRASH, "tvm": CRASH}, "onnxruntime", "newly-failing"),
    ],
    ids=str,
)
def test_a_failure_is_compared_with_the_last_state_before_it(
    records: dict[str, SeenVerdict], target: str, state: str
) -> None:
    assert make_result("case", target, records, CRASH).state == state


def test_what_is_installed_stands_where_its_version_stands() -> None:
    records = {"onnxruntime": replace(CRASH, version="1.20.1"), "onnxruntime==1.31.1": PASS}
    assert (
        make_result("case", "onnxruntime", records, replace(CRASH, version="1.32.0")).state == "newly-failing"
    )
    assert (
        make_result("case", "onnxruntime", records, replace(CRASH, version="1.20.1")).state == "still-failing"
    )
    assert (
        make_result("case", "onnxruntime@/b", records, replace(CRASH, version="1.31.1")).state
        == "newly-failing"
    )


def test_a_flaky_failure_is_a_failure() -> None:
    flaky = SeenVerdict("flaky", "crash", "compile")
    assert make_result("case", "tvm", {"tvm": PASS}, flaky).state == "newly-failing"
    assert make_result("case", "tvm", {"tvm": flaky}, CRASH).state == "still-failing"
    assert make_result("case", "tvm", {"tvm": flaky}, PASS).state == "passing"  # it may come again
    assert make_result("case", "tvm", {"tvm": CRASH}, SeenVerdict("flaky", "error", "run")).state == "changed"


VERDICTS = [PASS, CRASH, WRONG, ABSENT, OTHER, SeenVerdict("flaky", "crash", "compile")]


def test_a_release_that_fails_after_one_that_passes_is_never_still_failing() -> None:
    """Random records of releases in any order, of builds and of other options: only the last judged release
    before counts.
    """
    draw = random.Random(33)
    for _ in range(3000):
        releases = draw.sample([f"1.{minor}.{patch}" for minor in range(8, 13) for patch in (0, 1, 10)], 8)
        asked, *others = releases
        recorded = {release: draw.choice(VERDICTS) for release in others[: draw.randint(0, 7)]}
        records = seen(recorded)
        if draw.random() < 0.5:
            records |= {
                "onnxruntime@/b": draw.choice(VERDICTS),
                "onnxruntime:extended": draw.choice(VERDICTS),
            }
        texts = list(records)
        draw.shuffle(texts)
        after = draw.choice([CRASH, WRONG])
        found = make_result("case", f"onnxruntime=={asked}", {text: records[text] for text in texts}, after)
        number = {release: tuple(map(int, release.split("."))) for release in releases}
        before = [
            each for each in recorded if recorded[each].verdict in JUDGED and number[each] < number[asked]
        ]
        if before:
            last = recorded[max(before, key=lambda each: number[each])]
            assert found.before == last
            assert (found.state == "newly-failing") == (last.verdict == "pass")


def hostile() -> list[CorpusResult]:
    return [
        make_result("case,1:a", "tvm", {}, CRASH, HOSTILE, 1.5),
        make_result("old", "tvm", {"tvm": CRASH}, CRASH, HOSTILE),
        make_result("good", "tvm", {"tvm": CRASH}, PASS, HOSTILE),
        make_result("same", "tvm", {}, PASS),
        CorpusResult("bad", "", "not-judged", reason=HOSTILE, refused=True),
    ]


@pytest.mark.parametrize(("fail_on", "failures", "skipped"), [("new", 1, 1), ("any", 2, 0), ("none", 0, 2)])
def test_junit_is_xml_whatever_was_said(fail_on: str, failures: int, skipped: int) -> None:
    suite = ElementTree.fromstring(make_junit_xml(hostile(), FAIL_ON[fail_on]))[0]
    assert suite.attrib["tests"] == "5"
    for name, count in (("failure", failures), ("skipped", skipped), ("error", 1)):
        assert len(suite.findall(f"testcase/{name}")) == count
        assert suite.attrib["skipped" if name == "skipped" else f"{name}s"] == str(count)
    assert [test.attrib["name"] for test in suite] == ["case,1:a", "old", "good", "same", "bad"]
    assert "<script>" in (suite[4][0].text or "")


def test_what_was_not_judged_is_an_error_wherever_it_is_read_unless_that_is_allowed() -> None:
    results = [CorpusResult("case", "tvm", "not-judged", reason="tvm is not installed")]
    for red, level, mark in ((["not-judged"], "error", "error"), ([], "warning", "skipped")):
        (test,) = ElementTree.fromstring(make_junit_xml(results, red))[0]
        assert [element.tag for element in test] == [mark]
        invocation = json.loads(make_sarif(results, red, "1.0"))["runs"][0]["invocations"][0]
        assert invocation["executionSuccessful"] == (level != "error")
        assert [note["level"] for note in invocation["toolExecutionNotifications"]] == [level]
        assert make_annotations(results, "", red)[0].startswith(f"::{level} ")
    assert "| not judged | case | tvm |" in make_job_summary(results, "cases")


def test_sarif_has_a_result_for_each_failure_and_notes_the_rest() -> None:
    """The keys that the schema of SARIF 2.1.0 asks for (the whole schema: docs/benchmarks/tests.md)."""
    results = hostile()
    log = json.loads(make_sarif(results, FAIL_ON["new"], "1.0", "my corpus"))
    (run,) = log["runs"]
    assert (log["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "opsieve")
    # GitHub keeps an alert open for each result, so what is fixed has none.
    known = {"newly-failing": "new", "changed": "updated", "still-failing": "unchanged"}
    assert any(result.state == "fixed" for result in results)
    failing = [result for result in results if result.state in known and not result.refused]
    assert [found["baselineState"] for found in run["results"]] == [known[result.state] for result in failing]
    for found, result in zip(run["results"], failing, strict=True):
        assert found["ruleId"] == run["tool"]["driver"]["rules"][found["ruleIndex"]]["id"]
        assert (found["level"] == "error") == (result.state in FAIL_ON["new"])
        place = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"my%20corpus/[A-Za-z0-9._~%/-]+/case\.json", place)
        assert found["message"]["text"].isprintable()
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1  # the bad case


def test_github_keeps_the_results_of_two_compilers_apart() -> None:
    first, second = (hostile()[:1], [replace(hostile()[0], target="onnxruntime")])
    logs = [json.loads(make_sarif(results, FAIL_ON["new"], "1.0")) for results in (first, second)]
    ids = [log["runs"][0]["automationDetails"]["id"] for log in logs]
    assert ids == ["opsieve/tvm/", "opsieve/onnxruntime/"]


def test_an_annotation_is_one_command_whatever_was_said() -> None:
    lines = make_annotations(hostile(), "a,b:c", FAIL_ON["new"])
    assert [line.split()[0] for line in lines] == ["::error", "::error", "::warning", "::notice"]
    assert lines[0].startswith(
        "::error file=a%2Cb%3Ac/case%2C1%3Aa/case.json,title=case%2C1%3Aa%3A newly failing::tvm:"
    )
    assert all(len(line.splitlines()) == 1 and line.isprintable() for line in lines)
    assert not any("##[" in line or "100%\n" in line for line in lines)
    assert "100%25" in lines[0]


def test_a_summary_holds_no_markup_of_others() -> None:
    text = make_job_summary(hostile(), "cases")
    assert "1 newly failing, 1 still failing, 1 fixed, 1 passing, 1 not judged." in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 4  # the head, and what is not as before
    assert "<script>" not in text
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
    assert "\\@maintainer" in text


def test_every_state_is_counted() -> None:
    assert count_states(hostile()) == {
        "newly-failing": 1,
        "changed": 0,
        "still-failing": 1,
        "fixed": 1,
        "passing": 1,
        "not-judged": 1,
    }
