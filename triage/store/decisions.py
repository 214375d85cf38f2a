"""What a person decides of clusters: merge, split, mark, pin, note, rename; all of it undone and done again at will.

A decision is a *patch*: the old and the new value of each field that it changes, so that undoing is the patch read backwards. It
stands in the index and, as a line of STORE/decisions.jsonl, in a file that only grows; an index that is built anew takes the
lines in their order, each after the births of the fingerprints that were there when it was made. A decision speaks of fingerprints and
clusters by their numbers and keys, never of what a clustering rule says, so no rule moves what was decided.

Decisions need no lock: one transaction each, beside a campaign that writes. Of two people the later one sees what the earlier one did,
since each works on what is there when its transaction begins.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.triage.store.decision_log import Decision, Patch, latest_number, take, write
from opsieve.triage.store.ids import cluster_of, member_of, name_of
from opsieve.triage.store.index_file import joined, writing
from opsieve.triage.store.index_rows import free_number

Status = Literal["new", "confirmed", "known", "fixed", "wontfix"]
STATUSES: tuple[Status, ...] = get_args(Status)
_MAX_TEXT = 2000


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
                "SELECT key, number, cluster, apart FROM fingerprints WHERE key = ?", [_text(name)]
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
        return self._step(
            "undo",
            "SELECT * FROM decisions WHERE state = 'done' AND action != 'rekey' ORDER BY id DESC LIMIT 1",
            "undone",
        )

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
            "born": latest_number(connection),
            "action": action,
            "text": _text(text),
            "patch": patch,
        }
        take(connection, line)
        write(self.folder, line)
        return Decision(number, float(line["at"]), action, str(line["text"]), "done")  # type: ignore[arg-type]

    def _step(self, action: str, sql: str, state: str) -> Decision:
        with self._deciding() as connection:
            row = connection.execute(sql.replace("*", "id, at, action, text")).fetchone()
            if row is None:
                raise BadInput(f"there is nothing to {action}")
            line = {"id": row[0], "at": round(self._clock(), 3), "born": latest_number(connection), "action": action}
            take(connection, line)
            write(self.folder, line)
            return Decision(row[0], row[1], row[2], row[3], state)


def _text(text: str) -> str:
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()
