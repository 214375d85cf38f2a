"""The programs `opsieve` and `reduce`, and `python -m opsieve`.

A Ctrl-C while the commands are imported ends a program as one during its work does.
"""

from __future__ import annotations

import atexit
import importlib
import signal
import sys
import threading
from importlib.machinery import ExtensionFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


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
    for name in ("create_module", "exec_module"):
        setattr(ExtensionFileLoader, name, _hold_interrupts(getattr(ExtensionFileLoader, name)))
    try:
        importlib.import_module(module).main()
    except KeyboardInterrupt:
        print(f"{program}: Interrupted.", file=sys.stderr)
    sys.exit(130)


def _hold_interrupts(load: Any) -> Any:
    """Make a Ctrl-C wait until a C extension is loaded: in the middle, onnx's C++ crashes or aborts."""

    def load_whole(loader: Any, what: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return load(loader, what)
        waiting: list[Any] = []
        usual = signal.signal(signal.SIGINT, lambda *seen: waiting.append(seen))
        try:
            return load(loader, what)
        finally:
            signal.signal(signal.SIGINT, usual)
            if waiting and callable(usual):
                usual(*waiting[0])

    return load_whole


if __name__ == "__main__":
    main()
