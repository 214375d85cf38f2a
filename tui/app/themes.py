"""The colours of the app: Textual's own themes, its light one with darker words, and one without colour."""

from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

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

# Textual makes the colours of words from these; its own have a contrast below 4.5 on light grey.
CLEAR_LIGHT = replace(BUILTIN_THEMES[LIGHT], accent="#6B3FA0", warning="#B56A00", success="#2E9150")
