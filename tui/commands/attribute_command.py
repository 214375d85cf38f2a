"""`opsieve attribute`: which optimiser pass causes a failure."""

import json
import time
from pathlib import Path

import click

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("case", type=PATH)
@click.option("-t", "--target", default="", help="backend[==release][:option,...]; by default the case's own.")
@click.option("--inputs", type=PATH, help="Inputs: an .npz file, an ONNX data set, or a folder that holds one of them.")
@click.option("--expected", type=PATH, help="Expected outputs: the same kinds.")
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs that nobody gave.")
@click.option("--offline", is_flag=True, help="Install no release; use those that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    case: Path, target: str, inputs: Path | None, expected: Path | None, seed: int, offline: bool, as_json: bool
) -> int:
    """Tell which optimiser passes cause the failure of CASE: those whose skipping cures it, confirmed alone.

    CASE is an .onnx file, a case folder, or a folder that holds model.onnx and its data. "Not a pass" is an answer.
    """
    from opsieve.backends.registry import display, resolve
    from opsieve.backends.workers.observation_cache import ObservationCache
    from opsieve.backends.workers.workers import Workers
    from opsieve.bisect.culprit import keep_culprit
    from opsieve.bisect.passes.pass_source import blame_passes
    from opsieve.gen.case.open_case import open_case

    opened = open_case(case, inputs, expected, seed)
    place = resolve(target or opened.parameters.get("target", "onnxruntime"))
    started = time.process_time()
    with Workers(offline=offline, say=lambda sentence: click.echo(f"opsieve: {sentence}", err=True)) as workers:
        blamed = blame_passes(opened, place, ObservationCache(workers))
    found, wanted = blamed.attribution, blamed.wanted
    spent = children_seconds() + time.process_time() - started
    answer = {
        "target": display(place),
        "answer": found.answer,
        "passes": list(found.passes),
        "alone": list(found.alone),
        "kept": list(found.kept),
        "applications": {name: list(which) for name, which in found.applications.items()},
        "levels": found.levels,
        "probes": found.probes,
        "seconds_cpu": round(spent, 3),
        "fingerprint": wanted.key,
        "beneath": blamed.beneath.symptom if blamed.beneath else "",
    }
    keep_culprit(case, "passes", answer)
    if as_json:
        click.echo(json.dumps(answer))
    else:
        click.echo(sentence(found.answer, found.passes, found.alone, len(found.levels)))
        for name, which in found.applications.items():
            click.echo(f"{name}: application {' or '.join(map(str, which))} of it")
        if blamed.beneath:
            click.echo(f"with all optimisation off it fails otherwise, by no pass: {blamed.beneath.symptom}")
        if found.kept:
            click.echo(f"on beside it, for the compiler cannot do without: {', '.join(found.kept)}")
        click.echo(
            f"{display(place)}: {wanted.symptom}; levels: {', '.join(f'{k} {v}' for k, v in found.levels.items())}"
        )
        click.echo(f"opsieve: {found.probes} probes, {spent:.1f} s of CPU", err=True)
    return 0


def sentence(answer: str, passes: tuple[str, ...], alone: tuple[str, ...], levels: int) -> str:
    """The answer for a person; a compiler with one level only has no unoptimised build to compare with."""
    names = " and ".join(passes)
    if answer == "pass":
        also = "alone it causes it" if alone else "alone it does not cause it: others take part"
        return f"pass {names}: without it the failure is gone; {also}"
    if answer == "set":
        each = f"{' and '.join(alone)} cause it alone" if alone else "none of them causes it alone"
        return f"passes {names}: only without all of them the failure is gone; {each}"
    if answer == "not-a-pass":
        return "not an optimiser pass: it fails with all optimisation off"
    if answer == "unnamed" and levels == 1:
        return "nothing that can be switched off: it fails with every part off that can be"
    if answer == "unnamed":
        return "an optimisation that has no name to switch it off by: it fails with every named pass off"
    return "it does not fail at any level"


def children_seconds() -> float:
    """CPU seconds of the processes that were started and have ended."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
