"""Rows of an index that hold what no program of ours writes: each use of the store ends in a sentence, or
goes well.
"""

import io
import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest
from commands import opsieve
from stores import done, filled, finding

from opsieve.gen.errors import BadInput
from opsieve.triage.review.review import recompute_fingerprints, run_triage
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.index.index_file import INDEX, move_damaged
from opsieve.triage.store.index.schema import MIGRATIONS
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store
from opsieve.tui.cli import main

COMMANDS = (
    ["clusters", "--store", "{}"],
    ["clusters", "--non-bugs", "--store", "{}"],
    ["show", "c1", "--store", "{}"],
    ["triage", "{}"],
    ["decisions", "--store", "{}"],
)
# Of each type one that a column of another type does not turn into its own.
VALUES = {
    "bytes": b"\xff\x00",
    "a word": "x\x1b[2J",
    "a fraction": 0.5,
    "infinity": float("inf"),
    "nothing": None,
    "2^63-1": 2**63 - 1,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tests = [done(at, finding(f"no {word}")) for at, word in enumerate(["room", "air", "time"])]
    store = filled(
        tmp_path_factory.mktemp("sound") / "s", [*tests, done(3, finding("no room", verdict="flaky"))]
    )
    with Ledger(store) as ledger:
        ledger.note("c1", "mine")
        ledger.merge("c1", "c2")
        ledger.undo()
    return store


def columns() -> list[tuple[str, str, str]]:
    """Table, column and type of all columns of an index."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for step in MIGRATIONS:
            connection.executescript(step)
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'texts%'"
        )
        return [
            (table, *column)
            for (table,) in tables.fetchall()
            for column in connection.execute(
                "SELECT name, type FROM pragma_table_info(?)", [table]
            ).fetchall()
        ]


def changed(sound: Path, place: Path, table: str, column: str, value: object) -> Path:
    """A copy of the store in whose index all rows of a table hold a value in a column, whatever its
    constraints say.
    """
    store = place / "store"
    shutil.copytree(sound, store)
    with closing(sqlite3.connect(store / INDEX)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        # a row at least, where the column must be unique or filled
        with (
            suppress(sqlite3.IntegrityError),
            connection,
        ):
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", [value])
    return store


def uses(store: Path) -> list[Callable[[], object]]:
    def look() -> None:
        with Queries(store) as queries:
            for each in (
                queries.clusters("is:noted x"),
                queries.groups("target"),
                queries.related("c1"),
                queries.campaigns(),
                queries.history("c1"),
            ):
                assert each is not None

    def decide(act: Callable[[Ledger], object]) -> Callable[[], None]:
        def decided() -> None:
            with Ledger(store) as ledger:
                act(ledger)

        return decided

    def write() -> None:
        with Store(store) as writer:
            writer.adopt_cases()

    acts = (
        lambda it: it.redo(),
        lambda it: it.undo(),
        lambda it: it.mark("c1", "fixed"),
        lambda it: it.merge("c3", "c1"),
        lambda it: it.split("cases/x/1"),
    )
    return [look, *map(decide, acts), lambda: recompute_fingerprints(store), lambda: run_triage(store), write]


def ended_badly(use: Callable[[], object]) -> str:
    """How a use of a store ended, "" when it went well or told a sentence."""
    try:
        use()
    except BadInput as error:
        return "control characters" if "\x1b" in str(error) else ""
    except Exception as error:  # noqa: BLE001 the rest is told with it
        return repr(error)
    return ""


def command_ended_badly(arguments: Sequence[str]) -> str:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main(arguments)
    text = said.getvalue()
    return (
        ""
        if ended.value.code in (None, 0, 2) and "\x1b" not in text
        else f"{ended.value.code} {text[-200:]!r}"
    )


def faults(sound: Path, place: Path, wanted: Iterable[tuple[tuple[str, str, str], str]]) -> list[str]:
    """What ends neither well nor in a sentence, of stores with one column changed each."""
    wrong = []
    for at, ((table, column, kind), what) in enumerate(wanted):
        store = changed(sound, place / str(at), table, column, VALUES[what])
        found = {use.__qualname__: ended_badly(use) for use in uses(store)}
        found |= {
            command[0]: command_ended_badly([part.format(store) for part in command]) for command in COMMANDS
        }
        wrong += [f"{table}.{column} of {kind}, {what}: {name}: {why}" for name, why in found.items() if why]
    return wrong


def test_names_that_are_no_text_or_steer_a_terminal_are_a_sentence(sound: Path, tmp_path: Path) -> None:
    for at, (name, word) in enumerate(itertools.product((b"odd\xf5name", b"\x1b[31m"), (b"TABLE", b"TABLX"))):
        shutil.copytree(sound, store := tmp_path / str(at))
        with closing(sqlite3.connect(store / INDEX)) as index:
            index.execute("CREATE TABLE placeholder (x)")
            index.commit()
        data = (store / INDEX).read_bytes()
        assert data.count(b"placeholder") >= 2
        data = data.replace(b"CREATE TABLE placeholder", b"CREATE " + word + b" placeholder")
        (store / INDEX).write_bytes(data.replace(b"placeholder", name.ljust(11, b"_")))
        assert not [found for use in uses(store) if (found := ended_badly(use))]
        assert not [
            found
            for command in COMMANDS
            if (found := command_ended_badly([part.format(store) for part in command]))
        ]


def test_a_value_of_another_type_is_a_sentence(sound: Path, tmp_path: Path) -> None:
    assert not faults(sound, tmp_path, list(zip(columns(), itertools.cycle(VALUES)))[::7])


@pytest.mark.slow
@pytest.mark.parametrize("what", VALUES)
def test_each_value_in_each_column_is_a_sentence(what: str, sound: Path, tmp_path: Path) -> None:
    assert not faults(sound, tmp_path, [(column, what) for column in columns()])


def test_an_index_with_such_a_value_is_built_anew(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = changed(sound, tmp_path, "clusters", "title", b"\xff")
    with (
        pytest.raises(BadInput, match=r"damaged .*`opsieve index` builds it anew"),
        Queries(store) as queries,
    ):
        queries.clusters()
    assert opsieve("index", "--store", store, capsys=capsys)[0] == 0
    with Queries(store) as queries:
        assert queries.cluster("c1").note == "mine"
    assert move_damaged(store) is None
