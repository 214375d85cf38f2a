"""Find what is installed on this machine: Python interpreters (an old release of a compiler needs an old
Python), the files of commands that are targets, and compilers.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path

from opsieve.backends import protocol, registry
from opsieve.backends.target import command_words
from opsieve.gen.errors import BadInput, shown

# The oldest Python on which the workers' own files run.
OLDEST = (3, 8)
_ASK = (
    "import sys; print(sys.implementation.name, sys.abiflags or '-', sys.maxsize > 2**32,"
    " *sys.version_info[:3])"
)
# No flag of the ABI (`t`: without the GIL) and 64 bits, since wheels of compilers are made for these.
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
    """Find the running Python, then every other CPython 3.8 or newer, the newest first.

    They come from pyenv, from uv's managed Pythons and from `python3*` on PATH, links resolved and each file
    once; one that does not tell its version within 20 seconds is left out. Asked once a process: about 20 ms
    for each interpreter.
    """
    running = Interpreter(Path(sys.executable), sys.version_info[:3])
    seen = {running.path.resolve()}
    others = []
    for path in _candidates():
        # python3 and python3.11 are often links to one file.
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        match = _ANSWER.fullmatch(_output([str(real), "-I", "-S", "-c", _ASK], None).strip())
        version = (int(match[1]), int(match[2]), int(match[3])) if match else None
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
        # A relative entry means the current folder, whose programs must not run by accident.
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
        # A file called python3.x that is no working interpreter is passed over.
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


# The files of a command that is a target: whether they are there, which of them change with it, what such
# code reads.


def check_command(text: str) -> None:
    """Raise BadInput unless the program of a command is there and may be run."""
    word = command_words(text)[0]
    path = _program(word)
    if path is None:
        where = "nothing is there" if "/" in word else "it is not on PATH"
        raise BadInput(f"the program {shown(word)} of the command cannot be run: {where}")
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise BadInput(
            f"the program {shown(word)} of the command cannot be run: it is not an executable file (chmod +x)"
        )


def command_files(text: str) -> tuple[Path, ...]:
    """Return the program and the files among the other words, whose changes make another version of the
    command.
    """
    first, *others = command_words(text)
    program = _program(first)
    files = [Path(word) for word in others if os.path.isabs(word) and os.path.exists(word)]
    return (*([program] if program else []), *files)


def reads_of(files: Iterable[Path]) -> list[Path]:
    """Return what programs and libraries of the user's read: the files, and their neighbours, but never a
    whole home.
    """
    home = Path.home()
    found: list[Path] = []
    for file in files:
        folder = file.parent.resolve()
        # Programs load libraries and data from beside themselves; a whole home would be too much.
        found += [
            file,
            *([folder] if file.is_file() and folder != home and folder not in home.parents else []),
        ]
    return found


def _program(word: str) -> Path | None:
    if "/" in word:
        return Path(word) if os.path.exists(word) else None
    found = shutil.which(word)
    return Path(found) if found else None


# Whether a compiler lies beside opsieve, and its version, without importing it, which takes some of them
# seconds.


def find_missing_module(facts: protocol.BackendFacts) -> str:
    """Return the module of an extra that is not installed here; "" where only the import tells.

    A process that cannot but fail at its import would cost half a second for each compiler that is missing.
    """
    module = (facts.module or facts.package).partition(".")[0]
    return module if facts.extra and module and util.find_spec(module) is None else ""


def installed_version(target: registry.ResolvedTarget) -> str:
    """Return the version that the package's distribution states, if the package lies in it; "" if only an
    import tells.

    So it is for a release or a build, for a backend that does not say so
    (`BackendFacts.version_of_distribution`), and for a package that workers, which look into the environment
    alone, would import from elsewhere.
    """
    facts = target.facts
    own = target.zygote == (target.name, "")
    if not own or not facts.version_of_distribution:
        return ""
    module = facts.module or facts.package
    found = sys.modules.get(module) or util.find_spec(module)
    origin = getattr(found, "__file__", None) or getattr(found, "origin", None)
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        if origin and Path(origin).resolve().is_relative_to(Path(site).resolve()):
            stated = next(iter(metadata.distributions(name=facts.package, path=[site])), None)
            if stated is not None:
                return stated.version
    return ""
