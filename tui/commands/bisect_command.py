"""`opsieve bisect`: the release or the commit that brought a failure, or took it away."""

from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("case", type=PATH, required=False)
@click.option("--releases", "package", help="Search the releases of this package, such as onnxruntime.")
@click.option("--source", help="Search the versions of a plug-in: NAME or NAME:ARGUMENT.")
@click.option("--commits", "repository", type=PATH, help="Search the commits of this local git repository.")
@click.option("--good", help="A release, tag, date or commit that does not fail.")
@click.option("--bad", help="One that fails.")
@click.option("-t", "--target", default="", help="backend[:option,...] for the probes; by default the case's own.")
@click.option("--sweep", is_flag=True, help="Test every release and report every transition.")
@click.option("--build", type=PATH, help="Commits: a script run in each work tree before the check.")
@click.option(
    "--check",
    type=PATH,
    help="Commits: in place of CASE, a script that exits 0 for good, 125 for untestable, else 1 to 127.",
)
@click.option("--sparse", multiple=True, help="Commits: check out this folder only; may be repeated.")
@click.option("--paths", multiple=True, help="Commits: only those that touch this path; may be repeated.")
@click.option("--first-parent", is_flag=True, help="Commits: follow merges on their first parent only.")
@click.option(
    "--then-commits",
    type=PATH,
    help="After a release answer, go on between its tags in this repository (with --build or --check; else tell how).",
)
@click.option(
    "--repro-rate",
    "chance",
    help="Probability that a bad version fails in one run; auto: estimate it at the bad end (default for flaky failures).",
)
@click.option("--chance", "old_chance", hidden=True, help="The same, as it was called before.")
@click.option("--confidence", default=0.99, show_default=True, help="Required confidence for flaky failures.")
@click.option("-j", "--jobs", default=1, show_default=True, help="Versions tested at once.")
@click.option("--inputs", type=PATH, help="Inputs: an .npz file, an ONNX data set, or a folder that holds one of them.")
@click.option("--expected", type=PATH, help="Expected outputs: the same kinds.")
@click.option("--seed", default=0, show_default=True, help="Random seed for inputs that were not supplied.")
@click.option("--rtol", type=float, help="Relative tolerance of your own, for every element, in place of the policy.")
@click.option("--atol", type=float, help="Absolute tolerance of your own, added to the relative one.")
@click.option("--no-attribute", is_flag=True, help="Do not look for the guilty pass in the first bad release.")
@click.option("--offline", is_flag=True, help="Install no release; search those that are there.")
@click.option("--dry-run", is_flag=True, help="Tell what would be probed, and probe nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(case: Path | None, **options: Any) -> int:
    """Find the release or commit that brought the failure of CASE, or took it away.

    With --releases, CASE (an .onnx file or a case folder) is run on released wheels, installed on demand. With --commits, the
    commits between --good and --bad are built by --build and tested by CASE, with the compiler imported from there, or by
    --check. Both ends are verified first. What was probed is kept: asking again costs nothing, and after Ctrl-C the search
    goes on where it was.
    """
    from opsieve.gen.model.bad_input import BadInput

    if [options["package"], options["source"], options["repository"]].count(None) != 2:
        raise BadInput("name either --releases PACKAGE or --commits REPOSITORY (or --source NAME, for a plug-in)")
    old = options.pop("old_chance")
    options["chance"] = options["chance"] if old is None else old
    try:
        options["chance"] = options["chance"] if options["chance"] in (None, "auto") else float(options["chance"])
    except ValueError:
        raise BadInput("--repro-rate is a number, or auto") from None
    if isinstance(options["chance"], float) and not 0 < options["chance"] <= 1:
        raise BadInput("--repro-rate lies above 0 and at most at 1")
    if not 0 < options["confidence"] < 1:
        raise BadInput("--confidence lies between 0 and 1")
    if not 1 <= options["jobs"] <= 64:
        raise BadInput("--jobs lies between 1 and 64")
    if options["repository"] is not None:
        from opsieve.tui.commands.commits_output import bisect_commits

        return bisect_commits(case, **options)
    if case is None:
        raise BadInput("name the CASE to run on the releases")
    from opsieve.tui.commands.releases_output import bisect_releases, bisect_source

    return bisect_releases(case, **options) if options["source"] is None else bisect_source(case, **options)
