"""`opsieve attribute`: find the optimiser pass that causes a failure."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from opsieve.gen.model.printable import count_noun
from opsieve.tui.commands import options
from opsieve.tui.commands.text import print_message


@click.command()
@click.argument("case", type=options.PATH)
@options.TARGET
@options.ORACLE
@options.INPUTS
@options.EXPECTED
@options.SEED
@options.make_seconds(60.0)
@options.make_memory()
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
@options.JSON
def command(
    case: Path,
    memory: int,
    as_json: bool,
    **given: Any,
) -> int:
    """Find the optimiser passes that cause the failure of CASE: those that cure it when skipped.

    CASE is an .onnx file, a case directory, or a directory with model.onnx and its data. The answer may be
    that no optimiser pass causes the failure.
    """
    from opsieve.bisect.sessions.passes import attribute_passes
    from opsieve.bisect.sessions.request import BisectRequest

    request = BisectRequest(case, memory=memory << 20, **given)
    found = attribute_passes(request, print_message)
    if as_json:
        click.echo(json.dumps(found.as_json()))
        return 0
    click.echo(write_sentence(found.answer, found.passes, found.alone, len(found.levels)))
    for name, which in found.applications.items():
        click.echo(f"{name}: application {' or '.join(map(str, which))}")
    if found.beneath:
        click.echo(f"with all optimisations off a different failure remains: {found.beneath}")
    if found.kept:
        click.echo(f"passes that had to stay enabled: {', '.join(found.kept)}")
    levels = ", ".join(f"{name} {answer}" for name, answer in found.levels.items())
    click.echo(f"{found.target}: {found.symptom}; levels: {levels}")
    print_message(f"{count_noun(found.probes, 'probe')}, {found.seconds_cpu:.1f} s of CPU")
    return 0


def write_sentence(answer: str, passes: Sequence[str], alone: Sequence[str], levels: int) -> str:
    """Write the answer for a person; a compiler with one level has no unoptimised build for comparison."""
    names = " and ".join(passes)
    if answer == "pass":
        also = (
            "it causes the failure alone"
            if alone
            else "it does not cause the failure alone: other passes take part"
        )
        return f"pass {names}: skipping it cures the failure; {also}"
    if answer == "set":
        each = f"{' and '.join(alone)} each cause it alone" if alone else "none causes it alone"
        return f"passes {names}: only skipping all of them cures the failure; {each}"
    if answer == "not-a-pass":
        return "not an optimiser pass: it also fails with all optimisations off"
    if answer == "unnamed" and levels == 1:
        return "nothing that can be switched off: it fails with everything off that can be"
    return "an optimisation that cannot be switched off by name: it fails with every named pass off"
