"""The index of a store as a file: its lock, its schema, and what SQLite says in words for a user."""

import fcntl
import os
import sqlite3
from pathlib import Path

import sqlite_utils

from opsieve.gen.bad_input import BadInput, shown
from opsieve.gen.files import reason

INDEX = "index.sqlite"
_BUSY = 10.0  # seconds that a statement waits for a reader or a copying tool

# Each step brings an index to the version of its position; a new index takes all of them.
MIGRATIONS = (
    """
    CREATE TABLE campaigns (id TEXT PRIMARY KEY, generator TEXT, seed INTEGER, targets TEXT);
    CREATE TABLE tests (campaign TEXT, number INTEGER, digest TEXT, verdicts TEXT, PRIMARY KEY (campaign, number)) WITHOUT ROWID;
    CREATE TABLE failures (
        campaign TEXT, test INTEGER, target TEXT, verdict TEXT, kind TEXT, stage TEXT, fingerprint TEXT, message TEXT, reason TEXT,
        blame TEXT, version TEXT, digest TEXT, folder TEXT, PRIMARY KEY (campaign, test, target));
    CREATE TABLE fingerprints (key TEXT PRIMARY KEY, version INTEGER, kind TEXT, components TEXT, count INTEGER, kept INTEGER);
    CREATE TABLE totals (campaign TEXT, target TEXT, verdict TEXT, count INTEGER, PRIMARY KEY (campaign, target, verdict));
    """,
    """
    ALTER TABLE totals ADD COLUMN seconds REAL NOT NULL DEFAULT 0;
    CREATE INDEX failures_by_fingerprint ON failures (fingerprint);
    """,
)
SCHEMA = len(MIGRATIONS)


def locked(folder: Path) -> int:
    """The lock of a store, made if need be; the system lets go of it when this process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ours = any(os.path.lexists(folder / name) for name in (INDEX, "lock", "cases", "imported"))
        if not ours and any(folder.iterdir()):
            raise BadInput(f"{shown(folder, 200)} is no store and not empty; choose another --store")
        (folder / "staging").mkdir(exist_ok=True)
        (folder / "cases").mkdir(exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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


def opened(path: Path) -> sqlite_utils.Database:
    """The index, made or brought up to this version."""
    connection = sqlite3.connect(path, timeout=_BUSY)
    try:
        database = sqlite_utils.Database(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found > SCHEMA:
            raise BadInput(
                f"the store {shown(path.parent, 200)} has schema {found}, newer than this opsieve's {SCHEMA}; upgrade opsieve"
            )
        for version in range(found, SCHEMA):
            steps = [step for step in MIGRATIONS[version].split(";") if step.strip()]
            with database.atomic():
                for step in steps:
                    connection.execute(step)
                connection.execute(f"PRAGMA user_version = {version + 1}")
    except BaseException:
        connection.close()
        raise
    return database


def sentence(folder: Path, error: sqlite3.Error) -> str:
    """What to tell a user of an error of SQLite."""
    where, said = shown(folder, 200), str(error)
    if "full" in said:
        return f"the disk of the store {where} is full; free some space, then go on with --resume"
    if "locked" in said or "busy" in said:
        return f"the index of the store {where} is locked by another program; end it, then go on with --resume"
    if "malformed" in said or "not a database" in said or "no such table" in said:
        return f"the index of the store {where} is damaged ({shown(said)}); `opsieve index` builds it anew from the case folders"
    return f"the index of the store {where} cannot be used: {shown(said, 120)}; choose another --store"


def set_aside(folder: Path) -> Path | None:
    """Rename an index that is damaged; where it is now, None when it is sound or not there. BadInput as `locked`."""
    lock = locked(folder)
    try:
        path = folder / INDEX
        if not path.exists():
            return None
        try:
            connection = sqlite3.connect(path, timeout=_BUSY)
            try:
                if connection.execute("PRAGMA integrity_check").fetchone() == ("ok",):
                    return None
            finally:
                connection.close()
        except sqlite3.OperationalError as error:  # locked, or no access: that is no damage
            raise BadInput(sentence(folder, error)) from None
        except sqlite3.DatabaseError:
            pass
        number = 1
        while (aside := folder / f"{INDEX}.damaged-{number}").exists():
            number += 1
        for end in ("-wal", "-shm"):
            path.with_name(INDEX + end).unlink(missing_ok=True)
        path.rename(aside)
        return aside
    finally:
        os.close(lock)
