"""The sandbox of a helper process of ours, which runs onnx's C++ on an untrusted model and answers through a
pipe.

After its imports it needs no file, network or other process, so it gives all of them up; compilers, which
need some, use `shut_in.py`. A process can only give up rights, and needs no right to do so.
"""

import contextlib
import os

from opsieve.backends.workers.inside import landlock, system_calls

# As in policy.py, which a helper does not need
_SWITCH = "OPSIEVE_SANDBOX"


def drop_rights() -> None:
    """Forbid, from now on, to open a file, make a socket, start or signal a process; open descriptors stay.

    Rights that the kernel cannot restrict stay too.
    """
    if os.environ.get(_SWITCH) == "off":
        return
    with contextlib.suppress(OSError):
        landlock.restrict_files([], [], network=False)
    if os.uname().machine == "x86_64":
        with contextlib.suppress(OSError):
            system_calls.restrict_calls(False, False, os.getpid())
