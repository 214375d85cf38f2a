"""Versions of one compiler in a row, oldest first: releases of its package and of others that hold it, and
builds by their path.
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

    `name` is how users and answers call it; `number` its release number, "" where none is known; `commit` the
    commit that its name states, "" for none.
    """

    name: str
    number: str = ""
    release: PackageRelease | None = None
    build: str = ""
    commit: str = ""

    def on(self, target: ResolvedTarget) -> ResolvedTarget:
        """The version with the options of a target."""
        if self.build:
            return replace(target, target=replace(target.target, release="", build=self.build))
        return target.with_release(self.entry)

    @property
    def entry(self) -> str:
        """Under what `VersionStore` knows a release; one of the backend's own package has its number."""
        return re.sub(r"[^A-Za-z0-9.!+_-]+", "-", self.name)

    def key(self, backend: Backend) -> str:
        """What tells it from every other version, and from a build before it was made anew."""
        if self.build:
            place = hashlib.sha256(os.fsencode(self.build)).hexdigest()[:16]
            return f"build-{place}-{build_state(backend, self.build)}"
        index = self.release.index if self.release else CONFIGURED
        place = hashlib.sha256(index.place.encode()).hexdigest()[:16]
        return f"{self.name}@{place}" if index.place else self.name

    def files(self, backend: Backend, store: ReleaseStore) -> tuple[Path, ...]:
        """The folders in which its files lie, as far as they are here."""
        if self.release is not None:
            return store.package_environment(backend, self.release, offline=True).path
        found = build_files(backend, self.build)
        return found or build_environment(backend, self.build, True, lambda _: None).path


class VersionStore:
    """The versions of a row in the part of a store of releases, by the text that `Version.on` gives a
    target.
    """

    def __init__(self, row: Iterable[Version], store: ReleaseStore | None = None):
        self._store = store or ReleaseStore()
        self._row = {version.entry: version.release for version in row if version.release}

    def environment(
        self, backend: Backend, release: str, offline: bool = False, say: Say = lambda _: None
    ) -> Environment:
        """The environment that runs a release of the row, or another one of the backend's own package."""
        found = self._row.get(release) or PackageRelease(backend.package, release)
        return self._store.package_environment(backend, found, offline, say)


def release_row(
    package: str, numbers: Iterable[str], main: str, index: PackageIndex = CONFIGURED
) -> list[Version]:
    """Releases of a package on an index; those of another package than `main` are called by both names."""
    return [
        Version(
            number if package == main else f"{package}=={number}",
            number,
            PackageRelease(package, number, index),
        )
        for number in numbers
    ]


def build_at(path: Path, target: ResolvedTarget, name: str) -> Version:
    """The build at a path, which may run from now on: the user named it, or the folder that holds it.
    BadInput when it is none.
    """
    build = str(path.absolute())
    allow(replace(target, target=replace(target.target, release="", build=build)))
    stem = path.name.removesuffix(".whl") if path.suffix != ".whl" else ""
    date, commit, number = _DATE.search(stem), _hash(stem), _NUMBER.search(stem)
    stated = build_number(target.backend, build)
    if path.suffix == ".whl":
        return Version(name, stated, build=build, commit=_hash(stated))
    if commit:
        return Version(name, build=build, commit=commit)
    if number and is_number(number[1]):
        return Version(name, number[1], build=build)
    return Version(name, stated if is_number(stated) else "".join(date.groups()) if date else "", build=build)


def in_folder(folder: Path, target: ResolvedTarget, say: Say) -> list[Version]:
    """The builds that lie in a folder, each called by its name there; BadInput when there is none."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise BadInput(f"--builds {shown(folder, 200)} cannot be read: {error.strerror}") from None
    found, refused = [], []
    for path in entries:
        if path.is_dir() or path.suffix == ".whl":
            try:
                found.append(build_at(path, target, path.name))
            except BadInput as error:
                refused.append(str(error))
    if not found:
        why = f": {refused[0]}" if refused else ""
        raise BadInput(f"no build of {target.name} lies in {shown(folder, 200)}{why}")
    if refused:
        say(f"left out of {shown(folder, 200)}: {len(refused)}, such as: {refused[0]}")
    return found


def end_at(text: str, target: ResolvedTarget) -> Version | None:
    """The build that `--good` or `--bad` names as `backend@path`, None where it names no build. BadInput for
    another compiler's.
    """
    if "@" not in text or text.partition("@")[0] != target.name:
        return None
    named = resolve(text)
    if named.target.options:
        raise BadInput(f"{shown(text, 200)} has options: they belong to --target, for every version alike")
    return build_at(Path(named.build), target, text)


def by_number(versions: Sequence[Version]) -> list[Version]:
    """The versions by their numbers, oldest first; of equal numbers a release comes before builds, and only
    its first package counts.
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


def _hash(text: str) -> str:
    """The hash of a commit at the end of a name, "" for none; digits alone are a number or a date."""
    found = _COMMIT.search(text)
    return found[1] if found and (len(found[1]) == 40 or not found[1].isdigit()) else ""
