"""The first screen without a store: how to make one."""

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from opsieve.gen.model.printable import quote_argument
from opsieve.tui.app.widgets import screens, visible

# The store of commands without --store
DEFAULT = Path("opsieve-store")
# The longest command, in characters, that leaves room beside it.
_BESIDE = 36


class WelcomeScreen(screens.SteadyScreen[None]):
    """Three commands; or a problem, and the command that solves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "app.demo", "Open the samples"),
        Binding("o", "app.reopen", "Look again"),
        Binding("q,escape", "app.leave", "Quit"),
    ]

    def __init__(self, folder: Path, problem: str = "") -> None:
        super().__init__()
        self._folder, self._problem = folder, problem

    def compose(self) -> ComposeResult:
        """Make the text."""
        yield screens.LinesView(wrap=True, id="welcome")
        yield screens.KeyFooter()

    def on_mount(self) -> None:
        """Show the text."""
        self.query_one("#welcome", screens.LinesView).show_lines(list_welcome(self._folder, self._problem))
        self.query_one("#welcome").focus()


def list_welcome(folder: Path, problem: str) -> list[visible.Line]:
    """List the text of the first screen."""
    name = visible.to_one_line(str(folder), 200)
    commands: tuple[tuple[str, str], ...]
    head: list[visible.Line] = [
        (),
        (("  opsieve", "accent"), ("  find, triage and reduce bugs of deep-learning compilers", "")),
    ]
    own = "" if folder == DEFAULT else f" --store {visible.to_one_line(quote_argument(str(folder)), 400)}"
    if problem:
        head += [(), ((f"  {visible.to_one_line(problem, 600)}", "bad"),)]
        # Only the index can be rebuilt, from the cases; nothing helps against a store of a newer version.
        commands = ((f"opsieve index{own}", "build it anew"),) if "damaged" in problem else ()
    else:
        head += [(), ((f"  There is no store {name} yet. A campaign makes one:", ""),)]
        commands = (
            (f"opsieve fuzz --minutes 5{own}", "make programs, run them, keep what fails"),
            (f"opsieve triage{own}", "rank what was found"),
            (f"opsieve tui{own}", "come back here, while a campaign runs, too"),
        )
    found: list[visible.Line] = [*head, ()]
    width = max((len(command) for command, _ in commands), default=0)
    for command, what in commands:
        if width > _BESIDE:
            found += [((f"    {command}", "strong"),), ((f"        {what}", "dim"),)]
        else:
            found += [((f"    {command:{width}}  ", "strong"), (what, "dim"))]
    found += [
        (),
        (("  Another store: ", ""), ("opsieve tui --store DIR", "strong")),
        (
            ("  Nothing to try it on?  ", ""),
            ("d", "accent"),
            (" opens the samples: real failures of nine compilers.", ""),
        ),
    ]
    return found
