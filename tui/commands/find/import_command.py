"""`opsieve import`: cases from files of other tools."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from opsieve.gen.model.printable import printable
from opsieve.tui.commands import options
from opsieve.tui.commands.output import print_message, report_faults


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=options.PATH)
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    default=Path("opsieve-store/imported"),
    show_default=True,
    help="Directory to write the cases to.",
)
@click.option(
    "--script",
    "scripts",
    is_flag=True,
    help=(
        "PATHS are your own Python files with TVMScript or functions that build a module. A worker runs "
        "them, so never use it on a file from a stranger."
    ),
)
@click.option(
    "--module",
    default="",
    metavar="NAME",
    help="With --script: name of the module or of the function that builds it, if a file has several.",
)
@click.option(
    "--entry",
    default="",
    metavar="FUNCTION",
    help="With --script: function of the module to run instead of main.",
)
@click.option(
    "--passes",
    default="",
    metavar="NAMES|FILE.py",
    help=(
        "With --script: comma-separated passes, or a Python file that defines a pass, a Sequential or a "
        "list. Passes from a file run during the import."
    ),
)
@options.NO_SANDBOX
@options.JSON
def command(paths: tuple[Path, ...], output: Path, as_json: bool, **given: Any) -> int:
    """Import the models in PATHS (files or directories) with their values, each as a case directory.

    Reports each import and each refusal with its reason. Exit code 2 if no case was imported.
    """
    from opsieve.triage.external.import_session import ImportedCase, ImportRequest, import_cases

    taken: list[ImportedCase] = []
    left: list[dict[str, str]] = []
    faults: list[Exception] = []
    for found in import_cases(ImportRequest(paths, output, **given)):
        if isinstance(found, ImportedCase):
            taken.append(found)
        else:
            left.append({"path": str(found.path), "reason": found.reason})
            faults += [] if found.fault is None else [found.fault]
    if as_json:
        # As text: a Path is no value of JSON.
        rows = [
            {"path": str(one.path), "kind": one.kind, "case": str(one.case), "expected": one.expected}
            for one in taken
        ]
        click.echo(json.dumps({"taken": rows, "left": left}))
    else:
        for one in taken:
            click.echo(printable(f"{one.kind:<16} {one.path} -> {one.case}"))
        for item in left:
            click.echo(printable(f"{'not imported':<16} {item['path']}: {item['reason']}"))
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(one.kind for one in taken).items())
        print_message(f"{len(taken)} imported ({kinds or 'none'}), {len(left)} not imported")
    # Some files of a folder are usually no models, so that only an import of nothing is an error.
    return report_faults(faults) or (0 if taken else 2)
