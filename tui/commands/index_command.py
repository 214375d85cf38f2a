"""`opsieve index`: the index of a store built anew from its case folders."""

import json
from pathlib import Path

import click


@click.command("index")
@click.option("--store", "folder", type=click.Path(path_type=Path), default=Path("opsieve-store"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> int:
    """Enter case folders that the store's index does not know; a damaged index is set aside and built anew.

    What folders cannot tell is lost with a damaged index: how far campaigns were, and failures that were counted and not kept.
    """
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.triage.store.index_file import set_aside
    from opsieve.triage.store.store import Store

    if not (folder / "cases").is_dir():
        raise BadInput(f"{folder} is no store: it has no folder cases")
    aside = set_aside(folder)
    with Store(folder) as store:
        added, problems = store.adopt()
        summary = {
            "added": added,
            "failures": store.many(),
            "fingerprints": store.fingerprints(),
            "problems": problems,
            "set_aside": str(aside or ""),
            "store": str(folder),
        }
    for problem in problems:
        click.echo(f"opsieve: {problem}.", err=True)
    if aside:
        click.echo(f"opsieve: the damaged index lies in {aside}.", err=True)
    click.echo(
        json.dumps(summary)
        if as_json
        else f"{added} failures added; {summary['failures']} of {summary['fingerprints']} fingerprints in all"
    )
    return 0
