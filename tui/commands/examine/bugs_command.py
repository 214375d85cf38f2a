"""`opsieve bugs`: the collection of bugs that opsieve has found, listed and replayed."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from opsieve.gen.model.printable import printable
from opsieve.tui.commands import options
from opsieve.tui.commands.ci_results import GITHUB, JUNIT, CiOutput
from opsieve.tui.commands.examine.corpus_command import FAIL_ON, report_faults, report_results
from opsieve.tui.commands.judged import ALLOW_UNJUDGED
from opsieve.tui.commands.text import print_message
from opsieve.tui.samples import SAMPLES

if TYPE_CHECKING:
    from opsieve.triage.corpus.states import CorpusResult

_COLOURS = {"live": "yellow", "changed": "red", "fixed": "green"}
_FOLDER = click.option(
    "--folder",
    type=options.PATH,
    default=None,
    help="Collection of bugs.  [default: the collection that comes with opsieve]",
)
_PAGE = click.option(
    "--page", type=options.PATH, metavar="FILE", help="Write the collection as a page in Markdown."
)


def _names(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from opsieve.triage.corpus.collection import read_bugs

    folder = context.params.get("folder") or SAMPLES
    return [CompletionItem(name) for name in read_bugs(folder) if name.startswith(begun)]


@click.group("bugs", invoke_without_command=True)
@_FOLDER
@_PAGE
@options.JSON
@click.pass_context
def command(context: click.Context, folder: Path | None, page: Path | None, as_json: bool) -> int:
    """List the bugs that opsieve has found, with their status in the newest release on record."""
    from opsieve.triage.corpus.collection import latest, read_bugs, status
    from opsieve.tui.commands.triage.store_table import print_table

    if context.invoked_subcommand is not None:
        return 0
    bugs = read_bugs(folder or SAMPLES)
    if page is not None:
        _write_page(folder or SAMPLES, page)
    if as_json:
        from opsieve.tui.store_api import list_bugs

        click.echo(json.dumps({"bugs": list_bugs(folder)}))
        return 0
    print_table(
        ("bug", "status", "target", "what"),
        [(name, status(entry, bug), latest(entry, bug)[0], bug.what) for name, (entry, bug) in bugs.items()],
        wide="what",
    )
    counts = Counter(status(entry, bug) for entry, bug in bugs.values())
    print_message(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 0


@command.command("replay")
@click.argument("names", metavar="[BUG]...", nargs=-1, shell_complete=_names)
@_FOLDER
@click.option("--newest", is_flag=True, help="Install and judge the newest release of each compiler.")
@click.option("--update", is_flag=True, help="Record the results in the collection.")
@_PAGE
@click.option(
    "--resume",
    type=options.PATH,
    metavar="FILE",
    help=(
        "Append each result to FILE and skip the results that FILE has, to continue an interrupted replay."
    ),
)
@FAIL_ON
@JUNIT
@GITHUB
@options.make_seconds(60.0)
@options.make_memory()
@options.OFFLINE
@options.NO_SANDBOX
@options.CONSENT
@ALLOW_UNJUDGED
@options.JSON
def replay(
    names: tuple[str, ...],
    folder: Path | None,
    newest: bool,
    update: bool,
    page: Path | None,
    resume: Path | None,
    fail_on: str,
    junit: Path | None,
    github: bool,
    allow_unjudged: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Judge each BUG, or all, on the newest release on record: live, fixed, changed or not judged.

    A bug that is still live is not a new failure. Exit code 1 as --fail-on says, else 2 if a case is
    unusable or a target gave no verdict.
    """
    from opsieve.backends.workers.zygotes.zygote import Limits
    from opsieve.triage.corpus.bugs_replay import STATUS, BugsRequest, replay_bugs, update_bugs
    from opsieve.triage.corpus.session import make_refusal
    from opsieve.triage.judging import RefusedModel

    output, place = CiOutput(junit, None, github), folder or SAMPLES
    output.check_paths()
    limits = Limits(seconds=given["seconds"], memory=given["memory"] << 20)
    results: list[CorpusResult] = []
    faults = []
    for found in replay_bugs(
        BugsRequest(place, names, newest, resume, limits, given["offline"]), print_message
    ):
        if isinstance(found, RefusedModel):
            faults += [] if found.fault is None else [found.fault]
            found = make_refusal(found)
        results.append(found)
        if not as_json:
            word = click.style(f"{STATUS[found.state]:<12}", fg=_COLOURS.get(STATUS[found.state]))
            click.echo(
                word + printable(f"{found.case}  {found.target}  {found.sentence}").replace("##[", "## [")
            )
    if update:
        update_bugs(place, results)
    if page is not None:
        _write_page(place, page)
    code = report_results(results, place, fail_on, output, allow_unjudged, as_json, words=STATUS)
    return report_faults(faults) or code


def _write_page(folder: Path, page: Path) -> None:
    from opsieve.gen.model.durable import write_output
    from opsieve.triage.corpus.collection import read_bugs
    from opsieve.triage.corpus.found_page import found_page

    write_output(page, found_page(read_bugs(folder)).encode())
