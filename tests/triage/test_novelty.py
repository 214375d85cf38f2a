"""Which clusters of a campaign are new beside a store of known ones, and what continuous integration makes of
that.
"""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import opsieve
from stores import CAMPAIGN, done, filled, finding

from opsieve.triage.review.review import judge_clusters
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.store import Store

SPLIT = finding("axes has a duplicate entry", frames=["split", "rule"])
WRONG = finding("", kind="mismatch", operators=("Relu",))


def why(folder: Path, known: Path | None = None) -> list[str]:
    return [one.known for one in judge_clusters(folder, CAMPAIGN.id, known)]


def test_a_cluster_is_known_by_its_fingerprint_or_by_another_way_in_which_the_bug_shows(
    tmp_path: Path,
) -> None:
    known = filled(tmp_path / "known", [done(0, SPLIT)])
    other_class = finding(
        "axes has a duplicate entry", frames=["split", "rule"], exception="builtins.TypeError"
    )
    new = filled(tmp_path / "new", [done(0, other_class), done(1, WRONG)])
    assert why(new, known) == ["", f"it is c1 of {known}"]
    assert why(new) == ["", ""]


def test_what_the_known_store_holds_as_fixed_is_new_again(tmp_path: Path) -> None:
    known = filled(tmp_path / "known", [done(0, SPLIT)])
    with Ledger(known) as ledger:
        ledger.mark("c1", "fixed")
    assert why(filled(tmp_path / "new", [done(0, SPLIT)]), known) == [""]


def test_a_rule_of_either_store_explains_a_cluster(tmp_path: Path) -> None:
    known, new = filled(tmp_path / "known", []), filled(tmp_path / "new", [done(0, SPLIT)])
    assert why(new, known) == [""]
    (known / "known").mkdir()
    (known / "known" / "axes.toml").write_text("title = 'Axes'\nmessage = 'duplicate entry'\n")
    assert why(new, known) == ["the rule axes explains it"]


def test_without_a_store_of_known_ones_earlier_campaigns_tell(tmp_path: Path) -> None:
    folder = filled(tmp_path / "store", [done(0, SPLIT)])
    later = replace(CAMPAIGN, id="c0ffef", seed=8)
    with Store(folder) as store:
        store.begin_campaign(later)
        store.record_tests(later, [done(0, SPLIT), done(1, WRONG)])
    found = judge_clusters(folder, later.id, None)
    assert [one.known for one in found] == ["", "another campaign of the store has met it"]


def test_a_job_is_red_on_a_new_bug_and_green_on_a_known_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    run = (
        "fuzz",
        "-t",
        "fake:crash@Add+crash@Mul+crash@Sub",
        "--tests",
        "3",
        "--nodes",
        "25",
        "--seed",
        "1",
        "--ci",
    )
    junit, sarif = tmp_path / "fuzz.xml", tmp_path / "fuzz.sarif"
    words = ("--fail-on", "new", "--junit", junit, "--sarif", sarif)
    code, out, _ = opsieve(*run, *words, "--store", tmp_path / "one", capsys=capsys)
    assert (code, ": NEW" in out, "::error file=" in out) == (1, True, True)
    suite = ElementTree.fromstring(junit.read_bytes())[0]
    new = int(suite.attrib["failures"])
    assert new == len(json.loads(sarif.read_text())["runs"][0]["results"]) > 0
    assert f"{new} newly failing." in (tmp_path / "summary.md").read_text()
    again = opsieve(*run, *words, "--store", tmp_path / "two", "--known", tmp_path / "one", capsys=capsys)
    assert (again[0], ": NEW" in again[1], "::warning file=" in again[1]) == (0, False, True)
    (tmp_path / "one" / "known").mkdir(exist_ok=True)
    (tmp_path / "one" / "known" / "bad.toml").write_text("message = '(?<=a)b'\nissue = 'u'\n")
    skipped = opsieve(*run, *words, "--store", tmp_path / "four", "--known", tmp_path / "one", capsys=capsys)
    assert (skipped[0], "bad" in skipped[2]) == (2, True)
    assert opsieve(*run, "--store", tmp_path / "three", "--known", tmp_path / "none", capsys=capsys)[0] == 2
    assert not (tmp_path / "three").exists()
