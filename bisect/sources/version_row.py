"""Versions of one compiler in a row, oldest first: releases of its package and of related ones, and builds by
path.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opsieve.backends.protocol import Backend
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.builds import allow, build_environment, build_files, build_number, build_state
from opsieve.backends.releases.installers import CONFIGURED, PackageIndex, release_key
from opsieve.backends.releases.releases import Environment, PackageRelease, ReleaseStore, Say
from opsieve.gen.errors import BadInput, shown

_NUMBER = re.compile(r"(?:^|[-_@])v?(\d+\.\d[\w.!+]*?)(?:$|[-_])")
_COMMIT = re.compile(r"(?:^|[-_@.+])g?([0-9a-f]{7,40})$")
_DATE = re.compile(r"(?:^|[-_@])((?:19|20)\d\d)-?([01]\d)-?([0-3]\d)(?:$|[-_])")


@dataclass(frozen=True, slots=True)
class Version:
    """One version: a release of a package, or a build at an absolute path.

    `name` is its name for users and in answers; `number` its release number, or ""; `commit` the commit
    stated in its name, or "".
    """

    name: str
    number: str = ""
    release: PackageRelease | None = None
    build: str = ""
    commit: str = ""

    def apply_to(self, target: ResolvedTarget) -> ResolvedTarget:
        """Return this version with the options of a target."""
        if self.build:
            return replace(target, target=replace(target.target, release="", build=self.build))
        return target.with_release(self.entry)

    @property
    def entry(self) -> str:
        """The name of a release in `VersionStore`; for the backend's own package, its number."""
        return re.sub(r"[^A-Za-z0-9.!+_-]+", "-", self.name)

    def make_key(self, backend: Backend) -> str:
        """Return a key that tells this version from every other one, and a build from its predecessor at the
        same path.
        """
        if self.build:
            place = hashlib.sha256(os.fsencode(self.build)).hexdigest()[:16]
            return f"build-{place}-{build_state(backend, self.build)}"
        index = self.release.index if self.release else CONFIGURED
        place = hashlib.sha256(index.place.encode()).hexdigest()[:16]
        return f"{self.name}@{place}" if index.place else self.name

    def find_files(self, backend: Backend, store: ReleaseStore) -> tuple[Path, ...]:
        """Return the folders of its files, if they are on this machine."""
        if self.release is not None:
            return store.package_environment(backend, self.release, offline=True).path
        found = build_files(backend, self.build)
        return found or build_environment(backend, self.build, True, lambda _: None).path


class VersionStore:
    """The versions of a row in the part of a store of releases, by the text that `Version.apply_to` gives a
    target.
    """

    def __init__(self, row: Iterable[Version], store: ReleaseStore | None = None):
        self._store = store or ReleaseStore()
        self._row = {version.entry: version.release for version in row if version.release}

    def environment(
        self, backend: Backend, release: str, offline: bool = False, say: Say = lambda _: None
    ) -> Environment:
        """Return the environment of a release of the row, or of another release of the backend's own
        package.
        """
        found = self._row.get(release) or PackageRelease(backend.package, release)
        return self._store.package_environment(backend, found, offline, say)


def make_release_row(
    package: str, numbers: Iterable[str], main: str, index: PackageIndex = CONFIGURED
) -> list[Version]:
    """List releases of a package on an index; those of another package than `main` carry both names."""
    return [
        Version(
            number if package == main else f"{package}=={number}",
            number,
            PackageRelease(package, number, index),
        )
        for number in numbers
    ]


def open_build(path: Path, target: ResolvedTarget, name: str) -> Version:
    """Open the build at a path and allow it to run: the user named it, or the folder that holds it.

    Raises:
        BadInput: If the path is not a build.
    """
    build = str(path.absolute())
    allow(replace(target, target=replace(target.target, release="", build=build)))
    stem = path.name.removesuffix(".whl") if path.suffix != ".whl" else ""
    date, commit, number = _DATE.search(stem), _find_hash(stem), _NUMBER.search(stem)
    stated = build_number(target.backend, build)
    if path.suffix == ".whl":
        return Version(name, stated, build=build, commit=_find_hash(stated))
    if commit:
        return Version(name, build=build, commit=commit)
    if number and is_number(number[1]):
        return Version(name, number[1], build=build)
    return Version(name, stated if is_number(stated) else "".join(date.groups()) if date else "", build=build)


def list_builds(folder: Path, target: ResolvedTarget, say: Say) -> list[Version]:
    """List the builds in a folder, each under its file name.

    Raises:
        BadInput: If the folder has no build.
    """
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise BadInput(f"--builds {shown(folder, 200)} cannot be read: {error.strerror}") from None
    found, refused = [], []
    for path in entries:
        if path.is_dir() or path.suffix == ".whl":
            try:
                found.append(open_build(path, target, path.name))
            except BadInput as error:
                refused.append(str(error))
    if not found:
        why = f": {refused[0]}" if refused else ""
        raise BadInput(f"no build of {target.name} lies in {shown(folder, 200)}{why}")
    if refused:
        say(f"left out of {shown(folder, 200)}: {len(refused)}, such as: {refused[0]}")
    return found


def open_end(text: str, target: ResolvedTarget) -> Version | None:
    """Open the build that `--good` or `--bad` names as `backend@path`; None for any other text.

    Raises:
        BadInput: For another compiler's build.
    """
    if "@" not in text or text.partition("@")[0] != target.name:
        return None
    named = resolve(text)
    if named.target.options:
        raise BadInput(f"{shown(text, 200)} has options: they belong to --target, for every version alike")
    return open_build(Path(named.build), target, text)


def sort_by_number(versions: Sequence[Version]) -> list[Version]:
    """Sort the versions by number, oldest first.

    Of equal numbers a release comes before builds, and only its first package counts.
    """
    row: list[Version] = []
    for version in sorted(versions, key=lambda item: (release_key(item.number), bool(item.build))):
        last = row[-1] if row else None
        if version.build or last is None or release_key(last.number) != release_key(version.number):
            row.append(version)
    return row


def is_number(text: str) -> bool:
    """Whether a text is the number of a release."""
    try:
        release_key(text)
    except BadInput:
        return False
    return True


def _find_hash(text: str) -> str:
    """Return the commit hash at the end of a name, or ""; digits alone are a number or a date."""
    found = _COMMIT.search(text)
    return found[1] if found and (len(found[1]) == 40 or not found[1].isdigit()) else ""
