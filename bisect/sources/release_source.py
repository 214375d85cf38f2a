"""Versions of one compiler in a row, oldest first: releases of its package and of related ones, and builds by
path; and the probes of a case in them.
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from opsieve.backends import compare, protocol
from opsieve.backends.registry import ResolvedTarget, names, plugin, resolve
from opsieve.backends.releases.builds import allow, build_environment, build_files, build_number, build_state
from opsieve.backends.releases.installers import CONFIGURED, PackageIndex, release_key
from opsieve.backends.releases.releases import Environment, PackageRelease, ReleaseStore, Say
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.sources import outcome, version_sequence
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.fingerprint.fingerprint import VERSION

# At least one dot, so that the 7 of `py7` or a date is no release number.
_NUMBER = re.compile(r"(?:^|[-_@])v?(\d+\.\d[\w.!+]*?)(?:$|[-_])")
# Git abbreviates to seven digits at least; `git describe` puts a g before them.
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
        """Return the name of a release in `VersionStore`: its number for the backend's own package."""
        # The text becomes part of a target's name, whose syntax uses the other signs.
        return re.sub(r"[^A-Za-z0-9.!+_-]+", "-", self.name)

    def make_key(self, backend: protocol.Backend) -> str:
        """Return a key that tells this version from every other one, and a build from its predecessor at the
        same path.
        """
        if self.build:
            place = hashlib.sha256(os.fsencode(self.build)).hexdigest()[:16]
            # With the state of its files: a build folder is overwritten by the next build.
            return f"build-{place}-{build_state(backend, self.build)}"
        index = self.release.index if self.release else CONFIGURED
        place = hashlib.sha256(index.place.encode()).hexdigest()[:16]
        # Two indexes may have different files under one number, such as nightly builds.
        return f"{self.name}@{place}" if index.place else self.name

    def find_files(self, backend: protocol.Backend, store: ReleaseStore) -> tuple[Path, ...]:
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
        self, backend: protocol.Backend, release: str, offline: bool = False, say: Say = lambda _: None
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
    # Before anything is read from it: what follows starts its Python.
    allow(replace(target, target=replace(target.target, release="", build=build)))
    # The name of a wheel follows rules of its own; its number is read from its metadata.
    stem = path.name.removesuffix(".whl") if path.suffix != ".whl" else ""
    date, commit, number = _DATE.search(stem), _find_hash(stem), _NUMBER.search(stem)
    stated = build_number(target.backend, build)
    # A wheel names its version for certain, whereas a folder's name is only a habit of its owner.
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

    A release comes before builds of the same number, and only its first package counts.
    """
    row: list[Version] = []
    # A build is usually made after the release from which its number comes.
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
    # 20250131 is seven hexadecimal digits or more, too.
    return found[1] if found and (len(found[1]) == 40 or not found[1].isdigit()) else ""


# Seconds
_FRESH = 3600.0
_MAX_BYTES = 1 << 20


class Releases(version_sequence.VersionSequence):
    """Probes of one case in versions of a compiler.

    `target` gives the backend and its options, its release is ignored. `row` holds the versions that are not
    plain releases of the backend's package. A version that cannot be installed or imported is skipped.
    `elsewhere`, if given, tries plain releases instead of the local workers.
    """

    def __init__(
        self,
        case: Case,
        target: ResolvedTarget,
        workers: Workers,
        root: Path,
        *,
        policy: compare.Policy = compare.POLICY,
        say: Say = print,
        row: Iterable[Version] = (),
        elsewhere: outcome.Evaluate | None = None,
    ):
        self._row = {version.name: version for version in row}
        self.target = target.with_release("")
        question = {
            "case": outcome.hash_case(case),
            "target": self.target.display,
            "tolerance": list(policy.tolerance) if policy.tolerance else None,
            "fingerprints": VERSION,
            "source": "releases",
            **outcome.describe_limits(workers.limits),
        }
        self._case, self._workers, self._policy, self._elsewhere = case, workers, policy, elsewhere
        super().__init__(self.try_release, outcome.ProbeJournal(root, question), self.target.name, say)

    def try_release(self, version: str) -> outcome.VersionOutcome:
        """Evaluate a release now."""
        if self._elsewhere is not None and version not in self._row:
            return self._elsewhere(self._case, self.get_target(version), self._policy)
        return outcome.evaluate(
            self._case, self.get_target(version), ObservationCache(self._workers), self._policy
        )

    def get_target(self, version: str) -> ResolvedTarget:
        """Return the target of a version, with the options of the search."""
        known = self._row.get(version)
        return known.apply_to(self.target) if known else self.target.with_release(version)

    def make_key(self, version: str) -> str:
        """Return the journal's key for the probes of a version."""
        known = self._row.get(version)
        return known.make_key(self.target.backend) if known else version


