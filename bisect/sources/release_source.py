"""The releases of a package as versions to bisect over."""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from opsieve.backends.compare import POLICY, Policy
from opsieve.backends.registry import ResolvedTarget, names, plugin
from opsieve.backends.releases.installers import CONFIGURED, PackageIndex, release_key
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.sources.journal import ProbeJournal, describe_limits, hash_case
from opsieve.bisect.sources.outcome import Evaluate, VersionOutcome, evaluate
from opsieve.bisect.sources.version_row import Version
from opsieve.bisect.sources.version_sequence import Say, VersionSequence
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.fingerprint.fingerprint import VERSION

# Seconds
_FRESH = 3600.0
_MAX_BYTES = 1 << 20


class Releases(VersionSequence):
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
        policy: Policy = POLICY,
        say: Say = print,
        row: Iterable[Version] = (),
        elsewhere: Evaluate | None = None,
    ):
        self._row = {version.name: version for version in row}
        self.target = target.with_release("")
        question = {
            "case": hash_case(case),
            "target": self.target.display,
            "tolerance": list(policy.tolerance) if policy.tolerance else None,
            "fingerprints": VERSION,
            "source": "releases",
            **describe_limits(workers.limits),
        }
        self._case, self._workers, self._policy, self._elsewhere = case, workers, policy, elsewhere
        super().__init__(self.try_release, ProbeJournal(root, question), self.target.name, say)

    def try_release(self, version: str) -> VersionOutcome:
        """Evaluate a release now."""
        if self._elsewhere is not None and version not in self._row:
            return self._elsewhere(self._case, self.get_target(version), self._policy)
        return evaluate(self._case, self.get_target(version), ObservationCache(self._workers), self._policy)

    def get_target(self, version: str) -> ResolvedTarget:
        """Return the target of a version, with the options of the search."""
        known = self._row.get(version)
        return known.apply_to(self.target) if known else self.target.with_release(version)

    def make_key(self, version: str) -> str:
        """What its probes are kept by."""
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
    name = re.sub(r"[-_.]+", "_", package)
    for folder in folders:
        for wheel in folder.glob("*.dist-info/WHEEL"):
            if re.sub(r"[-_.]+", "_", wheel.parent.name).startswith(f"{name}_"):
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
        file = root / "listed" / f"{_name_listing(package, index, preliminary)}.json" if root else None
        found = _read_listing(package, store, file, index, preliminary)
    if not found:
        where = "in the store; leave --offline out" if offline else "that can run here"
        raise BadInput(f"there is no release of {shown(package)} {where}")
    return found


def _name_listing(package: str, index: PackageIndex, preliminary: bool) -> str:
    """Return the file name of a package's listing on disk."""
    asked = f"{index.place} {preliminary}"
    plain = index == CONFIGURED and not preliminary
    return package if plain else f"{package}-{hashlib.sha256(asked.encode()).hexdigest()[:10]}"


def _read_listing(
    package: str, store: ReleaseStore, file: Path | None, index: PackageIndex, preliminary: bool
) -> list[str]:
    """Return the releases on the index, from `file` if that is younger than an hour; a local folder is always
    read.
    """
    if index.place and "://" not in index.place:
        file = None
    try:
        if file is not None and 0 <= time.time() - file.stat().st_mtime < _FRESH:
            found = msgspec.json.decode(file.read_bytes()[:_MAX_BYTES], type=list[str])
            return sorted(found, key=release_key)
    except (OSError, msgspec.DecodeError, BadInput):
        # If the cache is missing or damaged, the index is queried.
        pass
    found = store.available(package, index, preliminary)
    if file is not None:
        # The next call fetches it again.
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}")
            part.write_bytes(msgspec.json.encode(found))
            part.replace(file)
    return found
