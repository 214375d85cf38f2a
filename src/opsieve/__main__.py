"""`python -m opsieve` is the `opsieve` command."""

from opsieve.tui.cli import main

main()
