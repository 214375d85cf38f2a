"""Fingerprints computed anew from what lies on disk: after the rules changed, or after cases were reduced.

Kept cases are read; failures that were only counted go where most of the kept ones of their fingerprint go. A fingerprint that becomes another
one keeps its number, so clusters keep their names and decisions their meaning; the log gets a line `rekey` that tells the old keys from the new.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsieve.gen.case.case import load_case_program
from opsieve.gen.model.bad_input import BadInput
from opsieve.triage.clustering.reassign import NEW, Difference, KeyChange, Reassignment, differences, plan
from opsieve.triage.fingerprint.component import Component
from opsieve.triage.fingerprint.evidence import Evidence
from opsieve.triage.fingerprint.fingerprint import Fingerprint, fingerprint
from opsieve.triage.fingerprint.graph_signature import program_signature
from opsieve.triage.fingerprint.program_names import program_names
from opsieve.triage.store.artifacts import REDUCED, case_artifacts
from opsieve.triage.store.decision_log import write_rekey
from opsieve.triage.store.failure_record import (
    components_in,
    components_json,
    observed,
    read_failure,
    verdict_of,
    write_failure,
)
from opsieve.triage.store.index_file import writing
from opsieve.triage.store.index_rows import DECIDED, free_number, place_new, refresh
from opsieve.triage.store.store_folder import case_folder


@dataclass(frozen=True, slots=True)
class RefingerprintResult:
    """What would move, or did, for each group the components that made it so; sentences about cases that cannot be read, which stay
    as they are.
    """

    groups: tuple[Reassignment, ...]
    differences: tuple[tuple[Difference, ...], ...]
    problems: tuple[str, ...]


def refingerprint(
    connection: sqlite3.Connection,
    folder: Path,
    *,
    places: Sequence[str] | None = None,
    dry_run: bool = False,
    compute: Callable[[Path], Fingerprint] | None = None,
) -> RefingerprintResult:
    """Compute the fingerprints of the kept cases at `places` anew (of all for None) and move what changes; report it only for `dry_run`.

    The caller holds the store's lock: failure.json is rewritten. `compute` gives the fingerprint of a case folder.
    """
    compute = compute or again
    found: list[KeyChange] = []
    fresh: dict[str, Fingerprint] = {}
    problems: list[str] = []
    where: dict[int, str] = {}
    for row, place, key, cluster in connection.execute(
        "SELECT f.rowid, f.folder, f.fingerprint, p.cluster FROM failures f JOIN fingerprints p ON p.key = f.fingerprint"
        " WHERE f.folder != '' AND p.cluster IS NOT NULL ORDER BY p.number, f.rowid"
    ).fetchall():
        if places is not None and place not in places:
            continue
        try:
            now = compute(case_folder(folder, place))
        except BadInput as error:
            problems.append(str(error))
            continue
        fresh[now.key], where[row] = now, place
        found.append(KeyChange(row, key, cluster, now.key))
    changed = [each for each in found if base(each.key) != each.new]
    existing = dict(connection.execute("SELECT key, cluster FROM fingerprints WHERE cluster IS NOT NULL").fetchall())
    decided = {row[0] for row in connection.execute(f"SELECT id FROM clusters WHERE {DECIDED}").fetchall()}
    rest = {each.key for each in found if base(each.key) == each.new}
    if places is not None:
        rest |= _with_others(connection, changed)
    groups = plan(changed, existing, decided, rest)
    apart = tuple(
        differences(_components(connection, group.key), fresh[base(group.to_key)].components) for group in groups
    )
    if groups and not dry_run:
        with writing(connection):
            _move(connection, folder, groups, fresh, where, whole=places is None)
    return RefingerprintResult(tuple(groups), apart, tuple(problems))


def _components(connection: sqlite3.Connection, key: str) -> tuple[Component, ...]:
    row = connection.execute("SELECT components FROM fingerprints WHERE key = ?", [key]).fetchone()
    return components_in(row[0]) if row else ()


def again(case: Path) -> Fingerprint:
    """The fingerprint of a case folder by today's rules, from its reduced graph when there is one. BadInput when it cannot be read."""
    record, here = read_failure(case), case_artifacts(case)
    reduced = here.nodes is not None
    whole = load_case_program(case)
    program = load_case_program(case / REDUCED) if reduced else whole
    operators = sorted(set(program.operators()))
    evidence = Evidence(
        signature=program_signature(program) if reduced else None,
        guilty_passes=here.guilty_passes,
        cure=here.cure,
        first_bad=here.first_bad,
        valid=whole.fault is None,
    )
    return fingerprint(verdict_of(record), observed(record, case), operators, evidence, program_names(whole))


def base(key: str) -> str:
    """A key as the fingerprint gave it, without what keeps a part of its failures apart (`KEY~18`, `KEY@c17`)."""
    return key.partition("~")[0].partition("@")[0]


def _with_others(connection: sqlite3.Connection, changed: Sequence[KeyChange]) -> set[str]:
    """The fingerprints that have more failures than those that change."""
    many = Counter(each.key for each in changed)
    sql = "SELECT count FROM fingerprints WHERE key = ?"
    return {key for key, count in many.items() if connection.execute(sql, [key]).fetchone()[0] > count}


