"""What commands print and write: diagnostics, progress, tables, exit codes, and results for continuous
integration (JUnit XML, SARIF, annotations and a job summary of GitHub Actions); and what ends or pauses a
long-running command: signals, a closed terminal, a full disk.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.errors import Unjudged
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
    # Named even if allowed: nobody should take silence for a pass.
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
        from opsieve.gen.model.durable import check_output

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
        from opsieve.gen.model.durable import append, write_output
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
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            # Appended: other steps of the job write into the same file.
            append(Path(summary), make_job_summary(results, name).encode())
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

    # Control characters of a stranger's text could rewrite the terminal.
    cells = [[single_line(str(cell)) for cell in row] for row in rows]
    console = Console(highlight=False)
    # rich takes a pipe for 80 columns wide and would cut the cells.
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
    """Print clusters in a table."""
    from opsieve.triage.store.rows import CLUSTER_HEADS

    print_table(CLUSTER_HEADS, [row.cells for row in rows], right=("failures", "nodes"), wide="title")


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


# Seconds until the first line where there is no terminal, and between two lines
FIRST, EVERY = 20.0, 60.0


@dataclass(slots=True)
class Pulse:
    """Tells when a line is due: after `first` seconds, then every `every`. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    first: float = FIRST
    every: float = EVERY
    _due: float = 0.0

    def __post_init__(self) -> None:
        self._due = self.clock() + self.first

    def is_due(self) -> bool:
        """Whether a line is due now; it counts as printed."""
        now = self.clock()
        if now < self._due:
            return False
        self._due = now + self.every
        return True


@contextmanager
def open_probing_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of probing each target."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("probing {task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show_probing(target: str, done: int, count: int) -> None:
            if target not in tasks:
                tasks[target] = bar.add_task(target, total=count)
                if not console.is_terminal:
                    print_message(
                        f"probing {target}: {count:,} operator and type combinations (once per version)"
                    )
            bar.update(tasks[target], completed=done)

        yield show_probing


@contextmanager
def open_counting_bar(
    total: int | None, noun: str = "done", quiet: bool = False
) -> Iterator[Callable[[int, str], None]]:
    """Show how many of `total` are done, with a few words.

    Without a terminal it prints occasional lines; with `quiet` it is silent.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    pulse = Pulse()
    of = "" if total is None else f" of {total:,}"
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total)

        def show_count(done: int, words: str) -> None:
            bar.update(task, completed=done, description=words)
            if not quiet and not console.is_terminal and pulse.is_due():
                print_message(f"{done:,}{of} {noun}, {words}")

        yield show_count


# Seconds between two tries to write
_AGAIN = 5.0
# Seconds after which a full disk is another one
_ANOTHER = 120.0


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the block as Ctrl-C does; a closed terminal gets no more output."""
    usual = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        # Writing to a terminal that is gone fails with EIO in the middle of saving.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if stream.isatty():
                os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    raise KeyboardInterrupt


class PauseWhileFull:
    """Waits for space on a full disk, with one message each time: at most `patience` seconds, and until `end`
    (of the monotonic clock).
    """

    def __init__(self, end: float = float("inf"), patience: float = float("inf"), again: float = _AGAIN):
        self._end, self._patience, self._again = end, patience, again
        self._since = self._said = float("-inf")

    def __call__(self, error: Exception) -> bool:
        """Wait, and return whether to try again."""
        now = time.monotonic()
        new = now - self._said > _ANOTHER
        if new:
            self._since = now
        # The campaign's time is over, disk or not.
        if now >= min(self._end, self._since + self._patience):
            return False
        if new:
            print_message(
                f"{str(error).partition(';')[0]}: paused until there is space again; Ctrl-C ends the"
                " campaign, --resume continues it"
            )
        self._said = now
        time.sleep(self._again)
        return True
