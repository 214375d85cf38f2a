"""`opsieve clusters`: list the bugs of a store, a page at a time."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsieve.gen.model.printable import count_noun
from opsieve.tui.commands import completions, options
from opsieve.tui.commands.text import print_message
from opsieve.tui.commands.triage.store_table import list_cluster_facts, print_clusters, print_table

if TYPE_CHECKING:
    from opsieve.triage.store.rows import ClusterGroup, NonBugRow

SORTS = ("rank", "members", "last", "first", "size", "severity", "title", "id")
GROUPINGS = ("kind", "stage", "status", "backend", "target", "pass", "rule")


@click.command("clusters")
@click.argument("words", nargs=-1, metavar="[FILTER]...", shell_complete=completions.complete_filters)
@options.STORE
@click.option("--sort", type=click.Choice(SORTS), default="rank", show_default=True, help="Sort order.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Clusters per page."
)
@click.option("--after", default="", help="Continue after this cursor (`next` of the previous page).")
@click.option("--group", "by", type=click.Choice(GROUPINGS), help="Only count clusters, grouped by this.")
@click.option(
    "--non-bugs", is_flag=True, help="List unsupported, environment and flaky outcomes instead of bugs."
)
# The name of --non-bugs before 0.2
@click.option("--aside", "non_bugs_once", is_flag=True, hidden=True)
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

    FILTER is any number of words (of the title, message or operators) and fields, such as kind:crash op:Pad
    status:new target:onnxruntime stage:compile pass:NAME since:2d is:pinned id:c17. Commas separate
    alternatives; a leading - negates (write -- before such a filter).
    """
    from opsieve.triage.store.queries import Queries

    text = " ".join(words)
    if text and (non_bugs or non_bugs_once):
        raise click.UsageError("a filter selects clusters, so it cannot be used with --non-bugs")
    with Queries(folder) as store:
        store.check_filter(text)
        if by is not None:
            _print_groups(by, store.groups(by, text), as_json)  # type: ignore[arg-type]
            return 0
        if non_bugs or non_bugs_once:
            _print_non_bugs(store.non_bugs(), as_json)
            return 0
        page = store.clusters(text, sort=sort, reverse=reverse, after=after, limit=limit)  # type: ignore[arg-type]
        counts = store.counts()
    if as_json:
        names = ("failures", "unsupported", "environment", "flaky", "unexplained")
        facts = {
            "clusters": [list_cluster_facts(row) for row in page.rows],
            "total": page.total,
            "next": page.next,
        }
        facts |= {name: getattr(counts, name) for name in names} | {"store": str(folder)}
        click.echo(json.dumps(facts))
        return 0
    print_clusters(page.rows)
    click.echo(
        f"{len(page.rows)} of {count_noun(page.total, 'cluster')}, {count_noun(counts.failures, 'failure')}; not"
        f" bugs: {counts.unsupported:,} unsupported, {counts.environment:,} environment, {counts.flaky:,}"
        " flaky"
    )
    if page.next:
        print_message(f"more with --after '{page.next}'")
    return 0


def _print_groups(by: str, groups: "Sequence[ClusterGroup]", as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"groups": [asdict(group) for group in groups]}))
        return
    rows = [(group.clusters, group.members, group.value or "(none)") for group in groups]
    print_table(("clusters", "failures", by), rows, right=("clusters", "failures"), wide=by)


def _print_non_bugs(entries: "Sequence[NonBugRow]", as_json: bool) -> None:
    if as_json:
        facts = [asdict(entry) for entry in entries]
        # `aside`: the key before 0.2
        click.echo(json.dumps({"non_bugs": facts, "aside": facts}))
        return
    rows = [
        (entry.count, entry.verdict, entry.target[:24], f"{entry.case}  {entry.what}".strip())
        for entry in entries
    ]
    print_table(("tests", "verdict", "target", "what"), rows, right=("tests",), wide="what")
