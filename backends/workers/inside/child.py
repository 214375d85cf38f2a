"""The program that runs compilers: a zygote that imports one of them once, and the workers it forks.

Run as `python -I child.py CONFIG`, never imported by the main process. Releases may be years old, so it needs
the standard library and numpy only, on Python 3.8 and newer. It loads the package `opsieve` from the folder
above it without a change of `sys.path`, so that no module of ours shadows one of the environment.

The zygote imports the compiler, says `ready` on its control socket and from then on only forks, reaps and
cleans up; it runs no kernel and starts no thread, for a fork of a process whose threads have run can hang. A
worker gets a socket for frames of tests (`wire.py`), a memory file for what is printed, another in which it
notes its test and stage (the main process reads it when it died), and a pipe that reports how it ended.

A *template process* is a zygote for releases: it imports only what they share (numpy, above all) and forks
zygotes, each of which puts the folder of its release on its path and imports the compiler there.

A zygote shuts itself in before it imports a compiler, and each worker further (`shut_in.py`).

With a listening socket it takes requests of its user's processes: of all lanes of a campaign.

Every process here ends with its requesters: the zygote sees the last control socket close, kills the workers'
process groups, adopts and kills processes that escaped them, and removes the scratch folders.
"""

import array
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import importlib.util
import json
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Tuple

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OWNER = ".opsieve-owner"  # of a scratch folder (gen/model/scratch.py)
# Fixed, so that a stage is noted by one assignment to mapped memory: the note survives any death of the
# worker.
STATE_SIZE = 32
ORPHAN_SECONDS = 1.0  # between two looks for them


