"""Help: the keys of the screen beneath, and the syntax of the filter."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Static

from opsieve.tui.app.widgets import screens, visible

FILTER = (
    ("words", "beginnings of words of titles, messages, operators, notes, issues"),
    ("kind:crash,error", "one kind or the other"),
    ("op:Pad  target:tvm", "an operator of the smallest case; a target, or how it begins"),
    ("status:new  stage:compile", "how things stand; where it fails"),
    ("pass:Fusion  bad:1.20", "part of the guilty pass; of the first bad release"),
    ("since:2d", "seen in the last 30m, 12h, 2d, 1w"),
    ("is:pinned", "also is:reduced, is:known, is:probable, is:noted, is:merged"),
    ("-kind:crash", "a - before a field: not"),
)
NAMES = {
    "slash": "/",
    "question_mark": "?",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "escape": "esc",
}
# of no use here
TEXTUALS_OWN = (
    "screen.copy_text",
    "page_left",
    "page_right",
    "app.help_quit",
    "app.focus_previous",
)


class HelpScreen(screens.SteadyDialog[None]):
    """Every active key of the screen on which help was opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss", "Back")]

    def __init__(self, beneath: Screen[object], commands: Sequence[tuple[str, str]] = ()) -> None:
        """`commands` are the equivalent command lines of the actions on the screen's subject."""
        super().__init__()
        self._lines = list_help(beneath, commands)

    def compose(self) -> ComposeResult:
        """Make the list of keys, scrolled if it is long."""
        with Vertical(classes="dialog tall"):
            yield screens.LinesView(wrap=True, id="help")
            yield Static(
                "j k scroll · esc back · ctrl+p finds commands by name", classes="hint", markup=False
            )

    def on_mount(self) -> None:
        """Show the keys."""
        self.query_one("#help", screens.LinesView).show_lines(self._lines)
        self.query_one("#help").focus()


def list_help(screen: Screen[object], commands: Sequence[tuple[str, str]]) -> list[visible.Line]:
    """List the active keys: the screen's own, those of the app, movement; last the commands."""
    groups: dict[str, dict[str, list[str]]] = {"on this screen": {}, "everywhere": {}, "moving": {}}
    for key, active in screen.active_bindings.items():
        described = active.binding.description
        # Digits are the pages, which have one line together.
        if described and not key.isdigit() and active.binding.action not in TEXTUALS_OWN:
            title = (
                "everywhere"
                if active.node is screen.app
                else "on this screen"
                if active.node is screen
                else "moving"
            )
            groups[title].setdefault(described, []).append(NAMES.get(key, key))
    found: list[visible.Line] = [((type(screen).__name__.removesuffix("Screen").lower(), "accent"),)]
    for title, keys in groups.items():
        if title == "on this screen" and (bar := next(iter(screen.query(screens.PageBar)), None)) is not None:
            keys[f"The pages: {', '.join(bar.pages)}"] = [f"1-{len(bar.pages)}"]
        if keys:
            found += [(), ((title, "strong"),)]
            found += [
                ((f"  {visible.escape_text(' '.join(names)):18}", "accent"), (visible.escape_text(text), ""))
                for text, names in keys.items()
            ]
    found += [(), (("in the filter", "strong"),)]
    found += [((f"  {words:26}", "accent"), (meaning, "")) for words, meaning in FILTER]
    if commands:
        found += [(), (("the same on the command line", "strong"),)]
        # Names and targets in a command may be a stranger's.
        found += [((f"  {key:4}", "accent"), (visible.escape_text(command), "")) for key, command in commands]
    return found
