"""`opsieve export`: one failure as a script, an issue, a test or a zip file, for people without opsieve."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.backends.verdict import reword_oracles
from opsieve.gen.errors import NoFailure
from opsieve.gen.model.durable import write_output
from opsieve.gen.model.printable import printable
from opsieve.tui.commands import completions, options
from opsieve.tui.commands.output import print_message

if TYPE_CHECKING:
    from opsieve.triage.export.exports import Kind


@click.command()
@click.argument("what", metavar="CASE|CLUSTER", shell_complete=completions.complete_cases)
@click.option(
    "--as", "kind", type=click.Choice(["script", "issue", "pytest", "case"]), default="script",
    show_default=True,
    help="What to write: a script (repro.py), an issue in Markdown, a pytest file, or a zip of the case.",
)  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    help="File or directory to write to; - is stdout.  [default: the current directory]",
)
@click.option(
    "--newest",
    is_flag=True,
    help="With --as issue: install the newest release of the compiler, and say what it does.",
)
@options.TARGET
@options.ORACLE
@options.STORE
@options.INPUTS
@options.EXPECTED
@options.SEED
@options.make_limits(60.0)
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
@options.JSON
def command(
    what: str,
    kind: "Kind",
    output: Path | None,
    folder: Path,
    as_json: bool,
    **given: Any,
) -> int:
    """Reproduce the failure of CASE and write it for people without opsieve. Exit code 3 if the failure does
    not repeat.

    CASE is an .onnx file, a case directory, a directory with model.onnx and its data, or cases/KEY/N of the
    store; CLUSTER stands for its representative. The script needs only numpy, onnx and the compiler.
    """
    from opsieve.reducer.sessions.export import ExportRequest, export_case

    try:
        made, exported = export_case(ExportRequest(what, kind, folder, **given), print_message)
    except NoFailure as error:
        # stdout gets an object in each case; the sentence and the exit code follow from the error.
        if as_json:
            facts = {"kind": kind, "output": "", "target": "", "failure": "", "message": error.reason}
            click.echo(json.dumps(facts))
        raise
    if output == Path("-"):
        # Bytes: a zip is no text, and line ends must not change.
        sys.stdout.buffer.write(made.data)
        return 0
    # A directory keeps the usual name; anything else is taken as the name of the file.
    path = output / made.name if output and output.is_dir() else output or Path(made.name)
    write_output(path, made.data)
    summary = {
        "kind": kind,
        "output": str(path),
        "bytes": len(made.data),
        "target": str(exported.target),
        "version": exported.observation.version,
        "failure": exported.verdict.kind,
        "message": exported.verdict.reason,
    }
    reason = reword_oracles(exported.verdict.reason, exported.target.display)
    click.echo(json.dumps(summary) if as_json else printable(f"{path}  {exported.verdict.kind}: {reason}"))
    return 0
