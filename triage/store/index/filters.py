"""The filter that people type, as SQL: `kind:crash op:Pad target:onnxruntime status:new since:2d -stage:run
free words`.

Fields are joined by *and*, values separated by commas by *or*; a `-` before a field means *not*. Words
without a field are searched in titles, messages, operators, names, notes and issues, by the beginnings of
words. Pure: from a text to a condition on `clusters` with its values. Pages of clusters go by key, not by
offset, so that every page costs the same.
"""

import json
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from opsieve.backends.verdict import Kind
from opsieve.gen.errors import BadInput, meant, shown

STATUS = "(CASE WHEN status = 'new' AND rule != '' THEN 'known' ELSE status END)"
_LONGEST = 500
_TOKEN = re.compile(r'(-?[a-z]+:)?(?:"([^"]*)"|(\S+))')
_SINCE = re.compile(r"(\d{1,6})([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
_WORD = re.compile(r"[^\W_]+")  # as the index cuts text into words


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL expression over the table `clusters` with its values."""

    sql: str
    values: tuple[object, ...]


def parse_filter(text: str, now: float | None = None) -> Condition:
    """Translate a filter to SQL.

    Raises:
        BadInput: For an invalid value of a field, or a filter over 500 characters.
    """
    if len(text) > _LONGEST:
        raise BadInput(f"the filter has {len(text)} characters; the limit is {_LONGEST}")
    text = text.encode("utf-8", "replace").decode()  # a command line may hold bytes that are no text
    at = time.time() if now is None else now

    def since(value: str) -> Condition:
        return _match_since(value, at)

    fields = {**FIELDS, "since": since}
    parts: list[str] = ["+members > 0"]  # +: no index, since it is true of nearly every row
    values: list[object] = []
    for match in _TOKEN.finditer(text):
        field, given = match[1] or "", match[2] if match[2] is not None else match[3]
        if (name := field.strip("-:")) in fields:
            made = _join_or([fields[name](value) for value in given.split(",") if value])
            parts.append(f"NOT {made.sql}" if field.startswith("-") else made.sql)
        else:
            made = _match_words(field + given)
            parts.append(made.sql)
        values += made.values
    return Condition(" AND ".join(parts), tuple(values))


def _join_or(found: Sequence[Condition]) -> Condition:
    if not found:
        return Condition("1", ())
    return Condition(
        f"({' OR '.join(one.sql for one in found)})", tuple(value for one in found for value in one.values)
    )


def explain_filter(text: str) -> tuple[str, ...]:
    """Explain parts of a filter that are not fields, or not values of their field, and so act as words or
    match nothing.
    """
    found = []
    for match in _TOKEN.finditer(text[:_LONGEST]):
        field, given = (match[1] or "").strip("-:"), match[2] if match[2] is not None else match[3]
        if field and field not in {*FIELDS, "since"}:
            hint = meant(field, [*FIELDS, "since"])
            if hint and not given.startswith(":"):  # `onnx::Add` is a word
                found.append(f"{field}: is no field but a word{hint}")
        found += [
            f"no cluster has the {field} {shown(value)}{meant(value, VALUES[field])}"
            for value in (given.split(",") if field in VALUES else ())
            if value and value.lower() not in VALUES[field]
        ]
    return tuple(found)


def _escape_like(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def _match_column(column: str) -> Callable[[str], Condition]:
    return lambda value: Condition(f"{column} = ? COLLATE NOCASE", (value,))


def _match_word(column: str, whole: bool) -> Callable[[str], Condition]:
    """Match a word, or the beginning of one, in a column of words."""
    end = " %" if whole else "%"
    return lambda value: Condition(f"{column} LIKE ? ESCAPE '\\'", (f"% {_escape_like(value)}{end}",))


def _match_part(column: str) -> Callable[[str], Condition]:
    return lambda value: Condition(f"{column} LIKE ? ESCAPE '\\'", (f"%{_escape_like(value)}%",))


def _match_flag(value: str) -> Condition:
    known = {
        "pinned": "pinned",
        "reduced": "reduced IS NOT NULL",
        "known": "rule != ''",
        "probable": "probably != ''",
        "noted": "note != ''",
        "merged": "fingerprints > 1",
    }
    if value not in known:
        raise BadInput(f"{shown(value)} is nothing that a cluster is; take one of {', '.join(known)}")
    return Condition(f"({known[value]})", ())


def _match_number(value: str) -> Condition:
    digits = value.removeprefix("c")
    if not digits.isdecimal() or len(digits) > 12:
        raise BadInput(f"{shown(value)} is no cluster; write id:c17")
    return Condition("id = ?", (int(digits),))


def _match_since(value: str, now: float) -> Condition:
    match = _SINCE.fullmatch(value)
    if match is None:
        raise BadInput(f"{shown(value)} is no time; write since:30m, since:12h, since:2d or since:1w")
    return Condition("last_seen >= ?", (now - int(match[1]) * _SECONDS[match[2]],))


def _match_words(text: str) -> Condition:
    words = _WORD.findall(text)
    like = f"%{_escape_like(text)}%"
    named = "name LIKE ? ESCAPE '\\' OR note LIKE ? ESCAPE '\\' OR issue LIKE ? ESCAPE '\\'"
    if not words:
        return Condition(f"(title LIKE ? ESCAPE '\\' OR {named})", (like,) * 4)
    query = " AND ".join(f'"{word}"*' for word in words)
    return Condition(
        "(+clusters.id IN (SELECT f.cluster FROM texts JOIN fingerprints f ON f.number = texts.rowid WHERE"
        f" texts MATCH ?) OR {named})",
        (query, like, like, like),
    )


# `since` is one besides, which depends on the time.
FIELDS: dict[str, Callable[[str], Condition]] = {
    "kind": _match_column("kind"),
    "stage": _match_column("stage"),
    "status": _match_column(STATUS),
    "backend": _match_column("backend"),
    "op": _match_word("operators", whole=True),
    "target": _match_word("targets", whole=False),
    "pass": _match_part("guilty_pass"),
    "bad": _match_part("first_bad"),
    "rule": _match_column("rule"),
    "is": _match_flag,
    "id": _match_number,
}
# Fields that have one of a few values.
VALUES: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "stage": ("import", "compile", "run"),
    "status": ("new", "confirmed", "known", "fixed", "wontfix"),
    "is": ("pinned", "reduced", "known", "probable", "noted", "merged"),
}


Sort = Literal["rank", "members", "last", "first", "size", "severity", "title", "id"]
SORTS: tuple[Sort, ...] = get_args(Sort)
MOST = 1000  # rows of a page

# What a sort goes by, with the identity last; whether the greatest comes first.
_ORDERS: dict[Sort, tuple[tuple[str, ...], bool]] = {
    "rank": (("(1 - pinned)", "rank", "id"), False),
    "members": (("members", "id"), True),
    "last": (("last_seen", "id"), True),
    "first": (("first_seen", "id"), True),
    "size": (("coalesce(reduced, nodes)", "id"), False),
    "severity": (("severity", "id"), True),
    "title": (("(CASE WHEN name != '' THEN name ELSE title END)", "id"), False),
    "id": (("id",), False),
}


@dataclass(frozen=True, slots=True)
class Order:
    """A sort, its direction, and the place to continue from: the `next` of the page before, or ""."""

    sort: Sort = "rank"
    reverse: bool = False
    after: str = ""


def read_page(
    connection: sqlite3.Connection, columns: str, wanted: Condition | None, order: Order, limit: int
) -> tuple[list[tuple[Any, ...]], int, str]:
    """Read `columns` of the clusters that match a condition (all for None), their total, and the next place.

    Raises:
        BadInput: For an invalid sort or place.
    """
    if order.sort not in SORTS:
        raise BadInput(f"{shown(order.sort)} is no order; take one of {', '.join(SORTS)}")
    by, greatest = _ORDERS[order.sort]
    down = greatest != order.reverse
    limit = max(1, min(limit, MOST))
    start = parse_cursor(order.after, len(by)) if order.after else []
    if wanted is None:  # an index gives the order
        names = by
        sql = f"SELECT {', '.join(by)}, {columns} FROM clusters WHERE members > 0"
        sql += f" AND {_compare_keys(names, down)}" if start else ""
        total = int(connection.execute("SELECT count(*) FROM clusters WHERE members > 0").fetchone()[0])
        rows = connection.execute(
            f"{sql} ORDER BY {_order_by(names, down)} LIMIT ?", [*start, limit + 1]
        ).fetchall()
    else:  # what the condition lets through is found once, for the page and for the count
        names = tuple(f"key_{place}" for place in range(len(by)))
        keys = ", ".join(f"{column} AS {name}" for column, name in zip(by, names, strict=True))
        behind = f" WHERE {_compare_keys(names, down)}" if start else ""
        rows = connection.execute(
            f"WITH found AS MATERIALIZED (SELECT id AS one, {keys} FROM clusters WHERE {wanted.sql}) SELECT"
            f" {', '.join(names)}, {columns}, (SELECT count(*) FROM found) FROM (SELECT * FROM found{behind}"
            f" ORDER BY {_order_by(names, down)} LIMIT ?) JOIN clusters ON id = one ORDER BY {_order_by(names, down)}",
            [*wanted.values, *start, limit + 1],
        ).fetchall()
        total, rows = int(rows[0][-1]) if rows else 0, [row[:-1] for row in rows]
    more = json.dumps(rows[limit - 1][: len(by)]) if len(rows) > limit else ""
    return [row[len(by) :] for row in rows[:limit]], total, more


def parse_cursor(after: str, length: int) -> list[Any]:
    """Parse the values in a page's `next`; raises BadInput for an invalid one."""
    try:
        values = json.loads(after)
        if (
            isinstance(values, list)
            and len(values) == length
            and all(
                isinstance(one, str | float) or (isinstance(one, int) and abs(one) < 1 << 63)
                for one in values
            )
        ):
            return values
    except (ValueError, RecursionError):
        pass
    raise BadInput(f"{shown(after)} is no place to go on from; take the `next` of a page")


def _order_by(names: tuple[str, ...], down: bool) -> str:
    return ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name in names)


def _compare_keys(names: tuple[str, ...], down: bool) -> str:
    return f"({', '.join(names)}) {'<' if down else '>'} ({', '.join('?' * len(names))})"
