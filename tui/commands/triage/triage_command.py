"""`opsieve triage`: run a round over a store, or over a log of another tool."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from opsieve.gen.model.printable import count_noun, single_line
from opsieve.tui.commands import options, output

# The longest title beside moving parts, in characters.
_TITLE = 60
# The limit on messages about unusable entries.
_PROBLEMS = 20
# The limit on entries that are not bugs.
_APART = 3


@click.command("triage")
@click.argument("place", metavar="[STORE]", type=options.PATH, required=False)
@options.STORE
@click.option(
    "--logs",
    type=options.PATH,
    help="Cluster the failures of this file or folder instead: .jsonl, .jsonl.gz, text, JUnit, run --save.",
)
@click.option(
    "--attribute", is_flag=True, help="First find the pass that causes each wrong result (see attribute)."
)
@click.option("--reduce", "reduce_", is_flag=True, help="First reduce cases, then fingerprint them again.")
@click.option(
    "--budget",
    type=click.FloatRange(1, 604800),
    callback=options.check_finite,
    default=600.0,
    show_default=True,
    help="Time limit of --reduce, and of --attribute, in seconds.",
)
@click.option(
    "--members",
    type=click.IntRange(1, 50),
    default=1,
    show_default=True,
    help="Cases per fingerprint that --reduce reduces.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 4096),
    help=(
        "Cases that --reduce reduces at once.  [default: 1; with --scheduler, as many as its workers have"
        " threads]"
    ),
)
@options.SCHEDULER
@options.RESOURCES
@click.option(
    "--refingerprint",
    is_flag=True,
    help="Recompute all fingerprints with the rules of this version of opsieve.",
)
@click.option("--dry-run", is_flag=True, help="With --refingerprint: only print what would move.")
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
@options.JSON
def command(
    place: Path | None,
    folder: Path,
    logs: Path | None,
    attribute: bool,
    reduce_: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Rank the clusters of STORE, match them with the rules of known bugs, and merge the results of reduce
    and bisect.

    STORE defaults to --store; the rules are the files in STORE/known. Decisions are never changed. Exit code
    2 if a rule is invalid.
    """
    if logs is not None:
        return _cluster_logs(logs, as_json)
    from opsieve.reducer.sessions.triage_session import TriageRequest, triage_store

    request = TriageRequest(place or folder, reduce=reduce_, **given)
    if attribute:
        from opsieve.bisect.sessions.store_attribution import attribute_store

        attribute_store(request.store, request.budget, request.offline, output.print_message)
    answer = triage_store(request, output.print_message, lambda _: None)
    facts = answer.facts
    for problem in [*answer.unread[:_PROBLEMS], *facts.get("problems", ())]:
        output.print_message(f"{single_line(problem)}.")
    # A dry run ranks nothing.
    if answer.clusters is None:
        _print_moves(facts["moves"], as_json)
        return 0
    if as_json:
        click.echo(json.dumps(facts))
    else:
        if facts.get("moves"):
            _print_moves(facts["moves"], as_json)
        click.echo(_write_summary(facts))
        output.print_clusters(answer.clusters.rows)
        if answer.clusters.next:
            more = answer.clusters.total - len(answer.clusters.rows)
            where = single_line(facts["store"])
            click.echo(f"  and {more:,} more: opsieve clusters --store {where}")
    # A rule that cannot be read would let known bugs pass for new ones.
    return 2 if facts["problems"] else 0


def _print_moves(moves: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"moves": moves}))
        return
    for move in moves:
        if move["cluster"] != move["to_cluster"]:
            for indent, line in _list_move(move):
                click.echo(" " * indent + single_line(line))
    total = sum(move["failures"] for move in moves)
    away = sum(move["failures"] for move in moves if move["cluster"] != move["to_cluster"])
    stay = total - away
    click.echo(
        f"{count_noun(total, 'kept failure')} with a new fingerprint: {stay:,}"
        f" {'stays' if stay == 1 else 'stay'} in the same cluster, {away:,}"
        f" {'moves' if away == 1 else 'move'} to another"
    )


def _list_move(move: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """List a move with its reason, and its components before and after: lines, each with its indent."""
    to = f"{move['to_cluster']} ({move['to_title'][:_TITLE]})" if move["to_title"] else "a new cluster"
    yield 0, f"{move['failures']} of {move['cluster']} ({move['title'][:_TITLE]}) to {to}: {move['reason']}"
    if not move["differences"]:
        yield 4, "same components, new version of the rules"
    for part in move["differences"]:
        name = part["name"]
        if not part["after"]:
            yield 4, f"{name} no longer counts: {part['before']}"
        elif not part["before"]:
            yield 4, f"{name} counts now: {part['after']}"
        else:
            yield 4, f"{name} was {part['before']}"
            yield 6 + len(name), f"is {part['after']}"


def _write_summary(summary: dict[str, Any]) -> str:
    kinds = ", ".join(
        f"{count:,} {kind} in {summary['clusters_by_kind'][kind]:,}"
        for kind, count in summary["failures_by_kind"].items()
    )
    status = ", ".join(f"{count:,} {name}" for name, count in summary["by_status"].items())
    apart = summary["non_bugs"][:_APART]
    lines = [
        (
            f"{count_noun(summary['failures'], 'failure')} of {count_noun(summary['tests'], 'test')} in"
            f" {count_noun(summary['clusters'], 'cluster')}: {kinds or 'none'}"
        ),
        f"clusters: {status or 'none'}",
        (
            f"not bugs: {summary['unsupported']:,} unsupported, {summary['environment']:,} environment,"
            f" {summary['flaky']:,} flaky"
        ),
    ]
    lines += [
        f"  {entry['count']:,} {entry['verdict']}: {entry['target']}: {single_line(entry['what'])[:90]}"
        for entry in apart
    ]
    if len(summary["non_bugs"]) > len(apart):
        lines.append("  ... (opsieve clusters --non-bugs)")
    if summary["rules"]:
        lines.append(
            f"known-bug rules match {count_noun(summary['explained'], 'failure')}; {summary['unexplained']:,}"
            " unmatched"
        )
        lines += [
            f"  {rule['count']:,} {rule['name']}: {single_line(rule['title'])[:90]}"
            for rule in summary["rules"]
        ]
    return "\n".join(lines)


def _cluster_logs(path: Path, as_json: bool) -> int:
    """Assign every record of a log without models to a cluster."""
    from opsieve.triage.external.external_logs import read_and_cluster

    found = read_and_cluster(path)
    for number, why in found.skipped[:20]:
        output.print_message(f"record {number} skipped: {single_line(why)}.")
    if as_json:
        summary = {
            "assignments": [asdict(one) for one in found.assignments],
            "skipped": [{"number": number, "why": why} for number, why in found.skipped],
        }
        click.echo(json.dumps(summary))
        return 0
    found_in: dict[str, tuple[int, str, str, str]] = {}
    for one in found.assignments:
        count = found_in[one.cluster][0] if one.cluster in found_in else 0
        # A cluster's name is the compiler, the kind and a digest.
        found_in[one.cluster] = (
            count + 1,
            one.kind,
            one.cluster.partition(f"-{one.kind}-")[0],
            one.title,
        )
    rows = sorted(found_in.values(), key=lambda row: (-row[0], row[3]))
    output.print_table(("failures", "kind", "compiler", "title"), rows, right=("failures",), wide="title")
    click.echo(
        f"{count_noun(len(found.assignments), 'failure')} in {count_noun(len(rows), 'cluster')};"
        f" {count_noun(len(found.skipped), 'record')} skipped"
    )
    return 0
