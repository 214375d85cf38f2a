"""The isolation features of this system, and those that running workers use.

User namespaces are tried in a process of their own, since a kernel that has them may refuse them (sysctl,
AppArmor, the seccomp filter of a container).
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsieve.backends.workers.inside import landlock
from opsieve.backends.workers.sandbox.policy import describe_lacks
from opsieve.backends.workers.zygotes.memory_bound import describe_bound

_TRY = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(None, use_errno=True).unshare({flags}) and ctypes.get_errno())"
)
_CLONE_NEWUSER, _CLONE_NEWNET, _CLONE_NEWNS = 0x10000000, 0x40000000, 0x00020000


@dataclass(frozen=True, slots=True)
class Isolation:
    """Whether this process may make user, mount and network namespaces, Landlock's version (0: missing),
    bubblewrap's path ("").

    `memory` says what bounds the memory of workers, `walls` are around them, `lacks` lists missing ones with
    reasons (None if workers were not sandboxed).
    """

    namespaces: bool
    landlock: int
    bubblewrap: str
    memory: str = ""
    walls: tuple[str, ...] = ()
    # None before a worker was sandboxed.
    lacks: Mapping[str, str] | None = None

    def describe(self) -> str:
        """Describe the isolation in one sentence."""
        parts = (
            f"user namespaces {'allowed' if self.namespaces else 'refused'}",
            f"Landlock version {self.landlock}" if self.landlock else "no Landlock",
            f"bubblewrap {self.bubblewrap}" if self.bubblewrap else "no bubblewrap",
            f"memory bounded by {self.memory}",
        )
        if self.lacks is None:
            return f"{', '.join(parts)}; workers are not shut in"
        around = f"around workers: {', '.join(self.walls) or 'nothing'}"
        return f"{', '.join(parts)}; {around}{f'; {describe_lacks(self.lacks)}' if self.lacks else ''}"


def examine_isolation(walls: Sequence[str] = (), lacks: Mapping[str, str] | None = None) -> Isolation:
    """Examine this system (about 20 ms), and add the walls of its workers."""
    return Isolation(
        _has_namespaces(),
        landlock.get_version() if sys.platform == "linux" else 0,
        shutil.which("bwrap") or "",
        describe_bound(walls),
        tuple(walls),
        lacks,
    )


def _has_namespaces() -> bool:
    code = _TRY.format(flags=_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWNS)
    try:
        done = subprocess.run(
            # In a process of its own, since leaving a namespace cannot be undone.
            [sys.executable, "-I", "-S", "-c", code],
            capture_output=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        # The kernel may lack the feature or a policy may forbid it; both mean that the wall is missing.
        return False
    return done.returncode == 0
