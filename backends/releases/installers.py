"""Asking uv and pip: what an installation's refusal means, and which releases a package has.

uv installs, for it is fast and shares files between folders; pip lists releases, which uv cannot. Both go
where the user configured them to.
"""

import importlib.util
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from opsieve.gen.errors import BadInput, format_install_command, shown
from opsieve.gen.model.printable import printable

Minor = tuple[int, int]

_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
# A canonical version of the packaging standard, which is a safe file name too
_RELEASE = re.compile(
    r"(?:(\d{1,9})!)?(\d{1,18}(?:\.\d{1,18}){0,9})(?:(a|b|rc)(\d{1,18}))?"
    r"(?:\.post(\d{1,18}))?(?:\.dev(\d{1,18}))?"
    r"(?:\+([a-z0-9]{1,20}(?:\.[a-z0-9]{1,20}){0,5}))?",
    re.ASCII,
)
# uv has no exit codes for these cases, so that its sentences are read.
_NO_WHEEL = re.compile(r"\bno (?:usable )?wheels\b|does not satisfy Python")
_NO_RELEASE = re.compile(
    r"there is no version of ([A-Za-z0-9._-]+)|Because ([A-Za-z0-9._-]+) was not found in"
)
_NO_NETWORK = re.compile(r"[Nn]etwork was disabled|Network connectivity is disabled")
_TAGS = re.compile(
    r"wheels for `([A-Za-z0-9._-]+)` \([^()]{0,80}\) with the following Python (ABI|implementation) tags?: "
    r"((?:`\w+`(?:, )?)+)"
)
_CPYTHON = re.compile(r"cp3(\d{1,2})m?")
_LISTED = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
# Seconds for one installation; uv gives up a silent server much earlier.
_PATIENCE = 3600.0


class InstallFailed(Exception):
    """An installer's refusal: its reason, and the Pythons that it names as those with a wheel (empty if
    unknown).

    `no-wheel`: another Python or platform may have one. `no-release`: the release does not exist. `other`:
    the network, the disk, a requirement that does not exist; asking again under another Python is of no use.
    With `or_newer` the Pythons newer than those in `wheels` may do as well: a wheel of the stable ABI is
    named by the oldest that takes it.
    """

    def __init__(
        self,
        kind: Literal["no-wheel", "no-release", "other"],
        line: str,
        wheels: frozenset[Minor] = frozenset(),
        or_newer: bool = False,
    ) -> None:
        super().__init__(line)
        self.kind = kind
        self.line = line
        self.wheels = wheels
        self.or_newer = or_newer

    def rules_out(self, minor: Minor) -> bool:
        """Whether it tells that this Python has no wheel either."""
        return (
            bool(self.wheels)
            and minor not in self.wheels
            and not (self.or_newer and minor > min(self.wheels))
        )


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """The source of releases: the URL of a package index, or the path of a folder of wheels; "" for the index
    that the user configured.
    """

    place: str = ""

    @staticmethod
    def named(text: str) -> "PackageIndex":
        """Parse the index that the user named. Raises BadInput if it is neither a folder nor a URL."""
        path = Path(text).expanduser()
        if text and path.is_dir():
            return PackageIndex(str(path.absolute()))
        parts = urllib.parse.urlsplit(text) if text.isprintable() and not re.search(r"\s", text) else None
        if parts is None or parts.scheme not in ("http", "https", "file") or not (parts.netloc or parts.path):
            raise BadInput(
                f"--index {shown(text)} is neither the URL of a package index nor a folder of wheels"
            )
        return PackageIndex(text)

    @property
    def public(self) -> str:
        """The place without the name and password that a URL may hold."""
        parts = urllib.parse.urlsplit(self.place)
        # Messages end up in logs and reports, where a password must not stand.
        return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def options(self, alone: bool = True) -> list[str]:
        """Return options for pip and uv: look here, and nowhere else if `alone`."""
        if not self.place:
            return []
        if "://" not in self.place:
            return [*["--no-index"] * alone, f"--find-links={self.place}"]
        return [f"--index-url={self.place}" if alone else f"--extra-index-url={self.place}"]


CONFIGURED = PackageIndex()
HASHES = "OPSIEVE_HASHES"


def list_hash_options(package: str, release: str) -> list[str]:
    """Return options that make uv accept only files with recorded hashes: PACKAGE-RELEASE.txt, as `uv pip
    compile --no-deps --generate-hashes` writes it, in the folder that OPSIEVE_HASHES names; [] if the
    variable is unset. Raises BadInput for a release without such a file.
    """
    folder = os.environ.get(HASHES, "")
    file = Path(folder).absolute() / f"{package}-{release}.txt"
    if folder and not file.is_file():
        raise BadInput(
            f"{HASHES} is set, and there is no {shown(file, 200)} with the hashes of {package} {release}"
        )
    return ["--require-hashes", "-r", str(file)] if folder else []


def check_package(name: str) -> None:
    """Raise BadInput unless `name` is the name of a package."""
    if not _PACKAGE.fullmatch(name):
        raise BadInput(f"{shown(name)} is not the name of a package")


def release_key(release: str) -> tuple[object, ...]:
    """The sort key of a release number, ordered as the packaging standard (PEP 440) orders versions.

    BadInput for text that is not a release number in the standard's canonical form.
    """
    match = _RELEASE.fullmatch(release)
    if match is None:
        raise BadInput(f"{shown(release)} is not a release number: write one such as 1.20.1")
    epoch, numbers, stage, count, post, dev, local = match.groups()
    parts = [int(number) for number in numbers.split(".")]
    # In the standard, 1.20 and 1.20.0 are one version.
    while parts and parts[-1] == 0:
        parts.pop()
    # What leads to a release comes before its previews, the release after them.
    unstaged = -1 if dev and not post else 3
    phase = ("a", "b", "rc").index(stage) if stage else unstaged
    after = -1 if post is None else int(post)
    return (
        int(epoch or 0),
        tuple(parts),
        phase,
        int(count or 0),
        after,
        dev is None,
        int(dev or 0),
        local or "",
    )


