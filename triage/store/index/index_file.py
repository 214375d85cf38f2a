"""The index of a store as a file: its lock, its schema, and what SQLite says in words for a user."""

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import reason
from opsieve.triage.store.index.row_types import RowReader, WrongType, wrong_column
from opsieve.triage.store.index.schema import MIGRATIONS, SCHEMA, bounded, distrust, problem_of
from opsieve.triage.store.store_folder import CASES, LOCK, check_folder, made

INDEX = "index.sqlite"
_BUSY = 10.0  # seconds that a statement waits for a reader or a copying tool


def locked(folder: Path) -> int:
    """The lock of a store, made if need be; the system lets go of it when this process ends, however it
    ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ours = any(os.path.lexists(folder / name) for name in (INDEX, LOCK, CASES, "imported"))
        if not ours and any(folder.iterdir()):
            raise BadInput(f"{shown(folder, 200)} is no store and not empty; choose another --store")
        made(folder)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadInput(
            f"the store {shown(folder, 200)} cannot be written: {reason(error)}; choose another --store"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise BadInput(
            f"another opsieve writes the store {shown(folder, 200)}; wait for it, or choose another --store"
        ) from None
    return lock


def opened(path: Path) -> Database:
    """The index, made or brought up to this version."""
    connection = sqlite3.connect(path, timeout=_BUSY)
    try:
        distrust(connection, reading=False)
        _check(connection, path.parent)
        database = _database(connection)
        database.enable_wal()
        connection.execute("PRAGMA synchronous = FULL")  # what was decided or recorded outlives a power cut
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for version in range(found, SCHEMA):
            steps = [step for step in MIGRATIONS[version].split(";") if step.strip()]
            with writing(database):
                for step in steps:
                    connection.execute(step)
                connection.execute(f"PRAGMA user_version = {version + 1}")
    except BaseException:
        connection.close()
        raise
    return database


def looking(path: Path) -> Database:
    """The index to read only, for any thread."""
    connection = sqlite3.connect(_read_only(path), uri=True, timeout=_BUSY, check_same_thread=False)
    distrust(connection, reading=True)
    return _database(connection)


def _database(connection: sqlite3.Connection) -> Database:
    connection.row_factory = RowReader()
    return Database(connection, recursive_triggers=False, execute_plugins=False)


class OpenIndex:
    """An open index. Where it is asked, and how errors are reported, is for `_asking` to say."""

    def __init__(self, database: Database):
        self._database = database

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Database]:
        """The database for one question."""
        yield self._database

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with self._asking() as database:
            return database.conn.execute(sql, values).fetchall()

    def _row(self, sql: str, *values: object) -> Any:
        """The first row, None where there is none."""
        return next(iter(self._rows(sql, *values)), None)

    def _value(self, sql: str, *values: object) -> Any:
        """The first value of the first row, None where there is no row."""
        row = self._row(sql, *values)
        return None if row is None else row[0]

    def _where(
        self, table: str, where: str | None = None, *values: object, **options: Any
    ) -> list[dict[str, Any]]:
        """Rows of a table by the names of their columns; `options` are those of sqlite-utils'
        `rows_where`.
        """
        with self._asking() as database:
            return list(database.table(table).rows_where(where, values, **options))

    def _insert(self, table: str, row: Mapping[str, object]) -> None:
        """Add a row that every failure adds: sqlite-utils' `insert` takes a tenth of the time of recording
        one.
        """
        names = ", ".join(row)
        self._rows(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", *row.values())

    def _set(self, table: str, where: str, values: Sequence[object], **columns: object) -> None:
        """Set columns of the rows that a condition lets through."""
        assigned = ", ".join(f"{name} = ?" for name in columns)
        self._rows(f"UPDATE {table} SET {assigned} WHERE {where}", *columns.values(), *values)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction: all changes inside are made, or none."""
        with writing(self._database):
            yield


