"""Campaigns that run for long: a full disk, signals, failures looked into beside the hunt, and the report at
the end.
"""

import json
import signal
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from commands import opsieve
from test_campaign import FAKE, PLAN, contents, started, until_done
from thread_lanes import spawn

from opsieve.backends.registry import resolve
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.store.index.index_file import DiskFull
from opsieve.triage.store.store import Store
from opsieve.tui.commands.find.campaign_report import Growth, draw_picture, write_html, write_markdown
from opsieve.tui.commands.output import PauseWhileFull


def test_a_campaign_goes_on_once_there_is_space_again_and_its_store_is_the_same(tmp_path: Path) -> None:
    plan = replace(PLAN, strategy="isra")
    for name, filled in (("whole", False), ("paused", True)):
        with Store(tmp_path / name) as store:
            campaign = make_campaign(3, [resolve(FAKE)], plan)
            store.begin_campaign(campaign)
            pages = store._database.execute("PRAGMA page_count").fetchone()[0]
            store._database.execute(f"PRAGMA max_page_count = {pages if filled else 1 << 20}")
            said: list[DiskFull] = []

            def full(error: DiskFull, store: Store = store, said: list[DiskFull] = said) -> bool:
                said.append(error)
                if len(said) == 3:
                    store._database.execute(f"PRAGMA max_page_count = {1 << 20}")
                return True

            for _ in run_campaign(
                store, campaign, plan, Limits(seconds=20), tests=12, full=full, start=spawn
            ):
                pass
            assert store.count_done(campaign) == 12
            assert len(said) == (3 if filled else 0)
    assert contents(tmp_path / "paused") == contents(tmp_path / "whole")


def test_a_pause_says_so_once_and_ends_with_the_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    pause = PauseWhileFull(again=0.001)
    error = DiskFull(
        "the disk of the store s is full; free some space, then run the command again (fuzz with --resume)"
    )
    assert pause(error)
    assert pause(error)
    assert capsys.readouterr().err.count("the disk of the store s is full: paused until") == 1
    assert not PauseWhileFull(end=0.0)(error)
    assert not PauseWhileFull(patience=0.0)(error)
    pause = PauseWhileFull(patience=0.05, again=0.01)
    assert pause(error)
    while pause(error):
        pass


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_to_end_are_as_an_interrupt(tmp_path: Path, number: signal.Signals) -> None:
    process = started(tmp_path / "s", "--json")
    until_done(tmp_path / "s", 1, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out)["tests"] >= 1
    assert "--resume" in err


@pytest.mark.slow(seconds=40)
def test_new_failures_are_looked_into_beside_the_hunt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = (tmp_path / "r.md", tmp_path / "r.html")
    code, out, err = opsieve(
        "fuzz", "-t", "fake:error@Relu", "--strategy", "isra", "--nodes", "6", "--minutes", "0.6", "--seed",
        "3", "--store", tmp_path / "s", "--auto-triage", "90%", "--report", reports[0], "--report",
        reports[1], "--json", capsys=capsys,
    )  # fmt: skip
    facts = json.loads(out)
    assert code == 1, err
    assert facts["auto_triage"]["reduced"] >= 1
    assert list((tmp_path / "s" / "cases").glob("*/*/reduced/model.onnx"))
    assert "fake" in reports[0].read_text()
    assert "<svg" in reports[1].read_text()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--auto-triage", "20x", "no share of the time"),
        ("--auto-triage", "95%", "no share of the time"),
        ("--report", "report.pdf", "end 'report.pdf' in .md or .html"),
        ("--report", "nowhere/report.md", "its folder is not there"),
    ],
)
def test_bad_shares_and_reports_are_refused_before_anything_runs(
    option: str,
    value: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = opsieve("fuzz", "-t", "fake", option, value, "--store", "s", capsys=capsys)
    assert code == 2
    assert said in " ".join(err.split())
    assert not (tmp_path / "s").exists()


HOSTILE = "<script>alert(1)</script> | **x** [a](http://b) @someone \x1b[31m"


def test_reports_hold_what_is_new_and_nothing_of_it_is_taken_for_markup() -> None:
    facts = {
        "tests": 1200, "seed": 7, "failures": {"crash": 3}, "clusters": 2, "new_clusters": [{}],
        "targets": {HOSTILE: {"verdicts": {"pass": 5, "fail": 3}, "tests_per_second": 2.0}},
        "strategies": {"isra": {"tests": 7, "new": 1, "share": 330}},
        "known_failures": [{"target": "fake", "feature": HOSTILE, "fingerprint": "k", "left_out": 4}],
    }  # fmt: skip
    row = {
        "id": "c1", "title": HOSTILE, "targets": [HOSTILE], "members": 3, "nodes": 9, "reduced": 2,
        "guilty_pass": HOSTILE, "first_bad": "",
    }  # fmt: skip
    text = write_markdown(facts, [row])
    assert "1 that no other campaign of the store has met, 1 met before" in text.replace("\\", "")
    assert "9 to 2" in text
    assert "<script" not in text
    assert "](http" not in text
    assert " | **x" not in text
    page = write_html(facts, [row], [(10.0, 600, 1), (20.0, 1200, 2)])
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "").replace(
        "[a](http://b)", ""
    )
    assert "\x1b" not in page + text


def test_the_picture_is_whole_and_growth_is_thinned_and_kept(tmp_path: Path) -> None:
    growth = Growth()
    for second in range(5000):
        growth.add_point(float(second), 3 * second, second // 100)
    assert len(growth.points) <= 241
    assert growth.points[-1][0] > 4900
    with Store(tmp_path) as store:
        campaign = make_campaign(3, [resolve("fake")], PLAN)
        store.begin_campaign(campaign)
        growth.write_points(store, campaign, 5000.0, 15000, 50)
        again = Growth.read_earlier(store, campaign)
    assert (again.before, again.points) == (5000.0, growth.points)
    for points in (growth.points, [], [(0.0, 0, 0)]):
        root = ET.fromstring(draw_picture(points))
        assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
