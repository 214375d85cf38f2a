"""`opsieve triage`: a round over a store, or over a log of another tool."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from opsieve.tui.store_table import JSON, printable, table

PATH = click.Path(path_type=Path)


@click.command("triage")
@click.argument("place", metavar="[STORE]", type=PATH, required=False)
@click.option("--store", "folder", type=PATH, default=Path("opsieve-store"), show_default=True, help="The store, too.")
@click.option("--logs", type=PATH, help="Instead: cluster the failure records of a file (.jsonl, .jsonl.gz, text).")
@JSON
def command(place: Path | None, folder: Path, logs: Path | None, as_json: bool) -> int:
    """Rank the clusters of a STORE, match the rules of known bugs in STORE/known, take up what reduce and bisect found.

    Nothing that a person decided is changed. Exit code 2 when a rule cannot be used.
    """
    if logs is not None:
        return _logs(logs, as_json)
    folder = place or folder
    from opsieve.triage.queries import Queries, bring_up
    from opsieve.triage.review import review

    bring_up(folder)
    done = review(folder)
    with Queries(folder) as store:
        counts, rules, aside = store.counts(), store.rules(), store.aside(most=10)
    for problem in done.problems:
        click.echo(f"opsieve: {printable(problem)}.", err=True)
    told: dict[str, Any] = {
        **asdict(counts),
        "rules": [asdict(rule) for rule in rules],
        "explained": done.explained,
        "aside": [asdict(entry) for entry in aside],
        "problems": list(done.problems),
        "store": str(folder),
    }
    click.echo(json.dumps(told) if as_json else _text(told))
    return 2 if done.problems else 0


def _text(told: dict[str, Any]) -> str:
    kinds = ", ".join(
        f"{many:,} {kind} in {told['clusters_by_kind'][kind]:,}" for kind, many in told["failures_by_kind"].items()
    )
    status = ", ".join(f"{many:,} {name}" for name, many in told["by_status"].items())
    lines = [
        f"{told['failures']:,} failures of {told['tests']:,} tests in {told['clusters']:,} clusters: {kinds or 'none'}",
        f"clusters: {status or 'none'}",
        f"apart: {told['unsupported']:,} unsupported, {told['environment']:,} environment, {told['flaky']:,} flaky",
    ]
    lines += [
        f"  {entry['count']:,} {entry['verdict']}: {entry['target']}: {printable(entry['what'])[:90]}"
        for entry in told["aside"]
    ]
    if told["rules"]:
        lines.append(f"rules explain {told['explained']:,} failures, none {told['unexplained']:,}")
        lines += [f"  {rule['count']:,} {rule['name']}: {printable(rule['title'])[:90]}" for rule in told["rules"]]
    return "\n".join(lines)


def _logs(path: Path, as_json: bool) -> int:
    """Records without models: every one is assigned to a cluster."""
    from opsieve.triage.foreign_logs import read_and_cluster

    found = read_and_cluster(path)
    for number, why in found.skipped[:20]:
        click.echo(f"opsieve: record {number} is left out: {printable(why)}.", err=True)
    if as_json:
        told = {
            "assignments": [asdict(one) for one in found.assignments],
            "skipped": [{"number": number, "why": why} for number, why in found.skipped],
        }
        click.echo(json.dumps(told))
        return 0
    many: dict[str, tuple[int, str, str]] = {}
    for one in found.assignments:
        many[one.cluster] = (many.get(one.cluster, (0, "", ""))[0] + 1, one.kind, one.title)
    rows = sorted(((count, kind, title) for count, kind, title in many.values()), key=lambda row: (-row[0], row[2]))
    table(("failures", "kind", "title"), rows, right=("failures",), wide="title")
    click.echo(
        f"{len(found.assignments):,} failures in {len(rows):,} clusters; {len(found.skipped):,} records left out"
    )
    return 0
