"""The log of decisions: patches of the index, done, undone, written to STORE/decisions.jsonl, and taken again when the index is built anew.

A patch holds lists by what they change: `moves` of fingerprints (key, number, old cluster, new cluster), `members` split out of their
fingerprint (campaign, test, target, key, its own key, its number), `apart` (key, old, new) for fingerprints that join nothing by themselves,
`clusters` (cluster, field, old, new).
"""

import itertools
import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.model.durable import append
from opsieve.gen.model.files import read_file, reason
from opsieve.triage.store.index_rows import refresh

FILE = "decisions.jsonl"
_MAX_FILE = 1 << 28
MOST_CHANGES = 100_000  # of one decision
MOST_KEYS = 1000  # that one fingerprint falls apart into
Patch = dict[str, list[list[Any]]]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Field = Literal["status", "issue", "note", "name", "pinned", "shaped"]
_Value = Annotated[str, msgspec.Meta(max_length=4000)] | Annotated[int, msgspec.Meta(ge=0, le=1)]


class _Patch(msgspec.Struct):
    moves: list[tuple[str, _Number, _Number, _Number]] = []
    members: list[tuple[str, _Number, str, str, str, _Number]] = []
    apart: list[tuple[str, _Number, _Number]] = []
    clusters: list[tuple[_Number, _Field, _Value, _Value]] = []


