"""Results for continuous integration: JUnit XML, SARIF, annotations and a job summary of GitHub Actions."""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from opsieve.gen.model.durable import check_output, write_output
from opsieve.tui.commands import options
from opsieve.tui.commands.text import print_message
from opsieve.version import VERSION

if TYPE_CHECKING:
    from opsieve.triage.corpus.states import CorpusResult

F = TypeVar("F", bound=Callable[..., Any])
JUNIT = click.option("--junit", type=options.PATH, metavar="FILE", help="Write the results as JUnit XML.")
SARIF = click.option("--sarif", type=options.PATH, metavar="FILE", help="Write the results as SARIF 2.1.0.")
GITHUB = click.option(
    "--github",
    is_flag=True,
    help=(
        "Print annotations for GitHub Actions, and append a summary to the file that $GITHUB_STEP_SUMMARY"
        " names."
    ),
)


@dataclass(frozen=True, slots=True)
class CiOutput:
    """The destinations of results."""

    junit: Path | None = None
    sarif: Path | None = None
    github: bool = False

    def check_paths(self) -> None:
        """Raise BadInput for a file that cannot be written, before anything is judged."""
        for path in filter(None, (self.junit, self.sarif)):
            check_output(path)

    def write_results(
        self,
        results: "Sequence[CorpusResult]",
        red: Collection[str],
        folder: str,
        name: str,
        *,
        annotate_on_stderr: bool,
    ) -> None:
        """Write the results in the requested forms; `folder` holds the cases, `name` is the title of the
        summary.
        """
        from opsieve.triage.corpus.reports import (
            make_annotations,
            make_job_summary,
            make_junit_xml,
            make_sarif,
        )

        if self.junit is not None:
            write_output(self.junit, make_junit_xml(results, red, f"opsieve {name}"))
        if self.sarif is not None:
            write_output(self.sarif, make_sarif(results, red, VERSION, folder))
        if not self.github:
            return
        for line in make_annotations(results, folder, red):
            click.echo(line, err=annotate_on_stderr)
        summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
        if summary:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(make_job_summary(results, name))
        else:
            print_message("GITHUB_STEP_SUMMARY is not set: no summary was written")
