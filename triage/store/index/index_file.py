"""The index of a store as a file: its lock, its schema, and SQLite's errors in a user's words."""

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import reason
from opsieve.gen.model.printable import quote_argument
from opsieve.triage.store.index.schema import (
    MIGRATIONS,
    SCHEMA,
    RowReader,
    WrongType,
    find_problem,
    find_wrong_column,
    limit_time,
    restrict_connection,
)
from opsieve.triage.store.store_folder import CASES, LOCK, check_folder, make_folders

INDEX = "index.sqlite"
# Bytes of a disk that has room for what SQLite writes beside an index
_LEAST_FREE = 64 << 10
# Seconds that a statement waits for a reader or a copying tool
_BUSY = 10.0


def lock_store(folder: Path) -> int:
    """Take the lock of a store, creating it if needed; the system releases it when this process ends in any
    way.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A mistyped --store must not fill a folder of the user with ours.
        ours = any(os.path.lexists(folder / name) for name in (INDEX, LOCK, CASES, "imported"))
        if not ours and any(folder.iterdir()):
            raise BadInput(f"{shown(folder, 200)} is neither a store nor empty; choose another --store")
        make_folders(folder)
        # O_NOFOLLOW: a link `lock` in a store of a stranger would create a file elsewhere.
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadInput(
            f"the store {shown(folder, 200)} cannot be written: {reason(error)}; choose another --store"
        ) from None
    try:
        # A lock of the kernel goes with its process, so that a killed writer leaves no stale one.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise BadInput(
            f"another opsieve writes the store {shown(folder, 200)}; wait for it, or choose another --store"
        ) from None
    return lock


def open_index(path: Path) -> Database:
    """Open the index, creating or upgrading it."""
    connection = sqlite3.connect(path, timeout=_BUSY)
    try:
        restrict_connection(connection, reading=False)
        # Before any statement that could run code of a foreign schema.
        _check_schema(connection, path.parent)
        database = _wrap_connection(connection)
        database.enable_wal()
        # Decisions and records must survive a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for version in range(found, SCHEMA):
            steps = [step for step in MIGRATIONS[version].split(";") if step.strip()]
            # Each step with its number in one transaction: an interrupted upgrade goes on where it stopped.
            with begin_immediate(database):
                for step in steps:
                    connection.execute(step)
                connection.execute(f"PRAGMA user_version = {version + 1}")
    except BaseException:
        connection.close()
        raise
    return database


def open_read_only(path: Path) -> Database:
    """Open the index read-only, for any thread."""
    # Each thread uses its own connection; only closing happens in another one.
    connection = sqlite3.connect(_make_uri(path), uri=True, timeout=_BUSY, check_same_thread=False)
    restrict_connection(connection, reading=True)
    return _wrap_connection(connection)


def _wrap_connection(connection: sqlite3.Connection) -> Database:
    connection.row_factory = RowReader()
    # Plugins of sqlite-utils that happen to be installed must not run on our index.
    return Database(connection, recursive_triggers=False, execute_plugins=False)


class OpenIndex:
    """An open index. Subclasses override `_connect` for the place of the database and the form of errors."""

    def __init__(self, database: Database):
        self._database = database

    @contextlib.contextmanager
    def _connect(self) -> Iterator[Database]:
        """Yield the database for one query."""
        yield self._database

    def _select(self, sql: str, *values: object) -> list[Any]:
        with self._connect() as database:
            return database.conn.execute(sql, values).fetchall()

    def _select_row(self, sql: str, *values: object) -> Any:
        """Return the first row, or None."""
        return next(iter(self._select(sql, *values)), None)

    def _select_value(self, sql: str, *values: object) -> Any:
        """Return the first value of the first row, or None."""
        row = self._select_row(sql, *values)
        return None if row is None else row[0]

    def _select_where(
        self, table: str, where: str | None = None, *values: object, **options: Any
    ) -> list[dict[str, Any]]:
        """Return rows of a table by column name; `options` are those of sqlite-utils' `rows_where`."""
        with self._connect() as database:
            return list(database.table(table).rows_where(where, values, **options))

    def _insert_row(self, table: str, row: Mapping[str, object]) -> None:
        """Add a row of a table that grows with every failure: ten times as fast as sqlite-utils' `insert`."""
        names = ", ".join(row)
        self._select(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", *row.values())

    def _update(self, table: str, where: str, values: Sequence[object], **columns: object) -> None:
        """Set columns of the rows that match a condition."""
        assigned = ", ".join(f"{name} = ?" for name in columns)
        self._select(f"UPDATE {table} SET {assigned} WHERE {where}", *columns.values(), *values)

    @contextlib.contextmanager
    def open_transaction(self) -> Iterator[None]:
        """Open a transaction: all changes inside are made, or all are rolled back."""
        with begin_immediate(self._database):
            yield


def read_version(path: Path) -> int:
    """Read the schema version of an index."""
    with contextlib.closing(sqlite3.connect(_make_uri(path), uri=True, timeout=_BUSY)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _make_uri(path: Path) -> str:
    # In a folder that cannot be written SQLite cannot make its shared memory. Without a log, the index is
    # whole and has no writer.
    is_still = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' * is_still}"


def _check_schema(connection: sqlite3.Connection, folder: Path) -> None:
    """Raise BadInput for an index that is newer than this opsieve, or foreign."""
    with limit_time(connection):
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found > SCHEMA:
            raise BadInput(_describe_schema(folder, found))
        if problem := find_problem(connection):
            raise BadInput(
                f"the index of the store {shown(folder, 200)} {problem}; if the store is yours, remove"
                f" {INDEX}: `opsieve index` builds it anew from the case folders"
            )


# Of all commands that write, only a campaign has an option for it.
_AGAIN = "run the command again (fuzz with --resume)"


class DiskFull(BadInput):
    """The disk is full; the whole write was rolled back."""


@contextlib.contextmanager
def begin_immediate(database: Database) -> Iterator[None]:
    """Open a transaction that may write from its start, so that of two processes one waits for the other."""
    database.conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.conn.execute("COMMIT")
    except BaseException:
        database.rollback()
        raise


def translate_error(folder: Path, error: sqlite3.Error | OSError) -> BadInput:
    """Translate an error of SQLite or the system during a write to an exception with one sentence."""
    if isinstance(error, sqlite3.Error):
        # SQLite tells a full disk only by its message, so the message is searched.
        said = describe_error(folder, error)
        return DiskFull(said) if "is full" in said else BadInput(said)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"the disk of the store {shown(folder, 200)} is full; free some space, then {_AGAIN}")
    return BadInput(f"cannot write the store {shown(folder, 200)}: {reason(error)}; mend that, then {_AGAIN}")


def describe_error(folder: Path, error: sqlite3.Error) -> str:
    """Describe an error of SQLite for a user."""
    where, said = shown(folder, 200), str(error)
    # Where the memory that connections share has no room, SQLite has an error of the disk.
    if "full" in said or ("disk I/O" in said and shutil.disk_usage(folder).free < _LEAST_FREE):
        return f"the disk of the store {where} is full; free some space, then {_AGAIN}"
    if "locked" in said or "busy" in said:
        return f"the index of the store {where} is locked by another program; end it, then {_AGAIN}"
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


def move_damaged(folder: Path) -> Path | None:
    """Rename a damaged index and return its new place; None if it is sound or missing.

    Raises:
        BadInput: As `lock_store`.
    """
    lock = lock_store(folder)
    try:
        path = folder / INDEX
        if not path.exists():
            return None
        try:
            connection = sqlite3.connect(path, timeout=_BUSY)
            try:
                restrict_connection(connection, reading=True)
                if _is_sound(connection):
                    return None
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            # locked, or no access: that is no damage
            raise BadInput(describe_error(folder, error)) from None
        except sqlite3.DatabaseError:
            pass
        number = 1
        # Renamed and not removed: decisions may still be read out of it.
        while (renamed := folder / f"{INDEX}.damaged-{number}").exists():
            number += 1
        # A log of the damaged index would be applied to the new one of the same name.
        for end in ("-wal", "-shm"):
            path.with_name(INDEX + end).unlink(missing_ok=True)
        path.rename(renamed)
        return renamed
    finally:
        os.close(lock)


def _is_sound(connection: sqlite3.Connection) -> bool:
    if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
        return False
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    # An older or foreign index is another matter than a damaged one, and is reported as such.
    return found != SCHEMA or bool(find_problem(connection)) or not find_wrong_column(connection)


@contextlib.contextmanager
def join_index(folder: Path) -> Iterator[Database]:
    """Open an index that another process may be writing, for short transactions (`begin_immediate`) without
    the lock.

    Raises:
        BadInput: If there is no store, its schema differs, or SQLite fails.
    """
    path = folder / INDEX
    check_folder(folder)
    if not path.is_file():
        lost, saved = (folder / CASES).is_dir(), any(folder.glob("*/case.json"))
        hint = "triage --logs clusters its cases" if saved else "fuzz --store DIR makes one"
        hint = f"index --store {quote_argument(str(folder))} rebuilds it" if lost else hint
        wrong = f"is not a store: it has no {INDEX}" if folder.exists() else "does not exist"
        raise BadInput(f"{shown(folder, 200)} {wrong}; opsieve {hint}")
    try:
        # Readers join, too, and may have no right to write.
        place = path.absolute().as_uri() if os.access(folder, os.W_OK) else _make_uri(path)
        connection = sqlite3.connect(place, uri=True, timeout=_BUSY)
        try:
            restrict_connection(connection, reading=False)
            _check_schema(connection, folder)
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if found != SCHEMA:
                raise BadInput(_describe_schema(folder, found))
            yield _wrap_connection(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise BadInput(describe_error(folder, error)) from None


def _describe_schema(folder: Path, found: int) -> str:
    if found > SCHEMA:
        return (
            f"the store {shown(folder, 200)} has schema {found}, newer than this opsieve's {SCHEMA}; upgrade"
            " opsieve"
        )
    return (
        f"the store {shown(folder, 200)} has schema {found}, older than this opsieve's {SCHEMA};"
        " opsieve index --store DIR brings it up"
    )
