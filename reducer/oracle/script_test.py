"""The interestingness test that a user brings."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opsieve.gen.data.data_set import write_folder
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.registry import write_program
from opsieve.gen.model.scratch import Scratch
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.oracle.target_test import Runnable


@dataclass(frozen=True)
class ScriptTest:
    """A user's own test: `SCRIPT MODEL INPUTS`, run in an empty folder; exit code 0 means that it is still
    interesting.

    MODEL is an .onnx file, or `module.json` of a module of TVM with `passes.json` beside it; INPUTS a folder
    of ONNX's `input_K.pb`, in the order of the program's inputs. The script runs as the user who starts the
    reduction; it and what it started are killed after `seconds`.
    """

    script: Path
    seconds: float = 60.0

    def evaluate(self, subjects: Sequence[Runnable]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            code = self.run(subject)
            yield CheckResult("same") if code == 0 else CheckResult("gone", f"exit code {code}")

    def run(self, subject: Runnable) -> int:
        """The script's exit code; -1 when it took too long. BadInput when it cannot be started."""
        with Scratch() as scratch:
            folder = scratch / "check"
            (folder / "inputs").mkdir(parents=True)
            write_program(subject.program, folder)
            write_folder(folder / "inputs", subject.inputs, subject.program.inputs(), "input")
            command = [
                str(self.script),
                str(folder / next(iter(subject.program.files()))),
                str(folder / "inputs"),
            ]
            try:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(
                    f"the check {shown(self.script, 120)} cannot be started: {error.strerror or error}; is it"
                    " executable?"
                ) from None
            try:
                return process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                return -1
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
