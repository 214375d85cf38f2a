"""`opsieve sample`: list and copy the failing models that come with opsieve."""

import json
import shutil
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from opsieve.tui.commands import options
from opsieve.tui.commands.triage.store_table import print_table
from opsieve.tui.samples import SAMPLES

_FILES = ("model.onnx", "module.json", "module.py", "passes.json", "case.json", "test_data_set_0")


def _complete_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _read_samples() if name.startswith(begun)]


@click.command("sample")
@click.argument("name", required=False, shell_complete=_complete_names)
@click.option("-o", "--output", type=options.PATH, help="Directory to create.  [default: NAME]")
@options.JSON
def command(name: str | None, output: Path | None, as_json: bool) -> int:
    """Copy the sample NAME, a small model that fails on a released compiler, as a case directory; without
    NAME list the samples.
    """
    from opsieve.gen.errors import BadInput, shown, suggest_name

    samples = _read_samples()
    if name is None:
        if as_json:
            click.echo(json.dumps({"samples": [{"name": name, **facts} for name, facts in samples.items()]}))
        else:
            print_table(
                ("sample", "fails on", "what"),
                [(n, f["fails"], f["what"]) for n, f in samples.items()],
                wide="what",
            )
        return 0
    if name not in samples:
        raise BadInput(
            f"there is no sample {shown(name, 80)}: opsieve sample lists them{suggest_name(name, samples)}"
        )
    folder = output or Path(name)
    if folder.exists():
        raise BadInput(f"{shown(folder, 200)} exists: name another directory with --output")
    folder.mkdir(parents=True)
    for file in _FILES:
        source = SAMPLES / name / file
        if source.is_dir():
            shutil.copytree(source, folder / file)
        elif source.exists():
            shutil.copyfile(source, folder / file)
    facts = {"sample": name, **samples[name], "output": str(folder)}
    click.echo(
        json.dumps(facts) if as_json else f"{folder}  fails on {facts['fails']}, passes on {facts['passes']}"
    )
    return 0


def _read_samples() -> dict[str, dict[str, str]]:
    """Return `fails`, `passes` and `what` of each bug of the collection, by name."""
    from opsieve.triage.corpus.collection import read_bugs

    return {
        name: {"fails": bug.fails, "passes": bug.passes, "what": bug.what}
        for name, (_, bug) in read_bugs(SAMPLES).items()
    }
