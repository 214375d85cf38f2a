"""The colours of the app: Textual's own themes, and one without colour."""

from textual.theme import Theme

DARK, LIGHT, PLAIN = "textual-dark", "textual-light", "no-colour"
CYCLE = (DARK, LIGHT, PLAIN, "ansi-dark", "ansi-light")

NO_COLOUR = Theme(
    name=PLAIN,
    primary="#d0d0d0",
    secondary="#b0b0b0",
    accent="#ffffff",
    warning="#e0e0e0",
    error="#ffffff",
    success="#d0d0d0",
    foreground="#e0e0e0",
    background="#000000",
    surface="#101010",
    panel="#202020",
    dark=True,
)
