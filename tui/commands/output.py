"""What commands print and write: diagnostics, tables, exit codes, and results for continuous integration
(JUnit XML, SARIF, annotations and a job summary of GitHub Actions).
"""

import os
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.errors import Unjudged
from opsieve.gen.model.durable import check_output, write_output
from opsieve.gen.model.printable import printable, single_line
from opsieve.tui.cli import report_fault
from opsieve.tui.commands import options
from opsieve.version import VERSION

if TYPE_CHECKING:
    from opsieve.triage.corpus.corpus_file import CorpusResult
    from opsieve.triage.store.rows import ClusterRow


def print_message(sentence: str) -> None:
    """Print a diagnostic on stderr."""
    click.echo(f"opsieve: {printable(sentence)}", err=True)


def name_oracles(reason: str, target: str) -> str:
    """Name oracles in words: the float64 reference, and a build of the target by its options alone."""
    reason = reason.replace("reference:float64", "the float64 reference")
    return re.sub(rf"(?<!\S){re.escape(target)}[:,](?=\w)", "", reason)


# Unjudged results that are named
_MOST = 5
# Faults of one command that are reported, however many of its cases failed
_REPORTS = 3
ALLOW_UNJUDGED = click.option(
    "--allow-unjudged",
    is_flag=True,
    help=(
        "Exit with 0 instead of 2 for results without a verdict (not installed, unsupported, invalid, "
        "undecided)."
    ),
)


def choose_exit_code(failing: bool, unjudged: Sequence[str], allow_unjudged: bool) -> int:
    """Return 1 for a failure, else 2 for an unjudged result that is not allowed; stderr names the latter."""
    if unjudged:
        more = f" and {len(unjudged) - _MOST} more" if len(unjudged) > _MOST else ""
        print_message(f"{Unjudged(', '.join(unjudged[:_MOST]) + more)}")
    if failing:
        return 1
    return Unjudged.exit_code if unjudged and not allow_unjudged else 0


def report_faults(faults: Sequence[Exception]) -> int:
    """Report faults of opsieve, the first of them, and return the exit code, 0 where there are none."""
    codes = [report_fault(fault, "opsieve", sys.argv[1:]) for fault in faults[:_REPORTS]]
    return codes[0] if codes else 0


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


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = (), wide: str = ""
) -> None:
    """Print rows.

    In a terminal the column `wide` takes the rest of the width and is truncated with a sign. In a pipe or a
    file every cell is whole.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[single_line(str(cell)) for cell in row] for row in rows]
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            padded = (
                cell.rjust(width) if name in right else cell.ljust(width)
                for name, cell, width in zip(columns, row, widths, strict=True)
            )
            click.echo("  ".join(padded).rstrip())
        return
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=bool(wide))
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if column == wide else None,
        )
    for row in cells:
        made.add_row(*(Text(cell, overflow="ellipsis", no_wrap=True) for cell in row))
    console.print(made)


def print_clusters(rows: "Sequence[ClusterRow]") -> None:
    """Print clusters; `nodes` are those of the smallest case, reduced if possible."""
    print_table(
        ("id", "status", "kind", "failures", "nodes", "title"),
        [(f"{row.id}{'*' if row.pinned else ''}", row.status, row.kind, row.members, row.nodes if row.reduced is None else row.reduced, row.listed_title) for row in rows],
        right=("failures", "nodes"), wide="title",
    )  # fmt: skip


def list_cluster_facts(row: "ClusterRow") -> dict[str, Any]:
    """Return a cluster's facts with the keys of docs/reference/json.md."""
    return {
        "id": row.id,
        "title": row.title,
        "kind": row.kind,
        "stage": row.stage,
        "status": row.status,
        "members": row.members,
        "representative": row.representative,
        "targets": list(row.targets),
        "operators": list(row.operators),
        "guilty_pass": row.guilty_pass,
        "first_bad": row.first_bad,
        "backend": row.backend,
        "issue": row.issue,
        "probably": [asdict(each) for each in row.probably],
        "note": row.note,
        "rule": row.rule,
        "pinned": row.pinned,
        "fingerprints": row.fingerprints,
        "nodes": row.nodes,
        "reduced": row.reduced,
        "severity": row.severity,
        "first_seen": row.first_seen,
        "last_seen": row.last_seen,
    }
