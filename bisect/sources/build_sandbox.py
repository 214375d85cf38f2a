"""Build and check commits in clones of their own, in a temporary folder; the user's checkout stays untouched.

A clone shares the objects of the user's repository and writes nothing into it, not even a work-tree record,
so a killed search leaves it as it was. Each commit is checked out into a clean folder. The scripts find in
their environment OPSIEVE_COMMIT, and OPSIEVE_BUILD, a folder kept for the tree of that commit: files that a
build leaves there are not built again.

Submodules are taken from the user's repository if it has them; those that its configuration leaves out
(`update = none`) stay out.
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
from opsieve.gen.model import files, scratch

# The exit codes of `git bisect run`, so that scripts written for it work here.
_SKIP = 125
_LAST_BAD = 127
_TAIL = 4000
BUILD_FAILS = "build fails"
# The mode of a submodule among the files of a commit
_LINK = "160000"


@dataclass(frozen=True, slots=True)
class Built:
    """A commit checked out in `folder`; its build left files in `kept`."""

    commit: str
    folder: Path
    kept: Path


# A script, or what looks at the built commit itself
Check = Path | Callable[[Built], VersionOutcome]


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Wall seconds for a build and for a check, and whether a check that exceeds them is bad (to search for a
    hang).
    """

    seconds: float = 3600.0
    hang_is_bad: bool = False


LIMITS = CheckLimits()


class BuildDir:
    """`jobs` clones of a repository; `probe_commit` builds and checks a commit in the next free one. A
    context manager.

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
        # Resolved before anything runs: the scripts have another working folder.
        self._repository, self._build = repository.resolve(), build and _check_script(build)
        self._check = _check_script(check) if isinstance(check, Path) else check
        self._keep, self._limits, self._sparse = keep, limits, sparse
        self._home = scratch.Scratch("bisect")
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
        # Threads that wait for their scripts would otherwise keep the program from ending.
        for process in list(self._running):
            _kill_group(process)
        self._home.close()

    def probe_commit(self, commit: str, tree: str) -> VersionOutcome:
        """Check one commit: 0 good, 125 skip, 1 to 127 bad.

        A build that fails or exceeds its time is skipped.

        Raises:
            BadInput: If the check ends otherwise, as by a signal: that is no answer, and a search must not go
            on.
        """
        place = self._free.get()
        try:
            missing = self._check_out(place, commit)
            if missing:
                return VersionOutcome("skip", symptom="no submodules", text=missing)
            # By the tree and not by the commit: commits with equal files share a build.
            built = self._keep / "builds" / f"{tree}-{hash_script(self._build)[:12] or 'none'}"
            built.mkdir(parents=True, exist_ok=True)
            environment = {**os.environ, "OPSIEVE_COMMIT": commit, "OPSIEVE_BUILD": str(built)}
            log = self._open_log(commit, "build")
            # The mark is written last, so that an interrupted build is made again.
            if self._build and not (built / ".complete").exists():
                code = self._run_script(self._build, place, environment, log)
                if code != 0:
                    # Half of a build would look like one to the next call.
                    shutil.rmtree(built, ignore_errors=True)
                    why = "takes too long" if code is None else f"ends with {code}"
                    return VersionOutcome(
                        "skip", symptom=BUILD_FAILS, text=f"the build {why}: {_read_last_line(log)}"
                    )
                # A script that leaves nothing there builds inside the work tree, which the next commit
                # replaces.
                if any(built.iterdir()):
                    (built / ".complete").touch()
            if not isinstance(self._check, Path):
                return self._check(Built(commit, place, built))
            log = self._open_log(commit, "check")
            code = self._run_script(self._check, place, environment, log)
            if code is None and self._limits.hang_is_bad:
                return VersionOutcome(
                    "bad", symptom="hang", text=f"the check takes longer than {self._limits.seconds:g} s"
                )
            if code is None or code == _SKIP:
                return VersionOutcome("skip", symptom="check cannot tell", text=_read_last_line(log))
            # A signal, or a shell that could not run the script, says nothing about the commit.
            if not 0 <= code <= _LAST_BAD:
                raise BadInput(
                    f"the check of commit {commit[:12]} ended with {code}, but only 0 (good) and 1 to 127"
                    f" (bad) have a meaning: see {shown(log, 300)}"
                )
            return VersionOutcome(
                "good" if code == 0 else "bad",
                symptom="good" if code == 0 else "bad",
                text=_read_last_line(log),
            )
        finally:
            self._free.put(place)

    def _check_out(self, place: Path, commit: str) -> str:
        """Check out exactly the files of a commit in `place`.

        Returns why its submodules are unavailable, or "".
        """
        if not (place / ".git").exists():
            _run_git(
                # Shared objects: nothing of a large repository is copied.
                ["clone", "--quiet", "--shared", "--no-checkout", str(self._repository), str(place)],
                self._home.path,
            )
            if self._sparse:
                _run_git(["sparse-checkout", "set", "--", *self._sparse], place)
        _run_git(["checkout", "--quiet", "--force", "--detach", commit], place)
        # Twice the force, which removes nested repositories too.
        _run_git(["clean", "-ffdxq"], place)
        try:
            _check_out_submodules(place, self._repository)
        except BadInput as error:
            # A commit whose submodules are gone is untestable; the search goes on around it.
            return str(error)
        return ""

    def _open_log(self, commit: str, name: str) -> Path:
        folder = self._keep / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{commit}-{name}.log"

    def _run_script(self, script: Path, place: Path, environment: dict[str, str], log: Path) -> int | None:
        """Run a script and return its exit code, or None on timeout; all its processes are ended with it."""
        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    [str(script)],
                    cwd=place,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    # A session of its own, so that the script can be killed with all that it starts.
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(f"{shown(script, 200)} cannot be run: {error.strerror}") from None
            self._running.add(process)
            # While it was started
            if self._closed:
                _kill_group(process)
            try:
                code = process.wait(self._limits.seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _kill_group(process)
                process.wait()
                self._running.discard(process)
            # It was killed at shutdown, so its output is ignored.
            if self._closed:
                raise InterruptedError
            return code


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a script and all processes that it started."""
    # The script may have ended together with its group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def hash_script(script: Path | None) -> str:
    """Return the SHA-256 of a script's text, or "" without a script."""
    return hashlib.sha256(files.read_file(script, 16 << 20)).hexdigest() if script else ""


