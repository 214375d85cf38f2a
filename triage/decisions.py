"""What a person decides of clusters: merge, split, mark, pin, note, rename; all of it undone and done again at will.

A decision is a *patch*: the old and the new value of each field that it changes, so that undoing is the patch read backwards. It
stands in the index and, as a line of STORE/decisions.jsonl, in a file that only grows; an index that is built anew takes the
lines in their order, each after the births of the fingerprints that were there when it was made. A decision speaks of fingerprints and
clusters by their numbers and keys, never of what a clustering rule says, so no rule moves what was decided.

Decisions need no lock: one transaction each, beside a campaign that writes. Of two people the later one is told what the earlier one did,
since each works on what is there when its transaction begins.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from opsieve.gen.bad_input import BadInput, shown
from opsieve.gen.files import read_file, reason
from opsieve.triage.index_file import joined, writing
from opsieve.triage.names import cluster_of, member_of, name_of
from opsieve.triage.shelf import free_number, refresh

FILE = "decisions.jsonl"
Status = Literal["new", "confirmed", "known", "fixed", "wontfix"]
STATUSES: tuple[Status, ...] = get_args(Status)
_MAX_FILE = 1 << 30
_MAX_TEXT = 2000
_FIELDS = frozenset({"status", "issue", "note", "name", "pinned", "shaped"})
Patch = dict[str, list[list[Any]]]


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision as the log has it; `text` is a sentence, `state` is `done`, `undone`, or `dropped` (undone, and cannot be done again)."""

    id: int
    at: float
    action: str
    text: str
    state: str


