"""`opsieve watch`: clusters are closed where their cases pass, and reopened where they fail again."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import opsieve
from stores import done, filled, finding

from opsieve.triage.corpus import watch as watch_module
from opsieve.tui.campaign_api import fuzz
from opsieve.tui.store_api import watch

CRASH = "fake:crash@Relu"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one cluster of crashes behind a Relu."""
    options: dict[str, Any] = {"operators": ["Relu", "Exp"], "dtypes": ["float32"], "nodes": "3", "seed": 2}
    return fuzz([CRASH], tests=6, store=tmp_path / "store", **options).folder


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """A store with one cluster whose failure no run repeats."""
    return filled(tmp_path / "made-up", [done(0, finding("no kernel", frames=["main", "f"]))])


def states(store: Path, *targets: str, **options: Any) -> list[str]:
    return [result.state for result in watch(store, targets, **options)]


def status(store: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    out = opsieve("clusters", "--store", store, "--json", capsys=capsys)[1]
    return [row["status"] for row in json.loads(out)["clusters"]]


def test_a_cluster_is_closed_and_reopened(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (states(store), status(store, capsys)) == (["still-failing"], ["new"])
    assert (states(store, "fake", dry_run=True), status(store, capsys)) == (["fixed"], ["new"])
    assert (states(store, "fake"), status(store, capsys)) == (["fixed"], ["fixed"])
    assert (states(store, "fake"), status(store, capsys)) == (["passing"], ["fixed"])
    assert (states(store), status(store, capsys)) == (["newly-failing"], ["confirmed"])
    assert opsieve("undo", "--store", store, capsys=capsys)[0] == 0
    assert status(store, capsys) == ["fixed"]


@pytest.mark.slow
def test_a_cluster_that_fails_otherwise_or_is_not_judged_stays(
    made_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert states(made_up, "fake:crash@Relu") == ["changed"]
    assert states(made_up, "fake:unsupported") == ["not-judged"]
    assert status(made_up, capsys) == ["new"]


@pytest.mark.slow
def test_targets_that_are_named_ask_no_index(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(target: str, newest: object) -> str:
        raise AssertionError(f"the newest release for {target} was looked up")

    monkeypatch.setattr(watch_module, "place_on_newest", ask)
    assert states(store, "fake", dry_run=True) == ["fixed"]


def test_one_failing_case_keeps_a_cluster_open(tmp_path: Path) -> None:
    failure = finding("no kernel", frames=["main", "f"])
    orders = (("Tanh", "Relu"), ("Relu", "Tanh"))
    store = filled(tmp_path / "s", [done(n, failure, operators=each) for n, each in enumerate(orders)])
    assert states(store, "fake:crash@Relu>Tanh", members=1) == ["fixed"]
    assert states(store, "fake:crash@Relu>Tanh", members=2) == ["changed"]


def test_no_cluster_is_called_closed_where_that_cannot_be_recorded(
    made_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made_up / "decisions.jsonl").mkdir()
    code, out, err = opsieve("watch", made_up, "-t", "fake", capsys=capsys)
    assert (code, out) == (2, "")
    assert "decisions.jsonl': it is a folder" in err


def test_the_report_names_the_cluster_and_what_wontfix_leaves_out(
    made_up: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "watch.md"
    code, out, err = opsieve("watch", made_up, "-t", "fake", "--report", page, capsys=capsys)
    assert (code, out.split()[:2]) == (0, ["closed", "c1"])
    assert err.endswith("opsieve: 1 closed\n")
    assert "| c1 ValueError" in page.read_text()
    assert "| fake | pass, was fail" in page.read_text()
    assert opsieve("mark", "c1", "wontfix", "--store", made_up, capsys=capsys)[0] == 0
    assert states(made_up) == []
