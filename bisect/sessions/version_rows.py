"""The row of versions that one call of `opsieve bisect` searches: releases, of several packages and indexes,
and builds of the user's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.installers import CONFIGURED, PackageIndex
from opsieve.backends.releases.releases import ReleaseStore, Say
from opsieve.bisect.blame.release_commit import ReleaseEnd, by_history, release_commit
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sources.journal import default_root
from opsieve.bisect.sources.release_source import releases_of
from opsieve.bisect.sources.version_row import Version, by_number, end_at, in_folder, release_row
from opsieve.bisect.sources.version_sequence import place_of
from opsieve.gen.errors import BadInput, shown


@dataclass(frozen=True, slots=True)
class VersionRow:
    """Versions, oldest first, with the places of the ends that the user named; `loose` are builds whose place
    only a repository tells.
    """

    versions: tuple[Version, ...]
    good: int | None
    bad: int | None
    loose: tuple[Version, ...] = ()

    @property
    def names(self) -> list[str]:
        """What the versions are called."""
        return [version.name for version in self.versions]

    def named(self, name: str) -> Version:
        """The version of a name."""
        return next(version for version in (*self.versions, *self.loose) if version.name == name)


def assemble(request: BisectRequest, package: str, target: ResolvedTarget, say: Say) -> VersionRow:
    """The row that a request asks for; `package` is "" for one of builds alone. BadInput where there is none,
    or it has no order.
    """
    releases = _released(request, package, target)
    builds = in_folder(request.builds, target, say) if request.builds else []
    good, bad = (end_at(text, target) if text else None for text in (request.good, request.bad))
    ends = [end for end in (good, bad) if end is not None]
    if not package and not builds and len(ends) < 2:
        raise BadInput("name --releases PACKAGE or --builds FOLDER, or a build each with --good and --bad")
    versions = [*releases, *builds, *(end for end in ends if end.number or end.commit)]
    loose = [version for version in versions if not version.number or (package and _is_date(version.number))]
    if loose and request.history is None:
        raise BadInput(
            f"the build {shown(loose[0].name, 200)} says no version: name --history, a clone of its"
            " repository, for the order of commits"
        )
    if loose and not package:
        row, loose = _ordered(request.history or Path(), versions, target), []
    else:
        row = by_number([version for version in versions if version not in loose])
    for end in ends:  # what says nothing stands where it was named
        if end not in row and end not in loose:
            row = [*row, end] if (end is bad) is not request.fixed else [end, *row]
    _check_ends(ends, loose)
    names = [version.name for version in row]
    named = target.release if request.bad is None and target.release in names else request.bad
    return VersionRow(
        tuple(row), place_of(request.good, names, "--good"), place_of(named, names, "--bad"), tuple(loose)
    )


def _released(request: BisectRequest, package: str, target: ResolvedTarget) -> list[Version]:
    """The releases of every package on every index, each number of a package once; BadInput where none lists
    any.
    """
    if not package:
        if request.packages or request.indexes or request.pre:
            raise BadInput("--package, --index and --pre say more of --releases PACKAGE: name that, too")
        return []
    found: dict[str, Version] = {}
    problems: list[BadInput] = []
    indexes = [CONFIGURED, *map(PackageIndex.named, request.indexes)]
    for each in dict.fromkeys([package, *request.packages]):
        before = len(found)
        refused = []
        for index in indexes:
            try:
                numbers = releases_of(
                    each, request.offline, root=default_root(), index=index, preliminary=request.pre
                )
            except BadInput as error:
                refused.append(error)
                continue
            for version in release_row(each, numbers, target.facts.package, index):
                found.setdefault(version.name, version)
        if len(found) == before:
            problems += refused
    if problems:
        raise problems[0]
    return list(found.values())


def _ordered(repository: Path, versions: Sequence[Version], target: ResolvedTarget) -> list[Version]:
    """The versions in the order of the commits that they were built of."""
    commits = [release_commit(repository, built(version, target)).sha for version in versions]
    return [versions[place] for place in by_history(repository, commits)]


def between(repository: Path, row: VersionRow, old: str, new: str, target: ResolvedTarget) -> VersionRow:
    """The row of two neighbours and what of the loose builds lies between them in the history."""
    first, last = row.named(old), row.named(new)
    ends = [release_commit(repository, built(version, target)).sha for version in (first, last)]
    commits = [release_commit(repository, built(version, target)).sha for version in row.loose]
    inner = [row.loose[place] for place in by_history(repository, commits, *ends)]
    return replace(row, versions=(first, *inner, last), loose=())


def built(version: Version, target: ResolvedTarget) -> ReleaseEnd:
    """What is known of a version's commit; of one whose files are not here, its number."""
    try:
        folders = version.files(target.backend, ReleaseStore())
    except BadInput:
        folders = ()
    return ReleaseEnd(version.name, version.number, folders, version.commit)


def _check_ends(ends: Sequence[Version], loose: Sequence[Version]) -> None:
    for end in ends:
        if end in loose:
            raise BadInput(
                f"{shown(end.name, 200)} says no version, so that it has no place among the releases: leave"
                " --releases out"
            )


def _is_date(number: str) -> bool:
    return len(number) == 8 and number.isdigit() and number[:2] in ("19", "20")
