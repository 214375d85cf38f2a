"""What to do when there is no store yet."""

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from opsieve.tui.app.lines_view import LinesView
from opsieve.tui.app.visible import Line, one_line


class WelcomeScreen(Screen[None]):
    """Three commands, and what was wrong when something was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "app.demo", "Open the samples"),
        Binding("o", "app.reopen", "Look again"),
        Binding("q,escape", "app.leave", "Quit"),
    ]

    def __init__(self, folder: Path, problem: str = "") -> None:
        super().__init__()
        self._folder, self._problem = folder, problem

    def compose(self) -> ComposeResult:
        """All of it as text."""
        yield LinesView(wrap=True, id="welcome")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show it."""
        self.query_one("#welcome", LinesView).show(welcome_lines(self._folder, self._problem))
        self.query_one("#welcome").focus()


def welcome_lines(folder: Path, problem: str) -> list[Line]:
    """The text of the first screen."""
    name = one_line(str(folder), 200)
    head: list[Line] = [
        (),
        (("  opsieve", "accent"), ("  bugs of deep-learning compilers: found, told apart, made small", "")),
    ]
    if problem:
        head += [(), ((f"  {one_line(problem, 600)}", "bad"),)]
    else:
        head += [(), ((f"  There is no store {name} yet. A campaign makes one:", ""),)]
    commands = (
        ("opsieve fuzz --minutes 5", "make programs, run them on onnxruntime, keep what fails"),
        ("opsieve triage", "rank what was found, take up what reduce and bisect left"),
        ("opsieve tui", "come back here, also while a campaign runs"),
    )
    found: list[Line] = [*head, ()]
    for command, what in commands:
        found += [((f"    {command:30}", "strong"), (what, "dim"))]
    found += [
        (),
        (("  Another store: ", ""), ("opsieve tui --store DIR", "strong")),
        (
            ("  Nothing to try it on?  ", ""),
            ("d", "accent"),
            (" opens the samples: real failures of nine compilers, as they were observed.", ""),
        ),
    ]
    return found
