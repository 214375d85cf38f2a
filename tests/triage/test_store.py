"""The store of a campaign: what it keeps, and what happens when its writer dies, its disk is full or its
index is not what it was.
"""

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import stores
from commands import opsieve
from models import X, chain

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Verdict
from opsieve.gen.case.case import Case, load
from opsieve.gen.errors import BadInput
from opsieve.triage.fingerprint.fingerprint import make_fingerprint
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure
from opsieve.triage.store.index.index_file import INDEX, MIGRATIONS, SCHEMA, DiskFull
from opsieve.triage.store.store import KEPT, Store

CAMPAIGN = Campaign("c0ffee", "small-1", 7, ("fake", "onnxruntime"))


def done(number: int, message: str = "", verdict: Any = "fail") -> FinishedTest:
    """A test that passes on `onnxruntime`, and fails on `fake` when there is a message."""
    case = Case(chain("Relu", "Tanh"), dict(X))
    answers = {"fake": (verdict if message else "pass", 0.5), "onnxruntime": ("pass", 0.25)}
    if not message:
        return FinishedTest(number, case, answers, ())
    seen = Observation("fake", "1", "error", "compile", exception="E", message=message, log="printed\n")
    judged = Verdict(verdict, "it fails", "error", "compile", message, blame="compiler")
    found = FoundFailure("fake", judged, make_fingerprint(judged, seen, ["Relu", "Tanh"]), (seen,))
    return FinishedTest(number, case, answers, (found,))


def folders(store: Path) -> list[str]:
    return sorted(str(path.parent.relative_to(store)) for path in store.glob("cases/*/*/failure.json"))


