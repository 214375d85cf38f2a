"""Work that takes long, in child processes: what runs, what it says, how it ended. Knows nothing of screens.

A job is one or more commands in a row (reduce, then take up what it found). Threads read what a child says;
`changed` is called from them. A child leads a process group of its own, so that Ctrl-C at the terminal is
ours alone to answer.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from opsieve.gen.model.printable import counted

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Kind = Literal["reduce", "attribute", "bisect", "fuzz", "export", "replay"]
# What a person waits for: such a job does not queue behind long ones.
QUICK: tuple[Kind, ...] = ("export", "replay")
OPSIEVE = (sys.executable, "-m", "opsieve")
REDUCE = (*OPSIEVE, "reduce")
_MOST_OUTPUT = 256 << 20
_LONGEST = 1 << 16  # bytes of a line of the log
_AT_ONCE = 2
_GRACE = 15.0  # seconds from the request to end, in which a reduction saves its best, to the end itself
_EVERY = 0.5  # seconds between looks at how far a job is


@dataclass(slots=True)
class Job:
    """A job as it stands. `results` are what the commands wrote on stdout, `log` the last lines of what they
    said.
    """

    number: int
    kind: Kind
    subject: str  # the id of a cluster, "" for none
    commands: tuple[tuple[str, ...], ...]
    watched: Path | None = None  # a file of attempts that tells how far a reduction is
    state: State = "waiting"
    code: int | None = None
    began: float = 0.0  # time.monotonic
    ended: float = 0.0
    progress: str = ""
    log: deque[str] = field(default_factory=lambda: deque(maxlen=1000))
    results: list[bytes] = field(default_factory=list)

    @property
    def title(self) -> str:
        """What to call it."""
        return f"{self.kind} {self.subject}".strip()

    @property
    def quick(self) -> bool:
        """Whether a person waits for it."""
        return self.kind in QUICK

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def seconds(self) -> float:
        """Wall time that it has taken so far."""
        return 0.0 if not self.began else (self.ended or time.monotonic()) - self.began

    @property
    def output(self) -> bytes:
        """What the last command wrote."""
        return self.results[-1] if self.results else b""

    def report(self) -> dict[str, Any]:
        """The first JSON object that a command wrote; {} when there is none."""
        for result in self.results:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(result)
                if isinstance(found, dict):
                    return found
        return {}

    @property
    def outcome(self) -> str:
        """What was found, in a few words; "" while it is not over, or when that says nothing."""
        if self.state != "done":
            return ""
        report = self.report()
        if "nodes_after" in report:
            before = report.get("nodes_before")
            left = (
                f"{report['nodes_after']} of"
                f" {counted(before, 'node') if isinstance(before, int) else 'the nodes'} left"
            )
            return left if report.get("same", True) else f"{left}, but the failure changed"
        if "transitions" in report:
            bad = report.get("culprit_commit") or report.get("first_bad")
            return f"first bad: {bad}" if bad else f"answer: {report.get('answer')}"
        if "passes" in report:
            return (
                f"{report.get('answer')}: {' '.join(map(str, report['passes']))}"
                if report["passes"]
                else str(report.get("answer"))
            )
        return ""

    @property
    def said(self) -> str:
        """The last thing that it said."""
        return next((line.removeprefix("opsieve: ") for line in reversed(self.log) if line.strip()), "")


class JobBoard:
    """All jobs, the newest last; at most two run at once, the others wait."""

    def __init__(self, changed: Callable[[Job], None]) -> None:
        self.jobs: list[Job] = []
        self._changed = changed
        self._running = threading.Semaphore(_AT_ONCE)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, kind: Kind, subject: str, *commands: Sequence[str], watched: Path | None = None) -> Job:
        """Begin a job; a quick one does not wait for others."""
        job = Job(len(self.jobs) + 1, kind, subject, tuple(tuple(command) for command in commands), watched)
        self.jobs.append(job)
        thread = threading.Thread(target=self._run, args=[job], daemon=True, name=f"job-{job.number}")
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return job

    @property
    def active(self) -> list[Job]:
        """Those that wait or run."""
        return [job for job in self.jobs if not job.over]

    def cancel(self, job: Job) -> None:
        """End a job: ask its child, and kill that when it does not end."""
        with self._lock:
            if job.over:
                return
            self._over(job, "cancelled")
            child = self._children.get(job.number)
            if child is not None:
                _signal(child, signal.SIGINT)
                timer = threading.Timer(_GRACE, _signal, [child, signal.SIGKILL])
                timer.daemon = True
                timer.start()
        self._changed(job)

    def close(self) -> None:
        """End all jobs and wait until they have ended."""
        for job in self.active:
            self.cancel(job)
        for thread in self._threads:
            thread.join(_GRACE + 5)

    def _over(self, job: Job, state: State) -> None:
        if not job.over:
            job.state, job.ended = state, time.monotonic()

    def _run(self, job: Job) -> None:
        if job.quick:
            self._work(job)
            return
        with self._running:
            self._work(job)

    def _work(self, job: Job) -> None:
        for command in job.commands:
            with self._lock:
                if job.over:
                    return
                job.state, job.began = "running", job.began or time.monotonic()
                try:
                    child = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        start_new_session=True,
                    )  # fmt: skip
                except OSError as error:
                    job.log.append(str(error))
                    self._over(job, "failed")
                    self._changed(job)
                    return
                self._children[job.number] = child
            self._changed(job)
            self._read(job, child)
            with self._lock:
                del self._children[job.number]
                job.code = child.returncode
                if job.over:
                    break
                if job.code not in (0, 1):  # 1 says that failures were found
                    self._over(job, "failed")
                    break
        else:
            with self._lock:
                self._over(job, "done")
        self._changed(job)

    def _read(self, job: Job, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        listener = threading.Thread(target=self._listen, args=[job, child.stderr], daemon=True)
        ended = threading.Event()
        looker = threading.Thread(target=self._look, args=[job, ended], daemon=True)
        listener.start()
        looker.start()
        try:
            job.results.append(child.stdout.read(_MOST_OUTPUT))
            while child.stdout.read(1 << 20):
                pass
            child.wait()
            listener.join()
        finally:
            ended.set()
            looker.join()
            child.stdout.close()
            child.stderr.close()

    def _listen(self, job: Job, pipe: IO[bytes]) -> None:
        while line := pipe.readline(_LONGEST):
            job.log.append(line.decode("utf-8", "replace").rstrip("\r\n"))
            self._changed(job)

    def _look(self, job: Job, ended: threading.Event) -> None:
        if job.watched is None:
            return
        attempts, read, smallest = 0, 0, 0
        while not ended.wait(_EVERY):
            try:
                with job.watched.open("rb") as file:
                    file.seek(read)
                    fresh = file.read(8 << 20)
            except OSError:
                continue
            whole = fresh[: fresh.rfind(b"\n") + 1]
            read += len(whole)
            for line in whole.splitlines():
                attempts += 1
                with contextlib.suppress(ValueError, AttributeError, RecursionError):
                    report = json.loads(line)
                    if report.get("answer") == "same" and isinstance(report.get("nodes"), int):
                        smallest = report["nodes"]
            text = f"{counted(attempts, 'attempt')}" + (f", {counted(smallest, 'node')}" if smallest else "")
            if text != job.progress and attempts:
                job.progress = text
                self._changed(job)


def _signal(child: "subprocess.Popen[bytes]", number: int) -> None:
    """Tell a child, and on killing all of its group."""
    if child.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)
