"""Check rows of an index against the types of their columns.

SQLite keeps any value in any column, and an index may come from an untrusted source.
"""

import functools
import sqlite3
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from opsieve.triage.store.index.schema import SCHEMA, build_reference

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
