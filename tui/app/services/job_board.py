"""Long-running work in child processes: jobs, their output, and their results. Independent of screens.

A job is one or more commands in sequence (reduce, then update the store). Threads read a child's output and
call `changed`. A child leads a process group of its own, so that Ctrl-C at the terminal reaches only the app.
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

from opsieve.gen.model.printable import count_noun

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Kind = Literal["reduce", "attribute", "bisect", "fuzz", "export", "replay"]
# What a person waits for: such a job does not queue behind long ones.
QUICK: tuple[Kind, ...] = ("export", "replay")
# -P: the current folder, which may be a stranger's, supplies no modules.
OPSIEVE = (sys.executable, "-P", "-m", "opsieve")
REDUCE = (*OPSIEVE, "reduce")
# Bytes of a command's stdout that are kept; an exported case may be large.
_MOST_OUTPUT = 256 << 20
# Bytes of a line of the log
_LONGEST = 1 << 16
# Slow jobs run compilers, which use several cores each.
_AT_ONCE = 2
# Seconds from the request to end, in which a reduction saves its best, to the end itself
_GRACE = 15.0
# Seconds between looks at how far a job is
_EVERY = 0.5


@dataclass(slots=True)
class Job:
    """The state of a job. `results` are the commands' stdout, `log` the last lines of their stderr.

    `subject` is the id of a cluster or "", `watched` a file of attempts that shows the progress of a
    reduction, `began` and `ended` are times of time.monotonic.
    """

    number: int
    kind: Kind
    # The id of a cluster, "" for none
    subject: str
    commands: tuple[tuple[str, ...], ...]
    # A file of attempts that tells how far a reduction is
    watched: Path | None = None
    state: State = "waiting"
    code: int | None = None
    # time.monotonic
    began: float = 0.0
    ended: float = 0.0
    progress: str = ""
    log: deque[str] = field(default_factory=lambda: deque(maxlen=1000))
    results: list[bytes] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The title of the job."""
        return f"{self.kind} {self.subject}".strip()

    @property
    def is_quick(self) -> bool:
        """Whether a person waits for it."""
        return self.kind in QUICK

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def seconds(self) -> float:
        """The wall time so far."""
        return 0.0 if not self.began else (self.ended or time.monotonic()) - self.began

    @property
    def output(self) -> bytes:
        """The output of the last command."""
        return self.results[-1] if self.results else b""

    def read_report(self) -> dict[str, Any]:
        """Return the first JSON object that a command wrote, or {}."""
        for result in self.results:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(result)
                if isinstance(found, dict):
                    return found
        return {}

    @property
    def outcome(self) -> str:
        """The result in a few words; "" before the end or without a result."""
        if self.state != "done":
            return ""
        report = self.read_report()
        if "nodes_after" in report:
            before = report.get("nodes_before")
            left = (
                f"{report['nodes_after']} of"
                f" {count_noun(before, 'node') if isinstance(before, int) else 'the nodes'} left"
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
    def last_line(self) -> str:
        """The last line of its log."""
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

    def start_job(
        self, kind: Kind, subject: str, *commands: Sequence[str], watched: Path | None = None
    ) -> Job:
        """Start a job; a quick one does not wait for others."""
        job = Job(len(self.jobs) + 1, kind, subject, tuple(tuple(command) for command in commands), watched)
        self.jobs.append(job)
        thread = threading.Thread(target=self._run_job, args=[job], daemon=True, name=f"job-{job.number}")
        # Ended threads are dropped: a session may start many replays.
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return job

    @property
    def active(self) -> list[Job]:
        """The jobs that wait or run."""
        return [job for job in self.jobs if not job.is_over]

    def cancel_job(self, job: Job) -> None:
        """End a job: interrupt its child, and kill it if it does not end."""
        with self._lock:
            if job.is_over:
                return
            # Marked first, so that the thread of the job starts no further command.
            self._mark_over(job, "cancelled")
            child = self._children.get(job.number)
            if child is not None:
                _send_signal(child, signal.SIGINT)
                # It may be inside a compiler, which does not react to SIGINT.
                timer = threading.Timer(_GRACE, _send_signal, [child, signal.SIGKILL])
                timer.daemon = True
                timer.start()
        self._changed(job)

    def end_all(self) -> None:
        """End all jobs and wait for them."""
        for job in self.active:
            self.cancel_job(job)
        for thread in self._threads:
            # The kill comes after _GRACE; 5 seconds for what is left to read.
            thread.join(_GRACE + 5)

    def _mark_over(self, job: Job, state: State) -> None:
        if not job.is_over:
            job.state, job.ended = state, time.monotonic()

    def _run_job(self, job: Job) -> None:
        if job.is_quick:
            self._run_commands(job)
            return
        # Waits its turn in this thread, so that the interface does not.
        with self._running:
            self._run_commands(job)

    def _run_commands(self, job: Job) -> None:
        for command in job.commands:
            with self._lock:
                if job.is_over:
                    return
                job.state, job.began = "running", job.began or time.monotonic()
                try:
                    child = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        start_new_session=True,
                    )  # fmt: skip
                except OSError as error:
                    job.log.append(str(error))
                    self._mark_over(job, "failed")
                    self._changed(job)
                    return
                self._children[job.number] = child
            self._changed(job)
            self._read_output(job, child)
            with self._lock:
                del self._children[job.number]
                job.code = child.returncode
                if job.is_over:
                    break
                # Exit code 1 means that failures were found.
                if job.code not in (0, 1):
                    self._mark_over(job, "failed")
                    break
        else:
            with self._lock:
                self._mark_over(job, "done")
        self._changed(job)

    def _read_output(self, job: Job, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        # Both pipes are read at once, since the child blocks as soon as either is full.
        listener = threading.Thread(target=self._read_log, args=[job, child.stderr], daemon=True)
        ended = threading.Event()
        looker = threading.Thread(target=self._watch_progress, args=[job, ended], daemon=True)
        listener.start()
        looker.start()
        try:
            job.results.append(child.stdout.read(_MOST_OUTPUT))
            # The rest is drained: a full pipe would block the child for ever.
            while child.stdout.read(1 << 20):
                pass
            child.wait()
            listener.join()
        finally:
            ended.set()
            looker.join()
            child.stdout.close()
            child.stderr.close()

    def _read_log(self, job: Job, pipe: IO[bytes]) -> None:
        # Limited: a compiler may print without any line end.
        while line := pipe.readline(_LONGEST):
            job.log.append(line.decode("utf-8", "replace").rstrip("\r\n"))
            self._changed(job)

    def _watch_progress(self, job: Job, ended: threading.Event) -> None:
        if job.watched is None:
            return
        attempts, read, smallest = 0, 0, 0
        while not ended.wait(_EVERY):
            try:
                with job.watched.open("rb") as file:
                    file.seek(read)
                    # What is new since the last look; the rest comes with the next one.
                    fresh = file.read(8 << 20)
            except OSError:
                continue
            # The last line may be half written.
            whole = fresh[: fresh.rfind(b"\n") + 1]
            read += len(whole)
            for line in whole.splitlines():
                attempts += 1
                with contextlib.suppress(ValueError, AttributeError, RecursionError):
                    report = json.loads(line)
                    if report.get("answer") == "same" and isinstance(report.get("nodes"), int):
                        smallest = report["nodes"]
            text = f"{count_noun(attempts, 'attempt')}" + (
                f", {count_noun(smallest, 'node')}" if smallest else ""
            )
            if text != job.progress and attempts:
                job.progress = text
                self._changed(job)


def _send_signal(child: "subprocess.Popen[bytes]", number: int) -> None:
    """Send a signal to a child; a kill goes to its whole group."""
    if child.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        # The group holds the workers of the child; an interrupt is for the child alone, which saves its best
        # first.
        if number == signal.SIGKILL:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)
