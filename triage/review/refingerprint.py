"""Recompute fingerprints from the files of cases, after the rules changed or cases were reduced.

Kept cases are read; failures that were only counted follow most of the kept ones of their fingerprint. A
changed fingerprint keeps its number, so clusters keep their names and decisions their meaning; the log gets a
line `rekey` that maps the old keys to the new ones.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsieve.gen.case.case import load_case_program
from opsieve.gen.errors import BadInput
from opsieve.triage.clustering.reassign import (
    NEW,
    Difference,
    KeyChange,
    Reassignment,
    find_differences,
    plan_moves,
)
from opsieve.triage.fingerprint import component, fingerprint, program_graph
from opsieve.triage.store import artifacts, decision_log, failure_record, store_folder
from opsieve.triage.store.index.index import Index


@dataclass(frozen=True, slots=True)
class RefingerprintResult:
    """The moves, planned or done, with the components behind each; sentences about unreadable cases, which
    stay.
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
    compute: Callable[[Path], fingerprint.Fingerprint] | None = None,
) -> RefingerprintResult:
    """Recompute the fingerprints of the kept cases at `places` (all for None) and move the changed ones.

    For `dry_run` the moves are only returned. The caller holds the store's lock, because failure.json is
    rewritten. `compute` gives the fingerprint of a case folder.
    """
    compute = compute or compute_fingerprint
    found: list[KeyChange] = []
    fresh: dict[str, fingerprint.Fingerprint] = {}
    problems: list[str] = []
    where: dict[int, str] = {}
    for case in index.list_kept_cases():
        # Flaky failures have no cluster to keep or leave.
        if case.cluster is None or (places is not None and case.place not in places):
            continue
        try:
            now = compute(store_folder.get_case_folder(folder, case.place))
        except BadInput as error:
            problems.append(str(error))
            continue
        fresh[now.key], where[case.row] = now, case.place
        found.append(KeyChange(case.row, case.key, case.cluster, now.key))
    changed = [each for each in found if strip_suffix(each.key) != each.new]
    rest = {each.key for each in found if strip_suffix(each.key) == each.new}
    # Cases that were not asked for keep the old key, and with it their cluster.
    if places is not None:
        many = Counter(each.key for each in changed)
        rest |= {
            key
            for key, count in many.items()
            if (place := index.find_fingerprint(key)) and place.count > count
        }
    groups = plan_moves(changed, index.map_clusters(), index.list_decided(), rest)
    apart = tuple(
        find_differences(
            standing.components if (standing := index.find_fingerprint(group.key)) else (),
            fresh[strip_suffix(group.to_key)].components,
        )
        for group in groups
    )
    if groups and not dry_run:
        with index.open_transaction():
            before = index.map_places()
            _apply_moves(index, groups, fresh, whole=places is None)
            placed = index.map_places()
            _rewrite_records(folder, groups, fresh, where, placed)
            # The places of the new fingerprints, as moves of a patch
            new = {group.to_key for group in groups}
            moves = [[key, number, number, home] for key, (number, home) in placed.items() if key in new]
            moved: dict[str, set[str]] = defaultdict(set)
            for regrouped in groups:
                moved[regrouped.key].add(regrouped.to_key)
            decision_log.write_rekey(
                index,
                folder,
                {key: sorted(new | ({key} & placed.keys())) for key, new in moved.items()},
                moves,
                # New rules hold for the whole store, and are not a decision.
                {"moves": []} if places is None else _describe_regrouping(index, groups, where, before),
            )
    return RefingerprintResult(tuple(groups), apart, tuple(problems))


def compute_fingerprint(case: Path) -> fingerprint.Fingerprint:
    """Compute the fingerprint of a case folder by the current rules, from its reduced graph if there is one.

    Raises:
        BadInput: If it cannot be read.
    """
    record, here = failure_record.read_failure(case), artifacts.read_artifacts(case)
    reduced = here.nodes is not None
    whole = load_case_program(case)
    program = load_case_program(case / artifacts.REDUCED) if reduced else whole
    operators = sorted(set(program.operators()))
    evidence = component.Evidence(
        signature=program_graph.make_signature(program) if reduced else None,
        guilty_passes=here.guilty_passes,
        cure=here.cure,
        first_bad=here.first_bad,
        valid=whole.fault is None,
    )
    return fingerprint.make_fingerprint(
        failure_record.get_verdict(record),
        failure_record.read_blamed_observation(record, case),
        operators,
        evidence,
        program_graph.ProgramNames(whole),
    )


