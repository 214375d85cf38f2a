"""`opsieve clusters`: the bugs of a store, a page at a time."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from opsieve.tui.commands import options
from opsieve.tui.commands.store_table import cluster_facts, cluster_table, table
from opsieve.tui.commands.text import counted

SORTS = ("rank", "members", "last", "first", "size", "severity", "title", "id")
GROUPINGS = ("kind", "stage", "status", "backend", "target", "pass", "rule")


@click.command("clusters")
@click.argument("words", nargs=-1, metavar="[FILTER]...")
@options.STORE
@click.option("--sort", type=click.Choice(SORTS), default="rank", show_default=True, help="Sort order.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Clusters per page.")
@click.option("--after", default="", help="Continue after this cursor (`next` of the previous page).")
@click.option("--group", "by", type=click.Choice(GROUPINGS), help="Only count clusters, grouped by this.")
@click.option("--non-bugs", is_flag=True, help="List unsupported, environment and flaky outcomes instead of bugs.")
@click.option("--aside", "non_bugs_once", is_flag=True, hidden=True)  # the name of --non-bugs before 0.2
@options.JSON
def command(
    words: tuple[str, ...],
    folder: Path,
    sort: str,
    reverse: bool,
    limit: int,
    after: str,
    by: str | None,
    non_bugs: bool,
    non_bugs_once: bool,
    as_json: bool,
) -> int:
    """List clusters: failures believed to be one bug.

    FILTER is any number of words (of the title, message or operators) and fields, such as kind:crash op:Pad status:new
    target:onnxruntime stage:compile pass:NAME since:2d is:pinned id:c17. Commas separate alternatives; a leading - negates
    (write -- before such a filter).
    """
    from opsieve.triage.store.queries import Queries

    text = " ".join(words)
    with Queries(folder) as store:
        if by is not None:
            groups = store.groups(by, text)  # type: ignore[arg-type]
            if as_json:
                click.echo(json.dumps({"groups": [asdict(group) for group in groups]}))
            else:
                rows = [(group.clusters, group.members, group.value or "(none)") for group in groups]
                table(("clusters", "failures", by), rows, right=("clusters", "failures"), wide=by)
            return 0
        if non_bugs or non_bugs_once:
            entries = store.non_bugs()
            if as_json:
                facts = [asdict(entry) for entry in entries]
                click.echo(json.dumps({"non_bugs": facts, "aside": facts}))  # `aside`: the old key
            else:
                shown_rows = [
                    (entry.count, entry.verdict, entry.target[:24], f"{entry.case}  {entry.what}".strip())
                    for entry in entries
                ]
                table(("tests", "verdict", "target", "what"), shown_rows, right=("tests",), wide="what")
            return 0
        page = store.clusters(text, sort=sort, reverse=reverse, after=after, limit=limit)  # type: ignore[arg-type]
        counts = store.counts()
    if as_json:
        summary = {
            "clusters": [cluster_facts(row) for row in page.rows],
            "total": page.total,
            "next": page.next,
            "failures": counts.failures,
            "unsupported": counts.unsupported,
            "environment": counts.environment,
            "flaky": counts.flaky,
            "unexplained": counts.unexplained,
            "store": str(folder),
        }
        click.echo(json.dumps(summary))
        return 0
    cluster_table(page.rows)
    click.echo(
        f"{len(page.rows)} of {counted(page.total, 'cluster')}, {counted(counts.failures, 'failure')}; not bugs: {counts.unsupported:,} unsupported,"
        f" {counts.environment:,} environment, {counts.flaky:,} flaky"
    )
    if page.next:
        click.echo(f"opsieve: more with --after '{page.next}'.", err=True)
    return 0
