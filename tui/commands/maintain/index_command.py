"""`opsieve index`: the index of a store rebuilt from its case directories."""

import json
from pathlib import Path

import click

from opsieve.gen.model.printable import counted
from opsieve.tui.commands import options
from opsieve.tui.commands.text import say


@click.command("index")
@options.STORE
@options.JSON
def command(folder: Path, as_json: bool) -> int:
    """Add case directories that the index of the store does not know; a damaged index is set aside and
    rebuilt.

    A rebuilt index lacks what case directories do not hold: the progress of campaigns, and failures that were
    only counted.
    """
    from opsieve.gen.errors import BadInput
    from opsieve.triage.store.index.index_file import set_aside
    from opsieve.triage.store.store import Store

    if not (folder / "cases").is_dir():
        raise BadInput(f"{folder} is not a store: it has no directory named cases")
    aside = set_aside(folder)
    with Store(folder) as store:
        added, problems = store.adopt()
        failures, fingerprints = store.many(), store.fingerprints()
        summary = {
            "added": added,
            "failures": failures,
            "fingerprints": fingerprints,
            "problems": problems,
            "set_aside": str(aside or ""),
            "store": str(folder),
        }
    for problem in problems:
        say(f"{problem}.")
    if aside:
        say(f"the damaged index was moved to {aside}")
    click.echo(
        json.dumps(summary)
        if as_json
        else (
            f"{counted(added, 'failure')} added; {counted(failures, 'failure')} with"
            f" {counted(fingerprints, 'fingerprint')} in all"
        )
    )
    return 0
