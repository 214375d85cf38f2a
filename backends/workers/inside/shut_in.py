"""Sandbox a zygote and its workers: namespaces for the zygote, Landlock and a system-call filter for both.

Loaded by `child.py`, never by the main process: the standard library only, Python 3.8, Linux. The zygote
enters the sandbox before it imports the compiler, so that all of the compiler's code runs inside; each worker
then also loses access to its neighbours. Features that the kernel refuses are reported in `lacks`, and the
rest continues.
"""

import contextlib
import os
import resource
import sys
import tempfile
from typing import Any, Callable, Dict, List

from opsieve.backends.workers.inside import landlock, namespaces, system_calls

# In the order in which they are left
NAMESPACES = ["files", "network", "ipc", "processes"]


class Walls:
    """The sandbox of one zygote. `config` is made by `policy.py`."""

    def __init__(self, config: Dict[str, Any]):
        self.config = config
        self.lacks: Dict[str, str] = {}
        self.left: List[str] = []
        self.walls: List[str] = []
        self.kept: List[str] = config["kept"]
        self.common = ""

    def enter_sandbox(self, scratch: str) -> str:
        """Sandbox this process, and return its scratch folder, which may have moved.

        With a process namespace, the call returns in the first process there. May raise
        `namespaces.Incomplete`.
        """
        for folder in self.kept:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        # First, because it takes rights that the other walls give up.
        scratch = self.enter_namespaces(scratch)
        namespaces.drop_privileges()
        without = self.config["without"]
        self.lacks.update(without)
        if "landlock" in without:
            pass
        elif landlock.get_version():
            self.build_wall(
                "landlock %d" % landlock.get_version(), lambda: self.restrict_files(scratch, self.kept)
            )
        else:
            self.lacks["landlock"] = "the kernel has none"
        if "filter" in without:
            pass
        elif os.uname().machine == "x86_64":
            self.build_wall(
                # A zygote must fork and may make memory files for its workers; each worker then loses these
                # rights.
                "filter",
                lambda: system_calls.restrict_calls(self.config["network"], True, None, True),
            )
        else:
            self.lacks["filter"] = "there is none for this machine"
        self.common = os.path.join(scratch, "common")
        os.makedirs(self.common, exist_ok=True)
        self.move_home(self.common)
        return scratch

    def enter_namespaces(self, scratch: str) -> str:
        """Leave the parent's namespaces, as far as requested and possible."""
        without = self.config["without"]
        if "namespaces" in without or os.uname().machine != "x86_64":
            self.lacks["namespaces"] = without.get("namespaces", "they are used on x86-64 only")
            return scratch
        wanted = [name for name in NAMESPACES if name not in without]
        # Numbers of other processes than /proc shows
        if "files" in without and "processes" in wanted:
            wanted.remove("processes")
        if self.config["network"]:
            wanted.remove("network")
        # The file tree comes after the fork below: the process outside still removes the scratch folder.
        early = [name for name in wanted if name != "files"]
        self.left = namespaces.leave_namespaces(["user"] + early, self.lacks)
        if "ipc" in self.left:
            namespaces.forbid_segments()
        if "processes" in self.left:
            # Who stays outside sees the files as they are, to tidy up
            namespaces.fork_first_process(scratch)
        if "files" in wanted:
            self.left += namespaces.leave_namespaces(["files"], self.lacks)
        # Without a tree of its own, /proc shows the numbers of the outer namespace, and a worker would look
        # up the wrong processes.
        if "processes" in self.left and "files" not in self.left:
            raise namespaces.Incomplete("processes", "files: " + self.lacks["files"])
        if "files" in self.left:
            # The environment of the compiler may lie anywhere, outside of the system's folders.
            readable = sys.path + [sys.prefix, sys.base_prefix, sys.exec_prefix] + self.config["readable"]
            devices = self.config["devices"]
            namespaces.build_tree(scratch, readable, self.kept, devices, "processes" in self.left)
            scratch = namespaces.HOME
        # Threads count too; root is bound by the namespace's own limit
        if "processes" in self.left:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NPROC, (namespaces.PROCESSES,) * 2)
        self.walls += self.left
        return scratch

    def build_wall(self, name: str, build: Callable[[], None]) -> None:
        """Build one part of the sandbox; a failure is noted in `lacks`."""
        try:
            build()
            self.walls.append(name)
        except OSError as error:
            self.lacks[name.partition(" ")[0]] = str(error)

    def restrict_files(self, scratch: str, kept: List[str]) -> None:
        """Restrict files with Landlock: a zygote's own tree is readable as a whole, otherwise the paths it
        would have held.
        """
        devices = ["/dev/" + name for name in namespaces.DEVICES] + self.config["devices"]
        if "files" in self.left:
            landlock.restrict_files(
                ["/"], [scratch, "/tmp", "/dev/shm"] + devices + kept, self.config["network"]
            )
            return
        settings = ["/etc/" + name for name in namespaces.SETTINGS + ("passwd", "group")]
        readable = list(namespaces.SYSTEM) + settings + ["/proc"]
        readable += (
            sys.path + [sys.prefix, sys.base_prefix, sys.exec_prefix] + self.config["readable"] + self.kept
        )
        landlock.restrict_files(readable, [scratch] + devices + kept, self.config["network"])

    def confine_worker(self, scratch: str, processes: bool, shared: bool) -> None:
        """Limit a forked worker to its scratch folder, signals in its domain, and memory that counts."""
        # The main process reads its files in /proc (memory, open files), which belong to root otherwise.
        namespaces.libc.prctl(namespaces.PR_SET_DUMPABLE, 1, 0, 0, 0)
        version = landlock.get_version() if any(wall.startswith("landlock") for wall in self.walls) else 0
        if version:
            # What a compiler keeps for all of its processes: compiled headers.
            self.restrict_files(scratch, [self.common])
        # Up to version 5, Landlock does not restrict signals, so the filter has to.
        alone = os.getpid() if "processes" not in self.left and version < 6 else None
        # The zygote's filter, which the worker has inherited, allows exactly that.
        if "filter" in self.walls and not (processes and shared and alone is None):
            system_calls.restrict_calls(self.config["network"], processes, alone, shared)

    @staticmethod
    def move_home(folder: str) -> None:
        """Move the home and temporary folder to this one."""
        # They would lead back to folders of the user.
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            del os.environ[name]
        os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
