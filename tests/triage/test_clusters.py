"""Clusters in the store: what joins, what stays apart, and that nothing that a person decided moves."""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from stores import CAMPAIGN, NOW, done, filled, finding

from opsieve.gen.errors import BadInput
from opsieve.triage.clustering.clusters import (
    SimilarityFeatures,
    choose_cluster,
    find_related,
    make_alternative_titles,
    make_features,
)
from opsieve.triage.clustering.reassign import Difference, find_differences
from opsieve.triage.fingerprint.component import Component, ComponentName, make_component
from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.review.refingerprint import refingerprint
from opsieve.triage.store.decision_log import FILE
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.failure_record import read_failure
from opsieve.triage.store.finished_test import FinishedTest
from opsieve.triage.store.index.index_file import INDEX, MIGRATIONS, SCHEMA
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store

LETTERS = "abcdefgh"


def errors(count: int, kinds: int, first: int = 0) -> list[FinishedTest]:
    """Tests with errors of so many kinds, each in a function of its own."""
    return [
        done(
            number,
            finding(f"no kernel {LETTERS[number % kinds]}", frames=["main", f"f{LETTERS[number % kinds]}"]),
        )
        for number in range(first, first + count)
    ]


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """Of every member its cluster, with what was decided of that."""
    with Queries(folder) as store:
        found = {}
        for row in store.clusters(limit=1000).rows:
            for member in store.members(row.id, limit=1000).rows:
                name = f"{member.campaign}:{member.test}:{member.target}"
                found[name] = (row.id, row.status, row.issue, row.note, row.pinned, row.title)
        return found


def test_equal_fingerprints_are_one_cluster_and_names_last(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(12, 3))
    with Queries(store) as queries:
        assert [(row.id, row.members) for row in queries.clusters(sort="id").rows] == [
            ("c1", 4),
            ("c2", 4),
            ("c3", 4),
        ]
    with Store(store) as writer:
        writer.record_tests(CAMPAIGN, errors(8, 4, first=12))
    with Queries(store) as queries:
        assert {row.id: row.members for row in queries.clusters(sort="id").rows} == {
            "c1": 6,
            "c2": 6,
            "c3": 6,
            "c4": 2,
        }
        assert queries.counts().failures == 20
        assert sum(group.members for group in queries.groups("kind")) == 20


def test_alternative_titles_join(tmp_path: Path) -> None:
    frames = ["main", "lower", "fold"]
    tests = [
        done(0, finding("", kind="crash", frames=frames, signal=11)),
        done(1, finding("", kind="crash", frames=frames, signal=6)),
        done(2, finding("", kind="crash", frames=["main", "lower", "other"], signal=6)),
        done(3, finding("bad pads", frames=frames, exception="builtins.ValueError")),
        done(4, finding("bad pads", frames=frames, exception="builtins.IndexError")),
    ]
    with Queries(filled(tmp_path / "s", tests)) as store:
        assert {row.id: row.fingerprints for row in store.clusters(sort="id").rows} == {
            "c1": 2,
            "c3": 1,
            "c4": 2,
        }
        assert "alternative title" in store.fingerprints("c1")[1].why


def test_a_bridge_joins_undecided_clusters_and_never_decided_ones() -> None:
    assert choose_cluster(9, {}).cluster == 9
    assert choose_cluster(9, {4: False, 2: False}).absorbed == (4,)
    found = choose_cluster(9, {4: True, 2: False, 3: True})
    assert (found.cluster, found.absorbed) == (3, (2,))


def test_titles_of_vague_failures_join_nothing() -> None:
    assert make_alternative_titles(finding("", kind="crash", signal=11).fingerprint.components) == frozenset()
    assert make_alternative_titles(finding("", kind="mismatch").fingerprint.components) == frozenset()


def test_related_clusters_are_suggested_by_average_link() -> None:
    def like(*frames: str) -> SimilarityFeatures:
        return make_features(finding("x", frames=frames).fingerprint.components)

    own = [like("a", "b", "c")]
    others = {
        2: [like("a", "b", "c", "d")],
        3: [like("x", "y", "z")],
        4: [like("a", "b", "c"), like("x", "y", "z")],
    }
    found = find_related(own, others)
    # Of 4, one half is alike and the other is not: single link would take it.
    assert [one.cluster for one in found] == [2]
    assert "frames in common" in found[0].reason


