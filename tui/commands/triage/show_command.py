"""`opsieve clusters`: list the bugs of a store, a page at a time; and `opsieve show`: show one cluster, or
one case, and the reason for its place.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.backends.verdict import reword_oracles
from opsieve.gen.errors import shown
from opsieve.gen.model.printable import count_noun, single_line
from opsieve.triage.fingerprint.component import Component, encode_component
from opsieve.tui.app.widgets.visible import format_time
from opsieve.tui.commands import completions, options, output

if TYPE_CHECKING:
    from opsieve.triage.store.queries import Queries
    from opsieve.triage.store.rows import ClusterGroup, FingerprintRow, NonBugRow


_MEMBERS = 10

# Characters of a fact: an index of a stranger may hold any number
_LONGEST = 4000


@click.command("show")
@click.argument("name", metavar="CLUSTER|CASE", shell_complete=completions.complete_cases)
@options.STORE
@click.option(
    "--why", is_flag=True, help="Explain the fingerprint: each component, whether it counts, and why."
)
@click.option(
    "-n",
    "--members",
    "limit",
    type=click.IntRange(1, 1000),
    default=_MEMBERS,
    show_default=True,
    help="Members to list.",
)
@click.option("--after", default="", help="Continue after this cursor (`next` of the previous page).")
@options.JSON
def command(name: str, folder: Path, why: bool, limit: int, after: str, as_json: bool) -> int:
    """Show a cluster (c17, or a fingerprint) with its members, related clusters and history, or a case (its
    directory, or CAMPAIGN:TEST:TARGET).
    """
    from opsieve.triage.store.queries import Queries

    with Queries(folder) as store:
        # No id of a cluster and no fingerprint has these.
        if "/" in name or ":" in name:
            details = store.case(name)
            if as_json:
                click.echo(
                    json.dumps(
                        {
                            **asdict(details.member),
                            "name": details.member.name,
                            "cluster": details.cluster,
                            "case": str(details.folder or ""),
                            "reduced_case": str(details.reduced or ""),
                            "components": [encode_component(part) for part in details.components],
                            "problem": details.problem,
                            "commits": [asdict(commit) for commit in details.commits],
                        }
                    )
                )
            else:
                member = details.member
                click.echo(click.style(f"{member.name}  {details.cluster}", bold=True))
                _print_facts(
                    ("verdict", f"{member.verdict}: {reword_oracles(member.reason, member.target)}"),
                    ("kind", f"{member.kind} at {member.stage}" if member.stage else member.kind),
                    ("target", f"{member.target} {member.version}"),
                    ("message", member.message[:600]),
                    ("blame", member.blame),
                    ("fingerprint", member.fingerprint),
                    (
                        "nodes",
                        str(member.nodes)
                        if member.reduced is None
                        else f"{member.reduced} of {member.nodes}",
                    ),
                    ("operators", " ".join(member.operators)),
                    ("commits", "; ".join(map(str, details.commits))),
                    ("seen", format_time(member.seen)),
                    ("case", str(details.folder or "")),
                    ("reduced", str(details.reduced or "")),
                    (
                        "observed",
                        details.problem
                        or ", ".join(f"{seen.target}: {seen.outcome}" for seen in details.observations),
                    ),
                )
                if why:
                    click.echo()
                    print_components(details.components)
            return 0
        summary, fingerprints = _list_cluster_facts(store, name, limit, after)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        _print_cluster(summary, fingerprints, why)
    return 0


def _list_cluster_facts(
    store: "Queries", name: str, limit: int, after: str
) -> tuple[dict[str, Any], "Sequence[FingerprintRow]"]:

    row, fingerprints = store.cluster(name), store.fingerprints(name)
    members = store.members(name, limit=limit, after=after)
    summary = {
        **output.list_cluster_facts(row),
        "prints": [
            {**asdict(each), "components": [encode_component(part) for part in each.components]}
            for each in fingerprints
        ],
        "cases": [{**asdict(member), "name": member.name} for member in members.rows],
        "next": members.next,
        "related": [
            {"id": each.cluster.id, "title": each.cluster.title, "score": each.score, "reason": each.reason}
            for each in store.related(name)
        ],
        "history": [asdict(decision) for decision in store.history(name, 20)],
    }
    return summary, fingerprints


def _print_cluster(summary: dict[str, Any], fingerprints: "Sequence[FingerprintRow]", why: bool) -> None:
    click.echo(click.style(f"{summary['id']}  {single_line(summary['title'])[:_LONGEST]}", bold=True))
    smallest = (
        f"{count_noun(summary['reduced'], 'node')}, reduced"
        if summary["reduced"] is not None
        else count_noun(summary["nodes"], "node")
    )
    rule = f" (rule {summary['rule']})" if summary["rule"] else ""
    _print_facts(
        ("status", f"{summary['status']}{rule}{', pinned' if summary['pinned'] else ''} {summary['issue']}"),
        ("kind", f"{summary['kind']} at {summary['stage']}" if summary["stage"] else summary["kind"]),
        ("failures", f"{summary['members']:,} with {count_noun(summary['fingerprints'], 'fingerprint')}"),
        (
            "seen",
            " to ".join(dict.fromkeys(format_time(summary[f"{end}_seen"]) for end in ("first", "last"))),
        ),
        ("targets", ", ".join(summary["targets"])),
        ("smallest", f"{smallest}: {' '.join(summary['operators'])}"),
        ("guilty pass", summary["guilty_pass"]),
        ("first bad", summary["first_bad"]),
        ("note", summary["note"]),
    )
    for each in summary["probably"]:
        state = f" ({each['state']})" if each["state"] else ""
        click.echo(single_line(f"  probably     {each['name']}{state}: {each['title'][:120]}"))
        click.echo(single_line(f"               {'; '.join(each['reasons'])[:_LONGEST]}"))
        click.echo(single_line(f"               {each['url']}"))
    for each in fingerprints:
        click.echo(f"\n{each.key}  {count_noun(each.count, 'failure')}; {single_line(each.why)}")
        if why:
            print_components(each.components)
    click.echo()
    output.print_table(
        ("member", "nodes", "target", "version"),
        [
            (
                case["name"],
                case["nodes"] if case["reduced"] is None else f"{case['reduced']} of {case['nodes']}",
                case["target"],
                case["version"],
            )
            for case in summary["cases"]
        ],
        right=("nodes",),
        wide="member",
    )
    if summary["members"] > len(summary["cases"]):
        more = f"; more with --after '{summary['next']}'" if summary["next"] else ""
        click.echo(f"{len(summary['cases'])} of {count_noun(summary['members'], 'member')}{more}")
    for each in summary["related"]:
        click.echo(
            single_line(f"similar to {each['id']} ({each['score']}): {each['title'][:80]}; {each['reason']}")
        )
    for decision in summary["history"]:
        undone = "" if decision["state"] == "done" else f" ({decision['state']})"
        click.echo(f"{format_time(decision['at'])}  {single_line(decision['text'])}{undone}")


def print_components(components: "Sequence[Component]") -> None:
    """Print every component of a fingerprint: whether it counts, and why."""
    rows = [("+" if part.kept else "-", part.name, part.value, part.hint) for part in components]
    for sign, name, value, hint in rows:
        click.echo(f"  {sign} {name:12} {single_line(value)[:200]}")
        click.echo(
            click.style(
                f"      {'counts' if sign == '+' else 'does not count'}: {single_line(hint)}", dim=True
            )
        )


def _print_facts(*facts: tuple[str, str]) -> None:
    for name, value in facts:
        if value.strip():
            click.echo(f"  {name:12} {single_line(value)[:_LONGEST]}")


# As in the store, repeated so that --help needs no import of it.
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
def clusters(
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
    # Outcomes that are no bugs are in no cluster, and a filter would silently do nothing.
    if text and (non_bugs or non_bugs_once):
        raise click.UsageError("a filter selects clusters, so it cannot be used with --non-bugs")
    # `triage`, `report` and `tui` take the store as an argument, `clusters` its filter.
    if words and (Path(words[0]) / "index.sqlite").is_file():
        raise click.UsageError(f"{shown(words[0])} is a store, not a filter: name it with --store")
    with Queries(folder) as store:
        store.check_filter(text)
        if by is not None:
            _print_groups(by, store.groups(by, text), as_json)  # type: ignore[arg-type]
            return 0
        if non_bugs or non_bugs_once:
            _print_non_bugs(store.non_bugs(), as_json)
            return 0
        page = store.clusters(
            text,
            sort=sort,  # type: ignore[arg-type]
            reverse=reverse,
            after=after,
            limit=limit,
        )
        counts = store.counts()
    if as_json:
        names = ("failures", "unsupported", "environment", "flaky", "unexplained")
        facts = {
            "clusters": [output.list_cluster_facts(row) for row in page.rows],
            "total": page.total,
            "next": page.next,
        }
        facts |= {name: getattr(counts, name) for name in names} | {"store": str(folder)}
        click.echo(json.dumps(facts))
        return 0
    output.print_clusters(page.rows)
    click.echo(
        f"{len(page.rows)} of {count_noun(page.total, 'cluster')},"
        f" {count_noun(counts.failures, 'failure')}; not"
        f" bugs: {counts.unsupported:,} unsupported, {counts.environment:,} environment, {counts.flaky:,}"
        " flaky"
    )
    if page.next:
        output.print_message(f"more with --after '{page.next}'")
    return 0


def _print_groups(by: str, groups: "Sequence[ClusterGroup]", as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"groups": [asdict(group) for group in groups]}))
        return
    rows = [(group.clusters, group.members, group.value or "(none)") for group in groups]
    output.print_table(("clusters", "failures", by), rows, right=("clusters", "failures"), wide=by)


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
    output.print_table(("tests", "verdict", "target", "what"), rows, right=("tests",), wide="what")
