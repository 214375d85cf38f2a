"""The log of decisions: patches of the index, done, undone, written to STORE/decisions.jsonl, and taken again
when the index is built anew.

A patch holds lists by what they change: `moves` of fingerprints (key, number, old cluster, new cluster),
`members` split out of their fingerprint (campaign, test, target, key, its own key, its number), `apart` (key,
old, new) for fingerprints that join nothing by themselves, `clusters` (cluster, field, old, new).
"""

import itertools
import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import append
from opsieve.gen.model.files import read_file, reason
from opsieve.gen.model.printable import counted
from opsieve.triage.store.index.index import ClusterField, Index
from opsieve.triage.store.index.row_types import decoded

FILE = "decisions.jsonl"
_MAX_FILE = 1 << 28
MOST_CHANGES = 100_000  # of one decision
MOST_IN_ALL = 1_000_000  # of a file
_FEW = msgspec.Meta(max_length=10_000)  # of what a person names one by one
MOST_KEYS = 1000  # that one fingerprint falls apart into
Patch = dict[str, list[list[Any]]]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Value = Annotated[str, msgspec.Meta(max_length=4000)] | Annotated[int, msgspec.Meta(ge=0, le=1)]


class _Patch(msgspec.Struct):
    moves: Annotated[list[tuple[str, _Number, _Number, _Number]], msgspec.Meta(max_length=MOST_CHANGES)] = []
    members: Annotated[list[tuple[str, _Number, str, str, str, _Number]], _FEW] = []
    apart: Annotated[list[tuple[str, _Number, _Number]], msgspec.Meta(max_length=MOST_CHANGES)] = []
    clusters: Annotated[list[tuple[_Number, ClusterField, _Value, _Value]], _FEW] = []

    @property
    def changes(self) -> int:
        """How many rows it changes, a cluster that is summed up anew not counted."""
        return len(self.moves) + len(self.members) + len(self.apart) + len(self.clusters)


class _LogLine(msgspec.Struct):
    """A line of the file, as anybody may have written it."""

    id: _Number
    at: float
    born: _Number
    action: Literal["merge", "split", "mark", "pin", "note", "rename", "rekey", "undo", "redo"]
    text: str = ""
    patch: _Patch = msgspec.field(default_factory=_Patch)
    keys: dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]] = {}


class DecisionReplay:
    """The decisions of a store's file, for an index that is built anew and has none: `until` takes those that
    are due.

    `problems` are sentences about lines that cannot be read or no longer fit; each is left out, and costs the
    others nothing.
    """

    def __init__(self, index: Index, folder: Path):
        self._index = index
        self.problems: list[str] = []
        self._lines: deque[tuple[int, _LogLine]] = deque()
        self._changes = 0
        path = folder / FILE
        if path.exists() and not index.has_decisions():
            self._lines.extend(_translated(self._read(path)))

    def _read(self, path: Path) -> list[tuple[int, _LogLine]]:
        """The lines with their numbers; of two with one number the later one, since the transaction of the
        first never ended.
        """
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

    def until(self, number: int | None) -> None:
        """Take the next decisions that were made before the fingerprint `number` was there; all for None.
        Inside a transaction.
        """
        while self._lines:
            count, line = self._lines[0]
            if self._changes > MOST_IN_ALL:
                self.problems.append(
                    f"line {count} of {FILE} and what follows are left out: more than {MOST_IN_ALL:,} changes"
                )
                self._lines.clear()
                return
            if number is not None and (number == 0 or line.born >= number):
                return
            self._lines.popleft()
            self._changes += line.patch.changes
            try:
                with self._index.step():
                    take(self._index, msgspec.to_builtins(line), again=True)
            except (sqlite3.Error, BadInput) as error:
                self.problems.append(
                    f"line {count} of {FILE} no longer fits ({shown(str(error), 80)}); it is left out"
                )


def _translated(lines: list[tuple[int, _LogLine]]) -> list[tuple[int, _LogLine]]:
    """The lines, each in the keys that the cases on disk have after all lines that say how keys became
    others.

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


def write(folder: Path, line: dict[str, Any]) -> None:
    """Add a line to the file, inside the transaction: a line of a decision that was not committed is replaced
    by its number.
    """
    try:
        append(folder / FILE, json.dumps(line).encode() + b"\n")
    except OSError as error:
        raise BadInput(
            f"cannot write {shown(folder / FILE, 200)}: {reason(error)}; the decision was not taken"
        ) from None


def write_rekey(
    index: Index,
    folder: Path,
    keys: dict[str, list[str]],
    moves: list[list[Any]],
    clock: Callable[[], float] = time.time,
) -> None:
    """Log that fingerprints became others (`keys`: old to new ones), and where the new ones stand. It cannot
    be undone; what was decided before still can, for earlier decisions speak of the new keys from now on.
    """
    text = f"{counted(len(keys), 'fingerprint')} became {'another' if len(keys) == 1 else 'others'}"
    line = {
        "id": index.next_decision(),
        "at": round(clock(), 3),
        "born": index.latest_number(),
        "action": "rekey",
        "text": text,
        "keys": keys,
        "patch": {"moves": moves},
    }
    take(index, line)
    write(folder, line)


def _translate(patch: Patch, keys: dict[str, list[str]]) -> Patch:
    """A patch that speaks of the new keys, cut to `MOST_CHANGES`: lines of a stranger could make each change
    many.
    """
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


def take(index: Index, line: dict[str, Any], *, again: bool = False) -> None:
    """Do what a line of the log says, in the index; `again` when it is read from the file, whose lines speak
    of the latest keys.
    """
    if line["action"] in ("undo", "redo"):
        state, before = ("done", "undone") if line["action"] == "redo" else ("undone", "done")
        patch = index.patch(line["id"], before)
        if patch is None:
            return  # a line of a decision that is not there: the file was cut
        _apply(index, _patch(patch), forwards=state == "done")
        index.set_state(line["id"], state)
        return
    if line["action"] == "rekey" and not again:
        for number, patch in index.patches():
            index.set_patch(number, json.dumps(_translate(_patch(patch), line["keys"])))
    elif line["action"] != "rekey":
        index.drop_undone()
    _apply(index, line["patch"], forwards=True)
    patch = json.dumps(line["patch"])
    index.add_decision(line["id"], float(line["at"]), line["born"], line["action"], str(line["text"]), patch)


def _patch(text: str) -> Patch:
    """The patch in a row of the index; `WrongType` when it is none."""
    return cast(Patch, msgspec.to_builtins(decoded(text, _Patch)))


def _apply(index: Index, patch: Patch, *, forwards: bool) -> None:
    touched: set[int] = set()
    for key, _, old, new in patch.get("moves", []):
        index.set_cluster(key, new if forwards else old)
        touched |= {int(old), int(new)}
    for key, old, new in patch.get("apart", []):
        index.set_apart(key, new if forwards else old)
    for campaign, test, target, key, own, number in patch.get("members", []):
        touched |= index.move_member((campaign, test, target), key, own, int(number), forwards=forwards)
    index.refresh(sorted(touched))
    for cluster, field, old, new in patch.get("clusters", []):
        index.set_cluster_field(cluster, field, new if forwards else old)
