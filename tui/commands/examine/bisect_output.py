"""The answers of `opsieve bisect` for a person."""

from collections.abc import Iterator

import click

from opsieve.bisect.sessions.answers import (
    CommitAnswer,
    CommitPreview,
    HistoryRanking,
    VersionAnswer,
    VersionPreview,
)
from opsieve.gen.model.printable import count_noun, printable
from opsieve.tui.commands.output import print_message

# Lines that a screen holds; --json has all
_MOST_CULPRITS = 20
_MOST_FILES = 10
_MOST_SUSPECTS = 5


def describe_preview(found: VersionPreview | CommitPreview) -> str:
    """Describe a dry run."""
    probes = count_noun(found.expected_probes, "probe")
    if isinstance(found, CommitPreview):
        return (
            f"{count_noun(found.commits, 'commit')} between the ends; about {probes}, {found.known} already"
            " known"
        )
    versions = found.versions
    known = f"{len(found.known)} already tested"
    return (
        f"{count_noun(len(versions), 'version')} from {versions[0]} to {versions[-1]}; {known}\n"
        f"first: {', '.join(found.first)}; about {probes}"
    )


def print_answer(found: VersionAnswer | CommitAnswer) -> None:
    """Print the answer, and its cost on stderr."""
    for line in (
        _list_commit_answer(found) if isinstance(found, CommitAnswer) else _list_version_answer(found)
    ):
        click.echo(printable(line))
    recalled = f" ({found.recalled} recalled)" if found.recalled else ""
    print_message(f"{count_noun(found.probes, 'probe')}{recalled}, {found.seconds} s")


def _list_version_answer(found: VersionAnswer) -> Iterator[str]:
    yield found.answer[:1].upper() + found.answer[1:]
    if found.guilty_passes:
        yield f"Pass {' and '.join(found.guilty_passes)}"
    elif found.attribution in ("not-a-pass", "conversion"):
        yield "Not an optimiser pass: it also fails with all optimisations off"
    if found.fingerprint:
        yield f"Failure {found.fingerprint}: {found.symptom}"
    for change in found.transitions:
        exact = "" if change.exact else " (versions between were not needed or cannot be tested)"
        ends = f"{change.last_before} -> {change.first_after}: {change.before} -> {change.after}"
        yield f"  {change.kind:<10} {ends}{exact}"
    # The transitions show it, but a reader looks for the one first release and may stop there.
    if not found.monotone:
        yield "  The failure appeared or disappeared more than once."
    if found.history is not None:
        yield from _list_history(found.history)
    step = found.next
    if step is not None:
        yield f"Between the releases: --commits {step.repository} --good {step.good} --bad {step.bad}"


def _list_history(history: HistoryRanking) -> Iterator[str]:
    yield (
        f"{count_noun(history.commits, 'commit')} between {history.good.release} ({history.good.commit[:12]})"
        f" and {history.bad.release} ({history.bad.commit[:12]}); likeliest by what they changed:"
    )
    for end in (history.good, history.bad):
        if not end.exact:
            yield f"  {end.commit[:12]} is near {end.release}, not exact: {end.source}"
    for commit in history.ranked[:_MOST_SUSPECTS]:
        pull = f" (pull request {commit.pull_request})" if commit.pull_request else ""
        yield f"  {commit.probability:>6.1%}  {commit.sha[:12]} {commit.subject}{pull}"
        yield from (f"          {reason}" for reason in commit.reasons)
    yield f"  {history.none:>6.1%}  none of these"
    # A ranking is a guess; this command proves it.
    yield f"To settle it: {history.settle}"


def _list_commit_answer(found: CommitAnswer) -> Iterator[str]:
    yield found.answer[:1].upper() + found.answer[1:]
    for commit in found.culprits[:_MOST_CULPRITS]:
        pull = f" (pull request {commit.pull_request})" if commit.pull_request else ""
        yield f"  {commit.sha[:12]} {commit.subject}{pull}"
        yield f"    {commit.author}, {commit.date}; {commit.diffstat}"
        yield from (f"    {name}" for name in commit.files[:_MOST_FILES])
        if commit.link:
            yield f"    {commit.link}"
    if found.confidence < 1 and found.culprits:
        yield f"  confidence {found.confidence:.1%}"