def version_of(path: Path) -> int:
    """The schema version that an index says it has."""
    with contextlib.closing(sqlite3.connect(_read_only(path), uri=True, timeout=_BUSY)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _read_only(path: Path) -> str:
    return f"{path.absolute().as_uri()}?mode=ro"


def _check(connection: sqlite3.Connection, folder: Path) -> None:
    """BadInput for an index that is newer than this opsieve, or none of ours."""
    with bounded(connection):
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found > SCHEMA:
            raise BadInput(_other_schema(folder, found))
        if problem := problem_of(connection):
            raise BadInput(
                f"the index of the store {shown(folder, 200)} {problem}; if the store is yours, remove"
                f" {INDEX}: `opsieve index` builds it anew from the case folders"
            )


class DiskFull(BadInput):
    """There is no space for what is to be written; nothing of it was."""


@contextlib.contextmanager
def writing(database: Database) -> Iterator[None]:
    """A transaction that may write from its start, so that of two processes one waits for the other; all of
    it is done or nothing.
    """
    database.conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.conn.execute("COMMIT")
    except BaseException:
        database.rollback()
        raise


def trouble(folder: Path, error: sqlite3.Error | OSError) -> BadInput:
    """What to raise for an error of SQLite or the system while a store is written."""
    if isinstance(error, sqlite3.Error):
        said = sentence(folder, error)
        return DiskFull(said) if "full" in str(error) else BadInput(said)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"the disk of the store {shown(folder, 200)} is full; free some space, then go on with --resume"
        )
    return BadInput(
        f"cannot write the store {shown(folder, 200)}: {reason(error)}; mend that, then go on with --resume"
    )


def sentence(folder: Path, error: sqlite3.Error) -> str:
    """What to tell a user of an error of SQLite."""
    where, said = shown(folder, 200), str(error)
    if "full" in said:
        return f"the disk of the store {where} is full; free some space, then go on with --resume"
    if "locked" in said or "busy" in said:
        return (
            f"the index of the store {where} is locked by another program; end it, then go on with --resume"
        )
    if "interrupted" in said:
        return (
            f"the index of the store {where} takes too long to answer; if the store is yours, remove {INDEX}:"
            " `opsieve index` builds it anew"
        )
    if (
        isinstance(error, WrongType)
        or "malformed" in said
        or "not a database" in said
        or "no such table" in said
    ):
        return (
            f"the index of the store {where} is damaged ({shown(said)}); `opsieve index` builds it anew from"
            " the case folders"
        )
    return f"the index of the store {where} cannot be used: {shown(said, 120)}; choose another --store"


def set_aside(folder: Path) -> Path | None:
    """Rename an index that is damaged; where it is now, None when it is sound or not there. BadInput as
    `locked`.
    """
    lock = locked(folder)
    try:
        path = folder / INDEX
        if not path.exists():
            return None
        try:
            connection = sqlite3.connect(path, timeout=_BUSY)
            try:
                distrust(connection, reading=True)
                if _sound(connection):
                    return None
            finally:
                connection.close()
        except sqlite3.OperationalError as error:  # locked, or no access: that is no damage
            raise BadInput(sentence(folder, error)) from None
        except sqlite3.DatabaseError:
            pass
        number = 1
        while (renamed := folder / f"{INDEX}.damaged-{number}").exists():
            number += 1
        for end in ("-wal", "-shm"):
            path.with_name(INDEX + end).unlink(missing_ok=True)
        path.rename(renamed)
        return renamed
    finally:
        os.close(lock)


def _sound(connection: sqlite3.Connection) -> bool:
    if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
        return False
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    return found != SCHEMA or bool(problem_of(connection)) or not wrong_column(connection)


@contextlib.contextmanager
def joined(folder: Path) -> Iterator[Database]:
    """The index of a store that another process may be writing, for short transactions (`writing`) without
    its lock.

    BadInput, one sentence, when there is no store, its schema is not this opsieve's, or SQLite says
    something.
    """
    path = folder / INDEX
    check_folder(folder)
    if not path.is_file():
        raise BadInput(
            f"{shown(folder, 200)} is no store: it has no {INDEX}; opsieve fuzz --store DIR makes one"
        )
    try:
        connection = sqlite3.connect(path, timeout=_BUSY)
        try:
            distrust(connection, reading=False)
            _check(connection, folder)
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if found != SCHEMA:
                raise BadInput(_other_schema(folder, found))
            yield _database(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise BadInput(sentence(folder, error)) from None


def _other_schema(folder: Path, found: int) -> str:
    if found > SCHEMA:
        return (
            f"the store {shown(folder, 200)} has schema {found}, newer than this opsieve's {SCHEMA}; upgrade"
            " opsieve"
        )
    return (
        f"the store {shown(folder, 200)} has schema {found}, older than this opsieve's {SCHEMA};"
        " opsieve index --store DIR brings it up"
    )
