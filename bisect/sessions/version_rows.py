"""Assemble the row of versions that one call of `opsieve bisect` searches.

It holds releases of several packages and indexes, and the user's builds.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.installers import CONFIGURED, PackageIndex
from opsieve.backends.releases.releases import ReleaseStore, Say
from opsieve.bisect.blame.release_commit import ReleaseEnd, find_release_commit, sort_by_history
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sources import outcome, release_source, version_sequence
from opsieve.gen.errors import BadInput, shown


@dataclass(frozen=True, slots=True)
class VersionRow:
    """Versions, oldest first, with the places of the named ends; `loose` are builds that only a repository
    can order.
    """

    versions: tuple[release_source.Version, ...]
    good: int | None
    bad: int | None
    loose: tuple[release_source.Version, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the versions."""
        return [version.name for version in self.versions]

    def get_version(self, name: str) -> release_source.Version:
        """Return the version with this name."""
        return next(version for version in (*self.versions, *self.loose) if version.name == name)


def assemble_row(request: BisectRequest, package: str, target: ResolvedTarget, say: Say) -> VersionRow:
    """Assemble the requested row; `package` is "" for builds alone.

    Raises:
        BadInput: If there are no versions, or they cannot be ordered.
    """
    releases = _list_releases(request, package, target)
    builds = release_source.list_builds(request.builds, target, say) if request.builds else []
    good, bad = (
        release_source.open_end(text, target) if text else None for text in (request.good, request.bad)
    )
    ends = [end for end in (good, bad) if end is not None]
    if not package and not builds and len(ends) < 2:
        raise BadInput("name --releases PACKAGE or --builds FOLDER, or a build each with --good and --bad")
    # A named end without number and commit has no place in an order; it is put back at its end of the row
    # below.
    versions = [*releases, *builds, *(end for end in ends if end.number or end.commit)]
    # Such as 20250131: as a number it would stand behind every release.
    loose = [
        version
        for version in versions
        if not version.number
        or (
            package
            and (len(version.number) == 8 and version.number.isdigit() and version.number[:2] in ("19", "20"))
        )
    ]
    if loose and request.history is None:
        raise BadInput(
            f"the build {shown(loose[0].name, 200)} has no version in its name: name --history, a clone of"
            " its repository, whose commits order the builds"
        )
    if loose and not package:
        # Sort the versions by the commits that they were built from.
        repository = request.history or Path()
        commits = [find_release_commit(repository, describe_end(version, target)).sha for version in versions]
        row, loose = ([versions[place] for place in sort_by_history(repository, commits)]), []
    else:
        # Builds without a number wait until the search has found two releases to put them between.
        row = release_source.sort_by_number([version for version in versions if version not in loose])
    # An end without a verdict keeps its given place.
    for end in ends:
        if end not in row and end not in loose:
            # In a search for a fix the bad end is the older one.
            row = [*row, end] if (end is bad) is not request.fixed else [end, *row]
    for end in ends:
        if end in loose:
            raise BadInput(
                f"{shown(end.name, 200)} has no version in its name, so it cannot be ordered among the"
                " releases: omit --releases"
            )
    # Only now: a moved end has changed the places.
    names = [version.name for version in row]
    # The release on which the case failed is the bad end unless another is named.
    named = target.release if request.bad is None and target.release in names else request.bad
    return VersionRow(
        tuple(row),
        version_sequence.find_place(request.good, names, "--good"),
        version_sequence.find_place(named, names, "--bad"),
        tuple(loose),
    )


def _list_releases(
    request: BisectRequest, package: str, target: ResolvedTarget
) -> list[release_source.Version]:
    """List the releases of every package on every index, each number of a package once.

    Raises:
        BadInput: If every index lacks them.
    """
    if not package:
        if request.packages or request.indexes or request.pre:
            raise BadInput("--package, --index and --pre need --releases PACKAGE")
        return []
    found: dict[str, release_source.Version] = {}
    problems: list[BadInput] = []
    indexes = [*map(PackageIndex.named, request.indexes), CONFIGURED]
    for each in dict.fromkeys([package, *request.packages]):
        before = len(found)
        refused = []
        for index in indexes:
            try:
                numbers = release_source.list_releases(
                    each,
                    request.offline,
                    root=outcome.get_default_root(),
                    index=index,
                    preliminary=request.pre,
                )
            except BadInput as error:
                refused.append(error)
                continue
            for version in release_source.make_release_row(each, numbers, target.facts.package, index):
                # An index that the user named wins over the configured one: it may hold another build of
                # the number, such as torch without CUDA.
                found.setdefault(version.name, version)
        if len(found) == before:
            # An index that lacks a package is no problem as long as another one has it.
            problems += refused
    if problems:
        raise problems[0]
    return list(found.values())


def insert_loose_builds(
    repository: Path, row: VersionRow, old: str, new: str, target: ResolvedTarget
) -> VersionRow:
    """Return the row of two neighbours with the loose builds that lie between them in the history."""
    first, last = row.get_version(old), row.get_version(new)
    ends = [find_release_commit(repository, describe_end(version, target)).sha for version in (first, last)]
    commits = [find_release_commit(repository, describe_end(version, target)).sha for version in row.loose]
    inner = [row.loose[place] for place in sort_by_history(repository, commits, *ends)]
    return replace(row, versions=(first, *inner, last), loose=())


def describe_end(version: release_source.Version, target: ResolvedTarget) -> ReleaseEnd:
    """Collect the facts of a version's commit; without local files, only its number."""
    try:
        folders = version.find_files(target.backend, ReleaseStore())
    except BadInput:
        folders = ()
    return ReleaseEnd(version.name, version.number, folders, version.commit)
