"""Jobs in the background: reductions, bisections, attributions, exports, replays, campaigns; each with its
log.
"""

import json
import shlex
from contextlib import suppress
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from opsieve.tui.app.protocol import get_app
from opsieve.tui.app.services.job_board import OPSIEVE, REDUCE, Job
from opsieve.tui.app.widgets.key_footer import KeyFooter
from opsieve.tui.app.widgets.lines_view import LinesView
from opsieve.tui.app.widgets.paged_list import Column, PagedList, Row
from opsieve.tui.app.widgets.steady_screen import SteadyScreen
from opsieve.tui.app.widgets.visible import Line, to_lines, to_one_line

JOBS = (
    Column("job", 4, right=True),
    Column("state", 9),
    Column("time", 7, right=True),
    Column("what", 18),
    Column("how far"),
)

# The shown output of a command, in bytes.
_MOST_SHOWN = 1 << 16


class JobsScreen(SteadyScreen[None]):
    """Jobs over, or beside, the log of the one under the cursor."""

    # Textual's declaration
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x,delete", "cancel", "End job"),
        Binding("escape,q", "app.back", "Back"),
    ]

    def compose(self) -> ComposeResult:
        """Make a line of figures, the jobs, and the log."""
        yield Static("jobs", id="figures", markup=False)
        with Container(id="panes"):
            yield PagedList(
                JOBS,
                empty="no jobs yet: r reduces, a attributes, b bisects the cluster under the cursor",
                id="jobs",
            )
            yield LinesView(follow=True, wrap=True, id="log")
        yield KeyFooter()

    def on_mount(self) -> None:
        """Show the jobs and update their times."""
        self.query_one("#jobs").focus()
        self.show_jobs()
        self.set_interval(1.0, self.show_jobs)

    def update_job(self, job: Job) -> None:
        """Update the list after a change of a job."""
        self.show_jobs()

    @property
    def chosen_job(self) -> Job | None:
        """The job under the cursor."""
        row = self.query_one("#jobs", PagedList).row
        return next(
            (job for job in get_app(self).board.jobs if row is not None and row.key == str(job.number)), None
        )

    def show_jobs(self) -> None:
        """Redraw the list."""
        jobs = get_app(self).board.jobs
        active = sum(not job.is_over for job in jobs)
        self.query_one("#figures", Static).update(f"jobs: {active} active of {len(jobs)}")
        table = self.query_one("#jobs", PagedList)
        table.show_rows(
            [make_row(job) for job in reversed(jobs)], complete=True, keep=len(jobs) == len(table.rows)
        )

    @on(PagedList.Highlighted, "#jobs")
    def follow_cursor(self) -> None:
        """Show the log of the job under the cursor."""
        job = self.chosen_job
        self.query_one("#log", LinesView).show_lines([] if job is None else list_log(job))

    def action_cancel(self) -> None:
        """Cancel the job under the cursor."""
        if (job := self.chosen_job) is not None and not job.is_over:
            get_app(self).board.cancel_job(job)
            get_app(self).show_notice(f"job {job.number} is asked to end")


def make_row(job: Job) -> Row:
    """Make the row of a job."""
    spent = int(job.seconds)
    time = f"{spent // 60}:{spent % 60:02d}" if spent < 36000 else f"{spent // 3600}h"
    far = (
        to_one_line(job.outcome, 200)
        or job.progress
        or ("" if job.state == "cancelled" else to_one_line(job.last_line, 200))
    )
    return Row(
        str(job.number),
        (str(job.number), job.state, time, to_one_line(job.title, 60), far),
        "dim" if job.is_over else "strong",
    )


def format_command(command: tuple[str, ...]) -> str:
    """Format a command as a person would type it."""
    for program, name in ((REDUCE, "reduce"), (OPSIEVE, "opsieve")):
        if command[: len(program)] == program:
            return shlex.join((name, *command[len(program) :]))
    return shlex.join(command)


def list_log(job: Job) -> list[Line]:
    """List a job's commands, its output, and its outcome."""
    found: list[Line] = [
        ((f"$ {to_one_line(format_command(command), 600)}", "dim"),) for command in job.commands
    ]
    found += [((to_one_line(line, 2000), ""),) for line in job.log]
    if outcome := to_one_line(job.outcome, 600):
        found += [(), ((outcome, "good"),)]
    for result in job.results:
        found += [(), *_list_result(result)] if result else []
    if job.state == "failed":
        found.append(((f"it ended with exit code {job.code}", "bad"),))
    return found


def _list_result(result: bytes) -> list[Line]:
    """List a command's result: the fields of a JSON object, or text."""
    with suppress(ValueError, RecursionError):
        report = json.loads(result)
        if isinstance(report, dict):
            return [
                ((f"{to_one_line(name, 40)}: ", "dim"), (to_one_line(str(value), 600), ""))
                for name, value in report.items()
            ]
    return to_lines(result[:_MOST_SHOWN].decode("utf-8", "replace"), most=200)
