"""`opsieve tui`: open the terminal app on a store."""

from contextlib import ExitStack
from functools import cache
from pathlib import Path

import click

from opsieve.gen.errors import BadInput
from opsieve.tui.commands import options


@click.command("tui")
@click.argument("place", metavar="[STORE]", type=click.Path(path_type=Path), required=False)
@options.STORE
@click.option("--demo", is_flag=True, help="Open a store of sample failures.")
@click.option(
    "--theme",
    default="",
    help=(
        "Colour theme: textual-dark, textual-light, no-colour, ansi-dark, nord, ...  [default: textual-dark]"
    ),
)
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
def command(place: Path | None, folder: Path, demo: bool, theme: str, offline: bool) -> int:
    """Triage STORE in the terminal, even while a campaign writes to it. Press ? for the keys.

    STORE defaults to --store. NO_COLOR in the environment disables colour. --demo works on a temporary copy.
    """
    import sys

    from opsieve.gen.model.scratch import Scratch
    from opsieve.tui.app.app import OpsieveApp
    from opsieve.tui.app.services.demo_store import make_demo
    from opsieve.tui.app.themes import DARK

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(
            "opsieve tui needs a terminal; opsieve clusters and opsieve show do the same without one"
        )
    with ExitStack() as stack:
        # Once: the key `d` in the app asks for it again.
        @cache
        def demo_store() -> Path:
            return make_demo(stack.enter_context(Scratch("demo")) / "samples")

        chosen = demo_store() if demo else place or folder
        app = OpsieveApp(chosen, theme=theme or DARK, offline=offline, demo=demo_store)
        app.run()
    if app.fatal is not None:
        # Here and not in the app: the terminal has been restored by now.
        raise app.fatal
    return app.return_code or 0
