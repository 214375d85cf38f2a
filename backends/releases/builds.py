"""Builds as targets: a compiler that the user built or installed somewhere, named by its path
(`onnxruntime@PATH`).

The path is one of

- a virtual or conda environment, or its Python: that Python runs, with the packages that it has;
- a folder that holds the package, by itself or where build trees and unpacked conda packages have it (`src`,
  `python`, `build/lib*`, `lib/python3*/site-packages`): the running Python imports the package from there,
  and the rest from beside opsieve;
- a wheel, which is installed into the store of releases as a release is.

A command (`command:PROGRAM ...`) is one more: its files are the program and the files among its words.

Cases and stores name targets too, and may come from strangers: a path that a file names runs only if the user
has named it on the command line on this machine (`allow`).
"""

import hashlib
import importlib.machinery
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from opsieve.backends.protocol import Backend, facts_of
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases import interpreters
from opsieve.backends.releases.interpreters import OLDEST, find_interpreters
from opsieve.backends.releases.releases import Environment, ReleaseStore, Say, check_private, default_root
from opsieve.backends.target import may_be_own
from opsieve.gen.errors import BadInput, shown

# Where a folder may hold a package, the first first.
_FOLDERS = (
    "",
    "site-packages",
    "src",
    "python",
    "build/lib*",
    "lib/python3*/site-packages",
)
# what build trees load from beside the package
_LIBRARIES = (
    "*.so*",
    "build/*.so*",
    "lib/*.so*",
    "build/lib/*.so*",
)
# The limit on files whose sizes and times are read.
_MOST_FILES = 100_000
# Seconds for a Python to find a package
_PATIENCE = 60.0
_ASK = """
import importlib.util, json, sys
spec = importlib.util.find_spec(sys.argv[1])
places = list(spec.submodule_search_locations or ()) or [spec.origin] if spec else []
print(json.dumps([sys.implementation.name, list(sys.version_info[:3]), [place for place in places if place]]))
"""
_EXTENSION = re.compile(r"\.cpython-3(\d{1,3})-")
_WHEEL = re.compile(
    r"(?P<name>\w+)-(?P<version>[\w.!+]+)(?:-\d\w*)?-(?P<python>[\w.]+)-(?P<abi>[\w.]+)-[\w.]+\.whl"
)
_STATED = re.compile(r"""^(?:__version__|version)\s*(?::\s*\w+\s*)?=\s*['"]([\w.!+]{1,100})['"]""", re.M)
# Only the head of a version file is read: it may be any file of a stranger's build.
_MOST_TEXT = 1 << 16
_EXACT = re.compile(r"cp3(\d{1,3})")


def allow(target: ResolvedTarget) -> None:
    """Remember that the user's own code in `target`, a build or libraries, may run: the user named it.
    BadInput when it is none.
    """
    if target.build:
        _check(target.backend, target.build)
    for library in target.libraries:
        if not os.path.isfile(library):
            raise BadInput(f"there is no library of operators at {shown(library)}: name a file")
    for path in _own(target):
        remember(path)


def remember(text: str) -> None:
    """Remember on this machine that the user allowed a path or a sentence of `consent.py`."""
    mark = _mark(text)
    try:
        check_private(mark.parent.parent)
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.touch()
    except OSError as error:
        raise BadInput(
            f"the store of releases cannot be written ({error.strerror}): set OPSIEVE_STORE"
        ) from None


def is_remembered(text: str) -> bool:
    """Return whether the user allowed this on this machine before."""
    return _mark(text).exists()


def check_allowed(target: ResolvedTarget) -> None:
    """Raise BadInput for the user's own code that was never named on the command line (`allow`)."""
    for path in _own(target):
        if not is_remembered(path):
            what = "build" if path == target.build else "library"
            raise BadInput(
                f"the {'command' if target.facts.runs_command else what} {shown(path)} is named by a file"
                " and was never named on the command line here: to trust it, name it with -t of opsieve run"
                " once"
            )


def check_trusted(text: str) -> str:
    """Return a target that a store or a case names. Raises BadInput for the user's own code that was never
    named on the command line.
    """
    if may_be_own(text):
        check_allowed(resolve(text))
    return text


def _own(target: ResolvedTarget) -> tuple[str, ...]:
    """Return the paths of the user's own code that a target runs."""
    return (*([target.build] if target.build else []), *target.libraries)


def build_environment(backend: Backend, path: str, offline: bool, say: Say) -> Environment:
    """Return the environment that runs a build at an absolute path; raise BadInput if there is none."""
    place = Path(path)
    _check(backend, path)
    if facts_of(backend).runs_command:
        return Environment(Path(sys.executable), (), path, sys.version_info[:3], build_state(backend, path))
    if place.suffix == ".whl":
        return _of_wheel(backend, place, offline, say)
    python = _python_of(place)
    state = build_state(backend, path)
    if python is not None:
        return Environment(python, (), path, _ask_python(python, module_of(backend), place)[0], state)
    return Environment(Path(sys.executable), (_holding(backend, place),), path, sys.version_info[:3], state)


