"""The namespaces of a zygote: an empty network, its own processes and memory segments, and a minimal
read-only file tree.

Loaded by `child.py` in the zygote, never by the main process: the standard library and ctypes only, Python
3.8, Linux. A user namespace gives an ordinary user the right to make the others (user_namespaces(7)); root
makes the others without it where it is refused. A refusal of the kernel is noted in `lacks`, and the rest
continues. Two steps must not be half done and raise `Incomplete`: the main process then starts the zygote
again without them.
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
# Numbers of x86-64
PIVOT_ROOT, CAPSET, MOUNT_SETATTR = 155, 126, 442
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 4, 24, 38, 47
# Of a zygote's namespace, threads too
PROCESSES = 1024 + 64 * (os.cpu_count() or 1)
# The limit on files of a zygote and its workers.
FILE_BYTES = 1 << 30
# Where their scratch folder is
HOME = "/run/opsieve"

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
# The rest of /etc holds names of users, hosts and keys, which no compiler needs.
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
    """The kernel began to create a namespace and cannot complete it; `feature` names it."""

    def __init__(self, feature: str, why: str):
        super().__init__(why)
        self.feature = feature


def check_result(result: int, what: str) -> None:
    """Raise OSError with the reason for a failed call."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (what, os.strerror(code)))


def mount_filesystem(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Call mount(2)."""
    given = (
        source.encode(),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode(),
    )
    check_result(libc.mount(*given), "mount %s" % target)


def leave_namespaces(wanted: List[str], lacks: Dict[str, str]) -> List[str]:
    """Leave the parent's namespaces one by one, and return the names of those left; processes change at the
    next fork.
    """
    left = []
    user, group = os.getuid(), os.getgid()
    for name in wanted:
        if libc.unshare(FLAGS[name]):
            lacks[name] = os.strerror(ctypes.get_errno())
            continue
        left.append(name)
        # Before the map is written, this process is nobody, and may not make the other namespaces.
        if name == "user":
            try:
                map_user(user, group)
            except OSError as error:
                raise Incomplete("namespaces", "mapping the user: %s" % error.strerror) from None
    return left


def map_user(user: int, group: int) -> None:
    """Map the user to itself in its namespace, and no other user."""
    for file, text in (
        # The kernel demands it before an unprivileged process writes gid_map (user_namespaces(7)).
        ("setgroups", "deny"),
        ("uid_map", "%d %d 1" % (user, user)),
        ("gid_map", "%d %d 1" % (group, group)),
    ):
        with open("/proc/self/" + file, "w") as entry:
            entry.write(text)


def forbid_segments() -> None:
    """Let no memory segment be made in this namespace: no process's limit counts it (since Linux 6.9; the
    filter of calls refuses it as well).
    """
    # Memory segments belong to no process, so the limit of a worker does not count them; none may be created.
    with contextlib.suppress(OSError), open("/proc/sys/kernel/shmmni", "w") as limit:
        limit.write("0")


def fork_first_process(scratch: str) -> None:
    """Fork the first process of the new process namespace, in which the call returns.

    Both processes end together. The outer one then removes the folder `scratch`, which only it may still see.
    """
    pid = os.fork()
    if pid == 0:
        # The outer process may be killed, and could then not end this one.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2:
            # Descriptors of the zygote would keep its pipes open after its death.
            with contextlib.suppress(OSError):
                os.close(int(entry))
    # The first process of a namespace must reap all orphans in it, or they stay as zombies.
    while True:
        with contextlib.suppress(InterruptedError):
            _, status = os.waitpid(pid, 0)
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def build_tree(
    base: str, readable: List[str], kept: List[str], devices: List[str], own_processes: bool
) -> None:
    """Build a file tree in the empty folder `base` and make it this process's root.

    It holds `readable` and the usual system folders. `kept` are writable folders that stay; HOME, /tmp and
    /dev/shm are memory. Raises Incomplete if a step fails.
    """
    try:
        # Mounts made here must not spread to the machine's own tree.
        mount_filesystem("none", "/", "", MS_REC | MS_SLAVE)
        # It holds only folders and empty files on which others are mounted, so 16 MB are plenty.
        mount_filesystem("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
        for place in ("/tmp", HOME):
            os.makedirs(base + place)
            mount_filesystem(
                "tmpfs", base + place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=%d" % FILE_BYTES
            )
        # First, because readable paths may lie in /dev/shm.
        make_devices(base, devices)
        for path in find_outermost(list(SYSTEM) + ["/etc/" + name for name in SETTINGS] + readable):
            bind_path(base, path, True)
        for path in kept:
            bind_path(base, path, False)
        make_processes(base, own_processes)
        write_users(base)
        os.chdir(base)
        # The old root is stacked on the new one and detached at once: no folder for it is needed, and no path
        # leads back (pivot_root(2)).
        check_result(libc.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
        check_result(libc.umount2(b".", MNT_DETACH), "umount")
        os.chdir("/")
        # Read-only last, since the lines above made folders in it.
        mount_filesystem("none", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    except OSError as error:
        raise Incomplete("files", str(error.args[-1])) from None


def find_outermost(paths: List[str]) -> List[str]:
    """Return the existing paths, and the targets of links, that are not below another one; a link at the top
    stays by itself.
    """
    every = {os.path.abspath(path) for path in paths} | {os.path.realpath(path) for path in paths}
    found: List[str] = []
    # Short paths first, so that a folder comes before all that lies below it.
    for path in sorted(filter(os.path.exists, every), key=lambda path: path.count("/")):
        if path != "/" and not any(
            path.startswith(above + "/") for above in found if not os.path.islink(above)
        ):
            found.append(path)
    return found


def bind_path(base: str, path: str, read_only: bool) -> None:
    """Bind the file or folder at `path` to the same place of the new tree; top-level links are copied."""
    place = base + path
    # On merged systems /bin and /lib are links into /usr; mounted as folders, they would show the same files
    # twice.
    if os.path.islink(path) and path.count("/") == 1:
        os.symlink(os.readlink(path), place)
        return
    if os.path.isdir(path):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            # A file can only be mounted on a file.
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    mount_filesystem(path, place, "", MS_BIND | MS_REC)
    # A bind mount ignores the flags of its own call, so they are set afterwards, on mounts below it too.
    set_attributes(place, MOUNT_ATTR_NOSUID | (MOUNT_ATTR_RDONLY if read_only else 0))


def set_attributes(place: str, flags: int) -> None:
    """Set attributes of a mount and all below it (mount_setattr(2), Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    given = (AT_FDCWD, os.fsencode(place), AT_RECURSIVE, ctypes.byref(attributes), ctypes.c_size_t(32))
    check_result(libc.syscall(MOUNT_SETATTR, *given), "mount_setattr")


def make_devices(base: str, devices: List[str]) -> None:
    """Make /dev with the usual devices and the named ones."""
    os.mkdir(base + "/dev")
    for path in ["/dev/" + name for name in DEVICES] + [path for path in devices if os.path.exists(path)]:
        bind_path(base, path, False)
    # Programs of toolchains expect these links.
    for name, place in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + place, base + "/dev/" + name)
    os.mkdir(base + "/dev/shm")
    mount_filesystem(
        "tmpfs", base + "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=%d" % FILE_BYTES
    )