def _check_script(path: Path) -> Path:
    whole = path.resolve()
    if not whole.is_file():
        raise BadInput(f"there is no script {shown(path, 200)}")
    if not os.access(whole, os.X_OK):
        raise BadInput(f"{shown(path, 200)} may not be executed: chmod +x it")
    return whole


def _read_last_line(log: Path) -> str:
    """Read the last line that a script printed."""
    with log.open("rb") as file:
        # Logs of builds can be very long.
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = reversed(file.read().decode("utf-8", "replace").split("\n"))
        return next((line.strip()[:300] for line in lines if line.strip()), "")


def _check_out_submodules(place: Path, source: Path) -> None:
    """Check out the submodules of a work tree, clean.

    They come from the git folder `source` if it holds them, else from their own URL.
    """
    if not (place / ".gitmodules").is_file():
        return
    listed = _run_git(
        ["config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$"], place, absent=1
    )
    _run_git(["submodule", "--quiet", "init"], place)
    links = {
        line.partition("\t")[2]
        for line in _run_git(["ls-files", "--stage"], place).splitlines()
        if line[:6] == _LINK
    }
    for line in listed.splitlines():
        key, _, path = line.partition(" ")
        # An entry that nobody removed
        if path not in links:
            continue
        name = key.removeprefix("submodule.").removesuffix(".path")
        wanted = ["config", "--file", str(source / "config"), "--get", f"submodule.{name}.update"]
        # The user's configuration leaves this submodule out.
        if source.is_dir() and _run_git(wanted, place, absent=1).strip() == "none":
            continue
        held = source / "modules" / name
        # The name comes from a file of the commit and must not lead out of the folder of modules.
        if ".." in Path(name).parts or not (held / "HEAD").is_file():
            _run_git(["submodule", "--quiet", "update", "--force", "--", path], place)
            held = Path(os.devnull)
        else:
            _run_git(["config", f"submodule.{name}.url", str(held)], place)
            _run_git(
                # Git refuses local submodules since 2.38.1 (CVE-2022-39253); this folder is the user's own
                # repository.
                ["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--force", "--", path],
                place,
            )
        if (place / path / ".git").exists():
            _run_git(["clean", "-ffdxq"], place / path)
            _check_out_submodules(place / path, held)


def _run_git(arguments: list[str], place: Path, absent: int = 0) -> str:
    """Run git and return its output.

    The exit code `absent` means an empty result.

    Raises:
        BadInput: If git fails with any other code.
    """
    done = subprocess.run(["git", *arguments], cwd=place, capture_output=True, text=True, check=False)
    if done.returncode and done.returncode != absent:
        command = next(word for word in arguments if not word.startswith("-") and "=" not in word)
        raise BadInput(f"git {command} failed: {shown(done.stderr.strip()[-200:], 300)}")
    return done.stdout