def test_decisions_are_made_undone_and_done_again(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(12, 3))
    before = state(store)
    with Ledger(store) as ledger:
        ledger.merge("c1", "c2")
        ledger.mark("c1", "confirmed", "https://example.org/1")
        ledger.note("c1", "seen before")
        ledger.pin("c3")
        ledger.rename("c3", "the third")
        after = state(store)
        assert after != before
        assert {entry[0] for entry in after.values()} == {"c1", "c3"}
        for _ in range(5):
            ledger.undo()
        assert state(store) == before
        with pytest.raises(BadInput, match="nothing to undo"):
            ledger.undo()
        for _ in range(5):
            ledger.redo()
        assert state(store) == after
        ledger.undo()
        ledger.note("c1", "another thing")
        with pytest.raises(BadInput, match="nothing to redo"):
            ledger.redo()


def test_a_member_and_a_fingerprint_are_split_out(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(12, 2))
    with Queries(store) as queries, Ledger(store) as ledger:
        ledger.merge("c1", "c2")
        key = queries.fingerprints("c1")[1].key
        assert ledger.split(key).text.endswith("as c2")
        assert queries.cluster("c2").members == 6
        place = queries.members("c1").rows[0].name
        ledger.split(place)
        assert queries.cluster("c1").members == 5
        assert queries.case(place).cluster == "c3"
        with pytest.raises(BadInput, match="all that"):
            ledger.split(key)
        with pytest.raises(BadInput, match=r"'c1' names a whole cluster; .* opsieve show c1 lists"):
            ledger.split("c1")
        ledger.undo()
        assert queries.cluster("c1").members == 6
        assert queries.case(place).cluster == "c1"


def test_what_was_split_out_is_not_joined_again(tmp_path: Path) -> None:
    frames = ["main", "lower", "fold"]
    crash = [
        done(at, finding("", kind="crash", frames=frames, signal=sign)) for at, sign in enumerate((11, 6, 7))
    ]
    store = filled(tmp_path / "s", crash[:2])
    with Queries(store) as queries, Ledger(store) as ledger:
        ledger.split(queries.fingerprints("c1")[1].key)
        with Store(store) as writer:
            writer.record_tests(CAMPAIGN, crash[2:])
        assert {row.id: row.members for row in queries.clusters(sort="id").rows} == {"c1": 2, "c2": 1}


def test_new_failures_move_nothing_that_was_decided(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(40, 8))
    with Ledger(store) as ledger:
        ledger.merge("c1", "c4", "c6")
        ledger.mark("c2", "known", "https://example.org/2")
        ledger.split("cases/" + read_key(store, "c3") + "/2")
        ledger.note("c5", "look at this")
    before = state(store)
    with Store(store) as writer:
        writer.record_tests(CAMPAIGN, errors(400, 8, first=40))
        frames = ["main", "fa"]
        writer.record_tests(
            CAMPAIGN, [done(440, finding("no kernel a", frames=frames, exception="builtins.IndexError"))]
        )
    after = state(store)
    assert {name: after[name] for name in before} == before
    assert after["c0ffee:440:fake"][0] == "c1"


def test_what_was_split_out_takes_no_others_along(tmp_path: Path) -> None:
    frames = ["main", "lower", "fold"]
    crash = [
        done(at, finding("", kind="crash", frames=frames, signal=sign)) for at, sign in enumerate((11, 6, 7))
    ]
    store = filled(tmp_path / "s", [*crash[:2], done(9, finding("other"))])
    with Queries(store) as queries, Ledger(store) as ledger:
        ledger.merge("c3", "c1")
        assert ledger.split(queries.fingerprints("c3")[0].key).text.endswith("as c1")
        with Store(store) as writer:
            writer.record_tests(CAMPAIGN, crash[2:])
        assert {row.id: row.members for row in queries.clusters(sort="id").rows} == {"c1": 1, "c3": 3}


def read_key(store: Path, cluster: str) -> str:
    with Queries(store) as queries:
        return queries.fingerprints(cluster)[0].key


def test_a_lost_index_comes_back_with_all_that_was_decided(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(16, 4))
    with Ledger(store) as ledger:
        ledger.merge("c3", "c1")
        ledger.mark("c3", "wontfix")
        ledger.split(f"cases/{read_key(store, 'c2')}/1")
        ledger.note("c4", "to be undone")
        ledger.undo()
    with Store(store) as writer:  # joins c1's fingerprint, which is in c3 by now
        writer.record_tests(
            CAMPAIGN,
            [done(16, finding("no kernel a", frames=["main", "fa"], exception="builtins.IndexError"))],
        )
    with Ledger(store) as ledger:
        ledger.pin("c4")
    before = state(store)
    assert before["c0ffee:16:fake"][0] == "c3"
    (store / INDEX).unlink()
    with Store(store) as writer:
        assert writer.adopt_cases() == (17, [])
    assert state(store) == before
    with Ledger(store) as ledger:
        assert ledger.undo().action == "pin"
        assert ledger.undo().action == "split"


