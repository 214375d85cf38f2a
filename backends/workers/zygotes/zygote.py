"""The main process's side of `child.py`: one zygote for a compiler in an environment, and the workers it
forks.
"""

import array
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import opsieve
from opsieve.backends.coverage.notes import Notes
from opsieve.backends.registry import Location
from opsieve.backends.workers.zygotes import channels, memory_bound, work_clock
from opsieve.gen.model.scratch import Scratch

# With numpy, which the process that starts a zygote need not have yet
if TYPE_CHECKING:
    from opsieve.backends.coverage.coverage import Probes

# In the folder of the package, as links to the folders of a checkout lead there: child.py loads the package
# from above itself.
CHILD = Path(opsieve.__file__).resolve().parent / "backends" / "workers" / "inside" / "child.py"
# Of work (WorkClock): the first import of a large compiler from a cold disk
START_SECONDS = 180.0
# Of a worker, at once
PROCESSES = 200
_FROM_JSON = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a test: seconds of work (work_clock.py), bytes of address space, of outputs, and of
    printed or written text.
    """

    seconds: float = 60.0
    memory: int = 4 << 30
    output: int = 512 << 20
    printed: int = 64 << 20


class Unavailable(Exception):
    """The compiler cannot be imported here; the message says why."""


class Refused(Exception):
    """The kernel refuses a part of the sandbox; `feature` has to be left out."""

    def __init__(self, feature: str, why: str):
        super().__init__(why)
        self.feature = feature


class Interrupted(Unavailable):
    """The import was killed or took too long; it may succeed later."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker without an answer: its test (position in the frame), its stage, and its remains.

    `status` is that of os.wait; `closed`: it closed its channel while it lived; `reached` are numbers of new
    probes if traced; `excess` names the limit that its processes together exceeded.
    """

    index: int
    stage: str
    # As os.wait gives it
    status: int
    timed_out: bool
    # It closed its channel while it lived
    closed: bool
    log: str
    peak: int
    reached: "tuple[int, ...] | None" = (
        # The numbers of newly reached probes, if it was traced.
        None
    )
    # The limit, over all its processes, for which it was killed.
    excess: str = ""


class TemplateProcess:
    """A warm process with the imports common to all releases of a backend in one environment; it forks
    zygotes.

    Close it after its zygotes: their leftovers end with it.
    """

    def __init__(self, backend: Location, python: Path, environment: dict[str, str]):
        self._zygote = Zygote(backend, python, [], environment, None, template=True)

    def fork_process(self, config: dict[str, Any], control: socket.socket, log: int) -> "ChildProcess":
        """Fork a process with the state of the template process; `config` is for `child.py`."""
        status_read, status_write = os.pipe()
        fds = array.array("i", [control.fileno(), log, status_write])
        # of a template process that has ended the child's end is learnt by the pipe
        with contextlib.suppress(OSError):
            self._zygote.send_request(config, fds)
        os.close(status_write)
        return ChildProcess(status_read)

    @property
    def is_alive(self) -> bool:
        """Whether it can still fork."""
        return self._zygote.is_alive

    def close(self) -> None:
        """End the worker."""
        self._zygote.close()


class ChildProcess:
    """Like `Popen`, for a process forked by a template process, whose state arrives through a pipe."""

    def __init__(self, status: int):
        self._status = status
        self._unread = b""
        self._code: int | None = None
        self.pid = int((self._read_message(START_SECONDS) or {"pid": 0})["pid"])
        if not self.pid:
            # The template process has ended before it forked.
            self._finish(-1)

    def poll(self) -> int | None:
        """Return the status of the worker in the form of os.wait, -1 if unknown, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._code

    def wait(self, timeout: float) -> int:
        """Wait for its status; raises TimeoutExpired."""
        if self._code is not None:
            return self._code
        ending = self._read_message(timeout)
        if ending is None:
            raise subprocess.TimeoutExpired("zygote", timeout)
        return self._finish(int(ending["status"]))

    def _finish(self, code: int) -> int:
        os.close(self._status)
        self._code = code
        return code

    def _read_message(self, seconds: float) -> dict[str, Any] | None:
        """Read the template's next message, None on timeout; a dead template process gives no status."""
        word, self._unread = channels.read_line(self._status, self._unread, seconds)
        return {"pid": 0, "status": -1} if word == {} else word


