"""The schema of a store's index, and checks that a file and its rows conform to it: an index may come from an
untrusted source.

An index holds our tables and their indexes only: a view or a trigger is code that runs when the index is
read, a generated column or a default is an expression. Rows are data. SQLite keeps any value in any column,
so rows are checked against the types of their columns.
"""

import contextlib
import functools
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from opsieve.gen.errors import shown

# Each step brings an index to the version of its position; a new index takes all of them.
MIGRATIONS = (
    """
    CREATE TABLE campaigns (id TEXT PRIMARY KEY, generator TEXT, seed INTEGER, targets TEXT);
    CREATE TABLE tests (campaign TEXT, number INTEGER, digest TEXT, verdicts TEXT, PRIMARY KEY (campaign,
        number)) WITHOUT ROWID;
    CREATE TABLE failures (
        campaign TEXT, test INTEGER, target TEXT, verdict TEXT, kind TEXT, stage TEXT, fingerprint TEXT,
        message TEXT, reason TEXT,
        blame TEXT, version TEXT, digest TEXT, folder TEXT, PRIMARY KEY (campaign, test, target));
    CREATE TABLE fingerprints (key TEXT PRIMARY KEY, version INTEGER, kind TEXT, components TEXT, count
        INTEGER, kept INTEGER);
    CREATE TABLE totals (campaign TEXT, target TEXT, verdict TEXT, count INTEGER, PRIMARY KEY (campaign,
        target, verdict));
    """,
    """
    ALTER TABLE totals ADD COLUMN seconds REAL NOT NULL DEFAULT 0;
    CREATE INDEX failures_by_fingerprint ON failures (fingerprint);
    """,
    # A fingerprint has a number for life; a cluster has that of its first fingerprint. What
    # `opsieve.triage.store.index.growth` fills in is empty here.
    """
    ALTER TABLE failures ADD COLUMN seen REAL NOT NULL DEFAULT 0;
    ALTER TABLE failures ADD COLUMN nodes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE failures ADD COLUMN reduced INTEGER;
    ALTER TABLE failures ADD COLUMN operators TEXT NOT NULL DEFAULT '';
    CREATE INDEX failures_kept ON failures (fingerprint) WHERE folder != '';
    CREATE INDEX failures_by_folder ON failures (folder) WHERE folder != '';
    CREATE INDEX failures_by_version ON failures (fingerprint, version);
    CREATE INDEX failures_by_campaign ON failures (campaign, verdict, kind, fingerprint);
    ALTER TABLE fingerprints ADD COLUMN number INTEGER;
    ALTER TABLE fingerprints ADD COLUMN cluster INTEGER;
    ALTER TABLE fingerprints ADD COLUMN apart INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE fingerprints ADD COLUMN title TEXT NOT NULL DEFAULT '';
    ALTER TABLE fingerprints ADD COLUMN stage TEXT NOT NULL DEFAULT '';
    ALTER TABLE fingerprints ADD COLUMN message TEXT NOT NULL DEFAULT '';
    ALTER TABLE fingerprints ADD COLUMN targets TEXT NOT NULL DEFAULT '';
    ALTER TABLE fingerprints ADD COLUMN guilty_pass TEXT NOT NULL DEFAULT '';
    ALTER TABLE fingerprints ADD COLUMN first_bad TEXT NOT NULL DEFAULT '';
    ALTER TABLE fingerprints ADD COLUMN first_seen REAL NOT NULL DEFAULT 0;
    ALTER TABLE fingerprints ADD COLUMN last_seen REAL NOT NULL DEFAULT 0;
    UPDATE fingerprints SET number = rowid;
    UPDATE fingerprints SET targets = coalesce((
        SELECT ' ' || group_concat(target, ' ') || ' ' FROM (SELECT DISTINCT target FROM failures WHERE
        fingerprint = key)), '');
    CREATE INDEX fingerprints_by_number ON fingerprints (number, cluster);
    CREATE INDEX fingerprints_by_cluster ON fingerprints (cluster, number);
    CREATE INDEX fingerprints_unplaced ON fingerprints (number) WHERE title = '';
    CREATE TABLE clusters (
        id INTEGER PRIMARY KEY, title TEXT NOT NULL DEFAULT '', name TEXT NOT NULL DEFAULT '', kind TEXT
        NOT NULL DEFAULT '',
        backend TEXT NOT NULL DEFAULT '', stage TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'new',
        issue TEXT NOT NULL DEFAULT '', note TEXT NOT NULL DEFAULT '', pinned INTEGER NOT NULL DEFAULT 0,
        shaped INTEGER NOT NULL DEFAULT 0, rule TEXT NOT NULL DEFAULT '', members INTEGER NOT NULL DEFAULT 0,
        fingerprints INTEGER NOT NULL DEFAULT 0, nodes INTEGER NOT NULL DEFAULT 0, reduced INTEGER,
        representative TEXT NOT NULL DEFAULT '', targets TEXT NOT NULL DEFAULT '', operators TEXT NOT NULL
        DEFAULT '',
        guilty_pass TEXT NOT NULL DEFAULT '', first_bad TEXT NOT NULL DEFAULT '', first_seen REAL NOT NULL
        DEFAULT 0,
        last_seen REAL NOT NULL DEFAULT 0, severity INTEGER NOT NULL DEFAULT 0, rank INTEGER NOT NULL
        DEFAULT 1000000000);
    CREATE INDEX clusters_by_rank ON clusters ((1 - pinned), rank, id);
    CREATE INDEX clusters_by_first_seen ON clusters (first_seen, id);
    CREATE INDEX clusters_by_members ON clusters (members, id);
    CREATE INDEX clusters_by_last_seen ON clusters (last_seen, id);
    CREATE TABLE alternatives (title TEXT, number INTEGER, PRIMARY KEY (title, number)) WITHOUT ROWID;
    CREATE TABLE aside (
        target TEXT, verdict TEXT, what TEXT, message TEXT, count INTEGER, PRIMARY KEY (target, verdict,
        what)) WITHOUT ROWID;
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at REAL, born INTEGER, action TEXT, text TEXT, patch TEXT, state TEXT NOT
        NULL DEFAULT 'done');
    CREATE TABLE explained (
        rule TEXT, number INTEGER, count INTEGER, PRIMARY KEY (rule, number)) WITHOUT ROWID;
    CREATE TABLE rules (name TEXT PRIMARY KEY, title TEXT, issue TEXT, count INTEGER);
    CREATE VIRTUAL TABLE texts USING fts5 (title, message, operators, prefix = '1 2 3', detail = none,
        columnsize = 0);
    """,
    "ALTER TABLE campaigns ADD COLUMN versions TEXT NOT NULL DEFAULT '{}'",
    # Fingerprints by the statement of the compiler that failed (`opsieve.triage.clustering.clusters`).
    "CREATE TABLE statements (place TEXT, number INTEGER, PRIMARY KEY (place, number)) WITHOUT ROWID",
    # What a campaign decides by (`opsieve.triage.campaign.schedule`).
    "CREATE TABLE learnt (campaign TEXT, name TEXT, value TEXT, PRIMARY KEY (campaign, name)) WITHOUT ROWID",
    # Public issues that a cluster probably is, as JSON (`opsieve.triage.known`).
    "ALTER TABLE clusters ADD COLUMN probably TEXT NOT NULL DEFAULT ''",
)
SCHEMA = len(MIGRATIONS)

