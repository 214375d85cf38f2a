"""What a person decides of clusters: merge, split, mark, pin, note, rename; all of it undone and done again
at will.

A decision is a *patch*: the old and the new value of each field that it changes, so that undoing is the patch
read backwards. It stands in the index and, as a line of STORE/decisions.jsonl, in a file that only grows; an
index that is built anew takes the lines in their order, each after the births of the fingerprints that were
there when it was made. A decision speaks of fingerprints and clusters by their numbers and keys, never of
what a clustering rule says, so no rule moves what was decided.

Decisions need no lock: one transaction each, beside a campaign that writes. Of two people the later one sees
what the earlier one did, since each works on what is there when its transaction begins.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.decision_log import Patch, take, write
from opsieve.triage.store.index.index import ClusterField, Index
from opsieve.triage.store.index.index_file import joined
from opsieve.triage.store.rows import Decision, FingerprintPlace, name_of

Status = Literal["new", "confirmed", "known", "fixed", "wontfix"]
STATUSES: tuple[Status, ...] = get_args(Status)
_MAX_TEXT = 2000


class Ledger:
    """A store as its decider: methods are decisions. A context manager, not shared by threads; BadInput, one
    sentence, for all that fails.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time):
        self.folder = folder
        self._clock = clock
        self._joined = joined(folder)

    def __enter__(self) -> "Ledger":
        self._index = Index(self._joined.__enter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._joined.__exit__(*error)

    def merge(self, into: str, *others: str) -> Decision:
        """All fingerprints of `others` go to the cluster `into`. Names are what `IndexReader.cluster_of`
        takes.
        """
        with self._deciding() as index:
            home = index.cluster_of(into)
            away = [found for other in others if (found := index.cluster_of(other)) != home]
            if not away:
                raise BadInput(f"{name_of(home)} is one cluster already; name two different ones")
            moves = [
                [key, number, cluster, home]
                for cluster in dict.fromkeys(away)
                for key, number in index.fingerprints_in(cluster)
            ]
            shaped = [self._change(index, cluster, "shaped", 1) for cluster in (home, *dict.fromkeys(away))]
            patch: Patch = {"moves": moves, "clusters": [change for change in shaped if change]}
            text = (
                f"merged {', '.join(name_of(cluster) for cluster in dict.fromkeys(away))} into"
                f" {name_of(home)}"
            )
            return self._decide(index, "merge", text, patch)

    def split(self, name: str) -> Decision:
        """A fingerprint out of its cluster, or a member out of its fingerprint: it becomes a cluster of its
        own, and stays one.
        """
        with self._deciding() as index:
            found = index.fingerprint(_text(name))
            return self._split_member(index, name) if found is None else self._split_fingerprint(index, found)

    def mark(self, name: str, status: Status, issue: str | None = None) -> Decision:
        """A cluster's status, and the address of its issue where one is given."""
        if status not in STATUSES:
            raise BadInput(f"{shown(status)} is no status; take one of {', '.join(STATUSES)}")
        if issue and not issue.startswith(("https://", "http://")):
            raise BadInput(f"{shown(issue, 100)} is no address of an issue; it begins with https://")
        with self._deciding() as index:
            cluster = index.cluster_of(name)
            changes = [self._change(index, cluster, "status", status)]
            if issue is not None:
                changes.append(self._change(index, cluster, "issue", _text(issue)))
            text = f"marked {name_of(cluster)} {status}" + (f" ({issue})" if issue else "")
            return self._decide(index, "mark", text, {"clusters": [change for change in changes if change]})

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
        return self._step("undo", Index.to_undo, "undone")

    def redo(self) -> Decision:
        """Do again what was undone last; BadInput when there is nothing, or something was decided since."""
        return self._step("redo", Index.to_redo, "done")

    # -- inside

    @contextmanager
    def _deciding(self) -> Iterator[Index]:
        with self._index.changing():
            yield self._index

    def _set(self, name: str, action: str, field: ClusterField, new: object, said: str) -> Decision:
        with self._deciding() as index:
            cluster = index.cluster_of(name)
            change = self._change(index, cluster, field, new)
            return self._decide(
                index, action, f"{said}: {name_of(cluster)}", {"clusters": [change] if change else []}
            )

    def _change(self, index: Index, cluster: int, field: ClusterField, new: object) -> list[Any] | None:
        old = index.cluster_field(cluster, field)
        return None if old == new else [cluster, field, old, new]

    def _split_fingerprint(self, index: Index, found: FingerprintPlace) -> Decision:
        key, number, cluster = found.key, found.number, found.cluster
        if cluster is None:
            raise BadInput(f"{shown(key)} is flaky and in no cluster; there is nothing to split")
        if len(index.fingerprints_in(cluster)) == 1:
            raise BadInput(
                f"{shown(key)} is all that {name_of(cluster)} holds; name one of its members to split that"
            )
        # c17 keeps its name when its first fingerprint leaves; what leaves gets a new one then
        new = number if number != cluster else index.free_number()
        shaped = self._change(index, cluster, "shaped", 1)
        patch: Patch = {
            "moves": [[key, number, cluster, new]],
            "apart": [[key, found.apart, 1]],
            "clusters": [*([shaped] if shaped else []), [new, "shaped", 0, 1]],
        }
        return self._decide(index, "split", f"split {key} out of {name_of(cluster)} as {name_of(new)}", patch)

    def _split_member(self, index: Index, name: str) -> Decision:
        campaign, test, target, key = index.member_of(name)
        found = index.fingerprint(key)
        if found is None or found.cluster is None:
            raise BadInput(f"{shown(name)} is flaky and in no cluster; there is nothing to split")
        if found.count == 1:
            return self._split_fingerprint(index, found)
        number = index.free_number()
        shaped = self._change(index, found.cluster, "shaped", 1)
        patch: Patch = {
            "members": [[campaign, test, target, key, f"{key.partition('~')[0]}~{number}", number]],
            "clusters": [*([shaped] if shaped else []), [number, "shaped", 0, 1]],
        }
        text = f"split a member of {key} out of {name_of(found.cluster)} as {name_of(number)}"
        return self._decide(index, "split", text, patch)

    def _decide(self, index: Index, action: str, text: str, patch: Patch) -> Decision:
        if not any(patch.values()):
            raise BadInput(f"nothing to change: {text.split(':')[-1].strip()} is so already")
        number = index.next_decision()
        line = {
            "id": number,
            "at": round(self._clock(), 3),
            "born": index.latest_number(),
            "action": action,
            "text": _text(text),
            "patch": patch,
        }
        take(index, line)
        write(self.folder, line)
        return Decision(number, float(line["at"]), action, str(line["text"]), "done")  # type: ignore[arg-type]

    def _step(self, action: str, which: Callable[[Index], Decision | None], state: str) -> Decision:
        with self._deciding() as index:
            found = which(index)
            if found is None:
                raise BadInput(f"there is nothing to {action}")
            line = {
                "id": found.id,
                "at": round(self._clock(), 3),
                "born": index.latest_number(),
                "action": action,
            }
            take(index, line)
            write(self.folder, line)
            return replace(found, state=state)


def _text(text: str) -> str:
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()