def find_backend(package: str) -> str:
    """Find the backend whose releases are those of a package.

    Raises:
        BadInput: If every backend runs another package.
    """
    there = {plugin(name).facts.package: name for name in names() if plugin(name).facts.package}
    # not another tool of its wheel
    there |= {name: name for name in names() if plugin(name).facts.package == name}
    if package not in there:
        raise BadInput(f"no backend runs the package {shown(package)}; there are {', '.join(sorted(there))}")
    return there[package]


def is_pure(folders: Sequence[Path], package: str) -> bool:
    """Whether a package unpacked in one of the folders is pure Python according to its wheel, so that its
    sources can be imported.
    """
    # As PEP 503 compares names: folders of wheels write each of the three signs as an underscore.
    name = re.sub(r"[-_.]+", "_", package)
    for folder in folders:
        for wheel in folder.glob("*.dist-info/WHEEL"):
            if re.sub(r"[-_.]+", "_", wheel.parent.name).startswith(f"{name}_"):
                # The one line of a wheel's metadata that tells whether it has compiled files.
                return "root-is-purelib: true" in wheel.read_text("utf-8", "replace").lower()
    return False


def list_releases(
    package: str,
    offline: bool,
    store: ReleaseStore | None = None,
    root: Path | None = None,
    index: PackageIndex = CONFIGURED,
    preliminary: bool = False,
) -> list[str]:
    """List the releases to search, oldest first.

    They are those of the index, or those in the store when `offline`; pre-releases only if `preliminary`. The
    listing of the index is kept in `root` for an hour, because it takes as long as many probes.
    """
    store = store or ReleaseStore()
    if offline:
        found = list(dict.fromkeys(release for release, _ in store.list_installed(package, index)))
    else:
        asked = hashlib.sha256(f"{index.place} {preliminary}".encode()).hexdigest()[:10]
        name = package if index == CONFIGURED and not preliminary else f"{package}-{asked}"
        file = root / "listed" / f"{name}.json" if root else None
        found = _read_listing(package, store, file, index, preliminary)
    if not found:
        where = "in the store; leave --offline out" if offline else "that can run here"
        raise BadInput(f"there is no release of {shown(package)} {where}")
    return found


def _read_listing(
    package: str, store: ReleaseStore, file: Path | None, index: PackageIndex, preliminary: bool
) -> list[str]:
    """Return the releases on the index, from `file` if that is younger than an hour; a local folder is always
    read.
    """
    # A folder is quick to read, and the user may just have added a file to it.
    if index.place and "://" not in index.place:
        file = None
    try:
        # Not from the future, as after a clock was set back, or the listing would stay for long.
        if file is not None and 0 <= time.time() - file.stat().st_mtime < _FRESH:
            found = msgspec.json.decode(file.read_bytes()[:_MAX_BYTES], type=list[str])
            return sorted(found, key=release_key)
    except (OSError, msgspec.DecodeError, BadInput):
        # A missing or damaged cache costs only a query of the index.
        pass
    found = store.available(package, index, preliminary)
    if file is not None:
        # The next call fetches it again.
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            # Replaced as a whole, since another call may be reading it.
            part = file.with_suffix(f".{os.getpid()}")
            part.write_bytes(msgspec.json.encode(found))
            part.replace(file)
    return found