def load_module(name: str, path: str) -> Any:
    """Load a module, or a package by its `__init__.py`, from a file without touching sys.path."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("cannot load %s" % path)
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs, as importlib does, so that its own imports of its submodules find it.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_backend(name: str, path: str, attribute: str) -> Any:
    """Load the backend `attribute` of the module `name`.

    `path` is the `__init__.py` of its outermost package, or the module's own file outside packages.
    """
    root = name.partition(".")[0] if os.path.basename(path) == "__init__.py" else name
    if root not in sys.modules:
        load_module(root, path)
    return getattr(importlib.import_module(name), attribute)


PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3, "__init__.py"))
if __name__ == "__main__":
    load_module("opsieve", PACKAGE)

from opsieve.backends.protocol import Request, facts_of  # noqa: E402 -- of the package above
from opsieve.backends.workers.inside import exception_facts, processes  # noqa: E402


class TestServer:
    """One forked process that serves tests until its socket closes."""

    def __init__(
        self,
        wire: Any,
        backend: Any,
        connection: socket.socket,
        log: int,
        state: int,
        limits: Dict[str, int],
        tracer: Any = None,
    ):
        self.wire, self.backend, self.connection = wire, backend, connection
        self.log, self.tracer = log, tracer
        os.ftruncate(state, STATE_SIZE)
        # Shared memory and not a message: a worker that dies in native code cannot send anything any more.
        self.state = mmap.mmap(state, STATE_SIZE)
        self.output_limit = limits["output"]
        self.libc = ctypes.CDLL(None)

    def serve_tests(self) -> None:
        """Answer frames of tests, one reply frame per test, until the other side closes."""
        files: List[int] = []  # of large tensors, the last one that came
        while True:
            try:
                header, body = self.wire.receive_frame(self.connection, files=files)
            except EOFError:
                return
            # A frame has at most one file. Older descriptors would pile up to the limit on open files.
            for old in files[:-1]:
                os.close(old)
            del files[:-1]
            offset = 0
            whole = [body]
            if len(header["tests"]) == 1:
                del body  # what is taken out of it is all that is kept
            for index, test in enumerate(header["tests"]):
                chunks: List[bytes] = []
                if len(header["tests"]) > 1:
                    whole = [body[offset : offset + test["span"]]]
                reply = self.run_test(index, test, whole, chunks, files)
                offset += test["span"]
                self.connection.sendall(self.wire.encode_frame(reply, chunks))
                if "outside" in test:
                    self.release_memory()

    def run_test(
        self, index: int, test: Dict[str, Any], given: List[memoryview], chunks: List[bytes], files: List[int]
    ) -> Dict[str, Any]:
        """Run one test, whose body is taken out of `given`; output tensors are appended to `chunks`."""
        seconds: Dict[str, float] = {}
        current, since = "", time.perf_counter()

        def stage(name: str) -> None:
            nonlocal current, since
            now = time.perf_counter()
            if current:
                seconds[current] = seconds.get(current, 0.0) + now - since
            current, since = name, now
            self.state[:] = (b"%d %s" % (index, name.encode())).ljust(STATE_SIZE)

        size = test["model"]
        body = given.pop()
        model = bytes(body[:size])
        # In a copy of its own, so that a large model is held once.
        values = memoryview(bytearray(body[size + (-size) % self.wire.ALIGN :]))
        del body
        # all that this test reaches is wanted, not only what is new
        if self.tracer is not None and test.get("again"):
            self.tracer.begin_again()
        since_note = self.tracer.position if self.tracer is not None else 0
        request = Request(model, test["options"], {}, stage)
        del model
        request.whole = lambda: request.model
        request.ir, request.passes = test.get("form", "onnx"), test.get("passes", [])
        if "outside" in test:
            self.wire.attach_tensors(request, test["outside"], files[-1], facts_of(self.backend).maps_tensors)
        reply: Dict[str, Any] = {"ok": True, "seconds": seconds, "cpu": []}
        try:
            stage("import")
            inputs = request.inputs = self.wire.unpack_values(test["inputs"], values, 0)[0]
            run = self.backend.prepare(request)
            outputs = {}
            # A negative number asks for compilation only (workers.COMPILED).
            if test["repeat"] >= 0:
                stage("run")
                cpu = _used_cpu()
                outputs = run(inputs)
                reply["cpu"].append(_used_cpu() - cpu)
            if test["repeat"] > 0:
                reply["repeats"], reply["cpu"] = self.time_runs(run, inputs, test["repeat"])
            stage("done")
            reply["outputs"] = self.wire.pack_values(outputs, chunks)
            size = sum(map(len, chunks))
            if size > self.output_limit:
                del chunks[:]
                raise MemoryError("outputs of %d bytes are over the limit of %d" % (size, self.output_limit))
        # Whatever a compiler raises is an observation, SystemExit too
        except BaseException as error:  # noqa: BLE001
            reply.pop("outputs", None)
            reply.update(exception_facts.describe_exception(error, __file__), ok=False)
            reply["stage"] = current if current != "done" else "run"
            stage("done")
        if self.tracer is not None:
            self.tracer.collect(bool(test.get("again")))
            reply.update(reached=[since_note, self.tracer.position], again=bool(test.get("again")))
        reply["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        extra = {
            "notes": request.notes,
            "hazards": request.hazards,
            "effects": request.effects,
            "log": self.read_printed(),
        }
        reply.update((name, value) for name, value in extra.items() if value)
        return reply

    def release_memory(self) -> None:
        """Return the memory of a large model, which tracebacks and the C library may hold."""
        gc.collect()
        with contextlib.suppress(AttributeError):  # glibc has it
            self.libc.malloc_trim(0)

    @staticmethod
    def time_runs(
        run: Callable[[Dict[str, Any]], Any], inputs: Dict[str, Any], repeat: int
    ) -> Tuple[List[float], List[float]]:
        """Return the wall and CPU seconds of `repeat` further runs; a self-timed run gives both."""
        timed = getattr(run, "timed", None)
        if timed is not None:
            said = [float(timed(inputs)) for _ in range(repeat)]
            return said, said
        took, used = [], []
        for _ in range(repeat):
            start, cpu = time.perf_counter(), _used_cpu()
            run(inputs)
            used.append(_used_cpu() - cpu)
            took.append(time.perf_counter() - start)
        return took, used

    def read_printed(self) -> str:
        """Return the bounded output since the last call, and empty the log."""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # the program under test closed them
        self.libc.fflush(None)
        size = os.fstat(self.log).st_size
        if not size:
            return ""
        half = exception_facts.TEXT_LIMIT // 2
        data = os.pread(self.log, half, 0)
        if size > half:
            data += b"\n[...]\n" * (size > exception_facts.TEXT_LIMIT) + os.pread(
                self.log, half, max(half, size - half)
            )
        # The file is open for appending, so later output begins at its new end and belongs to the next test.
        os.ftruncate(self.log, 0)
        return data.decode("utf-8", "replace")


class ForkServer:
    """The process that forks workers, reaps them and reports how they ended."""

    def __init__(self, config: Dict[str, Any]):
        self.config = config
        self.control = socket.socket(fileno=config["control"])
        self.controls = [self.control]  # of every process that may ask for forks
        place = config.get("listener", -1)
        self.listener = socket.socket(fileno=place) if place >= 0 else None
        self.said = b""
        self.libc = ctypes.CDLL(None)
        # Processes that leave their session are inherited by this one instead of by init, and can be killed.
        self.libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.sandbox: Any = None
        self.wire: Any = None
        self.backend: Any = None
        self.tracer: Any = None
        # pid -> the pipe that awaits its end, and its scratch folder
        self.workers: Dict[int, Tuple[int, str]] = {}
        self.count = 0
        self.pid = os.getpid()  # a forked child finds its parent's here

    def import_compiler(self) -> None:
        """Import the compiler and report it; on failure report the reason and end.

        A template process leaves the compiler to its zygotes.
        """
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.path[:0] = self.config["path"]
        self.enter_sandbox()
        # what an import makes stays; to look through it again and again takes a sixth of the time of some
        gc.disable()
        try:
            if self.backend is None:
                # with numpy, which a sandbox has to allow
                from opsieve.backends.workers.inside import wire

                self.wire = wire
                self.backend = load_backend(*self.config["backend"])
            if os.uname().machine == "x86_64":
                from opsieve.backends.coverage import callbacks

                callbacks.provide()
            version = "" if self.config["template"] else self.backend.load()
        except BaseException as error:  # noqa: BLE001 -- an import may raise anything, SystemExit too
            self.control.send(
                json.dumps(dict(exception_facts.describe_exception(error, __file__), ready=False)).encode()[
                    :100_000
                ]
            )
            sys.exit(1)
        gc.collect()
        gc.enable()
        gc.freeze()  # keeps collections in the workers from copying the pages they share with this process
        ready = {
            "ready": True,
            "version": version,
            "modules": list_libraries() if self.config["traced"] else [],
        }
        if self.sandbox is not None:
            ready.update(walls=self.sandbox.walls, lacks=self.sandbox.lacks, uncompiled=find_uncompiled())
        self.said = json.dumps(ready).encode()
        with contextlib.suppress(OSError):  # who started it may be gone, and others want it
            self.control.send(self.said)

    def enter_sandbox(self) -> None:
        """Enter the sandbox if requested; a half-entered sandbox is reported, and ends the process."""
        wanted = self.config["sandbox"]
        if self.config["template"]:  # it imports nothing of a compiler
            return
        if not wanted:
            tempfile.tempdir = os.environ["TMPDIR"] = os.path.join(self.config["scratch"], "common")
            os.makedirs(tempfile.tempdir, exist_ok=True)
            return
        from opsieve.backends.workers.inside.namespaces import Incomplete
        from opsieve.backends.workers.inside.shut_in import Walls

        sandbox = Walls(wanted)
        try:
            self.config["scratch"] = sandbox.enter_sandbox(self.config["scratch"])
        except Incomplete as refused:
            self.control.send(
                json.dumps({"ready": False, "refused": refused.feature, "why": str(refused)}).encode()
            )
            os._exit(1)
        self.sandbox, self.pid = sandbox, os.getpid()

    def serve_forks(self) -> None:
        """Fork on request and reap until every requester is gone."""
        awake, alarm = os.pipe()
        # A handler that blocks on a full pipe would stop the process; one byte in it is enough to wake up.
        os.set_blocking(alarm, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.private = [awake, alarm]
        while self.controls:
            # Of other processes than its own there is no end to look through.
            watched = self.pid == 1 and bool(self.workers)
            asked = [
                control.fileno() for control in self.controls + ([self.listener] if self.listener else [])
            ]
            # Where others may ask, too, one that ends takes no more with it than its own workers.
            askers = {pipe: pid for pid, (pipe, _) in self.workers.items()} if self.listener else {}
            ready, _, _ = select.select([*asked, awake, *askers], [], [], ORPHAN_SECONDS if watched else None)
            if not ready:
                self.kill_orphans()  # what leaves its worker has no limits in common with it
            for gone in set(ready) & set(askers):  # nothing comes on these but their end
                processes.kill_group(askers[gone])
            if awake in ready:
                os.read(awake, 4096)
                self.reap_children()
            if self.listener is not None and self.listener.fileno() in ready:
                self.accept_requester(self.listener)
            for control in [control for control in self.controls if control.fileno() in ready]:
                self.handle_request(control)

    def accept_requester(self, listener: socket.socket) -> None:
        """Accept another process of this user, which may request forks; it gets the first one's report."""
        asker, _ = listener.accept()
        _, user, _ = struct.unpack("3i", asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        # An abstract socket has no file permissions: any user of the machine can connect to it.
        if user != os.geteuid():
            asker.close()
            return
        with contextlib.suppress(OSError):  # it is gone again: that is seen when it asks for nothing
            asker.send(self.said)
        self.controls.append(asker)

    def handle_request(self, control: socket.socket) -> None:
        """Handle a request, or drop a requester that has ended."""
        fds = array.array("i")
        try:
            message, ancillary, _, _ = control.recvmsg(65536, socket.CMSG_LEN(8 * fds.itemsize))
        except ConnectionError:
            message, ancillary = b"", []
        if not message:
            self.controls.remove(control)
            control.close()
            return
        for _, _, data in ancillary:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        request = json.loads(message.decode())
        if "trace" in request:
            self.plant_probes(request["trace"], list(fds))
        else:
            (self.fork_zygote if self.config["template"] else self.fork_worker)(request, list(fds))

    def plant_probes(self, wanted: Dict[str, Any], fds: List[int]) -> None:
        """Plant probes in the loaded libraries for all later workers; answer with their number, or the reason
        for failure.
        """
        try:
            from opsieve.backends.coverage.tracer import Tracer

            self.tracer = Tracer(fds[0], wanted["total"])
            for item in wanted["libraries"]:
                place = item["path"], item["points"], item["count"]
                if item["counters"]:
                    self.tracer.count(*place, item["counters"])
                else:
                    self.tracer.add(*place)
            answer: Dict[str, Any] = {"planted": self.tracer.plant()}
        except (OSError, ValueError) as error:
            self.tracer = None
            answer = {"planted": 0, "why": str(error)}
        os.close(fds[0])
        self.control.send(json.dumps(answer).encode())

    def fork_zygote(self, config: Dict[str, Any], fds: List[int]) -> None:
        """Fork a zygote; the template process reports its pid and its end, as a zygote does for its
        workers.
        """
        control, log, status = fds
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self.become_zygote(dict(config, control=control), log, status)
                code = 0
            finally:
                os._exit(code)
        os.close(control)
        os.close(log)
        self.workers[pid] = (status, config["scratch"])
        os.write(status, b'{"pid": %d}\n' % pid)

    def become_zygote(self, config: Dict[str, Any], log: int, status: int) -> None:
        """Release the template's resources in the forked child, import the compiler and serve."""
        self.detach_child(status)
        os.dup2(log, 1)
        os.dup2(log, 2)
        zygote = ForkServer(config)
        zygote.wire, zygote.backend = self.wire, self.backend
        zygote.run()

    def run(self) -> None:
        """Import the compiler and fork workers until the end."""
        try:
            self.import_compiler()
            self.serve_forks()
        finally:
            self.end_all()

    def detach_child(self, status: int) -> None:
        """Start a session in a forked child without the parent's signal handlers and descriptors, and end
        with it.
        """
        # A killed zygote runs no cleanup, so the kernel has to end its workers.
        self.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.pid:  # the parent ended before this process had asked to end with it
            os._exit(1)
        # A group of its own, which can be killed with all that the worker starts.
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        held = [self.listener] if self.listener else []
        owned = [self.config["owned"]] if self.config.get("owned", -1) >= 0 else []
        own = [each.fileno() for each in self.controls + held]
        # A descriptor that a worker keeps open would hide the end of its other side from whoever waits for
        # it.
        for fd in [status] + own + owned + self.private + [pipe for pipe, _ in self.workers.values()]:
            os.close(fd)

    def fork_worker(self, limits: Dict[str, Any], fds: List[int]) -> None:
        """Fork one worker; its start and its end are reported on the status channel."""
        data, log, state, status = fds[:4]
        if self.tracer is not None:
            self.tracer.plant()  # what earlier workers reached needs no probe any more
        self.count += 1
        scratch = os.path.join(self.config["scratch"], "%d-%d" % (os.getpid(), self.count))
        os.mkdir(scratch, 0o700)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                if self.tracer is not None and len(fds) > 4:
                    self.tracer.watch(fds[4])
                    os.close(fds[4])
                self.become_worker(limits, data, log, state, status, scratch)
                code = 0
            finally:
                os._exit(code)
        for fd in [data, log, state] + fds[4:]:
            os.close(fd)
        self.workers[pid] = (status, scratch)

    def become_worker(
        self, limits: Dict[str, Any], data: int, log: int, state: int, status: int, scratch: str
    ) -> None:
        """Set up limits, signals and files in the forked child, then serve."""
        os.write(status, b"{}\n")  # the kernel tells the other side who wrote it
        self.detach_child(status)
        # Python ignores it: printing without end must end the process
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        # A compiler that reads its input must see the end of it, not wait for the user's terminal.
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(scratch)
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        if self.sandbox is not None:
            self.sandbox.move_home(scratch)
        mapped = 0  # without /proc
        with contextlib.suppress(OSError), open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        # A device's driver reserves far more addresses than it ever fills: where devices are let in, what can
        # be written to is bounded.
        kind = resource.RLIMIT_DATA if limits["devices"] else resource.RLIMIT_AS
        # What the zygote has mapped is on top: libraries of some compilers reserve gigabytes of addresses.
        bound, most = mapped + limits["memory"], resource.getrlimit(kind)[1]
        bound = bound if most == resource.RLIM_INFINITY else min(bound, most)
        resource.setrlimit(kind, (bound, bound))
        # The log is a file in memory, which RLIMIT_AS does not count.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["printed"], limits["printed"]))
        faulthandler.enable(log)
        if self.config["shim"]:
            # After the import of the compiler, since TVM installs handlers of its own for the same signals.
            ctypes.CDLL(self.config["shim"]).opsieve_install(log)
        faulthandler.register(signal.SIGUSR1, log, all_threads=True)
        if self.sandbox is not None:
            # Last of all, since the lines above open files that the worker may not open any more.
            self.sandbox.confine_worker(scratch, limits["processes"], limits["shared"])
        backend = self.backend
        if "plugin" in limits:
            backend = load_backend(*limits["plugin"])
            backend.load()
        TestServer(
            self.wire, backend, socket.socket(fileno=data), log, state, limits, self.tracer
        ).serve_tests()

    def reap_children(self) -> None:
        """Collect every child that has ended, and report workers with exit status and resident peak."""
        ended = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                # All children have ended.
                break
            if pid == 0:
                break
            if pid not in self.workers:
                continue
            pipe, scratch = self.workers.pop(pid)
            ended = True
            processes.kill_group(pid)
            shutil.rmtree(scratch, ignore_errors=True)
            with contextlib.suppress(OSError):  # nobody may wait for it any more
                os.write(pipe, json.dumps({"status": status, "peak": usage.ru_maxrss << 10}).encode() + b"\n")
            os.close(pipe)
        if ended:
            self.kill_orphans()

    def kill_orphans(self) -> None:
        """Kill the processes that a dead worker left in sessions of their own, which this process
        inherits.
        """
        for pid in processes.list_children():
            if pid not in self.workers:
                processes.kill_group(pid)

    def end_all(self) -> None:
        """Kill every worker and its processes, wait for them, and remove their files."""
        signal.set_wakeup_fd(-1)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            # The slow but exact list: the kernel's quick one may miss a child while another one ends.
            left = processes.find_children()
            for pid in left:
                processes.kill_group(pid)
            if not left:
                break
            try:
                os.wait4(-1, 0)
            except ChildProcessError:
                break
        for scratch in [self.config["scratch"]] + [place for _, place in self.workers.values()]:
            shutil.rmtree(scratch, ignore_errors=True)
        if not os.path.isdir(self.config["scratch"]):
            return
        # it may not remove the folder itself: marked, it goes with the next sweep
        with contextlib.suppress(OSError):
            os.close(os.open(os.path.join(self.config["scratch"], OWNER), os.O_CREAT | os.O_WRONLY, 0o600))


def _used_cpu() -> float:
    # Commands run in children.
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def find_uncompiled() -> List[str]:
    """Find the folders of imported modules whose compiled form cannot be kept in the sandbox."""
    folders = set()
    for module in list(sys.modules.values()):
        file, kept = (getattr(module, name, None) for name in ("__file__", "__cached__"))
        if (
            isinstance(file, str)
            and isinstance(kept, str)
            and file.endswith(".py")
            and not os.path.exists(kept)
        ):
            folders.add(os.path.dirname(file))
    return sorted(folders)[:500]


def list_libraries() -> List[str]:
    """List the paths of the loaded libraries."""
    with open("/proc/self/maps") as maps:
        paths = [line.rstrip("\n").split(None, 5)[5:] for line in maps]
    return sorted({path[0] for path in paths if path and ".so" in os.path.basename(path[0])})


if __name__ == "__main__":
    ForkServer(json.loads(sys.argv[1])).run()
