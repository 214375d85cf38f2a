"""Configure a zygote's sandbox from the user's wishes, the backend's needs, and this machine's refusals.

`shut_in.py` applies it inside the zygote. OPSIEVE_SANDBOX=off (set by `--no-sandbox`) runs workers as
ordinary processes; OPSIEVE_SANDBOX_ALLOW lists additional rights, separated by commas: `network`,
`shared-memory` (memory files), devices (`/dev/nvidia*`), and other files or folders to read. OPSIEVE_ENV
(`--env`) lists variables that workers get.
"""

import contextlib
import glob
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import platformdirs

import opsieve
from opsieve.backends.protocol import Backend, facts_of
from opsieve.backends.workers.zygotes.zygote import Refused, Unavailable, Zygote
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.variables import variable_set

SWITCH, ALLOWED = "OPSIEVE_SANDBOX", "OPSIEVE_SANDBOX_ALLOW"
HANDED_ON = "OPSIEVE_ENV"
NETWORK, SHARED = "network", "shared-memory"
# Variables that compilers get besides those that their backends name: the system's, the loader's, Python's,
# those of thread pools, devices and sanitizers, ours.
_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|TMPDIR|TMP|TEMP|NO_COLOR"
    r"|LD_[A-Z_]+|MALLOC_\w+|GLIBC_TUNABLES|PYTHON[A-Z]*|VIRTUAL_ENV|CONDA_PREFIX|SOURCE_DATE_EPOCH"
    r"|CC|CXX|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH"
    r"|(?:OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|TBB|GOTO|DNNL|ONEDNN|OPSIEVE)_\w+"
    r"|(?:CUDA|CUDNN|NVIDIA|XLA|HIP|ROCR|HSA|ONEAPI|SYCL)_\w+"
    r"|(?:A|L|M|T|UB)SAN_OPTIONS|ASAN_SYMBOLIZER_PATH|LLVM_PROFILE_FILE|GCOV_PREFIX\w*|TOKENIZERS_PARALLELISM"
)
# Not even then: `OPSIEVE_TOKEN` is nothing that a compiler needs.
_SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_AUTH|^AUTH|COOKIE|_PROXY$"
    r"|^(?:AWS|AZURE|GOOGLE|SSH|GPG|DBUS|KUBE)",
    re.I,
)

_MEANINGS = {
    "user": "no user namespaces",
    "namespaces": "no namespaces, so a compiler can fill the disk",
    "files": "no file tree of its own, so a compiler can fill the disk",
    "network": "no network of its own",
    "ipc": "no memory segments of its own",
    "processes": "no processes of its own",
    "landlock": "no Landlock",
    "filter": "no filter of system calls",
}
# Byte code of a compiler's package is compiled once, because workers cannot write it. Large packages such as
# torch take long on a loaded machine.
_COMPILE_SECONDS = 120.0
_said: set[str] = set()
_compiled: set[str] = set()
# The sandbox features that the kernel refused to a zygote of this process, with reasons.
_refused: dict[str, str] = {}


def is_on() -> bool:
    """Whether workers are sandboxed; raises BadInput for another value of the variable."""
    said = os.environ.get(SWITCH, "on")
    if said not in ("on", "off", ""):
        raise BadInput(f"{SWITCH} is on or off, not {shown(said)}")
    return said != "off"


def switch_off() -> AbstractContextManager[None]:
    """Disable the sandbox for this process and its children."""
    return variable_set(SWITCH, "off")


def make_config(backend: Backend, readable: Iterable[Path]) -> dict[str, Any] | None:
    """Make the configuration for `shut_in.py` of a zygote that also reads these files; None without a
    sandbox.
    """
    if not is_on():
        return None
    allowed, paths, devices = _list_allowed(backend), _list_allowed_paths(backend), list_devices(backend)
    for item in allowed:
        if item not in (NETWORK, SHARED) and not item.startswith("/"):
            raise BadInput(f"{ALLOWED} lists absolute paths, `{NETWORK}` and `{SHARED}`, not {shown(item)}")
    # In a checkout the packages are links; Landlock and mounts look at their targets.
    package = Path(opsieve.__file__).parent
    # The user's additional folders for libraries and programs.
    named = os.environ.get("LD_LIBRARY_PATH", "").split(":") + os.environ.get("PATH", "").split(":")
    files = (
        {str(path) for path in readable}
        | {str(package.resolve()), *(str(entry.resolve()) for entry in package.iterdir() if entry.is_dir())}
        | {place for place in named if place.startswith("/") and os.path.isdir(place)}
        | (set(paths) - set(devices))
    )
    return {
        "network": NETWORK in allowed,
        "devices": devices,
        # The root would open the whole machine; an empty entry of PATH means the current folder.
        "readable": sorted(path for path in files if path not in ("/", "")),
        "kept": [],
        "without": dict(_refused),
    }


