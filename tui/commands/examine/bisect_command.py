"""`opsieve bisect`: find the release or the commit that introduced or fixed a failure; and `opsieve
attribute`: find the optimiser pass that causes it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.errors import BadInput, NoFailure, Unjudged
from opsieve.gen.model.printable import count_noun
from opsieve.tui.commands import options, output

if TYPE_CHECKING:
    from opsieve.bisect.sessions.request import BisectRequest


@click.command()
@click.argument("case", type=options.PATH, required=False)
@click.option("--releases", "package", help="Search the releases of this package, such as onnxruntime.")
@click.option(
    "--package",
    "packages",
    multiple=True,
    help="With --releases: another package of the same compiler, such as onnxruntime-gpu; repeatable.",
)
@click.option(
    "--index",
    "indexes",
    metavar="URL",
    multiple=True,
    help="With --releases: search this package index or directory of wheels first; repeatable.",
)
@click.option("--pre", is_flag=True, help="With --releases: also search pre-releases and nightly versions.")
@click.option(
    "--builds",
    type=options.PATH,
    help="Search the builds in this directory: wheels and build trees named by version, commit or date.",
)
@click.option(
    "--commits", "repository", type=options.PATH, help="Search the commits of this local git repository."
)
@click.option("--source", help="Search the versions of a plug-in: NAME or NAME:ARGUMENT.")
@click.option(
    "--good",
    help="A release, tag, date, commit or backend@path without the failure.  [default: the oldest release]",
)
@click.option(
    "--bad",
    help="A release, tag, date, commit or backend@path with the failure.  [default: the newest release]",
)
@options.TARGET
@options.ORACLE
@click.option("--sweep", is_flag=True, help="Test every release and report every transition.")
@click.option("--build", type=options.PATH, help="Commits: script run in each work tree before the test.")
@click.option(
    "--check",
    type=options.PATH,
    help="Commits: script to use instead of CASE; exit code 0 is good, 125 skip, any other up to 127 bad.",
)
@click.option(
    "--check-seconds",
    type=click.FloatRange(0, min_open=True),
    callback=options.check_finite,
    default=3600.0,
    show_default=True,
    help="Commits: time limit of one build or check.",
)
@click.option(
    "--hang-is-bad",
    is_flag=True,
    help=("Commits: a check that exceeds its time limit is bad instead of skipped."),
)
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
    help=(
        "After --releases, rank the commits between the two releases in this clone; nothing is built or"
        " checked out."
    ),
)
@click.option(
    "--fixed", is_flag=True, help=("Releases: find the release that fixed the failure, and rank its commits.")
)
@click.option(
    "--repro-rate",
    "repro_rate",
    help=(
        "Probability that a bad version fails in one run; auto: estimate it at the bad end.  [default: 1;"
        " auto for flaky failures]"
    ),
)
# Scripts of users have it; the help of a second name would ask which one to use.
@click.option("--chance", "old_chance", hidden=True, help="The former name of --repro-rate.")
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    callback=options.check_finite,
    default=0.99,
    show_default=True,
    help="Required confidence for flaky failures.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    help="Versions to test in parallel.  [default: 1; with --scheduler, as many as its workers have threads]",
)
@options.SCHEDULER
@options.RESOURCES
@options.INPUTS
@options.EXPECTED
@options.SEED
@options.RTOL
@options.ATOL
@options.make_seconds(60.0)
@options.MEMORY
@click.option(
    "--no-attribute", is_flag=True, help="Do not search for the optimiser pass in the first bad release."
)
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
@click.option("--dry-run", is_flag=True, help="Only print what would be tested.")
@options.JSON
def command(
    as_json: bool, package: str | None, source: str | None, repository: Path | None, **given: Any
) -> int:
    """Find the release or commit that introduced the failure of CASE, or fixed it.

    --releases tests released wheels, installed on demand; --builds tests a directory of builds; both together
    search the builds between two releases. --commits builds the commits between --good and --bad with --build
    and tests them with CASE or --check. --history ranks the commits between two releases by their changes.
    Both ends are verified first, and an interrupted search continues. Exit code 3 if no version fails, 2 if
    no version could be tested.
    """
    from opsieve.bisect.sessions import answers, versions
    from opsieve.bisect.sessions.commits import bisect_commits
    from opsieve.tui.commands.examine.bisect_output import describe_preview, print_answer

    _check_options(package, source, repository, given)
    request = _make_request(given)
    found: answers.VersionAnswer | answers.VersionPreview | answers.CommitAnswer | answers.CommitPreview
    if repository is not None:
        found = bisect_commits(request, repository, output.print_message)
    elif source is not None:
        found = versions.bisect_source(request, source, output.print_message)
    else:
        found = versions.bisect_releases(request, package or "", output.print_message)
    facts = found.as_json()
    if isinstance(found, answers.VersionPreview | answers.CommitPreview):
        click.echo(json.dumps(facts) if as_json else describe_preview(found))
        return 0
    if not as_json:
        print_answer(found)
    step = found.next if isinstance(found, answers.VersionAnswer) else None
    if step and request.then_commits is not None and (request.build or request.check or step.importable):
        # The target is the one of the answer: without -t the request has none.
        ends = replace(request, good=step.good, bad=step.bad, target=facts["target"])
        commits = bisect_commits(ends, request.then_commits, output.print_message)
        facts["commits_search"] = commits.as_json()
        if not as_json and isinstance(commits, answers.CommitAnswer):
            print_answer(commits)
    if as_json:
        click.echo(json.dumps(facts))
    tested = found.versions if isinstance(found, answers.VersionAnswer) else found.seen.values()
    states = {item.state for item in tested}
    # "good" without "bad" means that nothing fails; neither, that nothing could be tested.
    if "bad" not in states:
        raise (NoFailure if "good" in states else Unjudged)(found.answer)
    return 0


def _check_options(
    package: str | None, source: str | None, repository: Path | None, given: dict[str, Any]
) -> None:
    """Check that the options name one search, and only options of that search.

    Raises:
        BadInput: Otherwise.
    """
    from opsieve.bisect.sources.build_sandbox import LIMITS

    named = [
        name
        for name, value in (("--releases", package), ("--commits", repository), ("--source", source))
        if value
    ]
    ends = all(text and "@" in text for text in (given["good"], given["bad"]))
    if len(named) > 1 or not (named or given["builds"] or ends):
        raise BadInput(
            "name exactly one of --releases PACKAGE, --commits REPOSITORY and --source NAME, or --builds"
            " FOLDER"
        )
    alone = {
        "--commits": ("build", "check", "paths", "sparse", "first_parent", "fresh", "hang_is_bad"),
        "--releases": ("packages", "indexes", "pre", "then_commits", "scheduler"),
        "--releases or --builds": ("history", "fixed", "builds", "sweep"),
    }
    # --then-commits is followed by a search through commits, with its options.
    here = {"--commits": repository or given["then_commits"], "--releases": package}
    if not source:
        here["--releases or --builds"] = not repository
    elif given["builds"] or given["history"] or given["fixed"]:
        raise BadInput("--builds, --history and --fixed go with --releases, not with --source")
    for owner, names in alone.items():
        wrong = [name for name in names if given[name]] if not here.get(owner, True) else []
        if wrong:
            word = {"packages": "package", "indexes": "index"}.get(wrong[0], wrong[0]).replace("_", "-")
            raise BadInput(f"--{word} goes with {owner}")
    # It has a default, so that only another value shows that it was typed.
    if given["check_seconds"] != LIMITS.seconds and not here["--commits"]:
        raise BadInput("--check-seconds goes with --commits")


def _make_request(given: dict[str, Any]) -> "BisectRequest":
    """Turn the options into a request; raises BadInput for an invalid rate."""
    from opsieve.bisect.sessions.request import BisectRequest
    from opsieve.bisect.sources.build_sandbox import CheckLimits

    # The option is in MiB.
    given["memory"] <<= 20
    rtol, atol = given.pop("rtol"), given.pop("atol")
    # None keeps the measured policy; one of the two alone replaces it, with 0 for the other.
    given["tolerance"] = None if rtol is None and atol is None else (rtol or 0.0, atol or 0.0)
    old = given.pop("old_chance")
    given["repro_rate"] = _parse_rate(given["repro_rate"] if old is None else old)
    given["attribute"] = not given.pop("no_attribute")
    given["limits"] = CheckLimits(given.pop("check_seconds"), given.pop("hang_is_bad"))
    return BisectRequest(**given)


def _parse_rate(text: str | None) -> Any:

    if text in (None, "auto"):
        return text
    try:
        rate = float(text or "")
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1:
        raise BadInput("--repro-rate must be a number above 0 and at most 1, or auto")
    return rate


@click.command()
@click.argument("case", type=options.PATH)
@options.TARGET
@options.ORACLE
@options.INPUTS
@options.EXPECTED
@options.SEED
@options.make_seconds(60.0)
@options.MEMORY
@options.OFFLINE
@options.CONSENT
@options.NO_SANDBOX
@options.JSON
def attribute(case: Path, memory: int, as_json: bool, **given: Any) -> int:
    """Find the optimiser passes that cause the failure of CASE: those that cure it when skipped.

    CASE is an .onnx file, a case directory, or a directory with model.onnx and its data. The answer may be
    that no optimiser pass causes the failure.
    """
    from opsieve.bisect.sessions.request import BisectRequest
    from opsieve.bisect.sessions.versions import attribute_passes

    request = BisectRequest(case, memory=memory << 20, **given)
    found = attribute_passes(request, output.print_message)
    if as_json:
        click.echo(json.dumps(found.as_json()))
        return 0
    click.echo(write_sentence(found.answer, found.passes, found.alone, len(found.levels)))
    for name, which in found.applications.items():
        click.echo(f"{name}: application {' or '.join(map(str, which))}")
    if found.beneath:
        click.echo(f"with all optimisations off a different failure remains: {found.beneath}")
    if found.kept:
        click.echo(f"passes that had to stay enabled: {', '.join(found.kept)}")
    # Last, as the evidence for the sentence above.
    levels = ", ".join(f"{_LEVELS.get(name, name)} {answer}" for name, answer in found.levels.items())
    click.echo(f"{found.target}: {found.symptom}; levels: {levels}")
    output.print_message(f"{count_noun(found.probes, 'probe')}, {found.seconds_cpu:.1f} s of CPU")
    return 0


# The steps of a compiler without named levels
_LEVELS = {"none": "unoptimised", "target": "optimised"}
_NO_PASS = {
    "not-a-pass": "not an optimiser pass: it also fails with all optimisations off",
    "conversion": "not an optimiser pass but the import or export of the program: it fails whichever passes"
    " are off",
}


def write_sentence(answer: str, passes: Sequence[str], alone: Sequence[str], levels: int) -> str:
    """Write the answer for a person; a compiler with one level has no unoptimised build for comparison."""
    names = " and ".join(passes)
    if answer == "pass":
        also = (
            "it causes the failure alone"
            if alone
            else "it does not cause the failure alone: other passes take part"
        )
        return f"pass {names}: skipping it cures the failure; {also}"
    if answer == "set":
        verb = "each cause" if len(alone) > 1 else "causes"
        each = f"{' and '.join(alone) or 'none'} {verb} it alone"
        return f"passes {names}: only skipping all of them cures the failure; {each}"
    if answer in _NO_PASS:
        return _NO_PASS[answer]
    if answer == "unnamed" and levels == 1:
        return "nothing that can be switched off: it fails with everything off that can be"
    return "an optimisation that cannot be switched off by name: it fails with every named pass off"
