"""Commands that set opsieve up: `init` writes a commented `opsieve.toml` into the working directory,
`completion` prints the script that completes commands in a shell, `index` rebuilds the index of a store, and
`sample` lists and copies the failing models that come with opsieve.
"""

import json
import os
import shutil
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.model.durable import write_output
from opsieve.gen.model.files import reason
from opsieve.gen.model.printable import count_noun
from opsieve.tui.cli import opsieve
from opsieve.tui.commands import options
from opsieve.tui.commands.output import print_message, print_table
from opsieve.tui.samples import SAMPLES
from opsieve.tui.settings import FILE

_TEXT = """\
# Defaults of opsieve's options in this directory. An option of the command line comes first, then a variable
# of the
# environment (OPSIEVE_TARGETS, OPSIEVE_DEFAULT_STORE, OPSIEVE_SECONDS, OPSIEVE_MEMORY, OPSIEVE_JOBS,
# OPSIEVE_OFFLINE), then the
# section of a command, then the keys at the top. A key is the name of an option: opsieve COMMAND --help lists
# them.

# Compilers that run and fuzz ask: backend[==release | @path][:option,...]. opsieve doctor lists what is
# installed; a build
# (onnxruntime@build/Release) runs after a yes.
{targets}

# Store of fuzz and of every command that triages.
{store}

# Limits of one run of a compiler: seconds of wall time, MiB of memory.
# seconds = 20
# memory = 4096

# Parallel workers.
# jobs = 2

# Never install a release.
# offline = true

[fuzz]
# minutes = 10
# strategy = "mix"
# nodes = "5-30"
# auto-triage = "20%"

[run]
# values = "search"

[reduce]
# same = "fingerprint"

[corpus.run]
# fail-on = "new"
"""


@click.command("init")
@click.option(
    "-t",
    "--target",
    "targets",
    metavar="TARGET",
    multiple=True,
    help="Default target of run and fuzz; repeatable.",
)
@click.option("--store", default="", metavar="PATH", help="Store directory.")
@options.JSON
def command(targets: tuple[str, ...], store: str, as_json: bool) -> int:
    """Write a commented opsieve.toml into the working directory: default targets, limits and store.

    An existing file stays as it is.
    """
    from opsieve.backends.registry import resolve

    # Checked now: a wrong name in the file would break every later command.
    for text in targets:
        resolve(text)
    named = f"targets = {json.dumps(targets)}" if targets else '# targets = ["onnxruntime", "tvm"]'
    place = f"store = {json.dumps(store)}" if store else '# store = "opsieve-store"'
    if os.path.lexists(FILE):
        raise BadInput(f"{FILE} is here already; edit it, or move it away")
    write_output(Path(FILE), _TEXT.format(targets=named, store=place))
    click.echo(
        json.dumps({"output": FILE}) if as_json else f"{FILE} written; its comments say what can be set"
    )
    return 0


_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> int:
    """Print the completion script of `opsieve` and `reduce` for SHELL.

    \b
    bash, in ~/.bashrc:  eval "$(opsieve completion bash)"
    zsh, in ~/.zshrc:    eval "$(opsieve completion zsh)"
    fish:                opsieve completion fish > ~/.config/fish/completions/opsieve.fish
    """
    from opsieve.tui.commands.examine.reduce_command import command as reduce

    script = get_completion_class(shell)
    assert script is not None
    for program, name in ((opsieve, "opsieve"), (reduce, "reduce")):
        click.echo(script(program, {}, name, f"_{name.upper()}_COMPLETE").source())
    return 0


@click.command("index")
@options.STORE
@options.JSON
def index(folder: Path, as_json: bool) -> int:
    """Add case directories that are missing from the index of the store; rebuild a damaged index.

    A rebuilt index lacks the progress of campaigns and the failures that were only counted.
    """
    from opsieve.triage.store.index.index_file import move_damaged
    from opsieve.triage.store.store import Store

    # Else a mistyped path would become a new, empty store.
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


_FILES = ("model.onnx", "module.json", "module.py", "passes.json", "case.json", "test_data_set_0")


def _complete_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _read_samples() if name.startswith(begun)]


@click.command("sample")
@click.argument("name", required=False, shell_complete=_complete_names)
@click.option("-o", "--output", type=options.PATH, help="Directory to create.  [default: NAME]")
@options.JSON
def sample(name: str | None, output: Path | None, as_json: bool) -> int:
    """Copy the sample NAME, a small model that fails on a released compiler, as a case directory; without
    NAME list the samples.
    """

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
    # A case in a folder with other files would mix with them.
    if folder.exists():
        raise BadInput(f"{shown(folder, 200)} exists: name another directory with --output")
    try:
        folder.mkdir(parents=True)
        for file in _FILES:
            source = SAMPLES / name / file
            if source.is_dir():
                shutil.copytree(source, folder / file)
            elif source.exists():
                shutil.copyfile(source, folder / file)
    except OSError as error:
        # A part of a case would be refused by the next call.
        shutil.rmtree(folder, ignore_errors=True)
        raise BadInput(f"cannot write {shown(folder, 200)}: {reason(error)}") from None
    facts = {"sample": name, **samples[name], "output": str(folder)}
    click.echo(
        json.dumps(facts) if as_json else f"{folder}  fails on {facts['fails']}, passes on {facts['passes']}"
    )
    return 0


def _read_samples() -> dict[str, dict[str, str]]:
    """Return `fails`, `passes` and `what` of each bug of the collection, by name."""
    from opsieve.triage.corpus.corpus_file import read_bugs

    return {
        name: {"fails": bug.fails, "passes": bug.passes, "what": bug.what}
        for name, (_, bug) in read_bugs(SAMPLES).items()
    }
