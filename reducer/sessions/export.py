"""Prepare failures for export as a script or an issue: a reduced one, or one reproduced from a case."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opsieve.backends.judge.judge import judge_case
from opsieve.backends.judge.oracle_names import add_oracles
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.stacks.frame_lines import choose_skip_option
from opsieve.backends.verdict import Verdict, leave_target_out
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.programs import add_script
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, open_case
from opsieve.gen.errors import BadInput, NoFailure, Unjudged, shown
from opsieve.gen.model.files import read_file
from opsieve.reducer.engine.interestingness import runs_for
from opsieve.reducer.oracle.discover import find_judged
from opsieve.reducer.oracle.repeats import measure_rate
from opsieve.triage.corpus.session import find_newest
from opsieve.triage.export.export_input import (
    ExpectedOutput,
    ExportedFailure,
    choose_oracles,
    find_expected,
    use_given_program,
)
from opsieve.triage.export.exports import Export, Kind, export_failure
from opsieve.triage.known.issues import ProbableIssue
from opsieve.triage.store.artifacts import REDUCED, read_artifacts, read_both_culprits
from opsieve.triage.store.failure_record import get_verdict, read_failure
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.queries import Queries

# Artifacts beside a case may come from a stranger.
_MAX_JSON = 1 << 20
_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A failure to export as `kind`: `what` is a path, or names a case or a cluster of `store`.

    `target` is "" for the one on record; `oracles` are consulted too; `limits` are those of each run. With
    `newest` an issue says what the newest release of the compiler does, which is installed.
    """

    what: str
    kind: Kind = "script"
    store: Path = Path("opsieve-store")
    target: str = ""
    oracles: tuple[str, ...] = ()
    inputs: Path | None = None
    expected: Path | None = None
    seed: int = 0
    limits: Limits = _LIMITS
    offline: bool = False
    newest: bool = False


def export_case(request: ExportRequest, say: Callable[[str], None]) -> tuple[Export, ExportedFailure]:
    """Reproduce a failure and export it.

    Raises:
        NoFailure: If it passes; Unjudged if that stays unknown.
        BadInput: If the case cannot be read, or this kind of file cannot show the failure.
    """
    place = case_folder(request.what, request.store)
    case = open_case(place, request.inputs, request.expected, request.seed)
    with Workers(request.limits, offline=request.offline, say=say) as workers:
        found = reproduce_failure(case, request.target, place, workers, request.oracles)
        if request.kind == "issue":
            found = try_variants(found, workers, request.newest)
        made = export_failure(found, request.kind, workers)
    if len(case.program.operators()) > 1 and not _beside(place, "reduction.json"):
        # Without the target that was typed, `reduce` would try another one.
        say(
            "this case was not reduced; to make it smaller: opsieve reduce "
            + shlex.join([request.what, *(["-t", request.target] if request.target else [])])
        )
    return made, found


def reproduce_failure(
    case: Case, target: str, place: Path, workers: Workers, oracles: Sequence[str] = ()
) -> ExportedFailure:
    """Judge the failure of a case again, as an export shows it. Raises NoFailure if it passes, Unjudged if
    that stays unknown.

    `place` is the folder of the case: the files of `bisect` and `attribute` in it are part of the export.
    """
    recorded = _beside(place, "reduction.json").get("target", "")
    named = (
        case.parameters.get("target", "") or (recorded if isinstance(recorded, str) else "") or "onnxruntime"
    )
    chosen = resolve(target or named_by_file(named, workers.offline, case.origin.versions))
    if not target and case.program.ir not in chosen.irs:
        raise BadInput(
            f"{chosen.name} takes no {case.program.kind.partition(' ')[2]}s: name a compiler that does with"
            " --target"
        )
    case, chosen = add_oracles(add_script(case, workers), chosen, oracles)
    lab = ObservationCache(workers)
    judged = judge_case(case, chosen, lab)
    stored = _read_stored_verdict(_case_of(place), chosen)
    seen_failing = bool(target or case.parameters.get("target") or recorded) or stored is not None
    try:
        found, reason = find_judged(case, chosen, judged, workers, seen_failing)
    except Unjudged as error:
        raise Unjudged(f"{chosen.display}: {error.reason}") from None
    if judged.verdict.verdict == "pass":
        reason = f"pass: {leave_target_out(judged.verdict.reason, chosen.display)}"
    # The store knows that it is intermittent. One failing run would export it as one that always shows.
    if stored is not None and stored.verdict == "flaky" and (found is None or found.chance == 1):
        found, reason = measure_rate(case, chosen, stored, workers)
    if found is None:
        raise NoFailure(f"{chosen.display}: {reason}")
    verdict = replace(found.failure.verdict, reason=found.reason)
    right: dict[str, ExpectedOutput] = {}
    source, rarely = "", found.chance < 1
    # An invalid program has no right outputs.
    if verdict.kind != "accepts-invalid":
        got = None if rarely else found.observation.outputs
        right, source = find_expected(case, verdict, got, lab, choose_oracles(case.program, chosen, verdict))
    exported = ExportedFailure(
        case,
        chosen,
        verdict,
        found.observation,
        right,
        source,
        seconds=workers.limits.seconds,
        memory=workers.limits.memory,
    )
    if rarely:
        exported = replace(exported, shows=found.replays, runs=runs_for(found.chance, sightings=1))
    return replace(use_given_program(exported), **_culprit(place), probably=_probably(place))


