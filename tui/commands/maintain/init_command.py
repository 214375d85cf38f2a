"""`opsieve init`: write a commented `opsieve.toml` into the working directory."""

import json
from pathlib import Path

import click

from opsieve.gen.errors import BadInput
from opsieve.tui.commands import options
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

    for text in targets:
        resolve(text)
    named = f"targets = {json.dumps(targets)}" if targets else '# targets = ["onnxruntime", "tvm"]'
    place = f"store = {json.dumps(store)}" if store else '# store = "opsieve-store"'
    try:
        with Path(FILE).open("x", encoding="utf-8") as file:
            file.write(_TEXT.format(targets=named, store=place))
    except FileExistsError:
        raise BadInput(f"{FILE} is here already; edit it, or move it away") from None
    click.echo(
        json.dumps({"output": FILE}) if as_json else f"{FILE} written; its comments say what can be set"
    )
    return 0