def strip_suffix(key: str) -> str:
    """Return a key without the suffix that separates a part of its failures (`KEY~18`, `KEY@c17`)."""
    return key.partition("~")[0].partition("@")[0]


def _apply_moves(
    index: Index, groups: Sequence[Reassignment], fresh: dict[str, fingerprint.Fingerprint], *, whole: bool
) -> None:
    """Move failures to their fingerprints and fingerprints to their clusters; with `whole`, those without a
    case follow.
    """
    ways: dict[str, list[Reassignment]] = defaultdict(list)
    for group in groups:
        ways[group.key].append(group)
    touched = {group.cluster for group in groups} | {group.to_cluster for group in groups} - {NEW}
    for key, outgoing in sorted(ways.items()):
        # The largest group first, since failures without a case follow it.
        outgoing.sort(key=lambda group: (-len(group.rows), group.to_key))
        most = outgoing[0]
        stays = index.count_kept(key) - sum(len(group.rows) for group in outgoing)
        if whole and len(most.rows) > stays:
            # Renamed instead of replaced: the row keeps its number, which is the cluster's name.
            if not stays and index.find_fingerprint(most.to_key) is None:
                index.rename_fingerprint(
                    key, most.to_key, fresh[strip_suffix(most.to_key)], most.to_cluster or None
                )
            # Unchanged failures, and those that could not be read, keep the row.
            _ensure_fingerprint(index, most, fresh)
            index.move_counted(key, most.to_key)
        for group in outgoing:
            _ensure_fingerprint(index, group, fresh)
            index.move_failures(group.rows, group.to_key)
    index.recount_fingerprints(sorted({group.key for group in groups} | {group.to_key for group in groups}))
    placed = index.map_places()
    index.refresh_clusters(sorted(touched | {placed[group.to_key][1] for group in groups}))


def _describe_regrouping(
    index: Index, groups: Sequence[Reassignment], where: dict[int, str], before: dict[str, tuple[int, int]]
) -> decision_log.Patch:
    """Return the patch from the clusters of `before` to the present ones.

    Failures that joined those of another cluster get a fingerprint of their own when it is undone.
    """
    patch: decision_log.Patch = {"members": [], "moves": []}
    for group in groups:
        found = index.find_fingerprint(group.to_key)
        if found is None or found.cluster in (None, group.cluster):
            continue
        key, number = group.to_key, found.number
        if found.count > len(group.rows):
            number = before[group.key][0]
            key = f"{strip_suffix(key)}~{number}"
            patch["members"] += [
                [*index.find_member(where[row])[:3], key, group.to_key, number] for row in group.rows
            ]
        patch["moves"].append([key, number, group.cluster, found.cluster])
    return patch


def _ensure_fingerprint(index: Index, group: Reassignment, fresh: dict[str, fingerprint.Fingerprint]) -> None:
    """Make a row for the fingerprint of a group unless it has one."""
    if index.find_fingerprint(group.to_key) is None:
        index.add_fingerprint(
            group.to_key, fresh[strip_suffix(group.to_key)], group.to_cluster or None, group.rows
        )


def _rewrite_records(
    folder: Path,
    groups: Sequence[Reassignment],
    fresh: dict[str, fingerprint.Fingerprint],
    where: dict[int, str],
    placed: dict[str, tuple[int, int]],
) -> None:
    """Write the new fingerprints into the cases' failure.json."""
    for group in groups:
        for row in group.rows:
            case = store_folder.get_case_folder(folder, where[row])
            record, now = failure_record.read_failure(case), fresh[strip_suffix(group.to_key)]
            record.fingerprint, record.fingerprint_version = group.to_key, now.version
            record.components, record.number = failure_record.encode_components(now), placed[group.to_key][0]
            failure_record.write_failure(case, record)
