"""Stores from strangers: nothing outside of them is written, moved or removed, and each fault is one
sentence.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from stores import done, filled, finding

from opsieve.gen.errors import BadInput
from opsieve.triage.review.refingerprint import refingerprint
from opsieve.triage.review.review import review_store
from opsieve.triage.store.decision_log import FILE
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.failure_record import NAME
from opsieve.triage.store.index.index_file import INDEX, join_index
from opsieve.triage.store.index.schema import MIGRATIONS
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(
        tmp_path / "s", [done(at, finding(f"no {word}")) for at, word in enumerate(["room", "air", "time"])]
    )


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user's, which no store may touch."""
    folder = tmp_path / "mine"
    (folder / "papers").mkdir(parents=True)
    (folder / "papers" / "text").write_text("years of work")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def index(folder: Path) -> int:
    with Store(folder) as writer:
        return writer.adopt_cases()[0]


def look(folder: Path) -> int:
    with Queries(folder) as queries:
        return queries.counts().failures


def mark(folder: Path) -> None:
    with Ledger(folder) as ledger:
        ledger.mark("c1", "known")


EVERY: tuple[Callable[[Path], object], ...] = (index, look, mark, review_store)


@pytest.mark.parametrize("name", ["staging", "cases", "known", FILE, "lock", INDEX, f"{INDEX}-wal"])
def test_a_part_that_is_a_link_is_refused(store: Path, mine: Path, name: str) -> None:
    goal = mine if name in ("staging", "cases", "known") else mine / "papers" / "text"
    if os.path.lexists(store / name):
        (shutil.rmtree if (store / name).is_dir() else os.unlink)(store / name)
    (store / name).symlink_to(goal)
    before = contents(mine)
    for use in EVERY:
        with pytest.raises(BadInput, match="a link"):
            use(store)
    assert contents(mine) == before


def test_an_older_index_is_brought_up_without_touching_a_link(store: Path, mine: Path) -> None:
    shutil.rmtree(store / "staging")
    (store / "staging").symlink_to(mine)
    (store / INDEX).unlink()
    old = sqlite3.connect(store / INDEX)
    old.executescript(f"{MIGRATIONS[0]}; PRAGMA user_version = 1;")
    old.close()
    with pytest.raises(BadInput, match="a link"):
        look(store)
    assert contents(mine)


@pytest.mark.parametrize(
    "place",
    ["../mine/usercustomize", "/{mine}/x", "cases/../../mine/x", "cases/..", "cases/a/b/c", "known/x"],
)
def test_a_staged_case_goes_nowhere_but_to_its_place(store: Path, mine: Path, place: str) -> None:
    place = place.replace("{mine}", str(mine))
    case = next((store / "cases").glob("*/1"))
    record = json.loads((case / NAME).read_text())
    shutil.copytree(case, store / "staging" / "x")
    (store / "staging" / "x" / NAME).write_text(json.dumps({**record, "test": 77}))
    with join_index(store) as database, database.conn as connection:
        connection.execute(
            "INSERT INTO failures (campaign, test, target, verdict, kind, fingerprint, folder) VALUES (?, 77,"
            " ?, 'fail', 'error', ?, ?)",
            [record["campaign"], record["target"], record["fingerprint"], place],
        )
    before = contents(mine)
    Store(store).close()
    assert contents(mine) == before
    assert not os.listdir(store / "staging")
    assert sorted(os.listdir(store)) == sorted({*os.listdir(store)} - {"x"})


