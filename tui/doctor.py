"""`opsieve doctor`: which compilers are here, what they accept, how to install the others."""

import json
import platform
import sys
from dataclasses import asdict

import click

from opsieve import __version__


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """Tell which compilers are installed, what they accept, and how to install the others.

    Every figure is measured: each backend is imported in a worker of its own and given small models.
    """
    from opsieve.backends import native
    from opsieve.backends.examination import examine
    from opsieve.backends.interpreters import find_interpreters
    from opsieve.backends.releases import ReleaseStore
    from opsieve.backends.workers import Workers

    with Workers() as workers:
        backends = examine(workers)
    pythons = [".".join(map(str, found.version)) for found in find_interpreters()]
    shim = native.shim()
    facts = {
        "opsieve": __version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "supported_platform": sys.platform == "linux" and platform.machine() == "x86_64",
        "pythons_for_releases": pythons,
        "release_store": str(ReleaseStore().root),
        "native_frames": shim is not None,
    }
    if as_json:
        click.echo(json.dumps({**facts, "backends": [asdict(item) for item in backends]}))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("backend", "version", "newest IR", "newest opset", "options (default first)", "cannot", box=None)
    for item in backends:
        options = "\n".join(f"{name}: {', '.join(legal) if legal else 'any'}" for name, legal in item.options.items())
        state = item.version or "[red]missing[/red]"
        numbers = [str(number or "-") for number in (item.newest_ir, item.newest_opset)]
        table.add_row(item.name, state, *numbers, escape(options), escape("; ".join(item.lacks)))
    console.print(table)
    for item in backends:
        if item.problem:
            console.print(f"\n{item.name} is not there: {escape(item.problem)}")
            if item.install:
                console.print(f"  install it with: {escape(item.install)}")
    console.print(
        f"\nPythons for old releases: {', '.join(pythons)}. Releases are kept in {escape(str(facts['release_store']))}."
    )
    frames = "whole, by a small C shim" if shim else f"partly: {native.reason()}"
    console.print(f"Native frames of a crash: {escape(frames)}.")
    if not facts["supported_platform"]:
        console.print("This platform is not supported: workers need Linux, releases and native frames Linux on x86-64.")