def test_a_sound_index_takes_no_decision_twice(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(8, 4))
    with Ledger(store) as ledger:
        ledger.merge("c1", "c2")
        ledger.undo()
        ledger.redo()
        ledger.pin("c3")
    before = state(store)
    with Store(store) as writer:
        assert writer.adopt_cases() == (0, [])
    assert state(store) == before


def test_a_damaged_line_of_the_log_is_named_and_left_out(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(8, 4))
    with Ledger(store) as ledger:
        ledger.note("c1", "one")
    hostile = {
        "id": 2,
        "born": 4,
        "action": "note",
        "at": 0,
        "text": "",
        "patch": {"clusters": [[1, "id = 7 --", 0, 0]]},
    }
    huge = {"id": 3, "born": 10**30, "action": "undo", "at": 0}
    with open(store / FILE, "a") as file:
        file.write(json.dumps(hostile) + "\n" + json.dumps(huge) + "\nhalf a li")
    with Ledger(store) as ledger:
        ledger.note("c2", "two")
    (store / INDEX).unlink()
    with Store(store) as writer:
        _, problems = writer.adopt_cases()
    assert [problem.split(" of")[0] for problem in problems] == ["line 2", "line 3", "line 4"]
    with Queries(store) as queries:
        assert (queries.cluster("c1").note, queries.cluster("c2").note) == ("one", "two")


def test_decisions_while_a_campaign_holds_the_store(tmp_path: Path) -> None:
    with Store(tmp_path, clock=lambda: NOW) as writer:
        writer.begin_campaign(CAMPAIGN)
        writer.record_tests(CAMPAIGN, errors(8, 2))
        with Ledger(tmp_path) as ledger, Queries(tmp_path) as queries:
            assert queries.changed()
            ledger.merge("c1", "c2")
            assert queries.changed()
            assert not queries.changed()
            writer.record_tests(CAMPAIGN, errors(8, 2, first=8))
            assert [(row.id, row.members) for row in queries.clusters().rows] == [("c1", 16)]


def test_a_store_of_an_older_schema_gets_its_clusters(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / INDEX)
    old.executescript("".join(MIGRATIONS[:2]) + "PRAGMA user_version = 2;")
    told = json.dumps([{"name": "kind", "value": "error", "kept": True, "hint": ""}])
    for number in range(3):
        old.execute(f"INSERT INTO fingerprints VALUES ('fake-error-{number}', 1, 'error', ?, 1, 0)", [told])
        old.execute(
            "INSERT INTO failures VALUES ('c', ?, 'fake', 'fail', 'error', 'run', ?, 'm', '', '', '',"
            " '', '')",
            [number, f"fake-error-{number}"],
        )
    old.commit()
    old.close()
    with Queries(tmp_path) as store:
        assert [(row.id, row.members, row.targets) for row in store.clusters(sort="id").rows] == [
            (f"c{number}", 1, ("fake",)) for number in (1, 2, 3)
        ]
        assert sqlite3.connect(tmp_path / INDEX).execute("PRAGMA user_version").fetchone() == (SCHEMA,)


