"""Rows of an index, checked against the types of their columns: SQLite keeps any value in any column, and an
index may come from a stranger.
"""

import functools
import sqlite3
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from opsieve.triage.store.index.schema import SCHEMA, ours

GREATEST = 2**53 - 1  # that a number other than a seed may be; SQLite can add many of them up
_T = TypeVar("_T")
_PYTHON = {"TEXT": str, "INTEGER": int, "REAL": float}
_EMPTY = frozenset(["reduced", "cluster"])  # columns that may hold nothing
_UNBOUNDED = frozenset(["seed"])
_NUMBERS = frozenset([int, float])
# What an expression may give; no column of ours holds bytes.
_ANY: frozenset[type] = frozenset([str, int, float, type(None)])


class WrongType(sqlite3.DataError):
    """A row holds a value that no program of ours writes there."""


class RowReader:
    """The row factory of a connection to an index (`sqlite3.Connection.row_factory`): tuples, and WrongType
    for one with a wrong value.

    What has the name of a column of the index (of several, where tables share the name) must be of its type,
    and no greater than GREATEST.
    """

    def __init__(self) -> None:
        self._description: object = None
        self._types: tuple[frozenset[type], ...] = ()

    def __call__(self, cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The row."""
        if cursor.description is not self._description:
            self._description = cursor.description
            self._types = tuple(_by_name().get(column[0], _ANY) for column in cursor.description)
        for at, value in enumerate(row):
            kind = type(value)
            if kind in self._types[at] and (kind not in _NUMBERS or -GREATEST <= value <= GREATEST):
                continue
            name = cursor.description[at][0]
            if kind is not int or name not in _UNBOUNDED:
                raise WrongType(f"a value of {name[:40]!r} is of another type, or too large")
        return row


def decoded(text: str, type_: type[_T]) -> _T:
    """What a column of JSON holds; WrongType when it is none, or of another type."""
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise WrongType("a value that should be JSON is of another type") from None


def wrong_column(connection: sqlite3.Connection) -> str:
    """The first column of an index that holds a wrong value, "" where none does. Reads all of it;
    sqlite3.Error.
    """
    for table, columns in _columns().items():
        for name, kind in columns.items():
            right = [kind.lower(), *(["null"] if name in _EMPTY else [])]
            listed = ", ".join(f"'{each}'" for each in right)
            large = "" if kind == "TEXT" or name in _UNBOUNDED else f" OR abs({name} / 2.0) > {GREATEST / 2}"
            sql = f"SELECT EXISTS (SELECT 1 FROM {table} WHERE typeof({name}) NOT IN ({listed}){large})"
            if connection.execute(sql).fetchone()[0]:
                return f"{table}.{name}"
    return ""


@functools.cache
def _by_name() -> Mapping[str, frozenset[type]]:
    """The Python types that columns of a name have, those of all tables together."""
    found: dict[str, frozenset[type]] = {}
    for columns in _columns().values():
        for name, kind in columns.items():
            types: set[type] = {_PYTHON[kind], type(None)} if name in _EMPTY else {_PYTHON[kind]}
            found[name] = found.get(name, frozenset()) | types
    return found


def columns_of(table: str) -> Mapping[str, str]:
    """The columns of a table with their declared types."""
    return _columns()[table]


@functools.cache
def _columns() -> Mapping[str, Mapping[str, str]]:
    """The declared type of each column, by table; those of the full-text table are SQLite's own."""
    tables = {table: columns for table, columns in ours(SCHEMA)[1].items() if not table.startswith("texts")}
    return {
        table: {str(column[0]): str(column[1]) for column in columns} for table, columns in tables.items()
    }
