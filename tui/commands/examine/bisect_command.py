"""`opsieve bisect`: the release or the commit that introduced a failure, or fixed it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.tui.commands import options
from opsieve.tui.commands.text import counted, plain, say

if TYPE_CHECKING:
    from opsieve.bisect.sessions.request import BisectRequest

_MOST_CULPRITS = 20
_MOST_FILES = 10
_MOST_SUSPECTS = 5


@click.command()
@click.argument("case", type=options.PATH, required=False)
@click.option("--releases", "package", help="Search the releases of this package, such as onnxruntime.")
@click.option("--commits", "repository", type=options.PATH, help="Search the commits of this local git repository.")
@click.option("--source", help="Search the versions of a plug-in: NAME or NAME:ARGUMENT.")
@click.option("--good", help="A release, tag, date or commit without the failure.  [default: the oldest release]")
@click.option("--bad", help="A release, tag, date or commit with the failure.  [default: the newest release]")
@options.TARGET
@click.option("--sweep", is_flag=True, help="Test every release and report every transition.")
@click.option("--build", type=options.PATH, help="Commits: script run in each work tree before the test.")
@click.option(
    "--check",
    type=options.PATH,
    help="Commits: script to use instead of CASE; exit code 0 is good, 125 untestable, 1 to 127 bad.",
)
@click.option(
    "--check-seconds",
    type=click.FloatRange(0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Commits: time limit of one build or check.",
)
@click.option("--hang-is-bad", is_flag=True, help="Commits: a check that takes too long is bad, not untestable.")
@click.option("--fresh", is_flag=True, help="Commits: do not reuse results of earlier searches.")
@click.option("--sparse", multiple=True, help="Commits: check out only this directory; repeatable.")
@click.option("--paths", multiple=True, help="Commits: only those that touch this path; repeatable.")
@click.option("--first-parent", is_flag=True, help="Commits: follow only the first parent of merges.")
@click.option(
    "--then-commits",
    type=options.PATH,
    help="After --releases, continue between the two releases' tags in this repository.",
)
@click.option(
    "--history",
    type=options.PATH,
    help="After --releases, rank the commits between the two releases in this clone; nothing is built or checked out.",
)
@click.option(
    "--fixed", is_flag=True, help="Releases: ask for the one that repaired the failure, and rank its commits."
)
@click.option(
    "--repro-rate",
    "repro_rate",
    help="Probability that a bad version fails in one run; auto: estimate it at the bad end.  [default: 1; auto for flaky failures]",
)
@click.option("--chance", "old_chance", hidden=True, help="The former name of --repro-rate.")
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.99,
    show_default=True,
    help="Required confidence for flaky failures.",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Versions to test in parallel."
)
@options.INPUTS
@options.EXPECTED
@options.SEED
@options.RTOL
@options.ATOL
@click.option("--no-attribute", is_flag=True, help="Do not search for the optimiser pass in the first bad release.")
@options.OFFLINE
@click.option("--dry-run", is_flag=True, help="Only print what would be tested.")
@options.JSON
def command(as_json: bool, package: str | None, source: str | None, repository: Path | None, **given: Any) -> int:
    """Find the release or commit that introduced the failure of CASE, or fixed it.

    With --releases, CASE (an .onnx file or a case directory) runs on released wheels, installed on demand. With --commits,
    the commits between --good and --bad are built with --build and tested with CASE or --check. Both ends are verified
    first. With --history, the commits between the two releases are ranked by what they changed. Every probe is kept: an interrupted search continues where it was, and a repeated one costs nothing.
    """
    from opsieve.bisect.sessions.commits import bisect_commits
    from opsieve.bisect.sessions.versions import bisect_releases, bisect_source
    from opsieve.gen.model.bad_input import BadInput

    if [package, source, repository].count(None) != 2:
        raise BadInput("name exactly one of --releases PACKAGE, --commits REPOSITORY and --source NAME")
    request = _request(given)
    if repository is not None:
        facts = bisect_commits(request, repository, say)
    elif package is not None:
        facts = bisect_releases(request, package, say)
    else:
        facts = bisect_source(request, source or "", say)
    if request.dry_run:
        click.echo(json.dumps(facts) if as_json else _preview(facts))
        return 0
    if not as_json:
        _print(facts)
    step = facts.get("next")
    if step and request.then_commits is not None and (request.build or request.check or step["importable"]):
        ends = replace(request, good=step["good"], bad=step["bad"], target=facts["target"])
        commits = bisect_commits(ends, request.then_commits, say)
        facts = {**facts, "commits_search": commits}
        if not as_json:
            _print(commits)
    if as_json:
        click.echo(json.dumps(facts))
    return 0


def _request(given: dict[str, Any]) -> "BisectRequest":
    """The options as the request of a session; BadInput for a rate that is none."""
    from opsieve.bisect.sessions.request import BisectRequest
    from opsieve.bisect.sources.build_sandbox import CheckLimits

    rtol, atol = given.pop("rtol"), given.pop("atol")
    given["tolerance"] = None if rtol is None and atol is None else (rtol or 0.0, atol or 0.0)
    old = given.pop("old_chance")
    given["repro_rate"] = _rate(given["repro_rate"] if old is None else old)
    given["attribute"] = not given.pop("no_attribute")
    given["limits"] = CheckLimits(given.pop("check_seconds"), given.pop("hang_is_bad"))
    return BisectRequest(**given)


def _rate(text: str | None) -> Any:
    from opsieve.gen.model.bad_input import BadInput

    if text in (None, "auto"):
        return text
    try:
        rate = float(text or "")
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1:
        raise BadInput("--repro-rate must be a number above 0 and at most 1, or auto")
    return rate


def _preview(facts: dict[str, Any]) -> str:
    probes = counted(facts["expected_probes"], "probe")
    if "commits" in facts:
        return f"{counted(facts['commits'], 'commit')} between the ends; about {probes}, {facts['known']} already known"
    versions = facts["versions"]
    known = f"{len(facts['known'])} already tested"
    return (
        f"{counted(len(versions), 'version')} from {versions[0]} to {versions[-1]}; {known}\n"
        f"first: {', '.join(facts['first'])}; about {probes}"
    )


def _print(facts: dict[str, Any]) -> None:
    """The answer for a person."""
    for line in _commit_lines(facts) if "culprits" in facts else _version_lines(facts):
        click.echo(plain(line))
    recalled = f" ({facts['recalled']} recalled)" if facts["recalled"] else ""
    say(f"{counted(facts['probes'], 'probe')}{recalled}, {facts['seconds']} s")


def _version_lines(facts: dict[str, Any]) -> Iterator[str]:
    yield facts["answer"][:1].upper() + facts["answer"][1:]
    if facts.get("guilty_passes"):
        yield f"Pass {' and '.join(facts['guilty_passes'])}"
    elif facts.get("attribution") == "not-a-pass":
        yield "Not an optimiser pass: it also fails with all optimisations off"
    if facts["fingerprint"]:
        yield f"Failure {facts['fingerprint']}: {facts['symptom']}"
    for change in facts["transitions"]:
        exact = "" if change["exact"] else " (versions between were not needed or cannot be tested)"
        ends = f"{change['last_before']} -> {change['first_after']}: {change['before']} -> {change['after']}"
        yield f"  {change['kind']:<10} {ends}{exact}"
    if not facts["monotone"]:
        yield "  The failure appeared or disappeared more than once."
    if "history" in facts:
        yield from _history_lines(facts["history"])
    if "next" in facts:
        step = facts["next"]
        yield f"Between the releases: --commits {step['repository']} --good {step['good']} --bad {step['bad']}"


def _history_lines(history: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{counted(history['commits'], 'commit')} between {history['good']['release']} ({history['good']['commit'][:12]}) and "
        f"{history['bad']['release']} ({history['bad']['commit'][:12]}); likeliest by what they changed:"
    )
    for end in (history["good"], history["bad"]):
        if not end["exact"]:
            yield f"  {end['commit'][:12]} is near {end['release']}, not exact: {end['source']}"
    for commit in history["ranked"][:_MOST_SUSPECTS]:
        pull = f" (pull request {commit['pull_request']})" if commit["pull_request"] else ""
        yield f"  {commit['probability']:>6.1%}  {commit['sha'][:12]} {commit['subject']}{pull}"
        yield from (f"          {reason}" for reason in commit["reasons"])
    yield f"  {history['none']:>6.1%}  none of these"
    yield f"To settle it: {history['settle']}"


def _commit_lines(facts: dict[str, Any]) -> Iterator[str]:
    yield facts["answer"][:1].upper() + facts["answer"][1:]
    for commit in facts["culprits"][:_MOST_CULPRITS]:
        pull = f" (pull request {commit['pull_request']})" if commit["pull_request"] else ""
        yield f"  {commit['sha'][:12]} {commit['subject']}{pull}"
        yield f"    {commit['author']}, {commit['date']}; {commit['diffstat']}"
        yield from (f"    {name}" for name in commit["files"][:_MOST_FILES])
        if commit["link"]:
            yield f"    {commit['link']}"
    if facts["confidence"] < 1 and facts["culprits"]:
        yield f"  confidence {facts['confidence']:.1%}"