def test_tests_and_failures_are_counted_and_the_first_cases_kept(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        store.record_tests(
            CAMPAIGN, [done(0), *(done(number, "no such kernel") for number in range(1, KEPT + 4))]
        )
        store.record_tests(CAMPAIGN, [done(KEPT + 4, "another thing")])
        assert store.count_done(CAMPAIGN) == KEPT + 5
        assert store.count_kinds(CAMPAIGN) == {"error": KEPT + 4}
        assert store.count_clusters(CAMPAIGN) == 2
        assert sorted(store.count_failures().values()) == [1, KEPT + 3]
        assert store.count_verdicts(CAMPAIGN) == {
            "fake": {"fail": KEPT + 4, "pass": 1},
            "onnxruntime": {"pass": KEPT + 5},
        }
        assert store.sum_seconds(CAMPAIGN)["onnxruntime"] == 0.25 * (KEPT + 5)
        places = [row["folder"] for row in store.list_failures() if row["folder"]]
    assert sorted(places) == folders(tmp_path)
    assert len(places) == KEPT + 1
    case = load(tmp_path / places[0])
    assert case.program == chain("Relu", "Tanh")
    assert case.parameters["target"] == "fake"
    assert (tmp_path / places[0] / "observations" / "00-fake.log").read_text() == "printed\n"


def test_a_flaky_failure_is_kept_apart(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        store.record_tests(CAMPAIGN, [done(0, "now and then", "flaky"), done(1, "now and then")])
        assert store.count_clusters(CAMPAIGN) == 1
        assert store.count_kinds(CAMPAIGN) == {"error": 1}
    assert sorted(place.split("/")[1].split("-")[0] for place in folders(tmp_path)) == ["fake", "flaky"]


def test_a_writer_that_dies_before_the_transaction_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die(*_: object) -> None:
        raise Died

    with Store(tmp_path) as store, monkeypatch.context() as patch:
        store.begin_campaign(CAMPAIGN)
        patch.setattr(store.index, "add_failure", die)
        with pytest.raises(Died):
            store.record_tests(CAMPAIGN, [done(0, "no such kernel")])
        assert list((tmp_path / "staging").iterdir())
    with Store(tmp_path) as store:
        assert store.count_done(CAMPAIGN) == 0
        assert folders(tmp_path) == []
        assert list((tmp_path / "staging").iterdir()) == []
        store.record_tests(CAMPAIGN, [done(0, "no such kernel")])
        assert len(folders(tmp_path)) == 1


def test_a_writer_that_dies_after_the_transaction_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        with monkeypatch.context() as patch:
            patch.setattr(store, "_place_staged", lambda: None)
            store.record_tests(CAMPAIGN, [done(0, "no such kernel")])
        assert folders(tmp_path) == []
    with Store(tmp_path) as store:
        assert [row["folder"] for row in store.list_failures()] == folders(tmp_path)
        assert len(folders(tmp_path)) == 1


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(BadInput, match="another opsieve writes"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_a_store_of_an_older_schema_is_brought_up_and_keeps_what_it_has(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / INDEX)
    old.executescript(MIGRATIONS[0] + "PRAGMA user_version = 1;")
    old.execute("INSERT INTO campaigns VALUES ('c0ffee', 'small-1', 7, '[\"fake\"]')")
    old.execute("INSERT INTO tests VALUES ('c0ffee', 0, '', '{}')")
    old.execute("INSERT INTO totals VALUES ('c0ffee', 'fake', 'pass', 1)")
    old.commit()
    old.close()
    with Store(tmp_path) as store:
        campaign = store.list_campaigns()[0]
        assert store.count_done(campaign) == 1
        store.record_tests(campaign, [done(1)])
        assert store.count_verdicts(campaign)["fake"] == {"pass": 2}
        assert store.sum_seconds(campaign)["fake"] == 0.5


def test_a_store_of_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    newer = sqlite3.connect(tmp_path / INDEX)
    newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    newer.close()
    with pytest.raises(BadInput, match="upgrade opsieve"):
        Store(tmp_path)
    Store(tmp_path / "other").close()  # no lock was left behind


def test_a_full_disk_is_told_and_harms_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        store.record_tests(CAMPAIGN, [done(0)])
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(BadInput, match="full"):
            store.record_tests(CAMPAIGN, [done(number, "x" * 3000 + str(number)) for number in range(1, 60)])
    with Store(tmp_path) as store:
        assert store.count_done(CAMPAIGN) == 1
        assert store.list_failures() == []
        assert folders(tmp_path) == []


@pytest.mark.parametrize(
    "writer",
    [
        "gen.case.case.write_folder",
        "triage.store.store.sync_tree",
        "gen.model.durable.write_file",
    ],
)
def test_a_disk_that_is_full_when_a_case_is_written_is_waited_for(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        with monkeypatch.context() as patched:
            patched.setattr(f"opsieve.{writer}", failing)
            with pytest.raises(DiskFull, match="free some space"):
                store.record_tests(CAMPAIGN, [done(0, "no kernel")])
        assert store.count_done(CAMPAIGN) == 0
        store.record_tests(CAMPAIGN, [done(0, "no kernel")])
        assert len(store.list_failures()) == 1


def test_a_damaged_index_is_told(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(b"no database " * 1000)
    with pytest.raises(BadInput, match="opsieve index"):
        Store(tmp_path)


def test_a_folder_of_something_else_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="neither a store"):
        Store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_lost_index_is_rebuilt_from_the_folders(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        store.record_tests(CAMPAIGN, [done(number, f"message {'abc'[number]}") for number in range(3)])
        before, counts = store.list_failures(), store.count_failures()
    (tmp_path / INDEX).unlink()
    copied = tmp_path / folders(tmp_path)[0]
    shutil.copytree(copied, copied.parent / "copy")
    (tmp_path / "cases" / "x" / "1").mkdir(parents=True)
    (tmp_path / "cases" / "x" / "1" / "failure.json").write_text("{}")
    with Store(tmp_path) as store:
        added, problems = store.adopt_cases()
        assert added == 3
        assert len(problems) == 1
        assert store.list_failures() == before
        assert store.count_failures() == counts
        assert store.list_campaigns() == [CAMPAIGN]
        assert store.adopt_cases()[0] == 0


def test_text_that_sqlite_and_json_refuse_is_stored_all_the_same(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        store.record_tests(CAMPAIGN, [done(0, "half a pair \udc80 and a zero \0" + "long" * 5000)])
        assert len(store.list_failures()) == 1


def test_a_refused_campaign_leaves_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        assert (
            opsieve("fuzz", "--store", tmp_path / name, "-t", "nosuch", "--tests", "1", capsys=capsys)[0] == 2
        )
    assert os.listdir(tmp_path) == ["empty"]
    store = stores.filled(tmp_path / "kept", [stores.done(0, stores.finding("no room"))])
    with pytest.raises(KeyError), Store(store):
        raise KeyError
    assert (store / "index.sqlite").exists()
