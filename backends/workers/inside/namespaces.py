"""The namespaces of a zygote: an empty network, processes and memory segments of its own, and a file tree of
what it needs, read-only.

Loaded by `child.py` in the zygote, never by the main process: the standard library and ctypes only, Python
3.8, Linux.

A user namespace gives an ordinary user the right to make the others (user_namespaces(7)); root, where they
are refused, makes the others without. What the kernel refuses is noted in `lacks` and the rest is done. Two
things cannot be done by halves, and raise `Incomplete`: the main process then starts the zygote anew without
them.
"""

import contextlib
import ctypes
import os
import shutil
import signal
from typing import Dict, List

libc = ctypes.CDLL(None, use_errno=True)
FLAGS = {
    "user": 0x10000000,
    "files": 0x00020000,
    "network": 0x40000000,
    "ipc": 0x08000000,
    "processes": 0x20000000,
}
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_SLAVE = 16384, 1 << 19
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 1, 2
PIVOT_ROOT, CAPSET, MOUNT_SETATTR = 155, 126, 442  # numbers of x86-64
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 4, 24, 38, 47
PROCESSES = 1024 + 64 * (os.cpu_count() or 1)  # of a zygote's namespace, threads too
FILE_BYTES = 1 << 30  # what a zygote and its workers may keep in files
HOME = "/run/opsieve"  # where their scratch folder is

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/sys",
)
SETTINGS = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "OpenCL",
)
DEVICES = ("null", "zero", "full", "random", "urandom")


class Incomplete(Exception):
    """The kernel has begun to give a namespace and cannot complete it; `feature` is which."""

    def __init__(self, feature: str, why: str):
        super().__init__(why)
        self.feature = feature


def check(result: int, what: str) -> None:
    """OSError with the reason when a call has failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (what, os.strerror(code)))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    given = (
        source.encode(),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode(),
    )
    check(libc.mount(*given), "mount %s" % target)


def unshare(wanted: List[str], lacks: Dict[str, str]) -> List[str]:
    """Leave the namespaces of the parent, each by itself; the names of those that were left. One of processes
    begins at the next fork.
    """
    left = []
    user, group = os.getuid(), os.getgid()
    for name in wanted:
        if libc.unshare(FLAGS[name]):
            lacks[name] = os.strerror(ctypes.get_errno())
            continue
        left.append(name)
        if name == "user":
            try:
                map_user(user, group)
            except OSError as error:
                raise Incomplete("namespaces", "mapping the user: %s" % error.strerror) from None
    return left


def map_user(user: int, group: int) -> None:
    """The user is itself in its namespace, and nobody else is there."""
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", "%d %d 1" % (user, user)),
        ("gid_map", "%d %d 1" % (group, group)),
    ):
        with open("/proc/self/" + file, "w") as entry:
            entry.write(text)


def first_process(scratch: str) -> None:
    """Fork the first process of the new namespace of processes, which returns; this one ends with it, and it
    with this one.

    When both end, the folder `scratch` goes, which only this one may still see.
    """
    pid = os.fork()
    if pid == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2:
            with contextlib.suppress(OSError):
                os.close(int(entry))
    while True:
        with contextlib.suppress(InterruptedError):
            _, status = os.waitpid(pid, 0)
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def build_tree(
    base: str, readable: List[str], kept: List[str], devices: List[str], own_processes: bool
) -> None:
    """Make a file tree in the empty folder `base` and make it this process's root: `readable` and what
    systems have, nothing else.

    `kept` are folders that may be written and stay; HOME, /tmp and /dev/shm are memory. Incomplete when it
    cannot be done.
    """
    try:
        mount("none", "/", "", MS_REC | MS_SLAVE)
        mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
        for place in ("/tmp", HOME):
            os.makedirs(base + place)
            mount("tmpfs", base + place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=%d" % FILE_BYTES)
        make_devices(base, devices)  # first, for what is readable may lie in /dev/shm
        for path in outermost(list(SYSTEM) + ["/etc/" + name for name in SETTINGS] + readable):
            show(base, path, True)
        for path in kept:
            show(base, path, False)
        make_processes(base, own_processes)
        write_users(base)
        os.chdir(base)
        check(libc.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
        check(libc.umount2(b".", MNT_DETACH), "umount")
        os.chdir("/")
        mount("none", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    except OSError as error:
        raise Incomplete("files", str(error.args[-1])) from None


def outermost(paths: List[str]) -> List[str]:
    """Those of the paths, and of where links lead them, that exist and are not below another one; a link at
    the top stays by itself.
    """
    every = {os.path.abspath(path) for path in paths} | {os.path.realpath(path) for path in paths}
    found: List[str] = []
    for path in sorted(filter(os.path.exists, every), key=lambda path: path.count("/")):
        if path != "/" and not any(
            path.startswith(above + "/") for above in found if not os.path.islink(above)
        ):
            found.append(path)
    return found


def show(base: str, path: str, read_only: bool) -> None:
    """Have the file or folder at `path` at the same place of the new tree; links at the top of the tree are
    links there too.
    """
    place = base + path
    if os.path.islink(path) and path.count("/") == 1:
        os.symlink(os.readlink(path), place)
        return
    if os.path.isdir(path):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    mount(path, place, "", MS_BIND | MS_REC)
    set_attributes(place, MOUNT_ATTR_NOSUID | (MOUNT_ATTR_RDONLY if read_only else 0))


def set_attributes(place: str, flags: int) -> None:
    """For a mount and all below it (mount_setattr(2), Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    given = (AT_FDCWD, os.fsencode(place), AT_RECURSIVE, ctypes.byref(attributes), ctypes.c_size_t(32))
    check(libc.syscall(MOUNT_SETATTR, *given), "mount_setattr")


def make_devices(base: str, devices: List[str]) -> None:
    """/dev with the devices that programs take for granted, and those named."""
    os.mkdir(base + "/dev")
    for path in ["/dev/" + name for name in DEVICES] + [path for path in devices if os.path.exists(path)]:
        show(base, path, False)
    for name, place in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + place, base + "/dev/" + name)
    os.mkdir(base + "/dev/shm")
    mount("tmpfs", base + "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=%d" % FILE_BYTES)


def make_processes(base: str, own: bool) -> None:
    """/proc, of the own processes where there is a namespace of them; nothing in it can be written."""
    os.mkdir(base + "/proc")
    if not own:
        show(base, "/proc", True)
        return
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    try:  # a container that covers parts of /proc lets no other one be mounted
        mount("proc", base + "/proc", "proc", flags)
    except OSError as error:
        raise Incomplete("processes", str(error.args[-1])) from None
    # Before, it was one for the whole machine.
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 14):
        with contextlib.suppress(OSError), open(base + "/proc/sys/kernel/pid_max", "w") as limit:
            limit.write(str(PROCESSES))
    mount("none", base + "/proc", "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def write_users(base: str) -> None:
    """A name for the user, whom the system's own list is not shown for."""
    os.makedirs(base + "/etc", exist_ok=True)
    for file, text in (
        ("passwd", "opsieve:x:%d:%d::%s:/bin/sh\n" % (os.getuid(), os.getgid(), HOME)),
        ("group", "opsieve:x:%d:\n" % os.getgid()),
    ):
        with open(base + "/etc/" + file, "w") as entry:
            entry.write(text)


def drop_privileges() -> None:
    """No capability, none to be had by running a program, and no other process of the user may look into this
    one.
    """
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.syscall(CAPSET, ctypes.byref(header), ctypes.byref(nothing))
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
