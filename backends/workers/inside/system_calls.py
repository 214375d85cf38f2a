"""Restrict the system calls of a worker: a seccomp filter (seccomp(2)) against calls that model compilers
never make.

Loaded by `child.py` in zygotes and workers: the standard library and ctypes only, Python 3.8, Linux on
x86-64. The filter is classic BPF, built here from a list; a forbidden call fails with EPERM, as for a missing
permission.
"""

import ctypes
import struct
from typing import List, Optional

SECCOMP, SET_MODE_FILTER, SPEC_ALLOW = 317, 1, 4
ARCHITECTURE = 0xC000003E
# Classic BPF: load a word, jump if equal, jump if at least, jump if any bit is set, return.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
# ENOSYS makes a C library fall back to an older call; EPERM and EACCES are reported.
EPERM, EACCES, ENOSYS = 1, 13, 38
# Offsets in struct seccomp_data
NUMBER, MACHINE, FIRST_ARGUMENT = 0, 4, 16
# Calls of the x32 table have this bit and other numbers; without a check they would pass the filter.
OTHER_TABLE = 0x40000000
# CLONE_NEW* of all namespaces, and CLONE_THREAD, which a new process does not have.
NEW_NAMESPACES, THREAD = 0x7E020000, 0x00010000

# Looking into or steering other processes, mounts and namespaces, the kernel's own matters, keys, files by
# handle, rings of calls, segments of memory.
FORBIDDEN = {
    **dict(
        ptrace=101,
        process_vm_readv=310,
        process_vm_writev=311,
        kcmp=312,
        pidfd_getfd=438,
        process_madvise=440,
    ),
    **dict(
        mount=165,
        umount2=166,
        pivot_root=155,
        chroot=161,
        setns=308,
        unshare=272,
        move_mount=429,
        open_tree=428,
    ),
    **dict(
        fsopen=430,
        fsconfig=431,
        fsmount=432,
        fspick=433,
        mount_setattr=442,
        swapon=167,
        swapoff=168,
        acct=163,
    ),
    **dict(
        bpf=321, perf_event_open=298, userfaultfd=323, init_module=175, finit_module=313, delete_module=176
    ),
    **dict(kexec_load=246, kexec_file_load=320, reboot=169, syslog=103, iopl=172, ioperm=173, quotactl=179),
    **dict(
        settimeofday=164,
        clock_settime=227,
        adjtimex=159,
        clock_adjtime=305,
        sethostname=170,
        setdomainname=171,
    ),
    **dict(keyctl=250, add_key=248, request_key=249, name_to_handle_at=303, open_by_handle_at=304),
    **dict(io_uring_setup=425, io_uring_enter=426, io_uring_register=427, fanotify_init=300, vhangup=153),
    # Segments outlive their process and count for no process's limit.
    "shmget": 29,
}
# Memory that no process's limit counts; some just-in-time compilers need it.
SHARED = dict(memfd_create=319, memfd_secret=447)
SOCKET, CLONE, CLONE3, FORK, VFORK = 41, 56, 435, 57, 58
# The process comes first
SIGNALS = dict(kill=62, tgkill=234, rt_sigqueueinfo=129, rt_tgsigqueueinfo=297)
OTHER_SIGNALS = dict(tkill=200, pidfd_send_signal=424)

libc = ctypes.CDLL(None, use_errno=True)


def make_step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Make one instruction; `yes` and `no` are numbers of instructions to skip."""
    return struct.pack("HBBI", code, yes, no, value)


def refuse_call(number: int, code: int = EPERM) -> List[bytes]:
    """Make a call fail."""
    return [make_step(EQUAL, number, 0, 1), make_step(RETURN, ERROR | code)]


def filter_call(number: int, test: List[bytes]) -> List[bytes]:
    """Apply `test`, which ends with a return, to one call only; its first argument is loaded."""
    return [make_step(EQUAL, number, 0, len(test) + 1), make_step(LOAD, FIRST_ARGUMENT)] + test


def build_filter(network: bool, processes: bool, alone: Optional[int], shared: bool = False) -> List[bytes]:
    """Build the filter.

    Without `processes` only threads may start; with a process number `alone` only that process may be
    signalled; without `shared` no memory file is made.
    """
    steps = [
        make_step(LOAD, MACHINE),
        make_step(EQUAL, ARCHITECTURE, 1, 0),
        # A 32-bit call has other numbers, so that none of the checks below would fit it.
        make_step(RETURN, ERROR | ENOSYS),
        make_step(LOAD, NUMBER),
    ]
    steps += [make_step(AT_LEAST, OTHER_TABLE, 0, 1), make_step(RETURN, ERROR | ENOSYS)]
    for number in list(FORBIDDEN.values()) + ([] if shared else list(SHARED.values())):
        steps += refuse_call(number)
    # Its flags cannot be seen; the C library then takes clone
    steps += refuse_call(CLONE3, ENOSYS)
    # In a namespace of its own, a process has all capabilities again, and reaches kernel code that has had
    # many faults.
    clone = [make_step(ANY_BIT, NEW_NAMESPACES, 0, 1), make_step(RETURN, ERROR | EPERM)]
    if not processes:
        clone += [make_step(ANY_BIT, THREAD, 1, 0), make_step(RETURN, ERROR | EPERM)]
        steps += refuse_call(FORK) + refuse_call(VFORK)
    steps += filter_call(CLONE, clone + [make_step(RETURN, ALLOW)])
    if not network:
        # Local sockets too: daemons of the machine listen on them. Inherited ones stay usable.
        steps += refuse_call(SOCKET, EACCES)
    if alone is not None:
        own = [make_step(EQUAL, alone, 1, 0), make_step(RETURN, ERROR | EPERM), make_step(RETURN, ALLOW)]
        for number in SIGNALS.values():
            steps += filter_call(number, own)
        for number in OTHER_SIGNALS.values():
            steps += refuse_call(number)
    return steps + [make_step(RETURN, ALLOW)]


def restrict_calls(network: bool, processes: bool, alone: Optional[int], shared: bool = False) -> None:
    """Enforce the filter on this process and its children; raises OSError if the kernel lacks it."""
    steps = build_filter(network, processes, alone, shared)
    code = ctypes.create_string_buffer(b"".join(steps))
    # `struct sock_fprog`: the length, padding, and a pointer.
    what = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    # No new privileges
    libc.prctl(38, 1, 0, 0, 0)
    if libc.syscall(SECCOMP, SET_MODE_FILTER, SPEC_ALLOW, what):
        raise OSError(ctypes.get_errno(), "no filter of system calls")