def try_variants(exported: ExportedFailure, workers: Workers, newest: bool = False) -> ExportedFailure:
    """Try a failure that always shows at other levels of optimisation, without its guilty passes, and on the
    newest release, and keep each result: `fails` where it does so in the same way, `passes`.
    """
    target, facts = exported.target, exported.target.facts
    if exported.shows is not None:
        return exported
    tried: dict[str, ResolvedTarget] = {}
    level = facts.main_option
    if level in facts.baseline:
        tried = {
            f"{level} {each}": target.with_options(**{level: each}) for each in facts.options[level] if each
        }
    # Without a main option there are only two levels: unoptimised, and as reported for comparison.
    elif target.baseline is not None:
        tried = {"no optimisation": target.baseline, "as reported": target}
    skip = choose_skip_option(facts.options)
    if exported.passes and skip:
        tried[f"without {' and '.join(exported.passes)}"] = target.with_options(
            **{skip: "+".join(exported.passes)}
        )
    if newest and facts.package and not target.build:
        release = find_newest(facts.package, workers.offline)
        tried[f"{facts.package} {release}, the newest release"] = target.with_release(release)
    lab, results = ObservationCache(workers), []
    for words, each in tried.items():
        found = judge_case(exported.case, each, lab).verdict
        same = "fails" if found.kind == exported.verdict.kind else "fails differently"
        results.append((words, {"pass": "passes", "fail": same}.get(found.verdict, found.verdict)))
    return replace(exported, variants=tuple(results))


def _read_stored_verdict(folder: Path, target: ResolvedTarget) -> Verdict | None:
    """Return the verdict of a case of a store; `None` for any other case, and for another target."""
    try:
        record = read_failure(folder)
        return get_verdict(record) if resolve(record.target) == target else None
    except BadInput:
        # It lies in no store
        return None


def case_folder(what: str, store: Path) -> Path:
    """Return the folder of a case, given by its path, its name in a store or the name of a cluster; prefers
    the reduced case.

    Raises:
        BadInput: If there is no such case.
    """
    if Path(what).exists() or ("/" in what and not what.startswith("cases/")):
        return Path(what)
    if not store.is_dir():
        raise BadInput(
            f"there is no {shown(what, 120)}, and no store {shown(store, 120)} with such a cluster: name the"
            " store with --store"
        )
    with Queries(store) as queries:
        found = queries.case(what)
    place = found.reduced or found.folder
    if place is None:
        raise BadInput(f"no case of {shown(what, 120)} was kept: choose one of its members (opsieve show)")
    return place


def _case_of(place: Path) -> Path:
    """Return the case folder for `place`, which is that folder or its reduced form."""
    folder = place if place.is_dir() else place.parent
    return folder.parent if folder.name == REDUCED and (folder.parent / "case.json").is_file() else folder


def _culprit(place: Path) -> dict[str, Any]:
    """Read the guilty passes and the releases of regression and fix from the files of `attribute` and
    `bisect`; fields are empty for missing files.
    """
    case = _case_of(place)
    found = read_both_culprits(case)
    known = {"regression": "", "fixed": "", "first_bad": ""}
    # Later entries win: a release means more to readers than a commit.
    for search in (
        found.get("commits"),
        found.get("releases"),
    ):
        transitions = search.get("transitions") if isinstance(search, dict) else None
        changes = transitions if isinstance(transitions, list) else []
        for change in (each for each in changes if isinstance(each, dict)):
            before, after = change.get("last_before", ""), change.get("first_after", "")
            if change.get("kind") == "regression":
                known |= {
                    "regression": f"Fails since {after} (last good: {before}).",
                    "first_bad": str(after),
                }
            elif change.get("kind") == "fix":
                known["fixed"] = f"Fixed in {after} (last bad: {before})."
    left = read_artifacts(case)
    return {**known, "passes": left.guilty_passes, "commits": left.commits}


def _probably(place: Path) -> tuple[ProbableIssue, ...]:
    """Return the public issues that probably match the cluster of a case; () outside a store."""
    folder = _case_of(place).absolute()
    store = folder.parents[2] if len(folder.parents) > 2 and folder.parent.parent.name == "cases" else None
    if store is None or not (store / INDEX).is_file():
        return ()
    try:
        with Queries(store) as queries:
            cluster = queries.case(folder.relative_to(store).as_posix()).cluster
            return queries.cluster(cluster).probably if cluster else ()
    except BadInput:
        # An unusable store is treated as empty.
        return ()


def _beside(place: Path, name: str) -> dict[str, Any]:
    """Read the JSON object in a file beside a case; {} if it is missing or unreadable."""
    try:
        found = json.loads(read_file((place if place.is_dir() else place.parent) / name, _MAX_JSON))
    except (BadInput, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
