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
from opsieve.backends.workers.zygotes.channels import memory_file, read_line, read_log, sender, wait_readable
from opsieve.backends.workers.zygotes.work_clock import WorkClock, memory_of
from opsieve.gen.model.scratch import Scratch

if TYPE_CHECKING:  # with numpy, which the process that starts a zygote need not have yet
    from opsieve.backends.coverage.coverage import Probes

# In the folder of the package, as links to the folders of a checkout lead there: child.py loads the package
# from above itself.
CHILD = Path(opsieve.__file__).resolve().parent / "backends" / "workers" / "inside" / "child.py"
START_SECONDS = 180.0  # of work (WorkClock): the first import of a large compiler from a cold disk
PROCESSES = 200  # of a worker, at once
_FROM_JSON = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Limits:
    """What a test may use: seconds of work (work_clock.py), bytes of address space, of outputs and of what it
    prints or writes to one file.
    """

    seconds: float = 60.0
    memory: int = 4 << 30
    output: int = 512 << 20
    printed: int = 64 << 20


class Unavailable(Exception):
    """The compiler cannot be imported here; the message says why."""


class Refused(Exception):
    """The kernel cannot shut the zygote in as it was asked to; `feature` is what is to be left out."""

    def __init__(self, feature: str, why: str):
        super().__init__(why)
        self.feature = feature


class Interrupted(Unavailable):
    """The import came to no end: its process was killed or took too long. It may end well another time."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended without answering: the test (position in its frame) and stage it was in, and what it
    left.
    """

    index: int
    stage: str
    status: int  # as os.wait gives it
    timed_out: bool
    closed: bool  # it closed its channel while it lived
    log: str
    peak: int
    reached: "tuple[int, ...] | None" = (
        None  # numbers of the probes that nobody had reached before, where it was traced
    )
    excess: str = ""  # for what of all its processes together it was killed


class TemplateProcess:
    """A warm process that has imported what all releases of a backend share in one environment; zygotes are
    forked from it.

    Close it after its zygotes: it ends with it what they left.
    """

    def __init__(self, backend: Location, python: Path, environment: dict[str, str]):
        self._zygote = Zygote(backend, python, [], environment, None, template=True)

    def fork(self, config: dict[str, Any], control: socket.socket, log: int) -> "ChildProcess":
        """A process with the state of the template process; `config` is for `child.py`."""
        status_read, status_write = os.pipe()
        fds = array.array("i", [control.fileno(), log, status_write])
        # of a template process that has ended the child's end is learnt by the pipe
        with contextlib.suppress(OSError):
            self._zygote.send(config, fds)
        os.close(status_write)
        return ChildProcess(status_read)

    @property
    def alive(self) -> bool:
        """Whether it can still fork."""
        return self._zygote.alive

    def close(self) -> None:
        """End it."""
        self._zygote.close()