def install(command: Sequence[str], offline: bool, folder: Path, lock: int, package: str = "") -> None:
    """Run uv with `command`; InstallFailed when it fails. `package` is the one whose absence means: no such
    release.

    uv inherits the descriptor `lock`, so that one that outlives this process still holds the lock. It runs in
    `folder`, which should be ours: the files in the user's current folder do not configure it.
    """
    line = [_uv(), *command, *(["--offline"] if offline else [])]
    # A Python is never downloaded unasked: the user decides which ones are on the machine.
    settings = {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never"}
    try:
        done = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            env={**os.environ, **settings},
            cwd=folder,
            pass_fds=(lock,),
        )
    except subprocess.TimeoutExpired:
        raise InstallFailed("other", f"uv did not finish within {_PATIENCE:.0f} seconds") from None
    if done.returncode:
        raise understand(done.stderr.decode("utf-8", "replace"), package)


def understand(output: str, package: str) -> InstallFailed:
    """Classify uv's refusal. The absence of `package` means that the release does not exist."""
    text = " ".join(output.split())
    line = _last_line(output)
    if _NO_NETWORK.search(text):
        return InstallFailed(
            "other", "nothing may be downloaded (offline), and uv's cache does not have all that it needs"
        )
    missing = _NO_RELEASE.search(text)
    if missing and _same(missing[1] or missing[2], package):
        return InstallFailed("no-release", line)
    if not _NO_WHEEL.search(text):
        return InstallFailed("other", line)
    hint = _TAGS.search(text)
    tags = re.findall(r"\w+", hint[3]) if hint and _same(hint[1], package) else []
    named = [_CPYTHON.fullmatch(tag) for tag in tags]
    minors = frozenset((3, int(match[1])) for match in named if match)
    return InstallFailed(
        "no-wheel", line, minors if all(named) else frozenset(), bool(hint and hint[2] != "ABI")
    )


def _same(name: str, package: str) -> bool:
    """Whether two names mean one package: uv writes them in lower case with dashes."""
    return re.sub(r"[-_.]+", "-", name).lower() == re.sub(r"[-_.]+", "-", package).lower()


def list_releases(
    package: str, minors: Sequence[Minor], index: PackageIndex = CONFIGURED, preliminary: bool = False
) -> list[str]:
    """List the releases of `package` with a wheel for one of the Python versions, oldest first, without
    yanked ones, and with previews only if `preliminary`.

    pip is run once for each version, about half a second each. Raises BadInput if the index is unreachable or
    lists no release.
    """
    check_package(package)
    pip = _pip()
    asked = [*index.options(), *["--pre"] * preliminary]
    # Two at a time: pip waits for the network most of the time, and an index has limits on requests.
    with ThreadPoolExecutor(max_workers=2) as pool:
        answers = list(pool.map(lambda minor: _list_releases(pip, package, minor, asked), minors))
    releases = {release for listed, _ in answers for release in listed if _RELEASE.fullmatch(release)}
    if not releases:
        where = f"the package index {shown(index.public, 200)}" if index.place else "the package index"
        raise BadInput(f"{where} lists no release of {package} for a Python found here: {answers[0][1]}")
    return sorted(releases, key=release_key)


def _list_releases(
    pip: Sequence[str], package: str, minor: Minor, asked: Sequence[str]
) -> tuple[list[str], str]:
    """Return the releases of `package` with a wheel for one Python version, and pip's last other line."""
    options = ["--retries", "1", "--timeout", "20", "--no-input", "--disable-pip-version-check", "--no-color"]
    query = [
        "index",
        "versions",
        package,
        # Sources would have to be built, which runs their code.
        "--only-binary",
        ":all:",
        "--python-version",
        ".".join(map(str, minor)),
        *asked,
    ]
    try:
        done = subprocess.run(
            [*pip, *options, *query], stdin=subprocess.DEVNULL, capture_output=True, timeout=300.0, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return [], "pip did not finish within 300 seconds"
    found = _LISTED.search(done.stdout.decode("utf-8", "replace"))
    return (found[1].split(", ") if found else []), _last_line(done.stderr.decode("utf-8", "replace"))


def _pip() -> list[str]:
    """Return the command that starts pip: that of the running Python, or one that uv keeps."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-I", "-m", "pip"]
    return [_uv(), "tool", "run", "--quiet", "pip"]


def _last_line(output: str) -> str:
    """Return an installer's innermost reason: its last `cause:`, or else its last line, printable, at most
    300 characters.
    """
    lines = [" ".join(line.split()) for line in output.splitlines()]
    # uv's hints follow the reason and are often longer.
    lines = [line for line in lines if line and not line.startswith("hint:")] or ["it said nothing"]
    causes = [at for at, line in enumerate(lines) if line.startswith("cause:")]
    reason = " ".join(lines[causes[-1] if causes else -1 :]).removeprefix("cause: ")
    reason = printable(reason, "?")
    return reason if len(reason) <= 300 else reason[:297] + "..."


def _uv() -> str:
    from uv import find_uv_bin

    try:
        return find_uv_bin()
    except FileNotFoundError:
        raise BadInput(f"uv, which installs releases, is not here: {format_install_command('uv')}") from None