def _move(
    connection: sqlite3.Connection,
    folder: Path,
    groups: Sequence[Reassignment],
    fresh: dict[str, Fingerprint],
    where: dict[int, str],
    *,
    whole: bool,
) -> None:
    ways: dict[str, list[Reassignment]] = defaultdict(list)
    for group in groups:
        ways[group.key].append(group)
    touched = {group.cluster for group in groups} | {group.to_cluster for group in groups} - {NEW}
    for key, outgoing in sorted(ways.items()):
        outgoing.sort(key=lambda group: (-len(group.rows), group.to_key))
        if whole:  # those without a case go with most of the others
            stays = connection.execute(
                "SELECT count(*) FROM failures WHERE fingerprint = ? AND folder != ''", [key]
            ).fetchone()[0] - sum(len(group.rows) for group in outgoing)
            if len(outgoing[0].rows) > stays:
                if stays:  # unchanged ones, or such as could not be read, keep the row
                    _ensure(connection, key, outgoing[0], fresh)
                else:
                    _rename(connection, key, outgoing[0], fresh)
                connection.execute(
                    "UPDATE failures SET fingerprint = ? WHERE fingerprint = ? AND folder = ''",
                    [outgoing[0].to_key, key],
                )
        for group in outgoing:
            _ensure(connection, key, group, fresh)
            connection.executemany(
                "UPDATE failures SET fingerprint = ? WHERE rowid = ?", [(group.to_key, row) for row in group.rows]
            )
    keys = sorted({group.key for group in groups} | {group.to_key for group in groups})
    for key in keys:
        connection.execute(
            "UPDATE fingerprints SET (count, kept, first_seen, last_seen) = (SELECT count(*), count(nullif(folder, '')),"
            " coalesce(min(seen), 0), coalesce(max(seen), 0) FROM failures WHERE fingerprint = ?) WHERE key = ?",
            [key, key],
        )
    connection.executemany("DELETE FROM fingerprints WHERE key = ? AND count = 0", [(key,) for key in keys])
    place_new(connection)
    rows = connection.execute("SELECT key, number, cluster FROM fingerprints").fetchall()
    placed = {key: (number, cluster) for key, number, cluster in rows}
    refresh(connection, sorted(touched | {placed[group.to_key][1] for group in groups}))
    for group in groups:
        for row in group.rows:
            record = read_failure(folder / where[row])
            now = fresh[base(group.to_key)]
            record.fingerprint, record.fingerprint_version = group.to_key, now.version
            record.components, record.number = components_json(now), placed[group.to_key][0]
            write_failure(folder / where[row], record)
    mapping: dict[str, list[str]] = defaultdict(list)
    for group in groups:
        mapping[group.key].append(group.to_key)
    for key in mapping:
        if key in placed:
            mapping[key].insert(0, key)
    moves = [
        [key, number, number, cluster] for key, (number, cluster) in placed.items() if key in {g.to_key for g in groups}
    ]
    write_rekey(connection, folder, {key: sorted(set(new)) for key, new in mapping.items()}, moves)


def _rename(connection: sqlite3.Connection, key: str, group: Reassignment, fresh: dict[str, Fingerprint]) -> None:
    """Let a fingerprint's row go on as another's, unless that has a row already."""
    if connection.execute("SELECT 1 FROM fingerprints WHERE key = ?", [group.to_key]).fetchone():
        return
    now = fresh[base(group.to_key)]
    for table in ("alternatives", "statements"):
        connection.execute(f"DELETE FROM {table} WHERE number = (SELECT number FROM fingerprints WHERE key = ?)", [key])
    connection.execute(
        "UPDATE fingerprints SET key = ?, version = ?, components = ?, title = '', cluster = ? WHERE key = ?",
        [group.to_key, now.version, json.dumps(components_json(now)), group.to_cluster or None, key],
    )


def _ensure(connection: sqlite3.Connection, key: str, group: Reassignment, fresh: dict[str, Fingerprint]) -> None:
    """Make a row for the fingerprint that a group goes to, unless it has one."""
    if connection.execute("SELECT 1 FROM fingerprints WHERE key = ?", [group.to_key]).fetchone():
        return
    first = connection.execute(
        "SELECT kind, stage, message, target FROM failures WHERE rowid = ?", [group.rows[0]]
    ).fetchone()
    targets = connection.execute(
        f"SELECT DISTINCT target FROM failures WHERE rowid IN ({', '.join('?' * len(group.rows[:500]))})",
        group.rows[:500],
    ).fetchall()
    now = fresh[base(group.to_key)]
    connection.execute(
        "INSERT INTO fingerprints (key, version, kind, components, count, kept, number, cluster, stage, message, targets)"
        " VALUES (?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?)",
        [
            group.to_key, now.version, first[0], json.dumps(components_json(now)), free_number(connection), group.to_cluster or None,
            first[1], first[2], f" {' '.join(sorted(row[0] for row in targets))} ",
        ],
    )  # fmt: skip