def list_devices(backend: Backend) -> list[str]:
    """List the devices that workers of a backend may use, with or without a sandbox; shared memory is
    excluded.
    """
    return [
        path
        for path in _list_allowed_paths(backend)
        # Files in shared memory are ordinary files; only devices change the limit on address space.
        if path.startswith("/dev/") and not f"{path}/".startswith("/dev/shm/")
    ]


def _list_allowed(backend: Backend) -> list[str]:
    return [*filter(None, os.environ.get(ALLOWED, "").split(",")), *facts_of(backend).sandbox_allows]


def _list_allowed_paths(backend: Backend) -> list[str]:
    return [
        path for item in _list_allowed(backend) if item.startswith("/") for path in sorted(glob.glob(item))
    ]


def start_sandboxed(
    backend: Backend,
    readable: Iterable[Path],
    start: Callable[[dict[str, Any] | None], Zygote],
    python: Path,
    say: Callable[[str], None],
) -> Zygote:
    """Start a zygote with as much of a sandbox as the kernel allows; missing parts are reported once per
    machine.

    The zygote's `python` cannot keep compiled modules, so they are compiled here, without importing them.
    """
    readable = list(readable)
    while True:
        try:
            made = start(make_config(backend, readable))
        except Refused as refused:
            # It was left out already, so that another try would end in the same way.
            if refused.feature in _refused:
                raise Unavailable(
                    f"it cannot be shut in ({refused}): --no-sandbox runs it as it is"
                ) from None
            # The next ones do without
            _refused[refused.feature] = str(refused)
            continue
        _compile_modules(python, made.uncompiled)
        if made.lacks:
            _report_once(made.lacks, say)
        return made


def describe_lacks(lacks: Mapping[str, str]) -> str:
    """Describe the missing parts of a sandbox for a person."""
    what = "; ".join(f"{_MEANINGS.get(name, name)} ({why})" for name, why in sorted(lacks.items()))
    return f"this machine does not give all that shuts a compiler in: {what}"


def _report_once(lacks: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Report the missing parts unless that was done on this machine before."""
    sentence = describe_lacks(lacks)
    mark = (
        platformdirs.user_cache_path("opsieve")
        / "sandbox"
        / hashlib.sha256(sentence.encode()).hexdigest()[:16]
    )
    if sentence in _said or mark.exists():
        return
    _said.add(sentence)
    # The mark only keeps later processes from repeating the sentence.
    with contextlib.suppress(OSError):
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
    say(f"{sentence}; `opsieve doctor` repeats this")


def may_start_processes(backend: Backend) -> bool:
    """Whether a backend's workers may start processes."""
    return facts_of(backend).starts_processes


def may_share_memory(backend: Backend) -> bool:
    """Whether a backend's workers may make memory files; drivers of devices need them."""
    return SHARED in _list_allowed(backend) or bool(list_devices(backend))


def select_variables(environment: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    """Select the variables that workers get; all without a sandbox.

    They are those that every compiler needs, those that match the `patterns` of a backend, and those that
    the user names in OPSIEVE_ENV or with `--env`.
    """
    named = set(environment.get(HANDED_ON, "").split(","))
    wanted = tuple(patterns)

    def is_selected(name: str) -> bool:
        known = _KEPT.fullmatch(name) or any(fnmatchcase(name, each) for each in wanted)
        # A name that the user gives is let in even if it looks like a secret.
        return name in named or bool(known and not _SECRET.search(name))

    return {name: value for name, value in environment.items() if not is_on() or is_selected(name)}


def _compile_modules(python: Path, folders: Sequence[str]) -> None:
    """Compile the modules in folders, each once per environment, where that is allowed."""
    wanted = [place for place in folders if place not in _compiled and os.access(place, os.W_OK)]
    _compiled.update(wanted)
    # The user's wish to write no byte code holds here too.
    if wanted and not sys.dont_write_bytecode:
        command = [str(python), "-I", "-m", "compileall", "-q", "-l", *wanted]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMPILE_SECONDS, check=False
            )
