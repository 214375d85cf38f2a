"""`opsieve export`: one failure as a script, an issue, a test or a zip file, for somebody who has not opsieve."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsieve.backends.target import Target
    from opsieve.backends.verdict import Verdict
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.case.case import Case
    from opsieve.triage.export.export_input import ExpectedOutput, ExportedFailure

PATH = click.Path(path_type=Path)
_MAX_JSON = 1 << 20


@click.command()
@click.argument("what", metavar="CASE|CLUSTER")
@click.option(
    "--as", "kind", type=click.Choice(["script", "issue", "pytest", "case"]), default="script", show_default=True,
    help="repro.py, an issue in Markdown, a test for pytest, or a zip of the case.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=PATH, help="The file to write; by default in the folder that one is in. - is stdout."
)
@click.option("-t", "--target", default="", help="backend[==release][:option,...]; by default the case's own.")
@click.option(
    "--store", type=PATH, default="opsieve-store", show_default=True, help="The store that a cluster is looked up in."
)
@click.option("--inputs", type=PATH, help="Inputs: an .npz file, an ONNX data set, or a folder that holds one of them.")
@click.option("--expected", type=PATH, help="Expected outputs: the same kinds.")
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs that nobody gave.")
@click.option("--seconds", default=60.0, show_default=True, help="Wall time that one run may take.")
@click.option("--offline", is_flag=True, help="Install no release; use those that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    what: str,
    kind: str,
    output: Path | None,
    target: str,
    store: Path,
    inputs: Path | None,
    expected: Path | None,
    seed: int,
    seconds: float,
    offline: bool,
    as_json: bool,
) -> int:
    """Write the failure of CASE for others, once it was seen again: exit code 3 when it does not fail any more.

    CASE is an .onnx file, a case folder, a folder that holds model.onnx and its data, or cases/KEY/N of the store; CLUSTER the id
    of a cluster, whose representative is taken. The script needs numpy, onnx and the compiler, nothing of opsieve.
    """
    from opsieve.backends.workers.workers import Workers
    from opsieve.backends.workers.zygote import Limits
    from opsieve.gen.case.open_case import open_case
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.reducer.output import write
    from opsieve.triage.export.exports import KINDS, export

    if not 0 < seconds <= 86400:
        raise BadInput("--seconds must lie between 0 and 86400")
    place = folder_of(what, store)
    case = open_case(place, inputs, expected, seed)
    with Workers(Limits(seconds=seconds), offline=offline, say=_say) as workers:
        exported, reason = shown_again(case, target, place, workers, seconds)
    if exported is None:
        _say(f"{what} does not fail: {reason}")
        if as_json:
            click.echo(json.dumps({"kind": kind, "output": "", "target": "", "failure": "", "message": reason}))
        return 3
    made = export(exported, next(each for each in KINDS if each == kind))
    if output == Path("-"):
        sys.stdout.buffer.write(made.data)
        return 0
    path = output or Path(made.name)
    if path.is_dir():
        path = path / made.name
    write(path, made.data)
    summary = {
        "kind": kind,
        "output": str(path),
        "bytes": len(made.data),
        "target": str(exported.target),
        "version": exported.observation.version,
        "failure": exported.verdict.kind,
        "message": exported.verdict.reason,
    }
    click.echo(
        json.dumps(summary) if as_json else _plain(f"{path}  {exported.verdict.kind}: {exported.verdict.reason}")
    )
    return 0


def shown_again(
    case: "Case", target: str, place: Path, workers: "Workers", seconds: float
) -> "tuple[ExportedFailure | None, str]":
    """What an export tells of a case, judged anew; None and the reason when it does not fail.

    `place` is where the case lies: what `bisect` and `attribute` left beside it is told too.
    """
    from opsieve.backends.judge.judge import judge
    from opsieve.backends.judge.oracles import SECOND_ORACLES
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.observation_cache import ObservationCache
    from opsieve.reducer.oracle.discover import steady
    from opsieve.triage.export.export_input import ExportedFailure, expected_outputs

    summary = _beside(place, "reduction.json").get("target", "")
    chosen = resolve(
        target or case.parameters.get("target", "") or (summary if isinstance(summary, str) else "") or "onnxruntime"
    )
    lab = ObservationCache(workers)
    oracles = [oracle for oracle in SECOND_ORACLES if resolve(oracle) != chosen]
    judged = judge(case.program, case.inputs, chosen, lab, expected=case.expected, oracles=oracles)
    verdict, stored = judged.verdict, _stored(_case_of(place), chosen)
    doubted: Verdict | None = None  # a failure that may show only sometimes
    if verdict.verdict == "flaky":
        doubted = verdict
    elif verdict.verdict == "pass":
        doubted = stored
    elif verdict.verdict == "fail":
        was_flaky = stored is not None and (stored.verdict, stored.kind) == ("flaky", verdict.kind)
        doubted = verdict if was_flaky or not steady(case, chosen, verdict, workers) else None
    exported, reason = None, f"{verdict.verdict}: {verdict.reason}"
    if doubted is not None:
        exported, reason = _seen_sometimes(case, chosen, doubted, workers, seconds)
    elif verdict.verdict == "fail":
        right: dict[str, ExpectedOutput] = {}
        source = ""
        if verdict.kind != "accepts-invalid":  # nobody can say what an invalid program gives
            right, source = expected_outputs(case, verdict, judged.observations[0].outputs, lab)
        exported = ExportedFailure(case, chosen, verdict, judged.observations[0], right, source, seconds=seconds)
    if exported is None:
        return None, reason
    passes, regression, fixed = _culprit(place)
    return replace(exported, passes=passes, regression=regression, fixed=fixed), ""


def _stored(folder: Path, target: "Target") -> "Verdict | None":
    """The verdict of a case of a store whose target died or raised; None for any other case, and for another target."""
    from opsieve.backends.registry import resolve
    from opsieve.backends.verdict import KIND_OF_OUTCOME
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.triage.store.failure_record import read_failure, verdict_of

    try:
        summary = read_failure(folder)
        return (
            verdict_of(summary)
            if summary.kind in KIND_OF_OUTCOME.values() and resolve(summary.target) == target
            else None
        )
    except BadInput:  # it lies in no store
        return None


def _seen_sometimes(
    case: "Case", target: "Target", verdict: "Verdict", workers: "Workers", seconds: float
) -> "tuple[ExportedFailure | None, str]":
    """An exported of a failure that shows sometimes, run until it is known how often; None and the reason when it is not seen."""
    from opsieve.backends.workers.observation_cache import ObservationCache
    from opsieve.reducer.oracle.discover import sometimes
    from opsieve.reducer.oracle.interestingness import runs_for
    from opsieve.triage.export.export_input import ExportedFailure, expected_outputs

    found, reason = sometimes(case, target, replace(verdict, verdict="flaky"), workers)
    if found is None:
        return None, reason
    summary = replace(found.failure.verdict, reason=found.reason)
    right, source = expected_outputs(case, summary, None, ObservationCache(workers))
    runs = runs_for(found.chance, sightings=1)
    return ExportedFailure(case, target, summary, found.observation, right, source, found.replays, runs, seconds), ""


def folder_of(what: str, store: Path) -> Path:
    """The case that a path, the name of a case in a store or that of a cluster means, the reduced one where there is one; BadInput
    when it means none."""
    from opsieve.gen.model.bad_input import BadInput, shown
    from opsieve.triage.store.queries import Queries

    if Path(what).exists() or ("/" in what and not what.startswith("cases/")):
        return Path(what)
    if not store.is_dir():
        raise BadInput(
            f"there is no {shown(what, 120)}, and no store {shown(store, 120)} to look for such a cluster; name --store"
        )
    with Queries(store) as queries:
        found = queries.case(what)
    place = found.reduced or found.folder
    if place is None:
        raise BadInput(f"no case of {shown(what, 120)} was kept; look at its members with opsieve show")
    return place


def _case_of(place: Path) -> Path:
    """The case folder that `place` is, or is the reduced form of."""
    from opsieve.triage.store.artifacts import REDUCED

    folder = place if place.is_dir() else place.parent
    return folder.parent if folder.name == REDUCED and (folder.parent / "case.json").is_file() else folder


def _culprit(place: Path) -> tuple[tuple[str, ...], str, str]:
    """Guilty passes, where it came, where it went, from what `attribute` and `bisect` left; empty for what they did not."""
    from opsieve.triage.store.artifacts import case_artifacts, culprit_of

    case = _case_of(place)
    found = culprit_of(case)
    sentences = {"regression": "", "fix": ""}
    for search in (found.get("commits"), found.get("releases")):  # a release says more to people than a commit
        transitions = search.get("transitions") if isinstance(search, dict) else None
        for change in transitions if isinstance(transitions, list) else []:
            if isinstance(change, dict) and change.get("kind") in ("regression", "fix"):
                before, after = change.get("last_before", ""), change.get("first_after", "")
                words = (
                    ("Fails from", "last without it")
                    if change["kind"] == "regression"
                    else ("Gone in", "last that fails")
                )
                sentences[change["kind"]] = f"{words[0]} {after} ({words[1]}: {before})."
    return case_artifacts(case).guilty_passes, sentences["regression"], sentences["fix"]


def _beside(place: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file beside a case; {} when there is none."""
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.gen.model.files import read_file

    try:
        found = json.loads(read_file((place if place.is_dir() else place.parent) / name, _MAX_JSON))
    except (BadInput, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _say(sentence: str) -> None:
    click.echo(f"opsieve: {_plain(sentence)}", err=True)