# The limit on CPU seconds per request; a longer one is hostile.
SECONDS = 60.0
# Separates targets in a column, so a blank in a target (a command, a path) has another character there.
_BLANK = "\x1f"
# Of SQLite's machine between two looks at the clock
_STEPS = 100_000


def restrict_connection(connection: sqlite3.Connection, *, reading: bool) -> None:
    """Restrict a connection to an untrusted index: no functions with effects in its schema, no writes while
    `reading`.
    """
    # Views and expressions of the schema may then call no function with side effects.
    connection.execute("PRAGMA trusted_schema = OFF")
    # SQLite checks pages as it reads them, before damaged ones lead it astray.
    connection.execute("PRAGMA cell_size_check = ON")
    if reading:
        connection.execute("PRAGMA query_only = ON")


@contextlib.contextmanager
def limit_time(connection: sqlite3.Connection, seconds: float = SECONDS) -> Iterator[None]:
    """Interrupt queries (`sqlite3.OperationalError`) after this much CPU time of the thread."""
    end = time.thread_time() + seconds
    # CPU time, since wall time would interrupt honest queries on a busy machine.
    connection.set_progress_handler(lambda: int(time.thread_time() > end), _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


def find_problem(connection: sqlite3.Connection) -> str:
    """Find a problem in the schema of an index; "" if it is ours in its stated version."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= SCHEMA:
        return f"has schema {version}"
    try:
        found = _list_objects(connection)
    # SQLite keeps any bytes as a name.
    except UnicodeDecodeError:
        return "holds names that are no text"
    if not version and not found:
        return ""
    expected, columns = build_reference(version)
    if foreign := sorted(found.keys() - expected.keys()):
        return f"holds {shown(foreign[0], 80)}, which is none of ours"
    if missing := sorted(expected.keys() - found.keys()):
        return f"lacks {missing[0]}"
    if other := sorted(name for name, statement in expected.items() if found[name] != statement):
        return f"made {other[0]} otherwise than ours"
    for table, wanted in columns.items():
        if _list_columns(connection, table) != wanted:
            return f"has other columns in {table} than ours"
    return ""


@functools.cache
def build_reference(version: int) -> tuple[dict[str, str], dict[str, list[tuple[object, ...]]]]:
    """Return the objects of our own index (`_list_objects`) and the columns of its tables: name, type, not
    null, default, hidden.
    """
    connection = sqlite3.connect(":memory:")
    try:
        for step in MIGRATIONS[:version]:
            connection.executescript(step)
        objects = _list_objects(connection)
        tables = [name.removeprefix("table ") for name in objects if name.startswith("table ")]
        return objects, {table: _list_columns(connection, table) for table in tables}
    finally:
        connection.close()


def _list_objects(connection: sqlite3.Connection) -> dict[str, str]:
    """List the objects of an index, such as `table clusters`, with their SQL.

    The SQL matters because checks and expressions in it are code. For the tables below the full-text one it
    is "", because SQLite writes them and its versions differ.
    """
    found = connection.execute(
        "SELECT type || ' ' || name, CASE WHEN name LIKE 'texts\\_%' ESCAPE '\\' THEN '' ELSE sql END FROM"
        " sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        # A hostile schema may have any number of objects; more than ours are refused anyhow.
    ).fetchmany(1000)
    # SQLite keeps the spaces of the statement, which do not matter.
    return {name: " ".join((statement or "").split()) for name, statement in found}


def _list_columns(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    """Return name, type, nullability, default, and whether it is generated, of each column."""
    found = connection.execute(
        'SELECT name, type, "notnull", dflt_value, hidden FROM pragma_table_xinfo(?)', [table]
    )
    return found.fetchmany(1000)


# That a number other than a seed may be; SQLite can add many of them up
GREATEST = 2**53 - 1
_T = TypeVar("_T")
_PYTHON = {"TEXT": str, "INTEGER": int, "REAL": float}
# Columns that may hold nothing
_EMPTY = frozenset(["reduced", "cluster"])
_UNBOUNDED = frozenset(["seed"])
_NUMBERS = frozenset([int, float])
# What an expression may give; no column of ours holds bytes.
_ANY: frozenset[type] = frozenset([str, int, float, type(None)])


class WrongType(sqlite3.DataError):
    """A row holds a value that opsieve never writes there."""


class RowReader:
    """The row factory of a connection to an index (`sqlite3.Connection.row_factory`): tuples with checked
    values.

    A column with the name of an index column (of several, if tables share the name) must have its type and be
    at most GREATEST, or WrongType is raised.
    """

    def __init__(self) -> None:
        self._description: object = None
        self._types: tuple[frozenset[type], ...] = ()

    def __call__(self, cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the checked row."""
        # By identity: SQLite makes one description for each statement, and rows of it come by the thousand.
        if cursor.description is not self._description:
            self._description = cursor.description
            self._types = tuple(_map_types().get(column[0], _ANY) for column in cursor.description)
        for at, value in enumerate(row):
            kind = type(value)
            if kind in self._types[at] and (kind not in _NUMBERS or -GREATEST <= value <= GREATEST):
                continue
            name = cursor.description[at][0]
            if kind is not int or name not in _UNBOUNDED:
                raise WrongType(f"a value of {name[:40]!r} is of another type, or too large")
        return row


def join_targets(targets: Iterable[str]) -> str:
    """Join targets to the text of a column, each between two spaces; `split_targets` reverses it."""
    return f" {' '.join(target.replace(' ', _BLANK) for target in targets)} "


def split_targets(column: str) -> tuple[str, ...]:
    """List the targets of a column."""
    return tuple(target.replace(_BLANK, " ") for target in column.split(" ") if target)


def decode_json(text: str, type_: type[_T]) -> _T:
    """Decode a column of JSON; raises WrongType if it is invalid or of another type."""
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise WrongType("a value that should be JSON is of another type") from None


def find_wrong_column(connection: sqlite3.Connection) -> str:
    """Find the first column that holds a wrong value, or "". Reads the whole index; may raise
    sqlite3.Error.
    """
    for table, columns in _read_columns().items():
        for name, kind in columns.items():
            right = [kind.lower(), *(["null"] if name in _EMPTY else [])]
            listed = ", ".join(f"'{each}'" for each in right)
            # Halves, since the absolute value of the least integer overflows in SQLite.
            large = "" if kind == "TEXT" or name in _UNBOUNDED else f" OR abs({name} / 2.0) > {GREATEST / 2}"
            sql = f"SELECT EXISTS (SELECT 1 FROM {table} WHERE typeof({name}) NOT IN ({listed}){large})"
            if connection.execute(sql).fetchone()[0]:
                return f"{table}.{name}"
    return ""


@functools.cache
def _map_types() -> Mapping[str, frozenset[type]]:
    """Map column names to the Python types allowed in any table."""
    found: dict[str, frozenset[type]] = {}
    for columns in _read_columns().values():
        for name, kind in columns.items():
            types: set[type] = {_PYTHON[kind], type(None)} if name in _EMPTY else {_PYTHON[kind]}
            found[name] = found.get(name, frozenset()) | types
    return found


def get_columns(table: str) -> Mapping[str, str]:
    """Return the columns of a table with their declared types."""
    return _read_columns()[table]


@functools.cache
def _read_columns() -> Mapping[str, Mapping[str, str]]:
    """Return the declared type of each column by table, without SQLite's own full-text tables."""
    tables = {
        table: columns
        for table, columns in build_reference(SCHEMA)[1].items()
        if not table.startswith("texts")
    }
    return {
        table: {str(column[0]): str(column[1]) for column in columns} for table, columns in tables.items()
    }
