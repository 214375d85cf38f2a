"""`opsieve watch`: replay the cases of a store on new releases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from opsieve.gen.model.durable import check_output, write_output
from opsieve.gen.model.printable import printable
from opsieve.tui.commands import options
from opsieve.tui.commands.examine.corpus_command import FAIL_ON, TARGETS, report_results
from opsieve.tui.commands.output import ALLOW_UNJUDGED, GITHUB, JUNIT, SARIF, CiOutput, print_message

_COLOURS = {"reopened": "red", "changed": "red", "open": "yellow", "closed": "green"}


@click.command()
@click.argument("place", metavar="[STORE]", type=options.PATH, required=False)
@options.STORE
@TARGETS
@click.option(
    "--members",
    type=click.IntRange(1, 50),
    default=2,
    show_default=True,
    help="Cases of each cluster to judge, besides its reduced one.",
)
@click.option("--dry-run", is_flag=True, help="Only report; close and reopen no cluster.")
@click.option("--report", type=options.PATH, metavar="FILE", help="Write the results as a page in Markdown.")
@FAIL_ON
@JUNIT
@SARIF
@GITHUB
@options.make_limits(60.0)
@options.OFFLINE
@options.NO_SANDBOX
@ALLOW_UNJUDGED
@options.JSON
def command(
    place: Path | None,
    folder: Path,
    dry_run: bool,
    report: Path | None,
    fail_on: str,
    junit: Path | None,
    sarif: Path | None,
    github: bool,
    allow_unjudged: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Judge the cases of STORE on the newest release of each compiler, close the clusters that are fixed, and
    reopen those that fail again.

    STORE defaults to --store. New releases are installed; --offline uses the newest one that is. Each change
    is a decision that opsieve undo takes back. Exit code 1 as --fail-on says, else 2 if a target gave no
    verdict.
    """
    from opsieve.triage.corpus import corpus_file, reports, watch
    from opsieve.triage.store import decision_log

    output, store = CiOutput(junit, sarif, github), place or folder
    output.check_paths()
    if report is not None:
        check_output(report)
    # Before the tests, which may take hours.
    if not dry_run and store.is_dir():
        check_output(store / decision_log.FILE)
    results = []
    for found in watch.watch_store(watch.WatchRequest(store, **given), print_message):
        results.append(found)
        # Recorded before it is printed: a full disk must not leave a false "closed".
        if not dry_run:
            watch.record_decisions(store, [found])
        if not as_json:
            word = click.style(f"{watch.WORDS[found.state]:<11}", fg=_COLOURS.get(watch.WORDS[found.state]))
            line = f"{found.cluster}  {found.target}  {found.title}: {found.sentence}"
            # `##[` begins a command of Azure Pipelines, and text of a model may hold it.
            click.echo(word + printable(line).replace("##[", "## ["))
    if report is not None:
        named = [replace(one, case=f"{one.cluster} {one.title}") for one in results]
        write_output(report, reports.make_job_summary(named, f"watch {store}").encode())
    rows: list[dict[str, Any]] = [
        {**row, "cluster": one.cluster, "title": one.title}
        for row, one in zip(corpus_file.list_facts(results), results, strict=True)
    ]
    return report_results(
        results, store, fail_on, output, allow_unjudged, as_json, words=watch.WORDS, rows=rows
    )
