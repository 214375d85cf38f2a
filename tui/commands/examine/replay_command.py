"""`opsieve replay`: replay a public report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsieve.backends.verdict import JUDGED
from opsieve.gen.model.printable import printable
from opsieve.tui.commands import options, output

if TYPE_CHECKING:
    from opsieve.bisect.sessions.replay import ReplayAnswer


@click.command()
@click.argument("report", type=options.PATH)
@click.option(
    "--model", type=options.PATH, help="Model attached to the report.  [default: the model in its text]"
)
@options.INPUTS
@options.make_targets("Compiler to test instead of those in the report; repeatable.")
@click.option(
    "--no-history", is_flag=True, help=("Do not search for the first bad and the first good release.")
)
@options.SEED
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
@output.ALLOW_UNJUDGED
@options.JSON
def command(
    report: Path,
    model: Path | None,
    inputs: Path | None,
    targets: tuple[str, ...],
    no_history: bool,
    seed: int,
    offline: bool,
    allow_unjudged: bool,
    as_json: bool,
) -> int:
    """Replay REPORT, a public issue saved as Markdown or HTML, on the versions that it names and on the
    installed one.

    Versions, levels, passes and providers are read from the text. The model comes from --model, or from
    onnx.helper or onnx.parser text in the report, which is parsed and never executed. Releases are installed
    after confirmation. Exit code 1 if the installed version still fails, else 2 if there is no model or no
    verdict.
    """
    from opsieve.bisect.sessions.replay import ReplayRequest, replay_report

    # No --yes here: consent is read from the environment, where the option has put it.
    asked = ReplayRequest(report, model, inputs, targets, seed, not no_history, offline)
    found = replay_report(asked, output.print_message)
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        _print_answer(found)
    unjudged = [
        f"{each['target']} ({each['verdict']})" for each in found.results if each["verdict"] not in JUDGED
    ]
    return output.choose_exit_code(bool(found.still), unjudged, allow_unjudged)


def _print_answer(found: "ReplayAnswer") -> None:
    for name, versions in found.facts.versions.items():
        places = ", ".join(f"{version} (line {line})" for version, line in versions.items())
        click.echo(printable(f"the report names {name} {places}"))
    click.echo(printable(f"model: {found.model}"))
    for result in found.results:
        version = f" {result['version']}" if result["version"] and "==" not in str(result["target"]) else ""
        click.echo(printable(f"{result['verdict']:<12}{result['target']}{version}  {result['reason']}"))
    still = {
        True: "it still fails",
        False: "it does not fail any more",
        None: "what is installed does not say",
    }[found.still]
    since = f"; fails since {found.first_bad}" if found.first_bad else ""
    until = f"; repaired in {found.first_good}" if found.first_good else ""
    click.echo(printable(still + since + until))
