"""The programs `opsieve` and `reduce`, and `python -m opsieve`.

A Ctrl-C while the commands are imported ends a program as one during its work does.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run `opsieve`."""
    try:
        from opsieve.tui.cli import main as run_opsieve
    except KeyboardInterrupt:
        sys.exit(_interrupt("opsieve"))
    run_opsieve()


def reduce() -> NoReturn:
    """Run `reduce`."""
    try:
        from opsieve.tui.commands.examine.reduce_command import main as run_reduce
    except KeyboardInterrupt:
        sys.exit(_interrupt("reduce"))
    run_reduce()


def _interrupt(program: str) -> int:
    print(f"{program}: Interrupted.", file=sys.stderr)
    return 130


if __name__ == "__main__":
    main()