def build_state(backend: Backend, path: str) -> str:
    """Return ten hexadecimal digits that change with the files of a build. Raises BadInput if it is not a
    build.
    """
    if facts_of(backend).runs_command:
        return _state(build_files(backend, path))
    place = Path(path)
    if place.suffix == ".whl":
        return _state([place])
    libraries = [] if _python_of(place) else [found for name in _LIBRARIES for found in place.glob(name)]
    return _state([*build_files(backend, path), *libraries])


def own_files(target: ResolvedTarget) -> list[Path]:
    """List the files that the user's own code in a target reads besides its Python environment: a build, the
    files of a command, libraries, and their neighbours.
    """
    libraries = interpreters.reads_of(map(Path, target.libraries))
    if target.facts.runs_command:
        return [*interpreters.reads_of(interpreters.command_files(target.build)), *libraries]
    return [*([Path(target.build)] if target.build else []), *libraries]


def build_number(backend: Backend, path: str) -> str:
    """Return the version that the files of a build state, or "", without importing them. Raises BadInput if
    it is not a build.
    """
    place = Path(path)
    if place.suffix == ".whl":
        return _wheel_parts(backend, place)[0]
    for package in build_files(backend, path):
        for info in sorted(package.parent.glob("*.dist-info/METADATA")):
            if _same_name(info.parent.name.partition("-")[0], backend.package):
                found = re.search(r"^Version: (\S+)$", _start(info), re.M)
                if found:
                    return found[1]
        for name in ("__init__.py", "version.py", "_version.py"):
            found = _STATED.search(_start(package / name)) if (package / name).is_file() else None
            if found:
                return found[1]
    return ""


def build_files(backend: Backend, path: str) -> tuple[Path, ...]:
    """Return the files of a build that are imported as the compiler's package, or the files of a command; ()
    for a wheel. Raises BadInput if it is not a build.
    """
    if facts_of(backend).runs_command:
        return interpreters.command_files(path)
    place = Path(path)
    if place.suffix == ".whl":
        return ()
    python = _python_of(place)
    if python is not None:
        return tuple(map(Path, _ask_python(python, module_of(backend), place)[1]))
    return tuple(_packages(_holding(backend, place), module_of(backend)))


def stated_version(version: str, state: str) -> str:
    """Return a version with the state of a build's files as its local part, so that results cached by version
    do not apply to a rebuilt tree.
    """
    if not state:
        return version
    return f"{version}{'.' if '+' in version else '+'}build.{state}" if version else f"build.{state}"


def unstated_version(version: str) -> str:
    """Return the version that a build itself states."""
    return re.sub(r"(?:^|[+.])build\.[0-9a-f]{10}$", "", version)


def module_of(backend: Backend) -> str:
    """Return the name under which a backend's package is imported."""
    return facts_of(backend).module or backend.package.replace("-", "_")


def _mark(text: str) -> Path:
    return default_root() / ".builds" / hashlib.sha256(os.fsencode(text)).hexdigest()


def _check(backend: Backend, path: str) -> None:
    """Raise BadInput unless there is a build of the compiler at `path`."""
    if facts_of(backend).runs_command:
        interpreters.check_command(path)
        return
    place = Path(path)
    if not place.exists():
        raise BadInput(f"there is no build of {backend.name} at {shown(str(place))}: nothing is there")
    if place.suffix == ".whl" and place.is_file():
        _wheel_parts(backend, place)
        return
    python = _python_of(place)
    if python is not None:
        _ask_python(python, module_of(backend), place)
    elif place.is_dir():
        # BadInput when the package's compiled modules are all of other Pythons than the running one.
        packages = _packages(_holding(backend, place), module_of(backend))
        found = {int(match[1]) for name, _ in _files(packages) if (match := _EXTENSION.search(name))}
        if found and sys.version_info[1] not in found:
            made = ", ".join(f"3.{minor}" for minor in sorted(found))
            here = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise BadInput(
                f"{backend.name} at {shown(str(place))} is built for Python {made}, and opsieve runs on"
                f" {here}: "
                "name an environment of that Python in which it is installed"
            )
    else:
        raise BadInput(
            f"{shown(str(place))} is not a build of {backend.name}: name an environment, a folder or a wheel"
        )


def _python_of(place: Path) -> Path | None:
    """Return the Python of an environment; `None` if the place is not one."""
    if place.is_file():
        return place if re.fullmatch(r"python[0-9.]*", place.name) and os.access(place, os.X_OK) else None
    if not ((place / "pyvenv.cfg").exists() or (place / "conda-meta").is_dir()):
        return None
    python = place / "bin" / "python"
    if not os.access(python, os.X_OK):
        raise BadInput(f"the environment {shown(str(place))} has no Python that runs: make it anew")
    return python


