"""The interestingness test that runs a user's script."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from weakref import finalize

from opsieve.gen.data.data_set import write_folder
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.detached import write_part
from opsieve.gen.model.scratch import Scratch
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.oracle.target_test import Runnable

# The folder of large tensors beside a model
_DATA = "data"
# The tail of a script's output, in bytes, that is searched for its last line.
_TAIL = 4096


@dataclass(frozen=True)
class ScriptTest:
    """A user's own test: `SCRIPT MODEL INPUTS`, run in a folder of its own; exit code 0 means that it is
    still interesting.

    MODEL is an .onnx file, or `module.json` of a module of TVM with `passes.json` beside it; INPUTS a folder
    of ONNX's `input_K.pb`, in the order of the program's inputs. Tensors over 1 MB lie in read-only files
    beside the model, which are written once for each reduction. The script runs as the user who starts the
    reduction; it and what it started are killed after `seconds`.
    """

    script: Path
    seconds: float = 60.0
    _folders: "SimpleQueue[_CheckFolder]" = field(default_factory=SimpleQueue, compare=False, repr=False)

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            failure = self.run(subject)
            yield CheckResult("gone", failure) if failure else CheckResult("same")

    def run(self, subject: Runnable) -> str:
        """Run the script, and return how it failed: "" for exit code 0.

        Raises:
            BadInput: If it cannot be started.
        """
        try:
            folder = self._folders.get_nowait()
        except Empty:
            # The pool is empty, or all are in use by parallel tests.
            folder = _CheckFolder()
        try:
            return self._run(folder, subject)
        finally:
            self._folders.put(folder)

    def _run(self, folder: "_CheckFolder", subject: Runnable) -> str:
        model, inputs = folder.fill(subject)
        with folder.stderr.open("w+b") as stderr:
            try:
                process = subprocess.Popen(
                    [str(self.script), str(model), str(inputs)],
                    cwd=folder.path,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    # A process group of its own lets `killpg` reach what the script has started.
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(
                    f"the check {shown(self.script, 120)} cannot be started: {_why_not(self.script, error)}"
                ) from None
            try:
                return _failure(process.wait(self.seconds), stderr.fileno())
            except subprocess.TimeoutExpired:
                return f"it ran longer than {self.seconds:g} s"
            finally:
                # Processes of the script may outlive it, so the group is killed after exit code 0 too. It may
                # be empty already, or run as another user.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class _CheckFolder:
    """A folder in which a script runs. Each run gets new files, except for the data of large tensors."""

    def __init__(self) -> None:
        scratch = Scratch()
        self.path = scratch.path / "check"
        self.stderr = scratch.path / "stderr"
        # The files of data, and their state when they were made
        self._made: dict[str, tuple[int, ...]] = {}
        finalize(self, scratch.close)

    def fill(self, subject: Runnable) -> tuple[Path, Path]:
        """Write a subject; the paths of its program and of its inputs."""
        (self.path / _DATA).mkdir(parents=True, exist_ok=True)
        for left in (*self.path.iterdir(), *(self.path / _DATA).iterdir()):
            # Large tensors are kept from run to run, unless the script has changed their file: a script is
            # not trusted to leave it alone.
            if left.name != _DATA and not (
                left.parent.name == _DATA and self._made.get(left.name) == _state(left)
            ):
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        files, parts = subject.program.files_with_data(_DATA)
        for name, part in parts.items():
            if not (self.path / _DATA / name).exists():
                write_part(part, self.path / _DATA / name)
                self._made[name] = _state(self.path / _DATA / name)
        for name, chunks in files.items():
            with (self.path / name).open("wb") as file:
                file.writelines(chunks)
        inputs = self.path / "inputs"
        inputs.mkdir()
        write_folder(inputs, subject.inputs, subject.program.inputs(), "input")
        return self.path / next(iter(files)), inputs


def _state(path: Path) -> tuple[int, ...]:
    found = path.lstat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns


def _failure(code: int, stderr: int) -> str:
    """Describe how a script ended, with the last line on its stderr; "" for exit code 0."""
    if code == 0:
        return ""
    try:
        ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    # Real-time signals have no name in `signal.Signals`.
    except ValueError:
        ended = f"signal {-code}"
    size = os.fstat(stderr).st_size
    text = os.pread(stderr, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return f"{ended}: {shown(last, 200)}" if last else ended


def _why_not(script: Path, error: OSError) -> str:
    """Explain why a script cannot be started, and what to do."""
    if isinstance(error, PermissionError) and script.is_file():
        return f"it is not executable; run chmod +x {shown(script, 120)}"
    # The kernel reports a missing interpreter as a missing script, so the first line is read to name the
    # cause.
    with suppress(OSError), script.open("rb") as file:
        first = file.readline(256)
        if first.startswith(b"#!") and first.rstrip(b"\n").endswith(b"\r"):
            return "its first line ends with a carriage return; save it with Unix line ends"
        if first.startswith(b"#!"):
            return f"its interpreter {shown(first[2:].strip().decode('utf-8', 'replace'), 120)} cannot be run"
        return "its first line names no interpreter; begin it with one such as #!/bin/sh"
    return error.strerror or str(error)
