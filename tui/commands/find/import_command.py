"""`opsieve import`: cases from files of other tools."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.model.printable import printable
from opsieve.tui.cli import report_fault
from opsieve.tui.commands import options
from opsieve.tui.commands.text import print_message

if TYPE_CHECKING:
    from opsieve.gen.case.import_folder import ImportResult

# Of one command, however many of its items failed
_REPORTS = 3


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
def command(
    paths: tuple[Path, ...],
    output: Path,
    scripts: bool,
    module: str,
    entry: str,
    passes: str,
    as_json: bool,
) -> int:
    """Import the models in PATHS (files or directories) with their values, each as a case directory.

    Reports each import and each refusal with its reason. Exit code 2 if no case was imported.
    """
    from opsieve.gen.case.case import save
    from opsieve.gen.case.import_folder import Skipped, gather
    from opsieve.gen.errors import BadInput

    taken: list[dict[str, Any]] = []
    left: list[dict[str, str]] = []
    faults: list[Exception] = []
    used: Counter[str] = Counter()
    if not scripts and (module or entry or passes):
        raise BadInput("--module, --entry and --passes are about scripts: add --script")
    found_in = (
        _import_scripts(paths, module, entry, passes)
        if scripts
        else (found for path in paths for found in gather(path))
    )
    for found in found_in:
        if isinstance(found, Skipped):
            left.append({"path": str(found.path), "reason": found.reason})
            faults += [] if found.fault is None else [found.fault]
            continue
        parts = [part for part in (found.path.parent.name, found.path.stem) if part]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))[:80].lstrip(".-") or "case"
        name = f"{name}-{found.case.program.digest[:8]}"
        # One model with other values, or in another place
        used[name] += 1
        folder = output / (name if used[name] == 1 else f"{name}-{used[name]}")
        try:
            save(found.case, folder)
        except BadInput as error:
            left.append({"path": str(found.path), "reason": str(error)})
            continue
        expected = found.case.expected is not None
        taken.append({"path": str(found.path), "kind": found.kind, "case": str(folder), "expected": expected})
    if as_json:
        click.echo(json.dumps({"taken": taken, "left": left}))
    else:
        for item in taken:
            click.echo(printable(f"{item['kind']:<16} {item['path']} -> {item['case']}"))
        for item in left:
            click.echo(printable(f"{'not imported':<16} {item['path']}: {item['reason']}"))
        kinds = ", ".join(
            f"{count} {kind}" for kind, count in Counter(item["kind"] for item in taken).items()
        )
        print_message(f"{len(taken)} imported ({kinds or 'none'}), {len(left)} not imported")
    codes = [report_fault(fault, "opsieve", sys.argv[1:]) for fault in faults[:_REPORTS]]
    return codes[0] if codes else 0 if taken else 2


def _import_scripts(
    paths: tuple[Path, ...], module: str, entry: str, passes: str
) -> Iterator["ImportResult"]:
    """Import the cases of files that make modules of TVM, with seeded inputs."""
    from opsieve.backends.workers.questions.script_reader import Choice, read_script
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.case.case import Case, Origin
    from opsieve.gen.case.import_folder import Imported, Skipped
    from opsieve.gen.errors import BadInput
    from opsieve.gen.irs.registry import make_inputs

    with Workers() as workers:
        for path in paths:
            try:
                program = read_script(path, workers, Choice(module, entry, passes))
                case = Case(program, make_inputs(program, 0), origin=Origin("import", 0, {}, "seeded"))
                yield Imported(path, "TVMScript", case)
            except BadInput as error:
                yield Skipped(path, str(error))