def make_processes(base: str, own: bool) -> None:
    """Mount a read-only /proc, with the own processes only if there is a namespace for them."""
    os.mkdir(base + "/proc")
    # A new /proc shows the processes of the namespace; without one, the kernel refuses to mount it.
    if not own:
        bind_path(base, "/proc", True)
        return
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    # A container that covers parts of /proc lets no other one be mounted
    try:
        mount_filesystem("proc", base + "/proc", "proc", flags)
    except OSError as error:
        raise Incomplete("processes", str(error.args[-1])) from None
    # Before, it was one for the whole machine.
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 14):
        with contextlib.suppress(OSError), open(base + "/proc/sys/kernel/pid_max", "w") as limit:
            limit.write(str(PROCESSES))
    # Writable files of /proc steer the kernel and other processes.
    mount_filesystem("none", base + "/proc", "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def write_users(base: str) -> None:
    """Write a name for the user, because the system's own list is hidden."""
    os.makedirs(base + "/etc", exist_ok=True)
    for file, text in (
        ("passwd", "opsieve:x:%d:%d::%s:/bin/sh\n" % (os.getuid(), os.getgid(), HOME)),
        ("group", "opsieve:x:%d:\n" % os.getgid()),
    ):
        with open(base + "/etc/" + file, "w") as entry:
            entry.write(text)


def drop_privileges() -> None:
    """Drop all capabilities, including those gained by running programs, and block inspection by other
    processes.
    """
    capability = 0
    # The number of capabilities differs by kernel; the first unknown one ends the loop.
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    # PR_CAP_AMBIENT_CLEAR_ALL: ambient ones would survive the start of a program.
    libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # _LINUX_CAPABILITY_VERSION_3, whose sets are two words each: effective, permitted and inheritable.
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.syscall(CAPSET, ctypes.byref(header), ctypes.byref(nothing))
    # Other processes of the user could otherwise trace this one or open its files in /proc.
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