class Ledger:
    """A store as its decider: methods are decisions. A context manager, not shared by threads; BadInput, one sentence, for all that fails."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time):
        self.folder = folder
        self._clock = clock
        self._joined = joined(folder)

    def __enter__(self) -> "Ledger":
        self._connection = self._joined.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._joined.__exit__(*error)

    def merge(self, into: str, *others: str) -> Decision:
        """All fingerprints of `others` go to the cluster `into`. Names are what `names.cluster_of` takes."""
        with self._deciding() as connection:
            home = cluster_of(connection, into)
            away = [found for other in others if (found := cluster_of(connection, other)) != home]
            if not away:
                raise BadInput(f"{name_of(home)} is one cluster already; name two different ones")
            moves = [
                [key, number, cluster, home]
                for cluster in dict.fromkeys(away)
                for key, number in connection.execute(
                    "SELECT key, number FROM fingerprints WHERE cluster = ? ORDER BY number", [cluster]
                )
            ]
            shaped = [self._change(connection, cluster, "shaped", 1) for cluster in (home, *dict.fromkeys(away))]
            patch: Patch = {"moves": moves, "clusters": [change for change in shaped if change]}
            text = f"merged {', '.join(name_of(cluster) for cluster in dict.fromkeys(away))} into {name_of(home)}"
            return self._decide(connection, "merge", text, patch)

    def split(self, name: str) -> Decision:
        """A fingerprint out of its cluster, or a member out of its fingerprint: it becomes a cluster of its own, and stays one."""
        with self._deciding() as connection:
            row = connection.execute(
                "SELECT key, number, cluster, apart FROM fingerprints WHERE key = ?", [name]
            ).fetchone()
            if row is not None:
                return self._split_fingerprint(connection, row)
            return self._split_member(connection, name)

    def mark(self, name: str, status: Status, issue: str | None = None) -> Decision:
        """A cluster's status, and the address of its issue where one is given."""
        if status not in STATUSES:
            raise BadInput(f"{shown(status)} is no status; take one of {', '.join(STATUSES)}")
        if issue and not issue.startswith(("https://", "http://")):
            raise BadInput(f"{shown(issue, 100)} is no address of an issue; it begins with https://")
        with self._deciding() as connection:
            cluster = cluster_of(connection, name)
            changes = [self._change(connection, cluster, "status", status)]
            if issue is not None:
                changes.append(self._change(connection, cluster, "issue", _text(issue)))
            text = f"marked {name_of(cluster)} {status}" + (f" ({issue})" if issue else "")
            return self._decide(connection, "mark", text, {"clusters": [change for change in changes if change]})

    def pin(self, name: str, on: bool = True) -> Decision:
        """A pinned cluster stands first, whatever its rank."""
        return self._set(name, "pin", "pinned", int(on), "pinned" if on else "no longer pinned")

    def note(self, name: str, text: str) -> Decision:
        """A cluster's note; "" removes it."""
        return self._set(name, "note", "note", _text(text), "noted" if text else "note removed")

    def rename(self, name: str, title: str) -> Decision:
        """A title of a person's own; "" gives back the one made from the fingerprint."""
        return self._set(name, "rename", "name", _text(title)[:200], "renamed" if title else "name removed")

    def undo(self) -> Decision:
        """Take back the latest decision that stands; BadInput when there is none."""
        return self._step("undo", "SELECT * FROM decisions WHERE state = 'done' ORDER BY id DESC LIMIT 1", "undone")

    def redo(self) -> Decision:
        """Do again what was undone last; BadInput when there is nothing, or something was decided since."""
        return self._step("redo", "SELECT * FROM decisions WHERE state = 'undone' ORDER BY id LIMIT 1", "done")

    # -- inside

    @contextmanager
    def _deciding(self) -> Iterator[sqlite3.Connection]:
        with writing(self._connection):
            yield self._connection

    def _set(self, name: str, action: str, column: str, new: object, said: str) -> Decision:
        with self._deciding() as connection:
            cluster = cluster_of(connection, name)
            change = self._change(connection, cluster, column, new)
            return self._decide(
                connection, action, f"{said}: {name_of(cluster)}", {"clusters": [change] if change else []}
            )

    def _change(self, connection: sqlite3.Connection, cluster: int, column: str, new: object) -> list[Any] | None:
        old = connection.execute(f"SELECT {column} FROM clusters WHERE id = ?", [cluster]).fetchone()[0]
        return None if old == new else [cluster, column, old, new]

    def _split_fingerprint(self, connection: sqlite3.Connection, row: tuple[str, int, int, int]) -> Decision:
        key, number, cluster, apart = row
        if cluster is None:
            raise BadInput(f"{shown(key)} is flaky and in no cluster; there is nothing to split")
        mates = connection.execute("SELECT number FROM fingerprints WHERE cluster = ?", [cluster]).fetchall()
        if len(mates) == 1:
            raise BadInput(f"{shown(key)} is all that {name_of(cluster)} holds; name one of its members to split that")
        # c17 keeps its name when its first fingerprint leaves; what leaves gets a new one then
        new = number if number != cluster else free_number(connection)
        shaped = self._change(connection, cluster, "shaped", 1)
        patch: Patch = {
            "moves": [[key, number, cluster, new]],
            "apart": [[key, apart, 1]],
            "clusters": [*([shaped] if shaped else []), [new, "shaped", 0, 1]],
        }
        return self._decide(connection, "split", f"split {key} out of {name_of(cluster)} as {name_of(new)}", patch)

    def _split_member(self, connection: sqlite3.Connection, name: str) -> Decision:
        campaign, test, target, key = member_of(connection, name)
        row = connection.execute("SELECT count, cluster FROM fingerprints WHERE key = ?", [key]).fetchone()
        if row[1] is None:
            raise BadInput(f"{shown(name)} is flaky and in no cluster; there is nothing to split")
        if row[0] == 1:
            return self._split_fingerprint(
                connection,
                connection.execute(
                    "SELECT key, number, cluster, apart FROM fingerprints WHERE key = ?", [key]
                ).fetchone(),
            )
        number = free_number(connection)
        shaped = self._change(connection, row[1], "shaped", 1)
        patch: Patch = {
            "members": [[campaign, test, target, key, f"{key.partition('~')[0]}~{number}", number]],
            "clusters": [*([shaped] if shaped else []), [number, "shaped", 0, 1]],
        }
        text = f"split a member of {key} out of {name_of(row[1])} as {name_of(number)}"
        return self._decide(connection, "split", text, patch)

    def _decide(self, connection: sqlite3.Connection, action: str, text: str, patch: Patch) -> Decision:
        if not any(patch.values()):
            raise BadInput(f"nothing to change: {text.split(':')[-1].strip()} is so already")
        number = int(connection.execute("SELECT coalesce(max(id), 0) + 1 FROM decisions").fetchone()[0])
        line = {
            "id": number,
            "at": round(self._clock(), 3),
            "born": _born(connection),
            "action": action,
            "text": _text(text),
            "patch": patch,
        }
        _take(connection, line)
        self._write(line)
        return Decision(number, float(line["at"]), action, str(line["text"]), "done")  # type: ignore[arg-type]

    def _step(self, action: str, sql: str, state: str) -> Decision:
        with self._deciding() as connection:
            row = connection.execute(sql.replace("*", "id, at, action, text")).fetchone()
            if row is None:
                raise BadInput(f"there is nothing to {action}")
            line = {"id": row[0], "at": round(self._clock(), 3), "born": _born(connection), "action": action}
            _take(connection, line)
            self._write(line)
            return Decision(row[0], row[1], row[2], row[3], state)

    def _write(self, line: dict[str, Any]) -> None:
        """Add a line to the file, inside the transaction: a line of a decision that was not committed is replaced by its number."""
        try:
            with open(self.folder / FILE, "ab+") as file:
                whole = file.tell() == 0 or (file.seek(-1, os.SEEK_END), file.read(1) == b"\n")[1]
                file.write((b"" if whole else b"\n") + json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BadInput(
                f"cannot write {shown(self.folder / FILE, 200)}: {reason(error)}; the decision was not taken"
            ) from None


class Replay:
    """The decisions of a store's file, for an index that is built anew: `until` takes those that are due.

    `problems` are sentences about lines that cannot be read or no longer fit.
    """

    def __init__(self, folder: Path):
        self.problems: list[str] = []
        self._lines: list[dict[str, Any]] = []
        path = folder / FILE
        if not path.exists():
            return
        at: dict[int, int] = {}
        for count, text in enumerate(read_file(path, _MAX_FILE).splitlines(), 1):
            try:
                line = json.loads(text)
                number, action, _ = int(line["id"]), str(line["action"]), int(line["born"])
                if action not in ("undo", "redo"):
                    _checked(line)
                    if number in at:  # its transaction never ended
                        self._lines[at[number]] = {"action": ""}
                    at[number] = len(self._lines)
                self._lines.append(line)
            except (ValueError, KeyError, TypeError, RecursionError):
                self.problems.append(f"line {count} of {FILE} is no decision; it is left out")

    def until(self, connection: sqlite3.Connection, number: int | None) -> None:
        """Take the next decisions that were made before the fingerprint `number` was born; all for None."""
        while self._lines:
            line = self._lines[0]
            if number is not None and line["action"] and (number == 0 or line["born"] >= number):
                return
            self._lines.pop(0)
            if not line["action"]:
                continue
            state = connection.execute("SELECT state FROM decisions WHERE id = ?", [line["id"]]).fetchone()
            wanted = {"undo": "done", "redo": "undone"}.get(line["action"])
            if (state[0] if state else None) == wanted:
                _take(connection, line)


def history(connection: sqlite3.Connection, cluster: int | None = None, most: int = 100) -> list[Decision]:
    """The latest decisions first; of one cluster where one is named."""
    sql, values = "SELECT id, at, action, text, state FROM decisions", []
    if cluster is not None:
        sql += " WHERE ' ' || replace(replace(replace(text, ',', ' '), ':', ' '), '.', ' ') || ' ' LIKE ?"
        values.append(f"% c{cluster} %")
    return [Decision(*row) for row in connection.execute(f"{sql} ORDER BY id DESC LIMIT {int(most)}", values)]


def _born(connection: sqlite3.Connection) -> int:
    """The number of the latest fingerprint."""
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM fingerprints").fetchone()[0])


def _checked(line: dict[str, Any]) -> None:
    """ValueError, TypeError or KeyError for a line that no Ledger writes."""
    patch = line["patch"]
    for _, number, old, new in patch.get("moves", []):
        int(number), int(old), int(new)
    for _, test, _, _, _, number in patch.get("members", []):
        int(test), int(number)
    for cluster, column, _, _ in patch.get("clusters", []):
        int(cluster)
        if column not in _FIELDS:
            raise ValueError(column)
    for _key, _old, _new in patch.get("apart", []):
        pass


def _take(connection: sqlite3.Connection, line: dict[str, Any]) -> None:
    """Do what a line of the log says, in the index."""
    if line["action"] in ("undo", "redo"):
        row = connection.execute("SELECT patch FROM decisions WHERE id = ?", [line["id"]]).fetchone()
        _apply(connection, json.loads(row[0]), forwards=line["action"] == "redo")
        state = "done" if line["action"] == "redo" else "undone"
        connection.execute("UPDATE decisions SET state = ? WHERE id = ?", [state, line["id"]])
        return
    _apply(connection, line["patch"], forwards=True)
    connection.execute("UPDATE decisions SET state = 'dropped' WHERE state = 'undone'")
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


def _text(text: str) -> str:
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()
