"""Fingerprints computed anew from what lies on disk: after the rules changed, or after cases were reduced.

Kept cases are read; failures that were only counted go where most of the kept ones of their fingerprint go. A
fingerprint that becomes another one keeps its number, so clusters keep their names and decisions their
meaning; the log gets a line `rekey` that tells the old keys from the new.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsieve.gen.case.case import load_case_program
from opsieve.gen.errors import BadInput
from opsieve.triage.clustering.reassign import NEW, Difference, KeyChange, Reassignment, differences, plan
from opsieve.triage.fingerprint.component import Evidence
from opsieve.triage.fingerprint.fingerprint import Fingerprint, fingerprint
from opsieve.triage.fingerprint.program_graph import ProgramNames, program_signature
from opsieve.triage.store.artifacts import REDUCED, case_artifacts
from opsieve.triage.store.decision_log import write_rekey
from opsieve.triage.store.failure_record import (
    components_json,
    observed,
    read_failure,
    verdict_of,
    write_failure,
)
from opsieve.triage.store.index.index import Index
from opsieve.triage.store.store_folder import case_folder


@dataclass(frozen=True, slots=True)
class RefingerprintResult:
    """What would move, or did, for each group the components that made it so; sentences about cases that
    cannot be read, which stay as they are.
    """

    groups: tuple[Reassignment, ...]
    differences: tuple[tuple[Difference, ...], ...]
    problems: tuple[str, ...]


def refingerprint(
    index: Index,
    folder: Path,
    *,
    places: Sequence[str] | None = None,
    dry_run: bool = False,
    compute: Callable[[Path], Fingerprint] | None = None,
) -> RefingerprintResult:
    """Compute the fingerprints of the kept cases at `places` anew (of all for None) and move what changes;
    report it only for `dry_run`.

    The caller holds the store's lock: failure.json is rewritten. `compute` gives the fingerprint of a case
    folder.
    """
    compute = compute or again
    found: list[KeyChange] = []
    fresh: dict[str, Fingerprint] = {}
    problems: list[str] = []
    where: dict[int, str] = {}
    for case in index.kept_cases():
        if case.cluster is None or (places is not None and case.place not in places):
            continue
        try:
            now = compute(case_folder(folder, case.place))
        except BadInput as error:
            problems.append(str(error))
            continue
        fresh[now.key], where[case.row] = now, case.place
        found.append(KeyChange(case.row, case.key, case.cluster, now.key))
    changed = [each for each in found if base(each.key) != each.new]
    rest = {each.key for each in found if base(each.key) == each.new}
    if places is not None:
        many = Counter(each.key for each in changed)
        rest |= {
            key for key, count in many.items() if (place := index.fingerprint(key)) and place.count > count
        }
    groups = plan(changed, index.clusters_by_key(), index.decided(), rest)
    apart = tuple(
        differences(
            standing.components if (standing := index.fingerprint(group.key)) else (),
            fresh[base(group.to_key)].components,
        )
        for group in groups
    )
    if groups and not dry_run:
        with index.changing():
            _move(index, groups, fresh, whole=places is None)
            placed = index.placed()
            _rewrite(folder, groups, fresh, where, placed)
            write_rekey(index, folder, _mapping(groups, placed), _standing(groups, placed))
    return RefingerprintResult(tuple(groups), apart, tuple(problems))


def again(case: Path) -> Fingerprint:
    """The fingerprint of a case folder by today's rules, from its reduced graph when there is one. BadInput
    when it cannot be read.
    """
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
    return fingerprint(verdict_of(record), observed(record, case), operators, evidence, ProgramNames(whole))


def base(key: str) -> str:
    """A key as the fingerprint gave it, without what keeps a part of its failures apart (`KEY~18`,
    `KEY@c17`).
    """
    return key.partition("~")[0].partition("@")[0]


def _move(
    index: Index, groups: Sequence[Reassignment], fresh: dict[str, Fingerprint], *, whole: bool
) -> None:
    """Give failures to their fingerprints and fingerprints to their clusters; those without a case go with
    most of the others if `whole`.
    """
    ways: dict[str, list[Reassignment]] = defaultdict(list)
    for group in groups:
        ways[group.key].append(group)
    touched = {group.cluster for group in groups} | {group.to_cluster for group in groups} - {NEW}
    for key, outgoing in sorted(ways.items()):
        outgoing.sort(key=lambda group: (-len(group.rows), group.to_key))
        most = outgoing[0]
        stays = index.kept(key) - sum(len(group.rows) for group in outgoing)
        if whole and len(most.rows) > stays:
            if not stays and index.fingerprint(most.to_key) is None:
                index.rename_fingerprint(key, most.to_key, fresh[base(most.to_key)], most.to_cluster or None)
            _ensure(index, most, fresh)  # unchanged failures, or such as could not be read, keep the row
            index.move_counted(key, most.to_key)
        for group in outgoing:
            _ensure(index, group, fresh)
            index.move_failures(group.rows, group.to_key)
    index.recount(sorted({group.key for group in groups} | {group.to_key for group in groups}))
    placed = index.placed()
    index.refresh(sorted(touched | {placed[group.to_key][1] for group in groups}))


def _ensure(index: Index, group: Reassignment, fresh: dict[str, Fingerprint]) -> None:
    """Make a row for the fingerprint that a group goes to, unless it has one."""
    if index.fingerprint(group.to_key) is None:
        index.add_fingerprint(group.to_key, fresh[base(group.to_key)], group.to_cluster or None, group.rows)


def _rewrite(
    folder: Path,
    groups: Sequence[Reassignment],
    fresh: dict[str, Fingerprint],
    where: dict[int, str],
    placed: dict[str, tuple[int, int]],
) -> None:
    """Write the new fingerprints into the cases' failure.json."""
    for group in groups:
        for row in group.rows:
            case = case_folder(folder, where[row])
            record, now = read_failure(case), fresh[base(group.to_key)]
            record.fingerprint, record.fingerprint_version = group.to_key, now.version
            record.components, record.number = components_json(now), placed[group.to_key][0]
            write_failure(case, record)


def _mapping(groups: Sequence[Reassignment], placed: dict[str, tuple[int, int]]) -> dict[str, list[str]]:
    """What each fingerprint became, itself where some of its failures keep it."""
    found: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        found[group.key].add(group.to_key)
    return {key: sorted(new | ({key} & placed.keys())) for key, new in found.items()}


def _standing(groups: Sequence[Reassignment], placed: dict[str, tuple[int, int]]) -> list[list[Any]]:
    """Where the new fingerprints stand, as moves of a patch."""
    new = {group.to_key for group in groups}
    return [[key, number, number, cluster] for key, (number, cluster) in placed.items() if key in new]
