"""Releases of compilers as targets: each installed on demand, once, side by side.

A release goes without its dependencies into a folder of its own, and all releases of a backend share one
*base* environment for each Python version (numpy and the other imports). A worker runs the base environment's
Python with the release's folder first on `sys.path`: a release takes half a second and the size of one wheel,
a fraction of a full environment. uv installs everything with the user's configuration, from wheels only,
without building.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsieve.backends.protocol import Backend
from opsieve.backends.releases.installers import (
    CONFIGURED,
    InstallFailed,
    Minor,
    PackageIndex,
    check_package,
    install,
    list_hash_options,
    list_releases,
    release_key,
)
from opsieve.backends.releases.interpreters import OLDEST, Interpreter, find_interpreters
from opsieve.gen.errors import BadInput, shown

Say = Callable[[str], None]

# The last file written into an entry: without it an entry is not complete
_MARKER = "opsieve.json"


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a release or a build: a Python, the folders to put first on its `sys.path`, and the
    version of that Python.

    `state` is "" for a release, which never changes; of a build it tells one state of its files from another.
    """

    python: Path
    path: tuple[Path, ...]
    release: str
    python_version: tuple[int, int, int]
    state: str = ""


@dataclass(frozen=True, slots=True)
class PackageRelease:
    """A release of a package, and the index that has it."""

    package: str
    number: str
    index: PackageIndex = CONFIGURED


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The installation of one release; `stem` names it in the store for all Pythons. `wheel` identifies a
    wheel of the user's own.
    """

    package: str
    release: str
    requirements: tuple[str, ...]
    wheel: str = ""
    index: PackageIndex = CONFIGURED

    @property
    def stem(self) -> str:
        if self.wheel:
            return f"wheel-{self.package}-{self.wheel}"
        # With companions, since another version of them is another installation.
        suffix = f"-{_digest(self.requirements)}" if len(self.requirements) > 1 else ""
        return f"{_listing(self.package, self.index)}-{self.release}{suffix}"


class ReleaseStore:
    """The releases installed on this machine, in one folder that any number of processes may share.

    The folder is `root`, else what OPSIEVE_STORE names, else `opsieve/releases` in the user's cache. An entry
    is made beside its place under a lock and renamed into it, so that one that can be seen is complete.
    `interpreters` tells the Pythons to choose from, the preferred one first.
    """

    def __init__(
        self, root: Path | None = None, interpreters: Callable[[], Sequence[Interpreter]] = find_interpreters
    ) -> None:
        self.root = (root or default_root()).absolute()
        self._interpreters = interpreters

    def environment(
        self, backend: Backend, release: str, offline: bool = False, say: Say = lambda sentence: None
    ) -> Environment:
        """Return the environment that runs `release` of the backend's package, after installing it if
        necessary.

        The Python is the running one where the release has a wheel for it, else the closest older one found
        on this machine, else the closest newer; the choice is remembered, so that a release that is there
        costs no process and no network. With `offline` only the store and uv's cache are asked. BadInput when
        the release cannot be had.
        """
        return self.package_environment(backend, PackageRelease(backend.package, release), offline, say)

    def package_environment(
        self,
        backend: Backend,
        release: PackageRelease,
        offline: bool = False,
        say: Say = lambda sentence: None,
    ) -> Environment:
        """Return an environment as `environment` does, for a package with the same compiler as the backend's
        own, or one from another index.
        """
        if not release.package:
            raise BadInput(f"{backend.name} has no releases: write it without ==")
        check_package(release.package)
        release_key(release.number)
        requirements = (f"{release.package}=={release.number}", *backend.companions(release.number))
        return self._had(
            backend, _Recipe(release.package, release.number, requirements, index=release.index), offline, say
        )

    def wheel_environment(
        self, backend: Backend, wheel: Path, release: str, state: str, offline: bool, say: Say
    ) -> Environment:
        """Return the environment for a wheel's file, which holds `release`; `state` distinguishes it from
        earlier contents of the file.
        """
        requirements = (str(wheel), *backend.companions(release))
        return self._had(backend, _Recipe(backend.package, release, requirements, state), offline, say)

    def _had(self, backend: Backend, recipe: _Recipe, offline: bool, say: Say) -> Environment:
        """Return the recipe's environment, made unless it is there."""
        try:
            check_private(self.root)
            chosen = self._read_chosen(recipe)
            # Checked before any process starts: an installed release costs no more than a few reads.
            found = self._ready(backend, recipe, chosen) if chosen else None
            return found or self._obtain(backend, recipe, offline, say)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadInput(
                f"the store of releases {str(self.root)!r} cannot be used ({reason}): "
                "set OPSIEVE_STORE to a folder that can be written"
            ) from error

    def list_installed(self, package: str, index: PackageIndex = CONFIGURED) -> list[tuple[str, Minor]]:
        """List the installed releases of `package` from an index, oldest first, each with the Python version
        it was installed for.
        """
        package = _listing(package, index)
        every = [self._facts(folder.name) for folder in self.root.iterdir()] if self.root.is_dir() else []
        there = {
            (facts["release"], facts["python"][:2])
            for facts in every
            if facts and facts["package"] == package
        }
        return sorted(there, key=lambda entry: (release_key(entry[0]), entry[1]))

    def available(
        self, package: str, index: PackageIndex = CONFIGURED, preliminary: bool = False
    ) -> list[str]:
        """List the releases of `package` with a wheel for an installed Python, oldest first, without yanked
        ones, and with previews only if `preliminary`.

        The package index is asked by pip, once for each Python version. BadInput when it cannot be reached or
        knows none.
        """
        return list_releases(
            package, sorted({found.minor for found in self._interpreters()}), index, preliminary
        )

    def _obtain(self, backend: Backend, recipe: _Recipe, offline: bool, say: Say) -> Environment:
        """Install the recipe for the first Python that has a wheel of it."""
        refusal: InstallFailed | None = None
        refused: list[Minor] = []
        for interpreter in _by_preference(self._interpreters()):
            # uv has named the Pythons with a wheel, so that the others need not be tried.
            if refusal and refusal.rules_out(interpreter.minor):
                refused.append(interpreter.minor)
                continue
            try:
                self._install(recipe, interpreter, offline, say)
                self._install_base(backend, interpreter, offline, say)
            except InstallFailed as failure:
                refused.append(interpreter.minor)
                if failure.kind == "no-release":
                    raise BadInput(self._unknown(recipe, offline)) from None
                if failure.kind == "other":
                    raise BadInput(
                        f"{recipe.package} {recipe.release} could not be installed for Python"
                        f" {_pythons(refused)}: {failure.line}"
                    ) from None
                refusal = failure
                continue
            path = self.root / ".chosen" / f"{recipe.stem}-{_tag(sys.version_info[:2])}"
            path.parent.mkdir(exist_ok=True)
            path.write_text(".".join(map(str, interpreter.minor)), encoding="utf-8")
            found = self._ready(backend, recipe, interpreter.minor)
            if found:
                return found
            raise BadInput(
                f"{recipe.stem} was removed from the store {str(self.root)!r} as it was made: try again"
            )
        raise BadInput(_without_wheel(recipe, refused, refusal))

    def _ready(self, backend: Backend, recipe: _Recipe, minor: Minor) -> Environment | None:
        """Return the environment if release and base are both complete for this Python version."""
        name, base = _entry(recipe, minor), _base_entry(backend, minor)
        facts = self._facts(base)
        if facts is None or self._facts(name) is None:
            return None
        folder = self.root / name
        return Environment(self.root / base / "bin" / "python", (folder,), recipe.release, facts["python"])

    def _install(self, recipe: _Recipe, interpreter: Interpreter, offline: bool, say: Say) -> None:
        version = ".".join(map(str, interpreter.minor))

        def build(folder: Path, lock: int) -> None:
            say(f"installing {recipe.package} {recipe.release} for Python {version}")
            place = ["--python", str(interpreter.path), "--target", str(folder), "--no-deps"]
            # Companions are on the configured index only, so that both are asked.
            where = recipe.index.options(alone=len(recipe.requirements) == 1)
            wanted = [] if recipe.wheel else list_hash_options(recipe.package, recipe.release)
            command = ["pip", "install", "--no-build", *where, *place, *(wanted or recipe.requirements)]
            install(command, offline, self.root, lock, recipe.package)

        listing = _listing(recipe.package, recipe.index)
        package, release = ("", "0") if recipe.wheel else (listing, recipe.release)
        facts = {"package": package, "release": release, "python": interpreter.version}
        self._make(_entry(recipe, interpreter.minor), facts, build, say)

    def _install_base(self, backend: Backend, interpreter: Interpreter, offline: bool, say: Say) -> None:
        requirements = backend.base(interpreter.minor)
        version = ".".join(map(str, interpreter.minor))

        def build(folder: Path, lock: int) -> None:
            say(f"preparing Python {version} for the releases of {backend.package}")
            venv = ["venv", "--no-project", "--python", str(interpreter.path), str(folder)]
            install(venv, offline, self.root, lock)
            if requirements:
                place = ["--python", str(folder / "bin" / "python")]
                install(["pip", "install", "--no-build", *place, *requirements], offline, self.root, lock)

        facts = {"package": "", "release": "0", "python": interpreter.version}
        self._make(_base_entry(backend, interpreter.minor), facts, build, say)

    def _make(self, name: str, facts: dict[str, Any], build: Callable[[Path, int], None], say: Say) -> None:
        """Have `build` fill the entry `name` unless it is complete; it is seen under its name only when it
        is.
        """
        if self._facts(name) is not None:
            return
        final, partial = self.root / name, self.root / ".partial" / name
        with self._hold_lock(name, say) as lock:
            # Another process made it while this one waited
            if self._facts(name) is not None:
                return
            # Of a process that died: this one has the lock now
            _remove(partial)
            _remove(final)
            partial.mkdir(parents=True)
            try:
                build(partial, lock)
                (partial / _MARKER).write_text(json.dumps(facts), encoding="utf-8")
                partial.rename(final)
            finally:
                _remove(partial)
        # Remove what installs that were killed left behind; those under way hold their locks.
        for partial in (self.root / ".partial").iterdir():
            lock = os.open(self.root / ".locks" / partial.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if _try_lock(lock):
                    _remove(partial)
            finally:
                os.close(lock)

    @contextmanager
    def _hold_lock(self, name: str, say: Say) -> Iterator[int]:
        """Hold the lock of one entry; yields its descriptor. The lock is released when the last process that
        inherited it ends.
        """
        path = self.root / ".locks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not _try_lock(lock):
                say(f"waiting for another process that installs {name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _facts(self, name: str) -> dict[str, Any] | None:
        """Read the marker of an entry; returns `None` if the entry is absent or incomplete, or its Python is
        gone.
        """
        folder = self.root / name
        try:
            facts = json.loads((folder / _MARKER).read_text(encoding="utf-8"))
            facts = {key: facts[key] for key in ("package", "release", "python")}
            facts["python"] = tuple(map(int, facts["python"]))
            # Sorted by it later, so that a record with another text counts as damaged here.
            release_key(facts["release"])
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
            # A half-written or foreign record means that the release is not installed; it is installed again.
            return None
        # An upgrade of the system removes the Python to which an environment links.
        gone = (folder / "pyvenv.cfg").exists() and not (folder / "bin" / "python").exists()
        return None if gone else facts

    def _read_chosen(self, recipe: _Recipe) -> Minor | None:
        """Return the Python version that an opsieve under this Python chose before."""
        try:
            text = (self.root / ".chosen" / f"{recipe.stem}-{_tag(sys.version_info[:2])}").read_text(
                encoding="utf-8"
            )
            major, minor = map(int, text.split("."))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return major, minor

    def _unknown(self, recipe: _Recipe, offline: bool) -> str:
        """Return the sentence for a release that does not exist, with its neighbours if the index can and may
        be asked.
        """
        sentence = f"there is no release {recipe.release} of {recipe.package}"
        every: list[str] = []
        if not offline:
            # If the index cannot be read, the sentence names no neighbours.
            with suppress(BadInput):
                every = self.available(recipe.package, recipe.index, preliminary=bool(recipe.index.place))
        if not every:
            return sentence + " on the package index: check the number"
        at = bisect_left([release_key(release) for release in every], release_key(recipe.release))
        return (
            f"pip lists {recipe.package} {recipe.release}, but uv, which installs it, does not find it: name"
            " its place in UV_FIND_LINKS or UV_INDEX"
            if recipe.release in every
            else f"{sentence}: near it are {', '.join(every[max(0, at - 2) : at + 2])}"
        )


def check_private(folder: Path) -> None:
    """Make the folder, for the user alone; BadInput when it is another user's or others may write there: what
    lies there is run.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    # Root could replace the files anyhow.
    if found.st_uid not in (os.geteuid(), 0):
        raise BadInput(
            f"the folder {shown(str(folder))} belongs to another user, whose files would be executed: set"
            " OPSIEVE_STORE"
        )
    if found.st_mode & 0o022:
        if found.st_uid != os.geteuid():
            raise BadInput(
                f"others may write to {shown(str(folder))}, whose files would be executed: set OPSIEVE_STORE"
            )
        folder.chmod(found.st_mode & 0o755)


def _listing(package: str, index: PackageIndex) -> str:
    """Return the name under which the store keeps releases of a package from an index: another index may have
    other files of the same number.
    """
    return f"{package}@{_digest((index.place,))}" if index.place else package


def default_root() -> Path:
    """Return the folder of releases: OPSIEVE_STORE, or one in the user's cache."""
    if named := os.environ.get("OPSIEVE_STORE"):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / "releases"


def _entry(recipe: _Recipe, minor: Minor) -> str:
    return f"{recipe.stem}-{_tag(minor)}"


def _base_entry(backend: Backend, minor: Minor) -> str:
    return f"base-{_tag(minor)}-{_digest(backend.base(minor))}"


def _digest(requirements: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:10]


def _tag(minor: Minor) -> str:
    return f"cp{minor[0]}{minor[1]}"


def _pythons(minors: Sequence[Minor] | frozenset[Minor]) -> str:
    """Format Python versions as words: `3.8, 3.9 and 3.11`."""
    words = [".".join(map(str, minor)) for minor in sorted(minors)]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _by_preference(found: Sequence[Interpreter]) -> list[Interpreter]:
    """List one interpreter for each version: the first of `found`, then the older ones, closest first, then
    the newer ones.
    """
    first = found[0].minor
    # Reversed, so that of equal versions the first one found remains.
    one = {interpreter.minor: interpreter for interpreter in reversed(found)}
    older = sorted((minor for minor in one if minor < first), reverse=True)
    return [one[minor] for minor in (first, *older, *sorted(minor for minor in one if minor > first))]


def _without_wheel(recipe: _Recipe, refused: Sequence[Minor], refusal: InstallFailed | None) -> str:
    """Return the message for a release without a wheel for any of the Pythons here."""
    start = (
        f"{recipe.package} {recipe.release} has no wheel for Python {_pythons(refused)}, which is what was"
        " found here"
    )
    if refusal is None or not refusal.wheels:
        return f"{start}: {refusal.line if refusal else 'install another Python'}"
    able = frozenset(minor for minor in refusal.wheels if minor >= OLDEST)
    if not able:
        return (
            f"{start}, and those it has, for Python {_pythons(refusal.wheels)}, are too old for opsieve: take"
            " a newer release"
        )
    newest = ".".join(map(str, max(able)))
    return (
        f"{start}: install Python {_pythons(able)} (one is enough; uv python install {newest}) and ask again"
    )


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
