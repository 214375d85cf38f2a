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
from opsieve.bisect.sources.journal import ProbeJournal, case_digest
from opsieve.bisect.sources.outcome import Evaluate, VersionOutcome, evaluate
from opsieve.bisect.sources.version_row import Version
from opsieve.bisect.sources.version_sequence import Say, VersionSequence
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.fingerprint.fingerprint import VERSION

_FRESH = 3600.0  # seconds
_MAX_BYTES = 1 << 20


class Releases(VersionSequence):
    """Probes of one case in versions of a compiler; `target` gives the backend and its options, its release
    is ignored.

    `row` holds the versions that are not plain releases of the backend's package. One that cannot be
    installed or imported is skipped. With `elsewhere` plain releases are tried by that, not by the workers
    here.
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
            "case": case_digest(case),
            "target": self.target.display,
            "tolerance": list(policy.tolerance) if policy.tolerance else None,
            "fingerprints": VERSION,
            "source": "releases",
        }
        self._case, self._workers, self._policy, self._elsewhere = case, workers, policy, elsewhere
        super().__init__(self.try_release, ProbeJournal(root, question), self.target.name, say)

    def try_release(self, version: str) -> VersionOutcome:
        """What a release shows, tested now."""
        if self._elsewhere is not None and version not in self._row:
            return self._elsewhere(self._case, self.target_of(version), self._policy)
        return evaluate(self._case, self.target_of(version), ObservationCache(self._workers), self._policy)

    def target_of(self, version: str) -> ResolvedTarget:
        """The target that a version is, with the options that are searched with."""
        known = self._row.get(version)
        return known.on(self.target) if known else self.target.with_release(version)

    def key(self, version: str) -> str:
        """What its probes are kept by."""
        known = self._row.get(version)
        return known.key(self.target.backend) if known else version


def backend_of(package: str) -> str:
    """The backend whose releases are those of a package; BadInput when none is."""
    there = {plugin(name).facts.package: name for name in names() if plugin(name).facts.package}
    # not another tool of its wheel
    there |= {name: name for name in names() if plugin(name).facts.package == name}
    if package not in there:
        raise BadInput(f"no backend runs the package {shown(package)}; there are {', '.join(sorted(there))}")
    return there[package]


def is_pure(folders: Sequence[Path], package: str) -> bool:
    """Whether a package that is unpacked in one of the folders holds no compiled code, as its wheel says: its
    source tree can be imported.
    """
    name = re.sub(r"[-_.]+", "_", package)
    for folder in folders:
        for wheel in folder.glob("*.dist-info/WHEEL"):
            if re.sub(r"[-_.]+", "_", wheel.parent.name).startswith(f"{name}_"):
                return "root-is-purelib: true" in wheel.read_text("utf-8", "replace").lower()
    return False


def releases_of(
    package: str,
    offline: bool,
    store: ReleaseStore | None = None,
    root: Path | None = None,
    index: PackageIndex = CONFIGURED,
    preliminary: bool = False,
) -> list[str]:
    """The releases to search, oldest first: those of the index, or those in the store when `offline`;
    previews only if `preliminary`.

    What the index said is kept in `root` for an hour: it takes as long to ask as many probes.
    """
    store = store or ReleaseStore()
    if offline:
        found = list(dict.fromkeys(release for release, _ in store.installed(package, index)))
    else:
        file = root / "listed" / f"{_listing(package, index, preliminary)}.json" if root else None
        found = _listed(package, store, file, index, preliminary)
    if not found:
        where = "in the store; leave --offline out" if offline else "that can run here"
        raise BadInput(f"there is no release of {shown(package)} {where}")
    return found


def _listing(package: str, index: PackageIndex, preliminary: bool) -> str:
    """What the releases of a package on an index are called on disk."""
    asked = f"{index.place} {preliminary}"
    plain = index == CONFIGURED and not preliminary
    return package if plain else f"{package}-{hashlib.sha256(asked.encode()).hexdigest()[:10]}"


def _listed(
    package: str, store: ReleaseStore, file: Path | None, index: PackageIndex, preliminary: bool
) -> list[str]:
    """The releases on the index, as it said within the last hour where `file` has that; a folder is looked at
    each time.
    """
    if index.place and "://" not in index.place:
        file = None
    try:
        if file is not None and 0 <= time.time() - file.stat().st_mtime < _FRESH:
            found = msgspec.json.decode(file.read_bytes()[:_MAX_BYTES], type=list[str])
            return sorted(found, key=release_key)
    except (OSError, msgspec.DecodeError, BadInput):
        pass  # none, or damaged: the index is asked
    found = store.available(package, index, preliminary)
    if file is not None:
        with contextlib.suppress(OSError):  # it is asked again the next time
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}")
            part.write_bytes(msgspec.json.encode(found))
            part.replace(file)
    return found