def test_a_case_folder_that_is_a_link_is_not_written(store: Path, mine: Path) -> None:
    case = next((store / "cases").glob("*/1"))
    shutil.copytree(case, mine / "case")
    shutil.rmtree(case)
    case.symlink_to(mine / "case")
    before = contents(mine)
    with Store(store) as writer:
        assert len(writer.adopt_cases()[1]) == 1
        found = refingerprint(
            writer.index, store, compute=lambda path: finding("other words here").fingerprint
        )
    assert any("not a case folder of it" in problem for problem in found.problems)
    assert len(review_store(store).problems) == 1
    assert contents(mine) == before


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER t AFTER INSERT ON decisions BEGIN DELETE FROM failures; END",
        (
            "DROP TABLE aside; CREATE VIEW aside AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1"
            " FROM n) SELECT x AS target, x AS verdict, x AS what, x AS message, x AS count FROM n"
        ),
        "ALTER TABLE clusters ADD COLUMN more TEXT GENERATED ALWAYS AS (zeroblob(1000000000)) VIRTUAL",
        "DROP TABLE tests",
        "CREATE TABLE more (x)",
        "PRAGMA user_version = -5",
        "PRAGMA user_version = 1",
    ],
)
def test_an_index_that_is_none_of_ours_is_refused(store: Path, sql: str) -> None:
    connection = sqlite3.connect(store / INDEX)
    connection.executescript(sql)
    connection.close()
    for use in EVERY:
        with pytest.raises(BadInput, match="the index of the store"):
            use(store)


def test_a_log_whose_lines_double_each_other_is_taken_at_once(store: Path) -> None:
    move = {"id": 1, "at": 0, "born": 3, "action": "merge", "patch": {"moves": [["k", 1, 1, 2]]}}
    doubling = [
        {
            "id": at,
            "at": 0,
            "born": 3,
            "action": "rekey",
            "keys": {"k": ["k", "l"], "l": ["k", "l", f"m{at}"]},
        }
        for at in range(2, 42)
    ]
    (store / FILE).write_text("".join(json.dumps(line) + "\n" for line in [move, *doubling]))
    (store / INDEX).unlink()
    assert index(store) == 3


def test_a_line_that_does_not_fit_costs_no_other(store: Path) -> None:
    same = {"at": 0, "born": 9, "action": "note", "patch": {"clusters": [[1, "note", "", "kept"]]}}
    bad = {
        "id": 5,
        "at": 0,
        "born": 9,
        "action": "merge",
        "patch": {"moves": [["nobody", 1, 2**52, 2**52 + 1]]},
    }
    (store / FILE).write_text(
        "".join(json.dumps(line) + "\n" for line in [{**same, "id": 4}, bad, "x", {**same, "id": 6}])
    )
    (store / INDEX).unlink()
    with Store(store) as writer:
        added, problems = writer.adopt_cases()
    assert (added, len(problems)) == (3, 1)
    with Queries(store) as queries:
        assert queries.cluster("c1").note == "kept"


def test_a_log_of_very_many_changes_has_an_end(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = {"id": 1, "at": 0, "born": 9, "action": "note", "patch": {"clusters": [[1, "note", "", "x"]] * 10}}
    many = {**note, "id": 2, "patch": {"clusters": [[1, "note", "", "x"]] * 10_001}}
    lines = [{**note, "id": at} for at in range(3, 23)]
    (store / FILE).write_text("".join(json.dumps(line) + "\n" for line in [many, *lines]))
    (store / INDEX).unlink()
    monkeypatch.setattr("opsieve.triage.store.decision_log.MOST_IN_ALL", 100)
    with Store(store) as writer:
        added, problems = writer.adopt_cases()
    assert added == 3
    assert problems == [
        f"line 1 of {FILE} is no decision; it is left out",
        f"line 13 of {FILE} and what follows are left out: more than 100 changes",
    ]


def test_one_bad_case_costs_no_other(store: Path) -> None:
    cases = sorted((store / "cases").glob("*/1"))
    (cases[0] / NAME).write_text("{")
    record = json.loads((cases[1] / NAME).read_text())
    (cases[1] / NAME).write_text(
        json.dumps({**record, "components": [{"name": "frames", "value": 3, "kept": "x"}] * 3})
    )
    (store / INDEX).unlink()
    with Store(store) as writer:
        added, problems = writer.adopt_cases()
    assert (added, len(problems)) == (2, 1)