class _LogLine(msgspec.Struct):
    """A line of the file, as anybody may have written it."""

    id: _Number
    at: float
    born: _Number
    action: Literal["merge", "split", "mark", "pin", "note", "rename", "rekey", "undo", "redo"]
    text: str = ""
    patch: _Patch = msgspec.field(default_factory=_Patch)
    keys: dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]] = {}


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision as the log has it; `text` is a sentence, `state` is `done`, `undone`, or `dropped` (undone, and cannot be done again)."""

    id: int
    at: float
    action: str
    text: str
    state: str


class DecisionReplay:
    """The decisions of a store's file, for an index that is built anew and has none: `until` takes those that are due.

    `problems` are sentences about lines that cannot be read or no longer fit; each is left out, and costs the others nothing.
    """

    def __init__(self, connection: sqlite3.Connection, folder: Path):
        self.problems: list[str] = []
        self._lines: deque[tuple[int, _LogLine]] = deque()
        path = folder / FILE
        if path.exists() and not connection.execute("SELECT 1 FROM decisions LIMIT 1").fetchone():
            self._lines.extend(_translated(self._read(path)))

    def _read(self, path: Path) -> list[tuple[int, _LogLine]]:
        """The lines with their numbers; of two with one number the later one, since the transaction of the first never ended."""
        found: dict[int, tuple[int, _LogLine]] = {}
        at: dict[int, int] = {}
        for count, text in enumerate(read_file(path, _MAX_FILE).splitlines(), 1):
            try:
                line = msgspec.json.decode(text, type=_LogLine)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.problems.append(f"line {count} of {FILE} is no decision; it is left out")
                continue
            if line.action not in ("undo", "redo"):
                found.pop(at.get(line.id, 0), None)
                at[line.id] = count
            found[count] = count, line
        return list(found.values())

    def until(self, connection: sqlite3.Connection, number: int | None) -> None:
        """Take the next decisions that were made before the fingerprint `number` was there; all for None. Inside a transaction."""
        while self._lines:
            count, line = self._lines[0]
            if number is not None and (number == 0 or line.born >= number):
                return
            self._lines.popleft()
            connection.execute("SAVEPOINT line")
            try:
                take(connection, msgspec.to_builtins(line), again=True)
            except (sqlite3.Error, BadInput) as error:
                connection.execute("ROLLBACK TO line")
                self.problems.append(f"line {count} of {FILE} no longer fits ({shown(str(error), 80)}); it is left out")
            connection.execute("RELEASE line")


def _translated(lines: list[tuple[int, _LogLine]]) -> list[tuple[int, _LogLine]]:
    """The lines, each in the keys that the cases on disk have after all lines that say how keys became others.

    From the last line to the first, so that each is rewritten once, by what all later ones make of a key.
    """
    becomes: dict[str, list[str]] = {}
    for _, line in reversed(lines):
        if becomes:
            line.patch = msgspec.convert(_translate(msgspec.to_builtins(line.patch), becomes), _Patch)
        if line.action == "rekey":
            fresh = {}
            for old, new in line.keys.items():
                every = dict.fromkeys(last for key in new for last in becomes.get(key, [key]))
                fresh[old] = list(itertools.islice(every, MOST_KEYS))
            becomes |= fresh
    return lines


def history(connection: sqlite3.Connection, cluster: int | None = None, most: int = 100) -> list[Decision]:
    """The latest decisions first; of one cluster where one is named."""
    sql, values = "SELECT id, at, action, text, state FROM decisions", []
    if cluster is not None:
        sql += " WHERE ' ' || replace(replace(replace(text, ',', ' '), ':', ' '), '.', ' ') || ' ' LIKE ?"
        values.append(f"% c{cluster} %")
    return [Decision(*row) for row in connection.execute(f"{sql} ORDER BY id DESC LIMIT {int(most)}", values)]


def write(folder: Path, line: dict[str, Any]) -> None:
    """Add a line to the file, inside the transaction: a line of a decision that was not committed is replaced by its number."""
    try:
        append(folder / FILE, json.dumps(line).encode() + b"\n")
    except OSError as error:
        raise BadInput(
            f"cannot write {shown(folder / FILE, 200)}: {reason(error)}; the decision was not taken"
        ) from None


def write_rekey(
    connection: sqlite3.Connection,
    folder: Path,
    keys: dict[str, list[str]],
    moves: list[list[Any]],
    clock: Callable[[], float] = time.time,
) -> None:
    """Log that fingerprints became others (`keys`: old to new ones), and where the new ones stand. It cannot be undone; what was
    decided before still can, for earlier decisions speak of the new keys from now on."""
    number = int(connection.execute("SELECT coalesce(max(id), 0) + 1 FROM decisions").fetchone()[0])
    text = f"{len(keys)} fingerprints became others"
    line = {
        "id": number,
        "at": round(clock(), 3),
        "born": latest_number(connection),
        "action": "rekey",
        "text": text,
        "keys": keys,
        "patch": {"moves": moves},
    }
    take(connection, line)
    write(folder, line)


def _translate(patch: Patch, keys: dict[str, list[str]]) -> Patch:
    """A patch that speaks of the new keys, cut to `MOST_CHANGES`: lines of a stranger could make each change many."""
    found = dict(patch)
    for name in ("moves", "apart"):
        if name in patch:
            every = ([new, *entry[1:]] for entry in patch[name] for new in keys.get(entry[0], [entry[0]]))
            found[name] = list(itertools.islice(every, MOST_CHANGES))
    if "members" in patch:
        found["members"] = [
            [*entry[:3], keys.get(entry[3], [entry[3]])[0], keys.get(entry[4], [entry[4]])[0], entry[5]]
            for entry in patch["members"]
        ]
    return found


def latest_number(connection: sqlite3.Connection) -> int:
    """The number of the latest fingerprint."""
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM fingerprints").fetchone()[0])


def take(connection: sqlite3.Connection, line: dict[str, Any], *, again: bool = False) -> None:
    """Do what a line of the log says, in the index; `again` when it is read from the file, whose lines speak of the latest keys."""
    if line["action"] in ("undo", "redo"):
        state, before = ("done", "undone") if line["action"] == "redo" else ("undone", "done")
        sql = "SELECT patch FROM decisions WHERE id = ? AND state = ?"
        row = connection.execute(sql, [line["id"], before]).fetchone()
        if row is None:
            return  # a line of a decision that is not there: the file was cut
        _apply(connection, json.loads(row[0]), forwards=state == "done")
        connection.execute("UPDATE decisions SET state = ? WHERE id = ?", [state, line["id"]])
        return
    if line["action"] == "rekey" and not again:
        for number, patch in connection.execute("SELECT id, patch FROM decisions").fetchall():
            text = json.dumps(_translate(json.loads(patch), line["keys"]))
            connection.execute("UPDATE decisions SET patch = ? WHERE id = ?", [text, number])
    elif line["action"] != "rekey":
        connection.execute("UPDATE decisions SET state = 'dropped' WHERE state = 'undone'")
    _apply(connection, line["patch"], forwards=True)
    connection.execute(
        "INSERT INTO decisions (id, at, born, action, text, patch) VALUES (?, ?, ?, ?, ?, ?)",
        [line["id"], float(line["at"]), line["born"], line["action"], str(line["text"]), json.dumps(line["patch"])],
    )


def _apply(connection: sqlite3.Connection, patch: Patch, *, forwards: bool) -> None:
    touched: set[int] = set()
    for key, _, old, new in patch.get("moves", []):
        connection.execute("UPDATE fingerprints SET cluster = ? WHERE key = ?", [new if forwards else old, key])
        touched |= {int(old), int(new)}
    for key, old, new in patch.get("apart", []):
        connection.execute("UPDATE fingerprints SET apart = ? WHERE key = ?", [new if forwards else old, key])
    for campaign, test, target, key, own, number in patch.get("members", []):
        touched |= _move_member(connection, (campaign, test, target), key, own, int(number), forwards)
    refresh(connection, sorted(touched))
    for cluster, column, old, new in patch.get("clusters", []):
        connection.execute("INSERT OR IGNORE INTO clusters (id) VALUES (?)", [cluster])
        connection.execute(f"UPDATE clusters SET {column} = ? WHERE id = ?", [new if forwards else old, cluster])


def _move_member(
    connection: sqlite3.Connection, member: tuple[str, int, str], key: str, own: str, number: int, forwards: bool
) -> set[int]:
    """Give a member a fingerprint row of its own, or take that back; the clusters that changed."""
    source, goal = (key, own) if forwards else (own, key)
    found = connection.execute(
        "SELECT folder FROM failures WHERE campaign = ? AND test = ? AND target = ? AND fingerprint = ?",
        [*member, source],
    ).fetchone()
    if found is None:
        return set()  # counted once, and lost with an old index
    kept = int(bool(found[0]))
    if forwards:
        connection.execute(
            "INSERT OR IGNORE INTO fingerprints (key, version, kind, components, count, kept, number, cluster, apart, title, stage,"
            " message, targets, guilty_pass, first_bad, first_seen, last_seen) SELECT ?, version, kind, components, 0, 0, ?, ?, 1,"
            " title, stage, message, ?, guilty_pass, first_bad, first_seen, last_seen FROM fingerprints WHERE key = ?",
            [own, number, number, f" {member[2]} ", key],
        )
    connection.execute(
        "UPDATE failures SET fingerprint = ? WHERE campaign = ? AND test = ? AND target = ?", [goal, *member]
    )
    for name, change in ((source, -1), (goal, 1)):
        connection.execute(
            "UPDATE fingerprints SET count = count + ?, kept = kept + ? WHERE key = ?", [change, change * kept, name]
        )
    rows = connection.execute("SELECT cluster FROM fingerprints WHERE key IN (?, ?)", [source, goal]).fetchall()
    if not forwards:
        connection.execute("DELETE FROM fingerprints WHERE key = ? AND count = 0", [own])
    return {int(row[0]) for row in rows}