@pytest.mark.parametrize("change", [{"number": 10**30}, {"test": -1}, {"verdict": 7}, {"components": 1}])
def test_a_hostile_failure_file_is_named_and_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    store = filled(tmp_path / "s", errors(2, 2))
    path = next((store / "cases").glob("*/1/failure.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    (store / INDEX).unlink()
    with Store(store) as writer:
        added, problems = writer.adopt_cases()
    assert (added, len(problems)) == (1, 1)


def test_new_rules_leave_what_cannot_be_read(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(4, 4))
    paths = sorted((store / "cases").glob("*/1/failure.json"))
    for path, change in zip(
        paths, ({"kind": "x"}, {"mismatch": {"what": 3}}, {"verdict": "no"}), strict=False
    ):
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    before = state(store)
    with Store(store) as writer:
        outcome = refingerprint(writer.index, store)
    assert len(outcome.problems) == 2
    assert state(store) == before


# -- fingerprints computed anew


def again_as(places: dict[str, str]) -> Callable[[Path], Fingerprint]:
    """A rule that gives cases, by the message that they tell, another key."""

    def compute(case: Path) -> Fingerprint:
        told = read_failure(case)
        key = places.get(told.message, told.fingerprint)
        return Fingerprint(2, key, finding(told.message).fingerprint.components)

    return compute


def test_new_rules_tell_what_would_move_and_move_it(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(24, 3))
    before = state(store)
    rule = again_as({"no kernel a": "fake-error-same", "no kernel b": "fake-error-same"})
    with Store(store) as writer:
        planned = refingerprint(writer.index, store, dry_run=True, compute=rule)
        assert state(store) == before
        assert sum(len(group.rows) for group in planned.groups) == 10
        assert len(planned.differences) == len(planned.groups)
        done_ = refingerprint(writer.index, store, compute=rule)
        assert done_ == planned
        assert refingerprint(writer.index, store, compute=rule).groups == ()
    with Queries(store) as queries:
        assert {row.id: row.members for row in queries.clusters(sort="id").rows} == {"c1": 16, "c3": 8}
        assert queries.cluster("c1").representative


def test_what_differs_between_two_fingerprints_is_what_counts() -> None:
    def parts(**values: str) -> list[Component]:
        return [
            make_component(ComponentName(name.rstrip("_")), value, not name.endswith("_"), "why")
            for name, value in values.items()
        ]

    old = parts(kind="error", frames="a < b", message="bad", stage_="run")
    new = parts(kind="error", frames="a", message_="bad", line="x.py:3", stage_="compile")
    assert find_differences(old, new) == (
        Difference("frames", "a < b", "a"),
        Difference("message", "bad", ""),
        Difference("line", "", "x.py:3"),
    )


def test_undo_takes_back_what_a_reduction_regrouped(tmp_path: Path) -> None:
    """A reduced case that left its cluster returns, and so do all that joined the cluster of another."""
    store = filled(tmp_path / "s", errors(24, 3))
    with Store(store) as writer:
        cases = writer.index.list_kept_cases()
        here: dict[str, list[str]] = {}
        for case in cases:
            here.setdefault(f"c{case.cluster}", []).append(case.place)
    before = {name: entry[:1] for name, entry in state(store).items()}
    # One of the first cluster leaves; those of the second join the third.
    keys = {case.place: "fake-error-other" for case in cases if case.place == here["c1"][0]}
    keys |= dict.fromkeys((*here["c2"], *here["c3"]), "fake-error-same")
    by_path = {str(store / place): key for place, key in keys.items()}

    def rule(case: Path) -> Fingerprint:
        told = read_failure(case)
        components = finding(told.message).fingerprint.components
        return Fingerprint(2, by_path.get(str(case), told.fingerprint), components)

    with Store(store) as writer:
        refingerprint(writer.index, store, places=list(keys), compute=rule)
    regrouped = {name: entry[:1] for name, entry in state(store).items()}
    assert regrouped != before
    with Ledger(store) as ledger:
        assert ledger.undo().action == "regroup"
        assert {name: entry[:1] for name, entry in state(store).items()} == before
        ledger.redo()
        assert {name: entry[:1] for name, entry in state(store).items()} == regrouped
        ledger.undo()
    with Store(store) as writer:
        assert refingerprint(writer.index, store, places=list(keys), compute=rule).groups == ()
    (store / INDEX).unlink()
    with Store(store) as writer:
        writer.adopt_cases()
    again = {name: entry[:1] for name, entry in state(store).items()}
    # Only failures with a case are in a rebuilt index.
    assert len(again) == len(cases)
    assert again.items() <= before.items()


def test_new_rules_never_undo_a_decision(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", errors(16, 4))
    with Ledger(store) as ledger:
        ledger.mark("c1", "known")
        ledger.mark("c2", "fixed")
        ledger.merge("c3", "c4")
    before = state(store)
    rule = again_as(dict.fromkeys(("no kernel a", "no kernel b", "no kernel c"), "fake-error-same"))
    with Store(store) as writer:
        refingerprint(writer.index, store, compute=rule)
    after = state(store)
    assert {name: entry[:2] for name, entry in after.items()} == {
        name: entry[:2] for name, entry in before.items()
    }
    (store / INDEX).unlink()
    with Store(store) as writer:
        writer.adopt_cases()
    assert state(store) == after
    with Ledger(store) as ledger:
        assert ledger.undo().action == "merge"  # it speaks of the new keys now
    assert {entry[0] for entry in state(store).values()} == {"c1", "c2", "c3", "c4"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("template") / "s", errors(8, 4))


@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=3, max_size=12))
def test_any_decisions_undone_leave_what_was_there(template: Path, steps: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(shutil.copytree(template, Path(scratch) / "s"))
        before, taken = state(store), 0
        with Ledger(store) as ledger, Queries(store) as queries:
            for action, which in steps:
                name = f"c{which + 1}"
                try:
                    if action == 0:
                        ledger.merge(name, f"c{(which + 1) % 4 + 1}")
                    elif action == 1:
                        ledger.split(queries.fingerprints(name)[-1].key)
                    elif action == 2:
                        ledger.split(queries.members(name).rows[-1].name)
                    elif action == 3:
                        ledger.mark(name, "confirmed")
                    elif action == 4:
                        ledger.pin(name)
                    elif action == 5:
                        ledger.undo()
                        taken -= 2
                    else:
                        ledger.redo()
                    taken += 1
                except BadInput:
                    continue
            everything = state(store)
            assert everything.keys() == before.keys()
            for _ in range(taken):
                ledger.undo()
        assert state(store) == before
