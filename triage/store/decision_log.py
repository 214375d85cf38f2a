"""The log of decisions, STORE/decisions.jsonl: patches of the index, done or undone, replayed when the index
is rebuilt.

A patch holds lists by subject: `moves` of fingerprints (key, number, old cluster, new cluster), `members`
split out of their fingerprint (campaign, test, target, key, its own key, its number), `apart` (key, old, new)
for fingerprints that no longer join clusters by themselves, `clusters` (cluster, field, old, new).
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
from opsieve.gen.model import durable, files, printable
from opsieve.triage.store.index.index import ClusterField, Index
from opsieve.triage.store.index.schema import decode_json

FILE = "decisions.jsonl"
_MAX_FILE = 1 << 28
# Changes of one decision. A line of a stranger's log could otherwise make each change many.
MOST_CHANGES = 100_000
# Of a file
MOST_IN_ALL = 1_000_000
# The limit on items that a person names one by one.
_FEW = msgspec.Meta(max_length=10_000)
# A line of a stranger's log must not split one fingerprint into any number of keys.
MOST_KEYS = 1000
Patch = dict[str, list[list[Any]]]
# As far as a double counts exactly: the file is JSON, which other tools read and write.
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Value = Annotated[str, msgspec.Meta(max_length=4000)] | Annotated[int, msgspec.Meta(ge=0, le=1)]


class _Patch(msgspec.Struct):
    moves: Annotated[list[tuple[str, _Number, _Number, _Number]], msgspec.Meta(max_length=MOST_CHANGES)] = []
    members: Annotated[list[tuple[str, _Number, str, str, str, _Number]], _FEW] = []
    apart: Annotated[list[tuple[str, _Number, _Number]], msgspec.Meta(max_length=MOST_CHANGES)] = []
    clusters: Annotated[list[tuple[_Number, ClusterField, _Value, _Value]], _FEW] = []

    @property
    def count(self) -> int:
        """Return how many rows the patch changes, without refreshed clusters."""
        return len(self.moves) + len(self.members) + len(self.apart) + len(self.clusters)


class _LogLine(msgspec.Struct):
    """A line of the file; it may come from an untrusted store."""

    id: _Number
    at: float
    born: _Number
    action: Literal["merge", "split", "mark", "pin", "note", "rename", "rekey", "regroup", "undo", "redo"]
    text: str = ""
    patch: _Patch = msgspec.field(default_factory=_Patch)
    keys: dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]] = {}


class DecisionReplay:
    """The decisions of a store's file, for a rebuilt index that lacks them; `take_until` applies those that
    are due.

    `problems` are sentences about lines that cannot be read or no longer fit; such a line is left out without
    affecting the others.
    """

    def __init__(self, index: Index, folder: Path):
        self._index = index
        self.problems: list[str] = []
        self._lines: deque[tuple[int, _LogLine]] = deque()
        self._changes = 0
        path = folder / FILE
        if path.exists() and not index.has_decisions():
            self._lines.extend(_translate_lines(self._read_lines(path)))

    @files.bound_reading
    def _read_lines(self, path: Path) -> list[tuple[int, _LogLine]]:
        """Read the lines with their numbers; of two with one id the later wins, as the first transaction
        never ended.
        """
        found: dict[int, tuple[int, _LogLine]] = {}
        at: dict[int, int] = {}
        for count, text in enumerate(files.read_file(path, _MAX_FILE).splitlines(), 1):
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

    def take_until(self, number: int | None) -> None:
        """Apply the next decisions made before the fingerprint `number` existed; all for None. Needs a
        transaction.
        """
        while self._lines:
            count, line = self._lines[0]
            if self._changes > MOST_IN_ALL:
                self.problems.append(
                    f"line {count} of {FILE} and what follows are left out: more than {MOST_IN_ALL:,} changes"
                )
                self._lines.clear()
                return
            # A record without a number may be anywhere, so no decision is due before it.
            if number is not None and (number == 0 or line.born >= number):
                return
            self._lines.popleft()
            self._changes += line.patch.count
            try:
                # A line that no longer fits is rolled back alone; the others of the transaction stay.
                with self._index.open_savepoint():
                    take_line(self._index, msgspec.to_builtins(line), again=True)
            except (sqlite3.Error, BadInput) as error:
                self.problems.append(
                    f"line {count} of {FILE} no longer fits ({shown(str(error), 80)}); it is left out"
                )


def _translate_lines(lines: list[tuple[int, _LogLine]]) -> list[tuple[int, _LogLine]]:
    """Rewrite each line to the keys that the cases on disk have after all later rekeyings.

    The lines are visited from last to first, so that each is rewritten once.
    """
    becomes: dict[str, list[str]] = {}
    for _, line in reversed(lines):
        if becomes:
            line.patch = msgspec.convert(_translate_patch(msgspec.to_builtins(line.patch), becomes), _Patch)
        if line.action == "rekey":
            fresh = {}
            for old, new in line.keys.items():
                every = dict.fromkeys(last for key in new for last in becomes.get(key, [key]))
                fresh[old] = list(itertools.islice(every, MOST_KEYS))
            becomes |= fresh
    return lines


def write_line(folder: Path, line: dict[str, Any]) -> None:
    """Add a line to the file inside the transaction; a line without a committed decision is replaced by its
    number.
    """
    try:
        durable.append(folder / FILE, json.dumps(line).encode() + b"\n")
    except OSError as error:
        raise BadInput(
            f"cannot write {shown(folder / FILE, 200)}: {files.reason(error)}; the decision was not taken"
        ) from None


def write_rekey(
    index: Index,
    folder: Path,
    keys: dict[str, list[str]],
    moves: list[list[Any]],
    regrouped: Patch,
    clock: Callable[[], float] = time.time,
) -> None:
    """Log that fingerprints changed their keys (`keys`: old to new), and where the new ones stand.

    The new keys cannot be undone. Earlier decisions can, because they use the new keys from now on; and so
    can `regrouped`, the changes of clusters that a reduction caused.
    """
    text = (
        f"{printable.count_noun(len(keys), 'fingerprint')} became {'another' if len(keys) == 1 else 'others'}"
    )
    changes: list[dict[str, Any]] = [
        {"action": "rekey", "text": text, "keys": keys, "patch": {"moves": moves}}
    ]
    if regrouped["moves"]:
        text = f"moved {printable.count_noun(len(regrouped['moves']), 'fingerprint')} after a reduction"
        changes.append({"action": "regroup", "text": text, "patch": regrouped})
    for change in changes:
        line = {
            "id": index.get_next_decision(),
            "at": round(clock(), 3),
            "born": index.get_latest_number(),
            **change,
        }
        take_line(index, line)
        write_line(folder, line)


def _translate_patch(patch: Patch, keys: dict[str, list[str]]) -> Patch:
    """Return the patch with new keys, truncated to MOST_CHANGES, so that a hostile log cannot blow up."""
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


def take_line(index: Index, line: dict[str, Any], *, again: bool = False) -> None:
    """Apply a line of the log to the index; `again` if it was read from the file, whose lines use the latest
    keys.
    """
    if line["action"] in ("undo", "redo"):
        state, before = ("done", "undone") if line["action"] == "redo" else ("undone", "done")
        patch = index.get_patch(line["id"], before)
        if patch is None:
            # A line of a decision that is not there: the file was cut
            return
        _apply_patch(index, _parse_patch(patch), forwards=state == "done")
        index.set_state(line["id"], state)
        return
    if line["action"] == "rekey" and not again:
        for number, patch in index.list_patches():
            index.set_patch(number, json.dumps(_translate_patch(_parse_patch(patch), line["keys"])))
    elif line["action"] != "rekey":
        index.drop_undone()
    _apply_patch(index, line["patch"], forwards=True)
    patch = json.dumps(line["patch"])
    index.add_decision(line["id"], float(line["at"]), line["born"], line["action"], str(line["text"]), patch)


def _parse_patch(text: str) -> Patch:
    """Parse the patch in a row of the index; raises WrongType if it is invalid."""
    return cast(Patch, msgspec.to_builtins(decode_json(text, _Patch)))


def _apply_patch(index: Index, patch: Patch, *, forwards: bool) -> None:
    touched: set[int] = set()
    # First the members: they make the rows of fingerprints that a regrouping joined, which may then move.
    for campaign, test, target, key, own, number in patch.get("members", []):
        touched |= index.move_member((campaign, test, target), key, own, int(number), forwards=forwards)
    for key, _, old, new in patch.get("moves", []):
        index.set_cluster(key, new if forwards else old)
        touched |= {int(old), int(new)}
    for key, old, new in patch.get("apart", []):
        index.set_apart(key, new if forwards else old)
    # Before the fields below: refreshing makes the rows in which they are written.
    index.refresh_clusters(sorted(touched))
    for cluster, field, old, new in patch.get("clusters", []):
        index.set_cluster_field(cluster, field, new if forwards else old)