def _ask_python(python: Path, module: str, place: Path) -> tuple[tuple[int, int, int], list[str]]:
    """Return a Python's version and the place of a package in it. Raises BadInput if either does not
    qualify.
    """
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _ASK, module],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            cwd="/",
        )
        name, (major, minor, micro), places = json.loads(
            done.stdout.decode("utf-8", "replace").splitlines()[-1]
        )
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, IndexError):
        raise BadInput(f"the Python of {shown(str(place))} does not run: make the environment anew") from None
    if name != "cpython" or (major, minor) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise BadInput(
            f"the Python of {shown(str(place))} is {name} {major}.{minor}: opsieve needs CPython {oldest} or"
            " newer"
        )
    if not places:
        raise BadInput(f"the environment {shown(str(place))} has no package {module}: install it there")
    return (int(major), int(minor), int(micro)), [str(each) for each in places]


def _holding(backend: Backend, place: Path) -> Path:
    """Return the folder in or below `place` from which the package is imported; raise BadInput
    without one.
    """
    module = module_of(backend)
    for pattern in _FOLDERS:
        for folder in sorted(place.glob(pattern)) if pattern else [place]:
            if _packages(folder, module):
                return folder
    if place.name == module and (place / "__init__.py").exists():
        raise BadInput(f"{shown(str(place))} is the package itself: name the folder that holds it")
    raise BadInput(
        f"there is no package {module} in {shown(str(place))}, nor in its src, python, site-packages or"
        " build/lib*"
    )


def _packages(folder: Path, module: str) -> list[Path]:
    """List the files of a folder that are imported as `module`: its package, or its single file."""
    package = folder / module
    if (package / "__init__.py").exists():
        return [package]
    files = [folder / f"{module}{suffix}" for suffix in (".py", *importlib.machinery.EXTENSION_SUFFIXES)]
    return [file for file in files if file.exists()]


def _of_wheel(backend: Backend, wheel: Path, offline: bool, say: Say) -> Environment:
    release, python = _wheel_parts(backend, wheel)
    state = build_state(backend, str(wheel))
    there = [each for each in find_interpreters() if python is None or each.minor == python]
    if python is not None and not there:
        raise BadInput(
            f"{shown(str(wheel))} is for Python 3.{python[1]}, which was not found here: install it"
        )
    store = ReleaseStore(interpreters=lambda: there)
    found = store.wheel_environment(backend, wheel, release, state, offline, say)
    return Environment(found.python, found.path, str(wheel), found.python_version, state)


def _wheel_parts(backend: Backend, wheel: Path) -> tuple[str, tuple[int, int] | None]:
    """Return the version in a wheel's name and its Python (None: several); raise BadInput for another
    package.
    """
    match = _WHEEL.fullmatch(wheel.name)
    if match is None:
        raise BadInput(
            f"{shown(wheel.name)} is not the name of a wheel: NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
        )
    if not _same_name(match["name"], backend.package) and not _wheel_holds(wheel, module_of(backend)):
        raise BadInput(f"{shown(wheel.name)} is a wheel of {match['name']}, not of {backend.package}")
    exact = _EXACT.fullmatch(match["python"]) if match["abi"] != "abi3" else None
    return match["version"], (3, int(exact[1])) if exact else None


def _wheel_holds(wheel: Path, module: str) -> bool:
    """Whether a wheel of another name (`onnxruntime_gpu`) brings the module."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return any(name.startswith((f"{module}/", f"{module}.py")) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        # A wheel that cannot be read is reported by the installer, with a better message.
        return False


def _same_name(name: str, package: str) -> bool:
    """Whether a wheel's or a folder's name is that of a package."""
    return re.sub(r"[-_.]+", "_", name).lower() == re.sub(r"[-_.]+", "_", package).lower()


def _start(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_TEXT).decode("utf-8", "replace")
    except OSError:
        # The version of a build is only a hint here; the compiler reports its own when it is loaded.
        return ""


def _state(places: Iterable[Path]) -> str:
    """Hash the names, sizes and modification times of files and of files in folders, to ten hexadecimal
    digits.
    """
    digest = hashlib.sha256()
    for name, facts in islice(_files(places), _MOST_FILES):
        digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:10]


def _files(places: Iterable[Path]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file of the places, following links to files only, without Python's compiled files."""
    for place in places:
        if place.is_file():
            yield str(place), place.stat()
            continue
        for folder, below, names in os.walk(place):
            below[:] = sorted(name for name in below if name != "__pycache__")
            for name in sorted(names):
                try:
                    yield os.path.join(folder, name), os.stat(os.path.join(folder, name))
                except OSError:
                    # A link that leads nowhere
                    continue
