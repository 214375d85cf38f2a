"""Landlock (landlock(7)): restrict the files that this process and its children may access, and their
signals.

Loaded by `child.py` in zygotes and workers: the standard library and ctypes only, Python 3.8, Linux 5.13. A
process can only give up rights, and needs no right to do so. Each worker is in a domain of its own: it cannot
trace its neighbours, nor signal them (Linux 6.12).
"""

import ctypes
import os
import stat
from typing import Iterable

# The same on all architectures
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
# Libraries of a compiler are mapped as code, and toolchains are run, so reading includes execution.
READ = EXECUTE | READ_FILE | READ_DIR
# A device file that a worker makes would open the device behind it.
MAKE_DEVICES = 1 << 6 | 1 << 11
# The kernel refuses a rule for a file that names rights of folders.
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
# Each version knows more rights, and refuses a ruleset with one that it does not know.
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
# Bind and connect, from version 4 on
TCP_BOTH_WAYS = 3
# Outside of the domain, from version 6 on
ABSTRACT_SOCKETS_AND_SIGNALS = 3

libc = ctypes.CDLL(None, use_errno=True)


class PathBeneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    # The kernel's structure has no padding; without this, ctypes would add four bytes.
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def get_version() -> int:
    """Return the kernel's version of Landlock, or 0."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def restrict_files(readable: Iterable[str], writable: Iterable[str], network: bool) -> None:
    """Restrict reading and running to files below `readable`, and writing to those below `writable`; may
    raise OSError.
    """
    known = get_version()
    handled = RIGHTS[min(max(known, 1), 5)]
    attributes = (ctypes.c_uint64 * 3)(handled, 0 if network or known < 4 else TCP_BOTH_WAYS, 0)
    # An older kernel refuses a structure that is longer than the one it knows.
    size = 8 if known < 4 else 16
    if known >= 6:
        attributes[2], size = ABSTRACT_SOCKETS_AND_SIGNALS, 24
    rules = int(
        libc.syscall(CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint(0))
    )
    if rules < 0:
        raise OSError(ctypes.get_errno(), "no Landlock ruleset")
    try:
        for paths, rights in ((readable, READ), (writable, handled & ~MAKE_DEVICES)):
            for path in paths:
                allow_path(rules, path, rights)
        # No new privileges
        libc.prctl(38, 1, 0, 0, 0)
        if libc.syscall(RESTRICT_SELF, rules, ctypes.c_uint(0)):
            raise OSError(ctypes.get_errno(), "Landlock cannot be enforced")
    finally:
        os.close(rules)


def allow_path(rules: int, path: str, rights: int) -> None:
    """Allow a path; a missing one is skipped."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_A_FILE
        rule = PathBeneath(rights, place)
        if libc.syscall(ADD_RULE, rules, ctypes.c_int(PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint(0)):
            raise OSError(ctypes.get_errno(), "no Landlock rule for %s" % path)
    finally:
        os.close(place)
