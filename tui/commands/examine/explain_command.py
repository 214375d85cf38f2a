"""`opsieve explain`: the meaning of a verdict, a rule or a fingerprint."""

import json
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.model.printable import printable
from opsieve.triage.fingerprint.component import encode_component
from opsieve.tui.commands import options
from opsieve.tui.commands.triage.show_command import print_components


def _complete_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from opsieve.backends.judge.oracle_names import read_explanations

    return [
        CompletionItem(each.name, help=each.text[:60])
        for each in read_explanations()
        if each.name.startswith(begun)
    ]


@click.command("explain")
@click.argument("name", metavar="RULE|VERDICT|FINGERPRINT", shell_complete=_complete_names)
@options.STORE
@options.JSON
def command(name: str, folder: Path, as_json: bool) -> int:
    """Explain a verdict, kind of failure, rule, hazard or oracle, or the components of a fingerprint or
    cluster.

    More: docs/explanation/oracles.md.
    """
    from opsieve.backends.judge.oracle_names import find_explanations, read_explanations
    from opsieve.triage.store.queries import Queries

    meanings = find_explanations(name)
    if meanings:
        if as_json:
            texts = [{"name": each.name, "what": each.what, "text": each.text} for each in meanings]
            click.echo(json.dumps({"name": name, "meanings": texts, "fingerprints": []}))
            return 0
        for each in meanings:
            click.echo(f"{click.style(each.name, bold=True)} ({each.what}): {each.text}")
        return 0
    try:
        with Queries(folder) as store:
            listed = store.fingerprints(name)
    except BadInput as error:
        hint = suggest_name(name, [each.name for each in read_explanations()])
        # without a store a fingerprint means nothing
        named = "; the fingerprints of a store are explained with --store DIR"
        where = hint or (f": {error}" if folder.is_dir() else named)
        raise BadInput(f"{shown(name)} is not a verdict, kind, rule, hazard or oracle{where}") from None
    # a cluster means all of its fingerprints
    chosen = [row for row in listed if row.key.endswith(name)] or listed
    if as_json:
        prints = [
            {
                "key": each.key,
                "why": each.why,
                "components": [encode_component(part) for part in each.components],
            }
            for each in chosen
        ]
        click.echo(json.dumps({"name": name, "meanings": [], "fingerprints": prints}))
        return 0
    for row in chosen:
        click.echo(f"{click.style(row.key, bold=True)}  {printable(row.why)}")
        print_components(row.components)
    return 0
