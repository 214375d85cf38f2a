"""`opsieve report`: write a store as one HTML page."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsieve.gen.errors import BadInput
from opsieve.gen.model import durable, files
from opsieve.gen.model.printable import count_noun, printable
from opsieve.tui.commands import options

if TYPE_CHECKING:
    from opsieve.triage.store.queries import Queries
    from opsieve.triage.store.rows import CaseDetails, ClusterRow
    from opsieve.tui.commands.triage.report_page import StoredCluster

# Clusters per request.
_PAGE = 500
_MEMBERS = 20
# Lines of a graph
_GRAPH = 150
# Bytes
_SCRIPT = 64 << 10


@click.command("report")
@click.argument("place", metavar="[STORE]", type=options.PATH, required=False)
@options.STORE
@click.option(
    "-o", "--output", type=options.PATH, default=Path("report.html"), show_default=True, help="File to write."
)
@click.option(
    "--filter", "text", default="", help="Only clusters that match this filter (see opsieve clusters)."
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 20000),
    default=1000,
    show_default=True,
    help=("Largest number of clusters."),
)
@options.JSON
def command(place: Path | None, folder: Path, output: Path, text: str, limit: int, as_json: bool) -> int:
    """Write STORE as one self-contained HTML page: clusters with a search, facts, graphs and scripts.

    STORE defaults to --store. No compiler runs: scripts come from earlier reductions.
    """
    from opsieve.triage.store.queries import Queries
    from opsieve.tui.commands.triage.report_page import write_page

    folder = place or folder
    # Before the work: drawing a thousand graphs takes minutes.
    durable.check_output(output)
    rows: list[ClusterRow] = []
    with Queries(folder) as store:
        store.check_filter(text)
        after, total = "", 0
        while len(rows) < limit:
            found = store.clusters(text, after=after, limit=min(_PAGE, limit - len(rows)))
            rows, total, after = [*rows, *found.rows], found.total, found.next
            if not after:
                break
        pages = [_describe_cluster(store, row) for row in rows]
        whole = write_page(folder.absolute().name, store.counts(), pages, total, time.time())
    durable.write_output(output, whole)
    facts = {
        "output": str(output),
        "clusters": len(rows),
        "total": total,
        "bytes": output.stat().st_size,
        "store": str(folder),
    }
    click.echo(
        json.dumps(facts)
        if as_json
        else printable(f"{output}  {count_noun(len(rows), 'cluster')}, {facts['bytes']:,} bytes")
    )
    return 0


def _describe_cluster(store: "Queries", row: "ClusterRow") -> "StoredCluster":
    """Collect the facts about a cluster, with the graph and the script of its representative."""
    from opsieve.tui.commands.triage.report_page import StoredCluster

    prints, members = store.fingerprints(row.id), store.members(row.id, limit=_MEMBERS).rows
    message = next((member.message for member in members if member.message), "")
    if not row.representative:
        return StoredCluster(
            row, prints, members, message, problem="no case was kept: its failures are only counted"
        )
    try:
        details = store.case(row.representative)
        place = details.reduced or details.folder
        graph, problem = ("", "its case is not there") if place is None else (_draw_graph(place), "")
    except BadInput as error:
        return StoredCluster(row, prints, members, message, problem=str(error))
    hint = f"opsieve export {row.id} --as script writes a script that runs without opsieve"
    script = _read_script(details)
    commits = tuple(map(str, details.commits))
    return StoredCluster(
        row, prints, members, message, commits, graph, script, problem or ("" if script else hint)
    )


def _draw_graph(place: Path) -> str:
    """Draw the program of a case as in the terminal app."""
    from opsieve.gen.case.case import load
    from opsieve.gen.irs.registry import ir_of

    program = load(place).program
    lines = [f"{rails}{' ' if rails else ''}{label}" for rails, label in ir_of(program).lines(program)]
    more = [f"... {len(lines) - _GRAPH:,} more lines"] if len(lines) > _GRAPH else []
    return "\n".join(lines[:_GRAPH] + more)


def _read_script(details: "CaseDetails") -> str:
    """Read the script written by a reduction, or return ""."""
    # The reduced one is shorter.
    for place in (details.reduced, details.folder):
        try:
            if place is not None and (place / "repro.py").is_file():
                return files.read_file(place / "repro.py", _SCRIPT).decode("utf-8", "replace")
        except BadInput:
            # A link, or too long for a page
            continue
    return ""
