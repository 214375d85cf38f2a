"""The programs `opsieve` and `reduce`, and `python -m opsieve`.

A Ctrl-C while the commands are imported ends a program as one during its work does.
"""

from __future__ import annotations

import atexit
import importlib
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run `opsieve`."""
    _run("opsieve", "opsieve.tui.cli")


def reduce() -> NoReturn:
    """Run `reduce`."""
    _run("reduce", "opsieve.tui.commands.examine.reduce_command")


def _run(program: str, module: str) -> NoReturn:
    # Python gives the signal its default action back while it ends, which would kill the program in place of
    # its exit code. What is given to `atexit` first is called last: until then a Ctrl-C interrupts.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        importlib.import_module(module).main()
    except KeyboardInterrupt:
        print(f"{program}: Interrupted.", file=sys.stderr)
    sys.exit(130)


if __name__ == "__main__":
    main()
