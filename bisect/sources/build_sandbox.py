"""Where commits are built and checked: clones of their own in a temporary folder, never the user's checkout.

A clone shares the objects of the user's repository and writes nothing into it, not even the record of a work
tree, so that a search that is killed leaves it as it was. Each commit is checked out into a clean folder. The
scripts find in their environment OPSIEVE_COMMIT, and OPSIEVE_BUILD, a folder kept for the tree of that
commit: what a build leaves there is not built again. Submodules are taken from the user's repository where it
has them; those that its configuration leaves out (`update = none`) are left out.
"""

import contextlib
import hashlib
import os
import queue
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from opsieve.bisect.sources.outcome import VersionOutcome
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import read_file
from opsieve.gen.model.scratch import Scratch

_SKIP = 125
_LAST_BAD = 127
_TAIL = 4000
BUILD_FAILS = "build fails"
_LINK = "160000"  # the mode of a submodule among the files of a commit


@dataclass(frozen=True, slots=True)
class Built:
    """A commit checked out in `folder`, with what its build left in `kept`."""

    commit: str
    folder: Path
    kept: Path


Check = Path | Callable[[Built], VersionOutcome]  # a script, or what looks at the built commit itself


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Wall seconds that a build and a check may take each, and whether a check that takes longer is bad: a
    hang is looked for.
    """

    seconds: float = 3600.0
    hang_is_bad: bool = False


LIMITS = CheckLimits()


class BuildDir:
    """`jobs` clones of a repository; `probe` builds and checks a commit in the next free one. A context
    manager.

    `repository` is the user's git folder. With `sparse`, only these folders (and the files at the top) are
    checked out.
    """

    def __init__(
        self,
        repository: Path,
        check: Check,
        build: Path | None,
        keep: Path,
        jobs: int = 1,
        limits: CheckLimits = LIMITS,
        sparse: tuple[str, ...] = (),
    ):
        self._repository, self._build = repository.resolve(), build and _script(build)
        self._check = _script(check) if isinstance(check, Path) else check
        self._keep, self._limits, self._sparse = keep, limits, sparse
        self._home = Scratch("bisect")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            self._free.put(self._home.path / f"tree{number}")

    def __enter__(self) -> "BuildDir":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for process in list(self._running):
            _kill(process)
        self._home.close()

    def probe(self, commit: str, tree: str) -> VersionOutcome:
        """Check one commit: 0 good, 125 skip, 1 to 127 bad. A build that fails, or takes too long, is
        skipped.

        BadInput when the check ends otherwise, as by a signal: then it says nothing, and a search must not go
        on.
        """
        place = self._free.get()
        try:
            missing = self._check_out(place, commit)
            if missing:
                return VersionOutcome("skip", symptom="no submodules", text=missing)
            built = self._keep / "builds" / f"{tree}-{script_digest(self._build)[:12] or 'none'}"
            built.mkdir(parents=True, exist_ok=True)
            environment = {**os.environ, "OPSIEVE_COMMIT": commit, "OPSIEVE_BUILD": str(built)}
            log = self._log(commit, "build")
            if self._build and not (built / ".complete").exists():
                code = self._run(self._build, place, environment, log)
                if code != 0:
                    shutil.rmtree(built, ignore_errors=True)
                    why = "takes too long" if code is None else f"ends with {code}"
                    return VersionOutcome("skip", symptom=BUILD_FAILS, text=f"the build {why}: {_last(log)}")
                if any(built.iterdir()):
                    (built / ".complete").touch()
            if not isinstance(self._check, Path):
                return self._check(Built(commit, place, built))
            log = self._log(commit, "check")
            code = self._run(self._check, place, environment, log)
            if code is None and self._limits.hang_is_bad:
                return VersionOutcome(
                    "bad", symptom="hang", text=f"the check takes longer than {self._limits.seconds:g} s"
                )
            if code is None or code == _SKIP:
                return VersionOutcome("skip", symptom="check cannot tell", text=_last(log))
            if not 0 <= code <= _LAST_BAD:
                raise BadInput(
                    f"the check of commit {commit[:12]} ended with {code}, which says neither good (0) nor"
                    f" bad (1 to 127): see {shown(log, 300)}"
                )
            return VersionOutcome(
                "good" if code == 0 else "bad", symptom="good" if code == 0 else "bad", text=_last(log)
            )
        finally:
            self._free.put(place)

    def _check_out(self, place: Path, commit: str) -> str:
        """Have the files of a commit, and no others, in `place`; why its submodules cannot be had, "" when
        they are there.
        """
        if not (place / ".git").exists():
            _git(
                ["clone", "--quiet", "--shared", "--no-checkout", str(self._repository), str(place)],
                self._home.path,
            )
            if self._sparse:
                _git(["sparse-checkout", "set", "--", *self._sparse], place)
        _git(["checkout", "--quiet", "--force", "--detach", commit], place)
        _git(["clean", "-ffdxq"], place)
        try:
            _take_submodules(place, self._repository)
        except BadInput as error:
            return str(error)
        return ""

    def _log(self, commit: str, name: str) -> Path:
        folder = self._keep / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{commit}-{name}.log"

    def _run(self, script: Path, place: Path, environment: dict[str, str], log: Path) -> int | None:
        """The script's exit code, None when its time is up; all that it started is ended with it."""
        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    [str(script)],
                    cwd=place,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(f"{shown(script, 200)} cannot be run: {error.strerror}") from None
            self._running.add(process)
            if self._closed:  # while it was started
                _kill(process)
            try:
                code = process.wait(self._limits.seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _kill(process)
                process.wait()
                self._running.discard(process)
            if self._closed:  # it was killed on the way out: what it says is nothing
                raise InterruptedError
            return code


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a script and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def script_digest(script: Path | None) -> str:
    """SHA-256 of a script's text, "" for none."""
    return hashlib.sha256(read_file(script, 16 << 20)).hexdigest() if script else ""


def _script(path: Path) -> Path:
    whole = path.resolve()
    if not whole.is_file():
        raise BadInput(f"there is no script {shown(path, 200)}")
    if not os.access(whole, os.X_OK):
        raise BadInput(f"{shown(path, 200)} may not be executed: chmod +x it")
    return whole


def _last(log: Path) -> str:
    """The last line that a script printed."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _take_submodules(place: Path, source: Path) -> None:
    """Check out the submodules of a work tree, clean, from the git folder `source` where it holds them, else
    from their own place.
    """
    if not (place / ".gitmodules").is_file():
        return
    listed = _git(
        ["config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$"], place, absent=1
    )
    _git(["submodule", "--quiet", "init"], place)
    links = {
        line.partition("\t")[2]
        for line in _git(["ls-files", "--stage"], place).splitlines()
        if line[:6] == _LINK
    }
    for line in listed.splitlines():
        key, _, path = line.partition(" ")
        if path not in links:  # an entry that nobody removed
            continue
        name = key.removeprefix("submodule.").removesuffix(".path")
        wanted = ["config", "--file", str(source / "config"), "--get", f"submodule.{name}.update"]
        if source.is_dir() and _git(wanted, place, absent=1).strip() == "none":  # the user does without it
            continue
        held = source / "modules" / name
        if ".." in Path(name).parts or not (held / "HEAD").is_file():
            _git(["submodule", "--quiet", "update", "--force", "--", path], place)
            held = Path(os.devnull)
        else:
            _git(["config", f"submodule.{name}.url", str(held)], place)
            _git(
                ["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--force", "--", path],
                place,
            )
        if (place / path / ".git").exists():
            _git(["clean", "-ffdxq"], place / path)
            _take_submodules(place / path, held)


def _git(arguments: list[str], place: Path, absent: int = 0) -> str:
    """What a git command prints; BadInput when it fails otherwise than with the code `absent`, which says
    that there is nothing.
    """
    done = subprocess.run(["git", *arguments], cwd=place, capture_output=True, text=True, check=False)
    if done.returncode and done.returncode != absent:
        command = next(word for word in arguments if not word.startswith("-") and "=" not in word)
        raise BadInput(f"git {command} failed: {shown(done.stderr.strip()[-200:], 300)}")
    return done.stdout
