"""`opsieve tui`: the terminal app on a store."""

from contextlib import ExitStack
from functools import cache
from pathlib import Path

import click

from opsieve.tui.commands.store_table import STORE


@click.command("tui")
@click.argument("place", metavar="[STORE]", type=click.Path(path_type=Path), required=False)
@STORE
@click.option("--demo", is_flag=True, help="Open the samples: real failures, as they were observed.")
@click.option("--theme", default="", help="textual-dark, textual-light, no-colour, ansi-dark, ansi-light, nord, ...")
@click.option("--offline", is_flag=True, help="Install no release for jobs; use those that are there.")
def command(place: Path | None, folder: Path, demo: bool, theme: str, offline: bool) -> int:
    """Triage a STORE without leaving the keyboard; a campaign may write it at the same time. Press ? for the keys.

    NO_COLOR in the environment takes all colour away. --demo works on a copy that is removed at the end.
    """
    import sys

    from opsieve.gen.model.bad_input import BadInput
    from opsieve.gen.model.scratch import Scratch
    from opsieve.tui.app.app import OpsieveApp
    from opsieve.tui.app.services.demo_store import make_demo
    from opsieve.tui.app.themes import DARK

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("opsieve tui needs a terminal; opsieve clusters and opsieve show do the same without one")
    with ExitStack() as stack:

        @cache
        def demo_store() -> Path:
            return make_demo(stack.enter_context(Scratch("demo")) / "samples")

        chosen = demo_store() if demo else place or folder
        app = OpsieveApp(chosen, theme=theme or DARK, offline=offline, demo=demo_store)
        app.run()
    return app.return_code or 0