class ChildProcess:
    """What `Popen` is to a child of this process, for one that a template process forked: all that is known
    of it comes by a pipe.
    """

    def __init__(self, status: int):
        self._status = status
        self._unread = b""
        self._code: int | None = None
        self.pid = int((self._line(START_SECONDS) or {"pid": 0})["pid"])
        if not self.pid:
            self._end(-1)

    def poll(self) -> int | None:
        """Its status as os.wait gives it, -1 when nobody knows, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._code

    def wait(self, timeout: float) -> int:
        """Its status; TimeoutExpired when it has not ended by then."""
        if self._code is not None:
            return self._code
        ending = self._line(timeout)
        if ending is None:
            raise subprocess.TimeoutExpired("zygote", timeout)
        return self._end(int(ending["status"]))

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _end(self, code: int) -> int:
        os.close(self._status)
        self._code = code
        return code

    def _line(self, seconds: float) -> dict[str, Any] | None:
        """The template's next word, None when none comes in time; a template process that is gone knows no
        status.
        """
        word, self._unread = read_line(self._status, self._unread, seconds)
        return {"pid": 0, "status": -1} if word == {} else word


class Zygote:
    """A warm process that has imported one compiler; `fork` gives workers. Close it: it ends its workers with
    it.

    It is a program of its own, or forked from a `template` (True: it is to be one). With a `listener` other
    processes may ask it for workers, too (shared_zygotes.py), and it ends with the last of them.
    """

    version = ""
    lacks: dict[str, str] | None = (
        None  # what it could not be shut in with, and why; None when it was not to be
    )
    walls: Sequence[str] = ()
    uncompiled: Sequence[
        str
    ] = ()  # folders of modules that it has to compile each time, for it may not write
    modules: Sequence[str] = ()  # the libraries that it has loaded, where it is to be traced
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
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._log = memory_file("log")
        self._scratch = Scratch()
        self._shared = listener is not None
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
                self._process = template.fork(config, theirs, self._log)
            else:
                self._process = subprocess.Popen(
                    [str(python), "-I", str(CHILD), json.dumps(config)],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env=environment,
                    pass_fds=[theirs.fileno(), *inherited],
                    start_new_session=True,  # Ctrl-C is for the main process, which ends its workers in order
                )
        try:
            self._hear(self._first_word())
        except BaseException:
            self.close()
            raise

    def _first_word(self) -> bytes:
        clock = WorkClock(self._process.pid, START_SECONDS)
        while not (readable := wait_readable(self._control.fileno(), clock.slice())):
            if clock.expired():
                break
        message = self._control.recv(1 << 20) if readable else b""
        if not message:
            log = read_log(self._log).strip()
            why = log.splitlines()[-1][:300] if log else "no word from it"
            raise Interrupted(
                f"its process ended while importing: {why}" if readable else "its import takes too long"
            )
        return message

    def _hear(self, word: bytes) -> None:
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

    def trace(self, probes: "Probes") -> int:
        """Plant probes for all workers forked from now on; returns how many stand. Unavailable when none can
        be planted.
        """
        self.send(
            {"trace": {"total": probes.total, "libraries": probes.libraries()}},
            array.array("i", [probes.file]),
        )
        message = self._control.recv(1 << 16) if wait_readable(self._control.fileno(), START_SECONDS) else b""
        answer: dict[str, Any] = (
            json.loads(message) if message else {"planted": 0, "why": "its process ended"}
        )
        if "why" in answer:
            raise Unavailable(f"coverage cannot be traced: {answer['why']}")
        self._probes = probes if probes.total else None
        return int(answer["planted"])

    def fork(
        self,
        limits: Limits,
        plugin: Location | None = None,
        processes: bool = True,
        devices: bool = False,
    ) -> "Worker":
        """A new worker under `limits`; it serves the zygote's backend, or the one that a
        worker finds at `plugin`.

        Where the zygote is shut in, a worker without `processes` can start none. With `devices`, what is
        bounded is not what it reserves.
        """
        ours, theirs = socket.socketpair()
        log, state = memory_file("log", append=True), memory_file("state")
        status, status_theirs = socket.socketpair()
        status.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        config: dict[str, Any] = {key: int(value) for key, value in asdict(limits).items()}
        config.update(processes=processes, devices=devices)
        if plugin is not None:
            config["plugin"] = plugin
        fds = array.array("i", [theirs.fileno(), log, state, status_theirs.fileno()])
        probes = self._probes
        notes = Notes(probes.total, probes.counter_pages) if probes else None
        if notes is not None:
            fds.append(notes.file)
        try:
            self.send(config, fds)
        finally:
            theirs.close()
            status_theirs.close()
        return Worker(ours, log, state, status, limits, notes, probes)

    def send(self, request: dict[str, Any], fds: "array.array[int]") -> None:
        """Ask for a fork that gets these descriptors."""
        self._control.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

    @property
    def alive(self) -> bool:
        """Whether it can still fork."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Have it end, without waiting for it."""
        self._control.close()

    def close(self) -> None:
        """End it and, through it, all of its workers; waits until they are gone. One that is shared ends when
        nobody is left to ask it.
        """
        self.dismiss()
        try:
            self._wait(0.3 if self._shared and self.version else 15)
        except subprocess.TimeoutExpired:
            if self._shared and self.version:
                self._scratch.leave()
                os.close(self._log)
                return
            os.killpg(self._process.pid, signal.SIGKILL)  # it is stuck inside an import
            self._wait(15)
        os.close(self._log)
        self._scratch.close()  # what is in it is gone by now, unless something killed the process

    def _wait(self, seconds: float) -> None:
        """Until it has ended; TimeoutExpired when it has not by then. Popen itself would look every 50 ms."""
        if isinstance(self._process, subprocess.Popen) and self._process.returncode is None:
            watched = os.pidfd_open(self._process.pid)
            try:
                if not wait_readable(watched, seconds):
                    raise subprocess.TimeoutExpired("zygote", seconds)
            finally:
                os.close(watched)
        self._process.wait(timeout=seconds)


