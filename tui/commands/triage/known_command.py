"""`opsieve known`: compare clusters with public issues."""

import json
from pathlib import Path

import click

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun, single_line
from opsieve.tui.commands import options, output


@click.group("known")
def command() -> None:
    """Compare clusters with exported public issues, to tell which bugs are known.

    Hand-written rules (STORE/known/*.toml) mark bugs as known for certain; see docs/how-to/triage.md.
    """


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=options.PATH, metavar="FILES...")
@click.option(
    "--repo", "repository", default="", metavar="OWNER/NAME", help="Repository of entries without a url."
)
@options.STORE
@options.JSON
def import_(files: tuple[Path, ...], repository: str, folder: Path, as_json: bool) -> int:
    """Add the issues of FILES to the store and compare them with its clusters.

    A broken file adds nothing and costs no other one: exit code 2, with a sentence for each.

    A file holds the output of `gh issue list --state all --limit 5000 --json
    number,title,body,url,state,comments`, or answers of GitHub's REST interface. The command uses no network.
    """
    from opsieve.triage.known.issues import add_issues, read_export
    from opsieve.triage.review.review import run_triage
    from opsieve.triage.rules.rules import FOLDER
    from opsieve.triage.store.queries import Queries, upgrade_index

    upgrade_index(folder)
    exports, problems = [], []
    for path in files:
        try:
            exports.append(read_export(path, repository))
        except BadInput as error:
            problems.append(str(error))
    if not exports:
        raise BadInput("; ".join(problems))
    sizes = add_issues(folder / FOLDER, (issue for export in exports for issue in export.issues))
    done = run_triage(folder)
    with Queries(folder) as store:
        rows = store.clusters("is:probable", limit=1000).rows
    found = [
        {"cluster": row.id, "title": row.title, "issues": [each.name for each in row.probably]}
        for row in rows
    ]
    imported, skipped = (
        sum(len(export.issues) for export in exports),
        sum(export.skipped for export in exports),
    )
    for problem in (*problems, *done.round.problems):
        output.print_message(f"{single_line(problem).rstrip('.')}.")
    if as_json:
        click.echo(
            json.dumps(
                {
                    "imported": imported,
                    "skipped": skipped,
                    "problems": problems,
                    "repositories": sizes,
                    "probably": found,
                    "store": str(folder),
                }
            )
        )
        return 2 * bool(problems)
    others = f", {count_noun(skipped, 'entry')} passed over" if skipped else ""
    click.echo(
        f"{count_noun(imported, 'issue')} imported{others}; the store has "
        + ", ".join(f"{size:,} of {single_line(repository)}" for repository, size in sizes.items())
    )
    for row in rows:
        click.echo(
            single_line(
                f"{row.id} is probably {row.probably[0].name}: {'; '.join(row.probably[0].reasons)[:200]}"
            )
        )
    click.echo(f"{count_noun(len(rows), 'cluster')} with a probable issue: opsieve show CLUSTER shows why")
    return 2 * bool(problems)
