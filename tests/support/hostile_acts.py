"""What a compiler might do to whoever runs it: one act for each option of the backend `hostile`, harmless to
the machine where nothing stops it.

`facts` (the variable HOSTILE_FACTS, JSON) tells the acts where the things are that they shall not reach: see
`Victim` in isolation_drill.py. Each act returns whether it succeeded; OSError and the like mean that it was
refused.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np

NAME = "hostile"
ENTRY = EntryPoint(NAME, "hostile_acts:BACKEND", "opsieve.backends")
FACTS = "HOSTILE_FACTS"
SECRET = "HOSTILE_SECRET_TOKEN"
libc = ctypes.CDLL(None, use_errno=True)
Act = Callable[[dict[str, Any]], bool]
ACTS: dict[str, Act] = {}


def act(function: Act) -> Act:
    """Enter an act under its name."""
    ACTS[function.__name__] = function
    return function


def call(number: int, *arguments: Any) -> int:
    """A system call by its number on x86-64; OSError when it fails."""
    found = int(libc.syscall(number, *arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


# --- network ---


@act
def connect_by_tcp(facts: dict[str, Any]) -> bool:
    socket.create_connection(("127.0.0.1", facts["tcp"]), timeout=2).close()
    return True


@act
def listen_by_tcp(facts: dict[str, Any]) -> bool:
    with socket.socket() as own:
        own.bind(("0.0.0.0", 0))
        own.listen()
    return True


@act
def send_by_udp(facts: dict[str, Any]) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        return own.sendto(b"keys", ("127.0.0.1", facts["udp"])) == 4


@act
def connect_by_ipv6(facts: dict[str, Any]) -> bool:
    with socket.socket(socket.AF_INET6) as own:
        own.settimeout(2)
        own.connect(("::1", facts["tcp6"]))
    return True


@act
def connect_to_a_socket_file(facts: dict[str, Any]) -> bool:
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(facts["socket"])
    return True


@act
def connect_to_an_abstract_socket(facts: dict[str, Any]) -> bool:
    with socket.socket(socket.AF_UNIX) as own:
        own.connect("\0" + facts["abstract"])
    return True


@act
def open_a_netlink_socket(facts: dict[str, Any]) -> bool:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
    return True


# --- reading ---


@act
def read_a_key_at_home(facts: dict[str, Any]) -> bool:
    return Path(facts["key"]).read_text() == "private"


@act
def list_the_home_folder(facts: dict[str, Any]) -> bool:
    return "key" in os.listdir(Path(facts["key"]).parent)


@act
def read_a_foreign_project(facts: dict[str, Any]) -> bool:
    return Path(facts["project"], "source.py").read_text() == "ours"


@act
def read_a_secret_variable(facts: dict[str, Any]) -> bool:
    return SECRET in os.environ


@act
def read_the_list_of_users(facts: dict[str, Any]) -> bool:
    return "daemon" in Path("/etc/passwd").read_text()


@act
def read_the_main_process_s_variables(facts: dict[str, Any]) -> bool:
    return bool(Path(f"/proc/{facts['main']}/environ").read_bytes())


@act
def read_the_main_process_s_command(facts: dict[str, Any]) -> bool:
    return Path(f"/proc/{facts['main']}/cmdline").read_bytes() == facts["command"].encode()


@act
def read_the_main_process_s_memory(facts: dict[str, Any]) -> bool:
    with open(f"/proc/{facts['main']}/mem", "rb", 0) as memory:
        memory.seek(facts["address"])
        return memory.read(6) == b"memory"


@act
def copy_the_main_process_s_memory(facts: dict[str, Any]) -> bool:
    room = ctypes.create_string_buffer(6)
    ours = (ctypes.c_uint64 * 2)(ctypes.addressof(room), 6)
    theirs = (ctypes.c_uint64 * 2)(facts["address"], 6)
    call(310, facts["main"], ours, ctypes.c_ulong(1), theirs, ctypes.c_ulong(1), ctypes.c_ulong(0))
    return room.raw == b"memory"


@act
def open_the_main_process_s_files(facts: dict[str, Any]) -> bool:
    return Path(f"/proc/{facts['main']}/fd/{facts['descriptor']}").read_text() == "open"


@act
def take_the_main_process_s_descriptor(facts: dict[str, Any]) -> bool:
    call(438, call(434, facts["main"], 0), facts["descriptor"], 0)
    return True


@act
def read_shared_memory_of_another_program(facts: dict[str, Any]) -> bool:
    return Path("/dev/shm", facts["shm"]).read_text() == "shared"


@act
def attach_a_memory_segment_of_another_program(facts: dict[str, Any]) -> bool:
    return call(29, facts["segment"], ctypes.c_ulong(4096), 0o600) >= 0


# --- writing ---


@act
def write_into_a_foreign_project(facts: dict[str, Any]) -> bool:
    Path(facts["project"], "written").write_text("")
    return True


@act
def remove_a_foreign_file(facts: dict[str, Any]) -> bool:
    Path(facts["project"], "victim").unlink()
    return True


@act
def change_the_rights_of_a_foreign_file(facts: dict[str, Any]) -> bool:
    Path(facts["project"], "source.py").chmod(0o666)
    return True


@act
def write_where_python_starts(facts: dict[str, Any]) -> bool:
    place = Path(facts["packages"], "hostile_drill.pth")
    place.write_text("")
    place.unlink()
    return True


@act
def change_a_file_of_opsieve(facts: dict[str, Any]) -> bool:
    with open(facts["opsieve"], "r+b"):
        return True


@act
def write_into_the_shared_tmp(facts: dict[str, Any]) -> bool:
    Path("/tmp", facts["mark"]).write_text("")
    return True  # the main process looks whether it is in its own


@act
def link_a_foreign_file(facts: dict[str, Any]) -> bool:
    os.link(os.path.join(facts["project"], "source.py"), os.path.join(tempfile.gettempdir(), "linked"))
    return True


@act
def swap_the_scratch_folder_for_a_link(facts: dict[str, Any]) -> bool:
    scratch = tempfile.gettempdir()
    os.rename(scratch, scratch + "-away")
    os.symlink(facts["project"], scratch)
    return True  # who removes the scratch folder must not remove what the link leads to


@act
def write_into_a_neighbour_s_scratch_folder(facts: dict[str, Any]) -> bool:
    own = Path(tempfile.gettempdir())
    others = [place for place in own.parent.iterdir() if place != own and place.is_dir()]
    (others[0] / "written").write_text("")
    return True


@act
def fill_the_disk(facts: dict[str, Any]) -> bool:
    for number in range(40):
        with open(os.path.join(tempfile.gettempdir(), str(number)), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 60 << 20)
    return True


@act
def open_a_disk(facts: dict[str, Any]) -> bool:
    disks = [entry for entry in os.listdir("/sys/block") if not entry.startswith(("loop", "ram"))]
    os.close(os.open("/dev/" + disks[0], os.O_RDONLY))
    return True


@act
def make_a_device(facts: dict[str, Any]) -> bool:
    os.mknod(os.path.join(tempfile.gettempdir(), "device"), 0o20600, os.makedev(1, 5))
    return True


@act
def open_the_kernel_s_log(facts: dict[str, Any]) -> bool:
    os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    return True


@act
def open_a_kernel_setting_to_write(facts: dict[str, Any]) -> bool:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return True


@act
def open_a_control_group_to_write(facts: dict[str, Any]) -> bool:
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        if "cgroup.procs" in names:
            os.close(os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY))
            return True
    return False


# --- processes ---


@act
def signal_the_main_process(facts: dict[str, Any]) -> bool:
    os.kill(facts["main"], signal.SIGCONT)
    return True


@act
def signal_a_neighbour(facts: dict[str, Any]) -> bool:
    for number in filter(str.isdigit, os.listdir("/proc")):
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        if int(state[1]) == os.getppid() and int(number) != os.getpid():
            os.kill(int(number), signal.SIGCONT)
            return True
    return False


@act
def kill_the_zygote(facts: dict[str, Any]) -> bool:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.2)
    return os.getppid() != facts.setdefault("parent", os.getppid())


@act
def trace_the_main_process(facts: dict[str, Any]) -> bool:
    return call(101, 0x4206, facts["main"], 0, 0) == 0  # PTRACE_SEIZE


@act
def trace_the_zygote(facts: dict[str, Any]) -> bool:
    return call(101, 0x4206, os.getppid(), 0, 0) == 0


@act
def change_the_main_process_s_limits(facts: dict[str, Any]) -> bool:
    soft, hard = resource.prlimit(facts["main"], resource.RLIMIT_NOFILE)
    resource.prlimit(facts["main"], resource.RLIMIT_NOFILE, (soft, hard))
    return True


@act
def start_a_thousand_processes(facts: dict[str, Any]) -> bool:
    for _ in range(1500):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    return True


@act
def start_a_process(facts: dict[str, Any]) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@act
def leave_a_process_behind(facts: dict[str, Any]) -> bool:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    return True  # the main process looks for it


@act
def take_memory_by_children(facts: dict[str, Any]) -> bool:
    ready, tell = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            kept = bytearray(facts["memory"] * 6 // 10)
            os.write(tell, b"x")
            time.sleep(30)
            os._exit(len(kept) & 0)
    os.close(tell)
    filled = [os.read(ready, 1) for _ in range(3)]  # however long a busy machine takes
    time.sleep(3)
    return all(filled)


@act
def allow_core_files(facts: dict[str, Any]) -> bool:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return True


@act
def lift_the_memory_limit(facts: dict[str, Any]) -> bool:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return True


# --- the kernel ---


@act
def make_a_user_namespace(facts: dict[str, Any]) -> bool:
    return call(272, 0x10000000) == 0


@act
def mount_a_file_system(facts: dict[str, Any]) -> bool:
    return call(165, b"none", tempfile.gettempdir().encode(), b"tmpfs", ctypes.c_ulong(0), None) == 0


@act
def change_the_root(facts: dict[str, Any]) -> bool:
    return call(161, tempfile.gettempdir().encode()) == 0


@act
def rename_the_machine(facts: dict[str, Any]) -> bool:
    name = socket.gethostname().encode()
    return call(170, name, len(name)) == 0


@act
def ask_for_the_keyring(facts: dict[str, Any]) -> bool:
    return call(250, 0, ctypes.c_int(-3), 1, 0, 0) >= 0


@act
def load_a_program_into_the_kernel(facts: dict[str, Any]) -> bool:
    attributes = (ctypes.c_uint32 * 18)(2, 4, 4, 1)  # BPF_MAP_CREATE of an array
    os.close(call(321, 0, ctypes.byref(attributes), ctypes.sizeof(attributes)))
    return True


@act
def make_a_ring_of_calls(facts: dict[str, Any]) -> bool:
    os.close(call(425, 4, ctypes.byref((ctypes.c_uint32 * 40)())))
    return True


@act
def count_events_of_the_machine(facts: dict[str, Any]) -> bool:
    attributes = (ctypes.c_uint64 * 16)(128 << 32)  # hardware, cycles
    attributes[0] = 1 | 128 << 32  # software, CPU clock
    os.close(call(298, ctypes.byref(attributes), ctypes.c_int(-1), 0, ctypes.c_int(-1), ctypes.c_ulong(0)))
    return True


class Hostile:
    """The backend `hostile`: its option says what it does when it is to run a model."""

    name = NAME
    variables = (FACTS,)
    package = extra = ""
    options: Mapping[str, tuple[str, ...]] = {"act": ()}
    main_option = "act"
    baseline: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    lacks: tuple[str, ...] = ("mercy",)

    def base(self, python: tuple[int, int]) -> tuple[str, ...]:
        return ()

    def companions(self, release: str) -> tuple[str, ...]:
        return ()

    def load(self) -> str:
        return "1"

    def prepare(self, request: Any) -> Callable[[Any], dict[str, Any]]:
        facts = {**json.loads(os.environ[FACTS]), "parent": os.getppid()}
        chosen = ACTS[request.options["act"]]

        def run(inputs: Any) -> dict[str, Any]:
            try:
                done, why = chosen(facts), ""
            except (OSError, ValueError, IndexError, MemoryError) as error:
                done, why = False, f"{type(error).__name__}: {error}"
            request.notes.append(f"{why} {sys.platform}")
            return {"y": np.array(done)}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        return "error"


BACKEND = Hostile()
