"""Pages of clusters in SQL: by key, not by offset, so that a page costs the same wherever it lies."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Literal, get_args

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.index.filters import Condition

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
    """A sort, its direction, and the place to go on from: the `next` of the page before, or ""."""

    sort: Sort = "rank"
    reverse: bool = False
    after: str = ""


def cluster_page(
    connection: sqlite3.Connection, columns: str, wanted: Condition | None, order: Order, limit: int
) -> tuple[list[tuple[Any, ...]], int, str]:
    """Rows of `columns` of the clusters that a condition lets through (all for None), how many there are in
    all, and the next place.

    BadInput for a sort or a place that is none.
    """
    if order.sort not in SORTS:
        raise BadInput(f"{shown(order.sort)} is no order; take one of {', '.join(SORTS)}")
    by, greatest = _ORDERS[order.sort]
    down = greatest != order.reverse
    limit = max(1, min(limit, MOST))
    start = cursor(order.after, len(by)) if order.after else []
    if wanted is None:  # an index gives the order
        names = by
        sql = f"SELECT {', '.join(by)}, {columns} FROM clusters WHERE members > 0"
        sql += f" AND {_behind(names, down)}" if start else ""
        total = int(connection.execute("SELECT count(*) FROM clusters WHERE members > 0").fetchone()[0])
        rows = connection.execute(
            f"{sql} ORDER BY {_by(names, down)} LIMIT ?", [*start, limit + 1]
        ).fetchall()
    else:  # what the condition lets through is found once, for the page and for the count
        names = tuple(f"key_{place}" for place in range(len(by)))
        keys = ", ".join(f"{column} AS {name}" for column, name in zip(by, names, strict=True))
        behind = f" WHERE {_behind(names, down)}" if start else ""
        rows = connection.execute(
            f"WITH found AS MATERIALIZED (SELECT id AS one, {keys} FROM clusters WHERE {wanted.sql}) SELECT"
            f" {', '.join(names)}, {columns}, (SELECT count(*) FROM found) FROM (SELECT * FROM found{behind}"
            f" ORDER BY {_by(names, down)} LIMIT ?) JOIN clusters ON id = one ORDER BY {_by(names, down)}",
            [*wanted.values, *start, limit + 1],
        ).fetchall()
        total, rows = int(rows[0][-1]) if rows else 0, [row[:-1] for row in rows]
    more = json.dumps(rows[limit - 1][: len(by)]) if len(rows) > limit else ""
    return [row[len(by) :] for row in rows[:limit]], total, more


def cursor(after: str, length: int) -> list[Any]:
    """The values that a page's `next` holds; BadInput when it is none."""
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


def _by(names: tuple[str, ...], down: bool) -> str:
    return ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name in names)


def _behind(names: tuple[str, ...], down: bool) -> str:
    return f"({', '.join(names)}) {'<' if down else '>'} ({', '.join('?' * len(names))})"
