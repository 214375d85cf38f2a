"""`opsieve attribute`: which optimiser pass causes a failure."""

import json
import time
from pathlib import Path

import click

from opsieve.tui.commands import options
from opsieve.tui.commands.text import counted, say


@click.command()
@click.argument("case", type=options.PATH)
@options.TARGET
@options.INPUTS
@options.EXPECTED
@options.SEED
@options.OFFLINE
@options.JSON
def command(
    case: Path, target: str, inputs: Path | None, expected: Path | None, seed: int, offline: bool, as_json: bool
) -> int:
    """Find the optimiser passes that cause the failure of CASE: those that cure it when skipped.

    CASE is an .onnx file, a case directory, or a directory with model.onnx and its data. The answer may be that no
    optimiser pass causes the failure.
    """
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.observation_cache import ObservationCache
    from opsieve.backends.workers.workers import Workers
    from opsieve.bisect.culprit import keep_culprit
    from opsieve.bisect.passes.pass_source import blame_passes
    from opsieve.gen.case.open_case import open_case

    opened = open_case(case, inputs, expected, seed)
    place = resolve(target or opened.parameters.get("target", "onnxruntime"))
    started = time.process_time()
    with Workers(offline=offline, say=say) as workers:
        blamed = blame_passes(opened, place, ObservationCache(workers))
    found, wanted = blamed.attribution, blamed.wanted
    spent = children_seconds() + time.process_time() - started
    answer = {
        "target": place.display,
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
            click.echo(f"{name}: application {' or '.join(map(str, which))}")
        if blamed.beneath:
            click.echo(f"with all optimisations off a different failure remains: {blamed.beneath.symptom}")
        if found.kept:
            click.echo(f"passes that had to stay enabled: {', '.join(found.kept)}")
        click.echo(
            f"{place.display}: {wanted.symptom}; levels: {', '.join(f'{k} {v}' for k, v in found.levels.items())}"
        )
        say(f"{counted(found.probes, 'probe')}, {spent:.1f} s of CPU")
    return 0


def sentence(answer: str, passes: tuple[str, ...], alone: tuple[str, ...], levels: int) -> str:
    """The answer for a person; a compiler with one level has no unoptimised build to compare with."""
    names = " and ".join(passes)
    if answer == "pass":
        also = "it causes the failure alone" if alone else "it does not cause the failure alone: other passes take part"
        return f"pass {names}: skipping it cures the failure; {also}"
    if answer == "set":
        each = f"{' and '.join(alone)} each cause it alone" if alone else "none causes it alone"
        return f"passes {names}: only skipping all of them cures the failure; {each}"
    if answer == "not-a-pass":
        return "not an optimiser pass: it also fails with all optimisations off"
    if answer == "unnamed" and levels == 1:
        return "nothing that can be switched off: it fails with everything off that can be"
    if answer == "unnamed":
        return "an optimisation that cannot be switched off by name: it fails with every named pass off"
    return "it does not fail at any level"


def children_seconds() -> float:
    """CPU seconds of the processes that were started and have ended."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
