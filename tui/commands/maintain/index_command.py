"""`opsieve index`: rebuild the index of a store from its case directories."""

import json
from pathlib import Path

import click

from opsieve.gen.model.printable import count_noun
from opsieve.tui.commands import options
from opsieve.tui.commands.text import print_message


@click.command("index")
@options.STORE
@options.JSON
def command(folder: Path, as_json: bool) -> int:
    """Add case directories that are missing from the index of the store; rebuild a damaged index.

    A rebuilt index lacks the progress of campaigns and the failures that were only counted.
    """
    from opsieve.gen.errors import BadInput
    from opsieve.triage.store.index.index_file import move_damaged
    from opsieve.triage.store.store import Store

    if not (folder / "cases").is_dir():
        raise BadInput(f"{folder} is not a store: it has no directory named cases")
    aside = move_damaged(folder)
    with Store(folder) as store:
        added, problems = store.adopt_cases()
        failures, fingerprints = store.count_all_failures(), store.count_all_fingerprints()
        summary = {
            "added": added,
            "failures": failures,
            "fingerprints": fingerprints,
            "problems": problems,
            "set_aside": str(aside or ""),
            "store": str(folder),
        }
    for problem in problems:
        print_message(f"{problem}.")
    if aside:
        print_message(f"the damaged index was moved to {aside}")
    click.echo(
        json.dumps(summary)
        if as_json
        else (
            f"{count_noun(added, 'failure')} added; {count_noun(failures, 'failure')} with"
            f" {count_noun(fingerprints, 'fingerprint')} in all"
        )
    )
    return 0
