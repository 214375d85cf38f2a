"""The index of a store as a file: its lock, its schema, and what SQLite says in words for a user."""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlite_utils

from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.model.files import reason

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
    # A fingerprint has a number for life; a cluster has that of its first fingerprint. What `opsieve.triage.store.index_rows` fills in is empty here.
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
        SELECT ' ' || group_concat(target, ' ') || ' ' FROM (SELECT DISTINCT target FROM failures WHERE fingerprint = key)), '');
    CREATE INDEX fingerprints_by_number ON fingerprints (number, cluster);
    CREATE INDEX fingerprints_by_cluster ON fingerprints (cluster, number);
    CREATE INDEX fingerprints_unplaced ON fingerprints (number) WHERE title = '';
    CREATE TABLE clusters (
        id INTEGER PRIMARY KEY, title TEXT NOT NULL DEFAULT '', name TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '',
        backend TEXT NOT NULL DEFAULT '', stage TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'new',
        issue TEXT NOT NULL DEFAULT '', note TEXT NOT NULL DEFAULT '', pinned INTEGER NOT NULL DEFAULT 0,
        shaped INTEGER NOT NULL DEFAULT 0, rule TEXT NOT NULL DEFAULT '', members INTEGER NOT NULL DEFAULT 0,
        fingerprints INTEGER NOT NULL DEFAULT 0, nodes INTEGER NOT NULL DEFAULT 0, reduced INTEGER,
        representative TEXT NOT NULL DEFAULT '', targets TEXT NOT NULL DEFAULT '', operators TEXT NOT NULL DEFAULT '',
        guilty_pass TEXT NOT NULL DEFAULT '', first_bad TEXT NOT NULL DEFAULT '', first_seen REAL NOT NULL DEFAULT 0,
        last_seen REAL NOT NULL DEFAULT 0, severity INTEGER NOT NULL DEFAULT 0, rank INTEGER NOT NULL DEFAULT 1000000000);
    CREATE INDEX clusters_by_rank ON clusters ((1 - pinned), rank, id);
    CREATE INDEX clusters_by_first_seen ON clusters (first_seen, id);
    CREATE INDEX clusters_by_members ON clusters (members, id);
    CREATE INDEX clusters_by_last_seen ON clusters (last_seen, id);
    CREATE TABLE alternatives (title TEXT, number INTEGER, PRIMARY KEY (title, number)) WITHOUT ROWID;
    CREATE TABLE aside (
        target TEXT, verdict TEXT, what TEXT, message TEXT, count INTEGER, PRIMARY KEY (target, verdict, what)) WITHOUT ROWID;
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at REAL, born INTEGER, action TEXT, text TEXT, patch TEXT, state TEXT NOT NULL DEFAULT 'done');
    CREATE TABLE explained (
        rule TEXT, number INTEGER, count INTEGER, PRIMARY KEY (rule, number)) WITHOUT ROWID;
    CREATE TABLE rules (name TEXT PRIMARY KEY, title TEXT, issue TEXT, count INTEGER);
    CREATE VIRTUAL TABLE texts USING fts5 (title, message, operators, prefix = '1 2 3', detail = none, columnsize = 0);
    """,
    "ALTER TABLE campaigns ADD COLUMN versions TEXT NOT NULL DEFAULT '{}'",
    # Fingerprints by the statement of the compiler that failed (`opsieve.triage.clustering.statements`).
    "CREATE TABLE statements (place TEXT, number INTEGER, PRIMARY KEY (place, number)) WITHOUT ROWID",
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
            raise BadInput(_other_schema(path.parent, found))
        for version in range(found, SCHEMA):
            steps = [step for step in MIGRATIONS[version].split(";") if step.strip()]
            with writing(connection):
                for step in steps:
                    connection.execute(step)
                connection.execute(f"PRAGMA user_version = {version + 1}")
    except BaseException:
        connection.close()
        raise
    return database


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that may write from its start, so that of two processes one waits for the other; all of it is done or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


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
        while (renamed := folder / f"{INDEX}.damaged-{number}").exists():
            number += 1
        for end in ("-wal", "-shm"):
            path.with_name(INDEX + end).unlink(missing_ok=True)
        path.rename(renamed)
        return renamed
    finally:
        os.close(lock)


@contextlib.contextmanager
def joined(folder: Path) -> Iterator[sqlite3.Connection]:
    """The index of a store that another process may be writing, for short transactions (`writing`) without its lock.

    BadInput, one sentence, when there is no store, its schema is not this opsieve's, or SQLite says something.
    """
    path = folder / INDEX
    if not path.is_file():
        raise BadInput(f"{shown(folder, 200)} is no store: it has no {INDEX}; opsieve fuzz --store DIR makes one")
    try:
        connection = sqlite3.connect(path, timeout=_BUSY)
        try:
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if found != SCHEMA:
                raise BadInput(_other_schema(folder, found))
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise BadInput(sentence(folder, error)) from None


def _other_schema(folder: Path, found: int) -> str:
    if found > SCHEMA:
        return f"the store {shown(folder, 200)} has schema {found}, newer than this opsieve's {SCHEMA}; upgrade opsieve"
    return (
        f"the store {shown(folder, 200)} has schema {found}, older than this opsieve's {SCHEMA};"
        " opsieve index --store DIR brings it up"
    )