class Zygote:
    """A warm process with one imported compiler; `fork_worker` makes workers. Closing it ends them too.

    It is a program of its own, or forked from a `template` (True: it becomes one). With a `listener` other
    processes may request workers too (shared_zygotes.py), and it ends with the last of them.
    """

    version = ""
    lacks: dict[str, str] | None = (
        # The missing sandbox features with reasons; None without a sandbox.
        None
    )
    walls: Sequence[str] = ()
    uncompiled: Sequence[
        str
    ] = ()  # folders of modules that it has to compile each time, for it may not write
    # The libraries that it has loaded, where it is to be traced
    modules: Sequence[str] = ()
    _probes: "Probes | None" = None

    def __init__(
        self,
        backend: Location,
        python: Path,
        path: list[str],
        environment: dict[str, str],
        shim: Path | None,
        template: TemplateProcess | bool = False,
        traced: bool = False,
        sandbox: dict[str, Any] | None = None,
        listener: socket.socket | None = None,
    ):
        if sys.platform != "linux":
            raise Unavailable(
                "workers need Linux (memory files, process groups, parent-death signals); use a container"
            )
        # Packets keep their borders, so that each request is one message and carries its own descriptors.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._log = channels.make_memory_file("log")
        self._scratch = Scratch()
        self._shared = listener is not None
        # A shared zygote may outlive this process; with the lock it keeps the scratch folder from being
        # swept.
        inherited = [listener.fileno(), self._scratch.lock] if listener is not None else []
        config = {
            "control": theirs.fileno(),
            "backend": backend,
            "path": path,
            "shim": str(shim) if shim else "",
            "scratch": str(self._scratch.path),
            "template": template is True,
            "traced": traced,
            "sandbox": sandbox,
            **dict(zip(("listener", "owned"), inherited, strict=False)),
        }
        self._process: subprocess.Popen[bytes] | ChildProcess
        with theirs:
            if isinstance(template, TemplateProcess):
                self._process = template.fork_process(config, theirs, self._log)
            else:
                self._process = subprocess.Popen(
                    [str(python), "-I", str(CHILD), json.dumps(config)],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env=environment,
                    pass_fds=[theirs.fileno(), *inherited],
                    # Ctrl-C is for the main process, which ends its workers in order
                    start_new_session=True,
                )
        try:
            self._read_start(self._wait_for_start())
        except BaseException:
            self.close()
            raise

    def _wait_for_start(self) -> bytes:
        clock = work_clock.WorkClock(self._process.pid, START_SECONDS)
        while not (readable := channels.wait_readable(self._control.fileno(), clock.get_wait())):
            if clock.is_expired():
                break
        message = self._control.recv(1 << 20) if readable else b""
        if not message:
            log = channels.read_log(self._log).strip()
            why = log.splitlines()[-1][:300] if log else "no word from it"
            raise Interrupted(
                f"its process ended while importing: {why}" if readable else "its import takes too long"
            )
        return message

    def _read_start(self, word: bytes) -> None:
        answer = json.loads(word)
        if "refused" in answer:
            raise Refused(str(answer["refused"]), str(answer["why"]))
        if not answer["ready"]:
            raise Unavailable(
                f"{answer['exception']}:"
                f" {answer['message'].splitlines()[0][:300] if answer['message'] else ''}"
            )
        self.modules = [str(path) for path in answer.get("modules", ())]
        if "lacks" in answer:
            self.walls, self.lacks = list(map(str, answer["walls"])), answer["lacks"]
            self.uncompiled = [str(folder) for folder in answer["uncompiled"]]
        self.version = str(answer["version"])

    def plant_probes(self, probes: "Probes") -> int:
        """Plant probes for all later workers and return their number; raises Unavailable if that fails."""
        self.send_request(
            {"trace": {"total": probes.total, "libraries": probes.libraries()}},
            array.array("i", [probes.file]),
        )
        message = (
            self._control.recv(1 << 16)
            if channels.wait_readable(self._control.fileno(), START_SECONDS)
            else b""
        )
        answer: dict[str, Any] = (
            json.loads(message) if message else {"planted": 0, "why": "its process ended"}
        )
        if "why" in answer:
            raise Unavailable(f"coverage cannot be traced: {answer['why']}")
        self._probes = probes if probes.total else None
        return int(answer["planted"])

    def fork_worker(
        self,
        limits: Limits,
        plugin: Location | None = None,
        processes: bool = True,
        devices: bool = False,
        shared: bool = True,
    ) -> "Worker":
        """Fork a worker under `limits` for the zygote's backend, or the one at `plugin`.

        In a sandbox, a worker without `processes` cannot start any, and one without `shared` makes no memory
        files. With `devices`, reserved address space is not limited.
        """
        ours, theirs = socket.socketpair()
        log, state = channels.make_memory_file("log", append=True), channels.make_memory_file("state")
        status, status_theirs = socket.socketpair()
        # The kernel then writes the sender's process number as seen here, which the worker cannot know or
        # forge.
        status.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        config: dict[str, Any] = {key: int(value) for key, value in asdict(limits).items()}
        config.update(processes=processes, devices=devices, shared=shared)
        if plugin is not None:
            config["plugin"] = plugin
        fds = array.array("i", [theirs.fileno(), log, state, status_theirs.fileno()])
        probes = self._probes
        notes = Notes(probes.total, probes.counter_pages) if probes else None
        if notes is not None:
            fds.append(notes.file)
        try:
            self.send_request(config, fds)
        finally:
            theirs.close()
            status_theirs.close()
        return Worker(ours, log, state, status, limits, notes, probes)

    def send_request(self, request: dict[str, Any], fds: "array.array[int]") -> None:
        """Request a fork that gets these descriptors."""
        self._control.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

    @property
    def is_alive(self) -> bool:
        """Whether it can still fork."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Tell it to end, without waiting."""
        self._control.close()

    def close(self) -> None:
        """End it and, through it, all of its workers; waits until they are gone. A shared one ends with its
        last requester.
        """
        self.dismiss()
        try:
            # A shared one may be in use by others, so that its end is not waited for.
            self._wait(0.3 if self._shared and self.version else 15)
        except subprocess.TimeoutExpired:
            if self._shared and self.version:
                self._scratch.leave()
                os.close(self._log)
                return
            # It is stuck inside an import
            os.killpg(self._process.pid, signal.SIGKILL)
            self._wait(15)
        os.close(self._log)
        # It is empty by now, unless the process was killed.
        self._scratch.close()

    def _wait(self, seconds: float) -> None:
        """Wait for the end; raise TimeoutExpired after the time. Popen itself would poll every 50 ms."""
        if isinstance(self._process, subprocess.Popen) and self._process.returncode is None:
            watched = os.pidfd_open(self._process.pid)
            try:
                if not channels.wait_readable(watched, seconds):
                    raise subprocess.TimeoutExpired("zygote", seconds)
            finally:
                os.close(watched)
        self._process.wait(timeout=seconds)