class Excess(Exception):
    """What a worker and the processes that it started have together is over a limit; the message says
    what.
    """


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
        self.tests = 0
        self.first_peak = 0  # bytes that were resident in its first test, 0 before
        # In a namespace of its own it has another number, which says nothing here.
        self.pid = sender(status, START_SECONDS)
        if not self.pid:
            self._release()
            raise Unavailable("its process ended")

    def submit(self, frame: Sequence[Any], tests: int, file: int | None = None) -> None:
        """Send one frame, in pieces, that holds `tests` tests, and a descriptor with it; a worker that has
        died is noticed by `reply`.
        """
        self.tests += tests
        self._connection.settimeout(max(self._limits.seconds, 10.0))
        with contextlib.suppress(OSError):
            sent = 0
            if file is not None:
                carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
                sent = self._connection.sendmsg([frame[0]], carried)
            for part in frame:
                self._connection.sendall(memoryview(part)[sent:] if sent else part)
                sent = 0

    def reply(self, seconds: float) -> tuple[dict[str, Any], memoryview] | Death:
        """The next reply, or how the worker ended; a worker that does not answer in time is killed."""
        # With numpy, which the process that starts a zygote need not have yet.
        from opsieve.backends.workers.inside import wire

        clock = WorkClock(self.pid, seconds)
        try:
            head = self._read(wire.HEAD.size, clock)
            header, size = wire.frame_size(bytes(head), self._limits.output + (64 << 20))
            text = self._read(header, clock)
            body = self._read(size, clock)
            reply = _header(text)
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
            return self._end(timed_out=True)
        except Excess as excess:
            return replace(self._end(timed_out=True), timed_out=False, excess=str(excess))
        except (
            OSError,
            EOFError,
            ValueError,
            RecursionError,
        ):
            # it closed the channel, or wrote what is no frame
            return self._end(timed_out=False)

    def _read(self, size: int, clock: WorkClock) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            self._connection.settimeout(clock.slice())
            try:
                got = self._connection.recv_into(view)
            except TimeoutError:
                if clock.expired():
                    raise
                self._check_family(clock)
                continue
            if not got:
                raise EOFError
            view = view[got:]
        return buffer

    def _check_family(self, clock: WorkClock) -> None:
        """Excess when the worker and what it started are too many or keep too much memory together; alone it
        has a limit of its own.
        """
        load = clock.seen
        if load is None or load.processes == 1:
            return
        if load.processes > PROCESSES:
            raise Excess(f"it had {load.processes} processes at once, and may have {PROCESSES}")
        if load.resident > self._limits.memory and (memory := memory_of(self.pid)) > self._limits.memory:
            most = self._limits.memory >> 20
            raise Excess(
                f"it and its processes kept {memory >> 20} MiB in memory, and may keep {most} MiB together"
            )

    def _dump_stack(self) -> None:
        """Have a hanging worker write its Python stack to its log (faulthandler answers from C, whatever it
        runs).
        """
        before = os.fstat(self._log).st_size
        try:
            os.kill(self.pid, signal.SIGUSR1)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline and os.fstat(self._log).st_size == before:
            time.sleep(0.01)
        time.sleep(0.02)

    def _end(self, timed_out: bool) -> Death:
        """Kill what is left of the worker, and tell how it ended."""
        ending = None if timed_out else self._line(1.0)
        closed = ending is None and not timed_out
        if ending is None:
            self._kill()
            ending = self._line(10.0) or {"status": 0, "peak": 0}
        index, _, stage = os.pread(self._state, 64, 0).decode(errors="replace").strip("\0 ").partition(" ")
        death = Death(
            index=int(index) if index.isdigit() else 0,
            stage=stage if stage in ("import", "compile", "run") else "import" if not stage else "run",
            status=int(ending["status"]),
            timed_out=timed_out,
            closed=closed,
            log=read_log(self._log),
            peak=int(ending["peak"]),
            reached=self._left_noted(),
        )
        self._release()
        return death

    def _left_noted(self) -> tuple[int, ...] | None:
        """What a dead worker was the first to reach, and had not said."""
        if self._notes is None or self._probes is None:
            return None
        with self._notes.counters() as pages:
            return self._notes.new() + self._probes.collect(pages)

    def close(self) -> None:
        """End the worker; an idle one ends by itself when its channel closes."""
        if self._connection.fileno() < 0:
            return
        self._connection.close()
        if self._line(0.5) is None:
            self._kill()
            self._line(10.0)
        self._release()

    def _kill(self) -> None:
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.pid, signal.SIGKILL)

    def _release(self) -> None:
        self._connection.close()
        self._status.close()
        for fd in (self._log, self._state):
            os.close(fd)
        if self._notes:
            self._notes.close()

    def _line(self, seconds: float) -> dict[str, Any] | None:
        """The zygote's next word on this worker, None when none comes in time."""
        word, self._unread = read_line(self._status.fileno(), self._unread, seconds)
        return word or None


def _header(text: bytearray) -> Any:
    """What a reply's header says; ValueError where it is no JSON."""
    try:
        return _FROM_JSON(text)
    except ValueError:  # halves of characters, NaN: a worker writes with `json`
        return json.loads(bytes(text).decode("utf-8", "surrogatepass"))
