"""The Python interpreters of this machine: an old release of a compiler needs an old Python."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# The oldest Python on which the workers' own files run.
OLDEST = (3, 8)
_ASK = (
    "import sys; print(sys.implementation.name, sys.abiflags or '-', sys.maxsize > 2**32,"
    " *sys.version_info[:3])"
)
_ANSWER = re.compile(r"cpython - True (\d{1,3}) (\d{1,3}) (\d{1,3})")
_NAME = re.compile(r"python3(\.\d{1,3})?")
# Seconds for one interpreter to tell its version, or for uv to list its own
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A CPython with the GIL, 64 bits wide; `path` is absolute."""

    path: Path
    version: tuple[int, int, int]

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor version: what wheels are made for."""
        return self.version[:2]


@cache
def find_interpreters() -> tuple[Interpreter, ...]:
    """The running Python, then every other CPython 3.8 or newer, the newest first.

    They come from pyenv, from uv's managed Pythons and from `python3*` on PATH, links resolved and each file
    once; one that does not tell its version within 20 seconds is left out. Asked once a process: about 20 ms
    for each interpreter.
    """
    running = Interpreter(Path(sys.executable), sys.version_info[:3])
    seen = {running.path.resolve()}
    others = []
    for path in _candidates():
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        version = _version(real)
        if version and version[:2] >= OLDEST:
            others.append(Interpreter(real, version))
    return (running, *sorted(others, key=lambda found: found.version, reverse=True))


def _candidates() -> Iterator[Path]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(root.glob("versions/3.*/bin/python"))
    yield from _managed_by_uv()
    # Scripts that fail where their version is not activated
    shims = (root / "shims").resolve()
    for folder in map(Path, filter(None, os.environ.get("PATH", os.defpath).split(os.pathsep))):
        if not folder.is_absolute() or folder.resolve() == shims or not os.access(folder, os.R_OK | os.X_OK):
            continue
        yield from sorted(path for path in folder.glob("python3*") if _NAME.fullmatch(path.name))


def _managed_by_uv() -> Iterator[Path]:
    from uv import find_uv_bin

    try:
        uv = find_uv_bin()
    except FileNotFoundError:
        # installed some other way than as a package: what it manages is not found, the rest is
        return
    command = [
        "python",
        "list",
        "--only-installed",
        "--python-preference=only-managed",
        "--output-format=json",
    ]
    # Without a PATH uv does not start every shim there only to leave it out.
    said = _output([uv, *command, "--offline"], {**os.environ, "PATH": ""})
    try:
        listed = json.loads(said or "[]")
        yield from [Path(item["path"]) for item in listed if item["path"]]
    except (
        ValueError,
        TypeError,
        KeyError,
    ):
        # another uv with another format: its Pythons are not found, others are
        return


def _version(path: Path) -> tuple[int, int, int] | None:
    match = _ANSWER.fullmatch(_output([str(path), "-I", "-S", "-c", _ASK], None).strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _output(command: list[str], environment: dict[str, str] | None) -> str:
    """Return a command's output, "" if it fails, cannot be started or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            env=environment,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
