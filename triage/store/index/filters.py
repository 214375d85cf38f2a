"""The filter that people type, as SQL: `kind:crash op:Pad target:onnxruntime status:new since:2d -stage:run
free words`.

Fields are joined by *and*, values separated by commas by *or*, unless they are quoted; a `-` before a field
means *not*. Words without a field are searched in titles, messages, operators, names, notes and issues, by
the beginnings of words. Pure: from a text to a condition on `clusters` with its values. Pages of clusters go
by key, not by offset, so that every page costs the same.
"""

import json
import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from opsieve.backends.verdict import Kind
from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.triage.store.index import schema

# A rule's word counts until a person says something else.
STATUS = "(CASE WHEN status = 'new' AND rule != '' THEN 'known' ELSE status END)"
_LONGEST = 500
_TOKEN = re.compile(r'(?=\S)(-?[a-z]+:)?(?:"([^"]*)"|(\S*))')
_SINCE = re.compile(r"(\d{1,6})([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
# The field that depends on the time
SINCE = "since"
# As the index cuts text into words
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL expression over the table `clusters` with its values."""

    sql: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a filter: a field with the values that it may have, or "" with one text of words."""

    field: str
    negated: bool
    values: tuple[str, ...]

    def to_condition(self, now: float) -> Condition:
        """Translate the term to SQL. BadInput for a value that the field cannot have."""
        if not self.field:
            text = self.values[0]
            words = _WORD.findall(text)
            like = f"%{_escape_like(text)}%"
            named = "name LIKE ? ESCAPE '\\' OR note LIKE ? ESCAPE '\\' OR issue LIKE ? ESCAPE '\\'"
            # The full-text index has no word for signs alone, so titles are searched as text.
            if not words:
                return Condition(f"(title LIKE ? ESCAPE '\\' OR {named})", (like,) * 4)
            # Quoted, since AND, OR and NEAR are operators of the full-text index.
            query = " AND ".join(f'"{word}"*' for word in words)
            return Condition(
                "(+clusters.id IN (SELECT f.cluster FROM texts JOIN fingerprints f ON f.number ="
                " texts.rowid WHERE"
                f" texts MATCH ?) OR {named})",
                (query, like, like, like),
            )
        alternatives = [
            _match_since(value, now) if self.field == SINCE else FIELDS[self.field](value)
            for value in self.values
        ]
        sql = f"({' OR '.join(each.sql for each in alternatives)})"
        values = tuple(value for each in alternatives for value in each.values)
        return Condition(f"NOT {sql}" if self.negated else sql, values)


def split_filter(text: str) -> tuple[Term, ...]:
    """Split a filter into its terms.

    Raises:
        BadInput: For a field that does not exist, an invalid value of a field, or a filter over 500
            characters.
    """
    if len(text) > _LONGEST:
        raise BadInput(f"the filter has {len(text)} characters; the limit is {_LONGEST}")
    # A command line may hold bytes that are no text
    text = text.encode("utf-8", "replace").decode()
    return tuple(map(_parse_term, _TOKEN.finditer(text)))


def _parse_term(match: re.Match[str]) -> Term:
    field, quoted = match[1] or "", match[2]
    given = match[3] if quoted is None else quoted
    name = field.strip("-:")
    if field and name not in (*FIELDS, SINCE):
        # `onnx::Add` and addresses are words, too
        if quoted is None and not given.startswith((":", "//")):
            # `pinned:yes` for `is:pinned`
            meant = [f"; did you mean {each}:{name}?" for each, allowed in VALUES.items() if name in allowed]
            hint = meant[0] if meant else suggest_name(name, (*FIELDS, SINCE))
            raise BadInput(
                f"a filter has no field {shown(name)}{hint}; fields are {', '.join((*FIELDS, SINCE))}; to"
                f" search for the text, quote it: '\"{name}:...\"'"
            )
        return Term("", False, (field + given,))
    if not field:
        return Term("", False, (given,))
    # A quoted value is one value: targets and commands hold blanks and commas.
    values = tuple(value for value in (given.split(",") if quoted is None else [given]) if value)
    if not values:
        raise BadInput(f"the field {name}: of the filter has no value")
    allowed = VALUES.get(name, ())
    for value in values:
        if allowed and value.lower() not in allowed:
            raise BadInput(
                f"{name}:{shown(value)} cannot occur{suggest_name(value, allowed)}; take one of"
                f" {', '.join(allowed)}"
            )
    return Term(name, field.startswith("-"), values)


def parse_filter(text: str, now: float | None = None) -> Condition:
    """Translate a filter to SQL. BadInput as from `split_filter`."""
    at = time.time() if now is None else now
    # +: no index, since it is true of nearly every row
    found = [Condition("+members > 0", ())]
    found += [term.to_condition(at) for term in split_filter(text)]
    return Condition(
        " AND ".join(each.sql for each in found), tuple(value for each in found for value in each.values)
    )


def _escape_like(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def _match_column(column: str) -> Callable[[str], Condition]:
    return lambda value: Condition(f"{column} = ? COLLATE NOCASE", (value,))


def _match_word(column: str, whole: bool) -> Callable[[str], Condition]:
    """Match a word, or the beginning of one, in a column of words."""
    end = " %" if whole else "%"
    # The column begins and ends with a space, so that every word stands between two.
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
    return Condition(f"({known[value.lower()]})", ())


def _match_number(value: str) -> Condition:
    digits = value.removeprefix("c")
    if not digits.isdecimal() or len(digits) > 12:
        raise BadInput(f"{shown(value)} is not a cluster; write one such as id:c17")
    return Condition("id = ?", (int(digits),))


def _match_since(value: str, now: float) -> Condition:
    match = _SINCE.fullmatch(value)
    if match is None:
        raise BadInput(f"{shown(value)} is not a time; write since:30m, since:12h, since:2d or since:1w")
    return Condition("last_seen >= ?", (now - int(match[1]) * _SECONDS[match[2]],))


# `since` comes on top.
FIELDS: dict[str, Callable[[str], Condition]] = {
    "kind": _match_column("kind"),
    "stage": _match_column("stage"),
    "status": _match_column(STATUS),
    "backend": _match_column("backend"),
    "op": _match_word("operators", whole=True),
    "target": lambda value: _match_word("targets", whole=False)(schema.join_targets([value])[1:-1]),
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
# Rows of a page
MOST = 1000

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
        raise BadInput(f"{shown(order.sort)} is not a sort order; take one of {', '.join(SORTS)}")
    by, greatest = _ORDERS[order.sort]
    down = greatest != order.reverse
    limit = max(1, min(limit, MOST))
    start = parse_cursor(order.after, len(by)) if order.after else []
    # An index gives the order
    if wanted is None:
        names = by
        sql = f"SELECT {', '.join(by)}, {columns} FROM clusters WHERE members > 0"
        sql += f" AND {_compare_keys(names, down)}" if start else ""
        total = int(connection.execute("SELECT count(*) FROM clusters WHERE members > 0").fetchone()[0])
        rows = connection.execute(
            f"{sql} ORDER BY {_order_by(names, down)} LIMIT ?", [*start, limit + 1]
        ).fetchall()
    else:
        # The matching rows are found once, for the page and for the count.
        names = tuple(f"key_{place}" for place in range(len(by)))
        keys = ", ".join(f"{column} AS {name}" for column, name in zip(by, names, strict=True))
        behind = f" WHERE {_compare_keys(names, down)}" if start else ""
        rows = connection.execute(
            f"WITH found AS MATERIALIZED (SELECT id AS one, {keys} FROM clusters WHERE {wanted.sql}) SELECT"
            f" {', '.join(names)}, {columns}, (SELECT count(*) FROM found) FROM (SELECT * FROM found{behind}"
            f" ORDER BY {_order_by(names, down)} LIMIT ?) JOIN clusters ON id = one ORDER BY"
            f" {_order_by(names, down)}",
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
                # SQLite raises OverflowError for a larger integer.
                isinstance(one, str | float) or (isinstance(one, int) and abs(one) < 1 << 63)
                for one in values
            )
        ):
            return values
    except (ValueError, RecursionError):
        # A cursor is text that a user may have typed.
        pass
    raise BadInput(f"{shown(after)} is not a cursor; take the `next` of a page")


def _order_by(names: tuple[str, ...], down: bool) -> str:
    return ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name in names)


def _compare_keys(names: tuple[str, ...], down: bool) -> str:
    # A comparison of rows: by the first key, among equals by the next one, down to the unique id.
    return f"({', '.join(names)}) {'<' if down else '>'} ({', '.join('?' * len(names))})"


# What a value of a field is called in a sentence.
_NOUNS = {"op": "operator", "pass": "guilty pass", "bad": "first bad release"}


def known_names(field: str) -> tuple[str, ...]:
    """List the names that a field may have in any store: operators that ONNX declares, installed backends."""
    if field == "op":
        from opsieve.gen.declarations.catalogue import operators

        return tuple(operators())
    if field in ("target", "backend"):
        from opsieve.backends.registry import names

        return names()
    return ()


def is_known_name(field: str, value: str) -> bool:
    """Return whether a value means something in any store; of a target it may be the beginning of a name."""
    wanted = value.lower()
    names = [name.lower() for name in known_names(field)]
    return any(name.startswith(wanted) for name in names) if field == "target" else wanted in names


def describe_absence(field: str, value: str) -> str:
    """Say that no cluster of the store has a value of a field, or a text if the field is ""."""
    if not field:
        return f"no cluster of the store has {shown(value)} in its title, messages, operators, name or note"
    hint = suggest_name(value, known_names(field))
    return f"no cluster of the store has the {_NOUNS.get(field, field)} {shown(value)}{hint}"
