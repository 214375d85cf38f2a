"""Decisions of a person about clusters: merge, split, mark, pin, note, rename; each can be undone and redone.

A decision is a *patch*: the old and the new value of each changed field, so that undoing is the patch read
backwards. It is stored in the index and, as a line of STORE/decisions.jsonl, in an append-only file; a
rebuilt index replays the lines in order, each after the fingerprints that existed when it was made. A
decision names fingerprints and clusters by number and key, so changes of the clustering rules leave it
intact.

Decisions need no lock: each is one transaction, beside a campaign that writes. A later decision sees the
result of an earlier one, since each works on the state at the start of its transaction.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.store.decision_log import Patch, take_line, write_line
from opsieve.triage.store.index.index import ClusterField, Index
from opsieve.triage.store.index.index_file import join_index
from opsieve.triage.store.rows import Decision, FingerprintPlace, format_cluster

Status = Literal["new", "confirmed", "known", "fixed", "wontfix"]
STATUSES: tuple[Status, ...] = get_args(Status)
_MAX_TEXT = 2000


class Ledger:
    """A store for making decisions: its methods are the decisions. A context manager, not shared by threads.

    Every failure is raised as BadInput with one sentence.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time):
        self.folder = folder
        self._clock = clock
        self._joined = join_index(folder)

    def __enter__(self) -> "Ledger":
        self._index = Index(self._joined.__enter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._joined.__exit__(*error)

    def merge(self, into: str, *others: str) -> Decision:
        """Move all fingerprints of `others` to the cluster `into`. Names are those of
        `IndexReader.find_cluster`.
        """
        with self._open_transaction() as index:
            home = index.find_cluster(into)
            away = [found for other in others if (found := index.find_cluster(other)) != home]
            if not away:
                raise BadInput(f"{format_cluster(home)} is one cluster already; name two different ones")
            moves = [
                [key, number, cluster, home]
                for cluster in dict.fromkeys(away)
                for key, number in index.list_fingerprints(cluster)
            ]
            shaped = [
                self._make_change(index, cluster, "shaped", 1) for cluster in (home, *dict.fromkeys(away))
            ]
            patch: Patch = {"moves": moves, "clusters": [change for change in shaped if change]}
            text = (
                f"merged {', '.join(format_cluster(cluster) for cluster in dict.fromkeys(away))} into"
                f" {format_cluster(home)}"
            )
            return self._record_decision(index, "merge", text, patch)

    def split(self, name: str) -> Decision:
        """Move a fingerprint out of its cluster, or a member out of its fingerprint, into a lasting cluster
        of its own.
        """
        with self._open_transaction() as index:
            found = index.find_fingerprint(_bound_text(name))
            return self._split_member(index, name) if found is None else self._split_fingerprint(index, found)

    def mark(self, name: str, status: Status, issue: str | None = None) -> Decision:
        """Set a cluster's status, and the address of its issue if given."""
        if status not in STATUSES:
            raise BadInput(f"{shown(status)} is not a status; choose from {', '.join(STATUSES)}")
        # The address becomes a link on pages, where other schemes can run code.
        if issue and not issue.startswith(("https://", "http://")):
            raise BadInput(
                f"{shown(issue, 100)} is not the address of an issue; write one that begins with https://"
            )
        with self._open_transaction() as index:
            cluster = index.find_cluster(name)
            changes = [self._make_change(index, cluster, "status", status)]
            if issue is not None:
                changes.append(self._make_change(index, cluster, "issue", _bound_text(issue)))
            text = f"marked {format_cluster(cluster)} {status}" + (f" ({issue})" if issue else "")
            return self._record_decision(
                index, "mark", text, {"clusters": [change for change in changes if change]}
            )

    def pin(self, name: str, on: bool = True) -> Decision:
        """Pin a cluster, which then stands first whatever its rank."""
        return self._set_field(name, "pin", "pinned", int(on), "pinned" if on else "no longer pinned")

    def note(self, name: str, text: str) -> Decision:
        """Set a cluster's note; "" removes it."""
        return self._set_field(name, "note", "note", _bound_text(text), "noted" if text else "note removed")

    def rename(self, name: str, title: str) -> Decision:
        """Set a cluster's title; "" restores the one made from the fingerprint."""
        return self._set_field(
            name, "rename", "name", _bound_text(title)[:200], "renamed" if title else "name removed"
        )

    def undo(self) -> Decision:
        """Undo the latest decision in force; raises BadInput if there is none."""
        return self._move_back_or_forth("undo", Index.find_to_undo, "undone")

    def redo(self) -> Decision:
        """Redo the decision undone last; raises BadInput without one, or after a newer decision."""
        return self._move_back_or_forth("redo", Index.find_to_redo, "done")

    # -- inside

    @contextmanager
    def _open_transaction(self) -> Iterator[Index]:
        with self._index.open_transaction():
            yield self._index

    def _set_field(self, name: str, action: str, field: ClusterField, new: object, said: str) -> Decision:
        with self._open_transaction() as index:
            cluster = index.find_cluster(name)
            change = self._make_change(index, cluster, field, new)
            return self._record_decision(
                index, action, f"{said}: {format_cluster(cluster)}", {"clusters": [change] if change else []}
            )

    def _make_change(self, index: Index, cluster: int, field: ClusterField, new: object) -> list[Any] | None:
        old = index.get_cluster_field(cluster, field)
        return None if old == new else [cluster, field, old, new]

    def _split_fingerprint(self, index: Index, found: FingerprintPlace) -> Decision:
        key, number, cluster = found.key, found.number, found.cluster
        if cluster is None:
            raise BadInput(f"{shown(key)} is flaky and in no cluster; there is nothing to split")
        if len(index.list_fingerprints(cluster)) == 1:
            raise BadInput(
                f"{shown(key)} is all that {format_cluster(cluster)} holds; name one of its members to"
                " split that"
            )
        # c17 keeps its name when its first fingerprint leaves; what leaves gets a new one then
        new = number if number != cluster else index.get_free_number()
        shaped = self._make_change(index, cluster, "shaped", 1)
        patch: Patch = {
            "moves": [[key, number, cluster, new]],
            # Or the next round would join it again by the title that it shares.
            "apart": [[key, found.apart, 1]],
            "clusters": [*([shaped] if shaped else []), [new, "shaped", 0, 1]],
        }
        return self._record_decision(
            index, "split", f"split {key} out of {format_cluster(cluster)} as {format_cluster(new)}", patch
        )

    def _split_member(self, index: Index, name: str) -> Decision:
        campaign, test, target, key = index.find_member(name)
        found = index.find_fingerprint(key)
        if found is None or found.cluster is None:
            raise BadInput(f"{shown(name)} is flaky and in no cluster; there is nothing to split")
        # A fingerprint of one member is that member.
        if found.count == 1:
            return self._split_fingerprint(index, found)
        number = index.get_free_number()
        shaped = self._make_change(index, found.cluster, "shaped", 1)
        patch: Patch = {
            # The key without an earlier `~17`, so that repeated splits do not lengthen it.
            "members": [[campaign, test, target, key, f"{key.partition('~')[0]}~{number}", number]],
            "clusters": [*([shaped] if shaped else []), [number, "shaped", 0, 1]],
        }
        text = f"split a member of {key} out of {format_cluster(found.cluster)} as {format_cluster(number)}"
        return self._record_decision(index, "split", text, patch)

    def _record_decision(self, index: Index, action: str, text: str, patch: Patch) -> Decision:
        if not any(patch.values()):
            raise BadInput(f"nothing to change: {text.split(':')[-1].strip()} is so already")
        number = index.get_next_decision()
        line = {
            "id": number,
            "at": round(self._clock(), 3),
            "born": index.get_latest_number(),
            "action": action,
            "text": _bound_text(text),
            "patch": patch,
        }
        # The index first: if it refuses, the file has no line of the decision.
        take_line(index, line)
        write_line(self.folder, line)
        at = float(line["at"])  # type: ignore[arg-type]
        return Decision(number, at, action, str(line["text"]), "done")

    def _move_back_or_forth(
        self, action: str, which: Callable[[Index], Decision | None], state: str
    ) -> Decision:
        with self._open_transaction() as index:
            found = which(index)
            if found is None:
                raise BadInput(f"there is nothing to {action}")
            line = {
                "id": found.id,
                "at": round(self._clock(), 3),
                "born": index.get_latest_number(),
                "action": action,
            }
            take_line(index, line)
            write_line(self.folder, line)
            return replace(found, state=state)


def _bound_text(text: str) -> str:
    # A command line may hold bytes that are no text, which SQLite refuses.
    return text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()
