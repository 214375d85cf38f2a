"""The walls of a helper: a process of the main process's own kind that asks onnx's C++ about a strange model
and answers through a pipe.

It needs no file, no network and no other process once it has imported what it asks, so it gives all of them
up; compilers, which need some, are shut in by `shut_in.py`. A process can only ever give rights up, and needs
none to do so.
"""

import contextlib
import os

from opsieve.backends.workers.inside import landlock, system_calls

_SWITCH = "OPSIEVE_SANDBOX"  # as in policy.py, which a helper does not need


def give_up() -> None:
    """From now on open no file, make no socket, start and signal no process; descriptors that are open stay.
    What the kernel has no means for stays, too.
    """
    if os.environ.get(_SWITCH) == "off":
        return
    with contextlib.suppress(OSError):
        landlock.restrict([], [], network=False)
    if os.uname().machine == "x86_64":
        with contextlib.suppress(OSError):
            system_calls.restrict(False, False, os.getpid())
