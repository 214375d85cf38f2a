"""`opsieve export`: one failure as a script, an issue, a test or a zip file, for somebody who has not opsieve."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsieve.backends.workers import Workers
    from opsieve.gen.case import Case
    from opsieve.triage.exhibit import Exhibit

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

    CASE is an .onnx file, a case folder, or a folder that holds model.onnx and its data; CLUSTER the id of a cluster, whose
    representative is taken. The script needs numpy, onnx and the compiler, nothing of opsieve.
    """
    from opsieve.backends.workers import Workers
    from opsieve.backends.zygote import Limits
    from opsieve.gen.bad_input import BadInput
    from opsieve.gen.intake import open_case
    from opsieve.reducer.output import write
    from opsieve.triage.exports import KINDS, export

    if not 0 < seconds <= 86400:
        raise BadInput("--seconds must lie between 0 and 86400")
    place = folder_of(what, store)
    case = open_case(place, inputs, expected, seed)
    with Workers(Limits(seconds=seconds), offline=offline, say=_say) as workers:
        exhibit, reason = shown_again(case, target, place, workers, seconds)
    if exhibit is None:
        _say(f"{what} does not fail: {reason}")
        if as_json:
            click.echo(json.dumps({"kind": kind, "output": "", "target": "", "failure": "", "message": reason}))
        return 3
    made = export(exhibit, next(each for each in KINDS if each == kind))
    if output == Path("-"):
        sys.stdout.buffer.write(made.data)
        return 0
    path = output or Path(made.name)
    if path.is_dir():
        path = path / made.name
    write(path, made.data)
    told = {
        "kind": kind,
        "output": str(path),
        "bytes": len(made.data),
        "target": str(exhibit.target),
        "version": exhibit.observation.version,
        "failure": exhibit.verdict.kind,
        "message": exhibit.verdict.reason,
    }
    click.echo(json.dumps(told) if as_json else _plain(f"{path}  {exhibit.verdict.kind}: {exhibit.verdict.reason}"))
    return 0


def shown_again(
    case: "Case", target: str, place: Path, workers: "Workers", seconds: float
) -> "tuple[Exhibit | None, str]":
    """What an export tells of a case, judged anew; None and the reason when it does not fail.

    `place` is where the case lies: what `bisect` and `attribute` left beside it is told too.
    """
    from opsieve.backends.judge import SECOND_VOICES, judge
    from opsieve.backends.lab import Lab
    from opsieve.backends.registry import resolve
    from opsieve.triage.exhibit import Exhibit, right_outputs

    told = _beside(place, "reduction.json").get("target", "")
    chosen = resolve(target or case.knobs.get("target", "") or (told if isinstance(told, str) else "") or "onnxruntime")
    lab = Lab(workers)
    voices = [voice for voice in SECOND_VOICES if resolve(voice) != chosen]
    judged = judge(case.program, case.inputs, chosen, lab, expected=case.expected, voices=voices)
    if judged.verdict.verdict != "fail":
        return None, f"{judged.verdict.verdict}: {judged.verdict.reason}"
    right, source = right_outputs(case, judged.verdict, judged.observations[0].outputs, lab)
    passes, regression, fixed = _culprit(place)
    return Exhibit(
        case, chosen, judged.verdict, judged.observations[0], right, source,
        seconds=seconds, passes=passes, regression=regression, fixed=fixed,
    ), ""  # fmt: skip


def folder_of(what: str, store: Path) -> Path:
    """The case that a path or the name of a cluster means, the reduced one where there is one; BadInput when it means none."""
    from opsieve.gen.bad_input import BadInput, shown
    from opsieve.triage.queries import Queries

    if Path(what).exists() or "/" in what:
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


def _culprit(place: Path) -> tuple[tuple[str, ...], str, str]:
    """Guilty passes, where it came, where it went, from what `attribute` and `bisect` left; empty for what they did not."""
    from opsieve.triage.beside import REDUCED, beside, culprit_of

    folder = place if place.is_dir() else place.parent
    case = folder.parent if folder.name == REDUCED and (folder.parent / "case.json").is_file() else folder
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
    return beside(case).guilty_passes, sentences["regression"], sentences["fix"]


def _beside(place: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file beside a case; {} when there is none."""
    from opsieve.gen.bad_input import BadInput
    from opsieve.gen.files import read_file

    try:
        found = json.loads(read_file((place if place.is_dir() else place.parent) / name, _MAX_JSON))
    except (BadInput, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _say(sentence: str) -> None:
    click.echo(f"opsieve: {_plain(sentence)}", err=True)