class Excess(Exception):
    """The memory of a worker and its child processes exceeds a limit, which the message names."""


class Worker:
    """A forked process that answers tests one after the other."""

    def __init__(
        self,
        connection: socket.socket,
        log: int,
        state: int,
        status: socket.socket,
        limits: Limits,
        notes: Notes | None = None,
        probes: "Probes | None" = None,
    ):
        self._connection, self._log, self._state, self._status = connection, log, state, status
        self._limits, self._notes, self._probes = limits, notes, probes
        self._unread = b""
        self._group: Path | None = None
        self.tests = 0
        # Bytes that were resident in its first test, 0 before
        self.first_peak = 0
        # In a namespace of its own it has another number, which says nothing here.
        self.pid = channels.identify_sender(status, START_SECONDS)
        if not self.pid:
            self._close_files()
            raise Unavailable("its process ended")
        self._group = memory_bound.make_group(self.pid, limits.memory)
        self._known = {_identify_file(each) for each in (log, state, *([notes.file] if notes else ()))}

    def submit_frame(self, frame: Sequence[Any], tests: int, file: int | None = None) -> None:
        """Send one frame of `tests` tests, in pieces, with a descriptor; `read_reply` notices a dead
        worker.
        """
        self.tests += tests
        # A worker that does not read would block the main process forever.
        self._connection.settimeout(max(self._limits.seconds, 10.0))
        with contextlib.suppress(OSError):
            sent = 0
            if file is not None:
                self._known.add(_identify_file(file))
                carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
                sent = self._connection.sendmsg([frame[0]], carried)
            for part in frame:
                self._connection.sendall(memoryview(part)[sent:] if sent else part)
                sent = 0

    def read_reply(self, seconds: float) -> tuple[dict[str, Any], memoryview] | Death:
        """Read the next reply, or return how the worker ended; a worker that exceeds its time is killed."""
        # With numpy, which the process that starts a zygote need not have yet.
        from opsieve.backends.workers.inside import wire

        clock = work_clock.WorkClock(self.pid, seconds)
        try:
            head = self._read_exactly(wire.HEAD.size, clock)
            header, size = wire.read_sizes(bytes(head), self._limits.output + (64 << 20))
            text = self._read_exactly(header, clock)
            body = self._read_exactly(size, clock)
            reply = _parse_header(text)
            if not isinstance(reply, dict) or not isinstance(reply.get("peak"), int):
                raise ValueError("not an answer")
            self.first_peak = self.first_peak or reply["peak"]
            if self._notes and "reached" in reply:
                begin, end = map(int, reply["reached"])
                reply["reached"] = (
                    self._notes.every(begin, end) if reply.get("again") else self._notes.new(begin, end)
                )
            return reply, memoryview(body)
        except TimeoutError:
            self._dump_stack()
            return self._end_process(timed_out=True)
        except Excess as excess:
            # Ended as a hang is, without waiting for a status first: it is still alive.
            return replace(self._end_process(timed_out=True), timed_out=False, excess=str(excess))
        except (
            OSError,
            EOFError,
            ValueError,
            RecursionError,
        ):
            # it closed the channel, or wrote what is no frame
            return self._end_process(timed_out=False)

    def _read_exactly(self, size: int, clock: work_clock.WorkClock) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            # Short slices, because memory outside of all limits can grow within a single test.
            self._connection.settimeout(min(clock.get_wait(), memory_bound.SLICE))
            try:
                got = self._connection.recv_into(view)
            except TimeoutError:
                self._check_shared()
                if clock.is_due():
                    if clock.is_expired():
                        raise
                    self._check_family(clock)
                continue
            if not got:
                raise EOFError
            view = view[got:]
        return buffer

    def _check_shared(self) -> None:
        """Raise Excess if the worker and its children keep too much in what no process's limit counts."""
        if self._group is None:
            taken = memory_bound.measure_shared(work_clock.list_family(self.pid), self._known)
            if taken > memory_bound.EXCESS * self._limits.memory:
                raise Excess(self._describe_excess(taken))

    def _describe_excess(self, taken: int) -> str:
        most = self._limits.memory >> 20
        return f"it and its processes kept {taken >> 20} MiB in memory, and may keep {most} MiB together"

    def _check_family(self, clock: work_clock.WorkClock) -> None:
        """Raise Excess if the worker and its children are too many or use too much memory; alone it has its
        own limit.
        """
        load = clock.seen
        if load is None or load.processes == 1:
            return
        if load.processes > PROCESSES:
            raise Excess(f"it had {load.processes} processes at once, and may have {PROCESSES}")
        # The cheap sum counts shared pages for each process; only if it is too large, the exact one is read.
        if (
            load.resident > self._limits.memory
            and (memory := work_clock.read_memory(self.pid)) > self._limits.memory
        ):
            raise Excess(self._describe_excess(memory))

    def _dump_stack(self) -> None:
        """Let a hanging worker write its Python stack to its log (faulthandler answers from C in any
        state).
        """
        before = os.fstat(self._log).st_size
        try:
            os.kill(self.pid, signal.SIGUSR1)
        except ProcessLookupError:
            return
        # A worker in an uninterruptible state never answers; its end must not wait for that.
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline and os.fstat(self._log).st_size == before:
            time.sleep(0.01)
        # The dump is written line by line; the first bytes are not all of it.
        time.sleep(0.02)

    def _end_process(self, timed_out: bool) -> Death:
        """Kill the rest of the worker, and return how it ended."""
        # A worker that died has a status at once; one that only closed its channel still runs.
        ending = None if timed_out else self._read_message(1.0)
        closed = ending is None and not timed_out
        if ending is None:
            self._kill_group()
            ending = self._read_message(10.0) or {"status": 0, "peak": 0}
        # The worker may have written anything there, so that only known stages are taken over.
        index, _, stage = os.pread(self._state, 64, 0).decode(errors="replace").strip("\0 ").partition(" ")
        death = Death(
            index=int(index) if index.isdigit() else 0,
            stage=stage if stage in ("import", "compile", "run") else "import" if not stage else "run",
            status=int(ending["status"]),
            timed_out=timed_out,
            closed=closed,
            log=channels.read_log(self._log),
            peak=int(ending["peak"]),
            reached=self._collect_noted(),
            excess=self._describe_excess(self._limits.memory)
            if self._group is not None and memory_bound.has_overrun(self._group)
            else "",
        )
        self._close_files()
        return death

    def _collect_noted(self) -> tuple[int, ...] | None:
        """Return the probes that a dead worker reached first and had not reported."""
        if self._notes is None or self._probes is None:
            return None
        with self._notes.counters() as pages:
            return self._notes.new() + self._probes.collect(pages)

    def close(self) -> None:
        """End the worker; an idle one ends by itself when its channel closes."""
        if self._connection.fileno() < 0:
            return
        self._connection.close()
        if self._read_message(0.5) is None:
            self._kill_group()
            self._read_message(10.0)
        self._close_files()

    def _kill_group(self) -> None:
        for send in (os.killpg, os.kill):
            # The group may be gone while its leader is still there, and the other way round.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.pid, signal.SIGKILL)

    def _close_files(self) -> None:
        if self._group is not None:
            memory_bound.remove_group(self._group)
        self._connection.close()
        self._status.close()
        for fd in (self._log, self._state):
            os.close(fd)
        if self._notes:
            self._notes.close()

    def _read_message(self, seconds: float) -> dict[str, Any] | None:
        """Read the zygote's next message about this worker, None on timeout."""
        word, self._unread = channels.read_line(self._status.fileno(), self._unread, seconds)
        return word or None


def _identify_file(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _parse_header(text: bytearray) -> Any:
    """Parse a reply's header; raises ValueError for invalid JSON."""
    try:
        return _FROM_JSON(text)
    except ValueError:
        # Halves of characters, NaN: a worker writes with `json`
        return json.loads(bytes(text).decode("utf-8", "surrogatepass"))
