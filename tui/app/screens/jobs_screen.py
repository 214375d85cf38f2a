"""What runs beside: reductions, bisections, attributions, exports, replays, campaigns; each with its log, to
be ended at will.
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

from opsieve.tui.app.protocol import app_of
from opsieve.tui.app.services.job_board import OPSIEVE, REDUCE, Job
from opsieve.tui.app.widgets.key_footer import KeyFooter
from opsieve.tui.app.widgets.lines_view import LinesView
from opsieve.tui.app.widgets.paged_list import Column, PagedList, Row
from opsieve.tui.app.widgets.steady_screen import SteadyScreen
from opsieve.tui.app.widgets.visible import Line, lines_of, one_line

JOBS = (
    Column("job", 4, right=True),
    Column("state", 9),
    Column("time", 7, right=True),
    Column("what", 18),
    Column("how far"),
)

_MOST_SHOWN = 1 << 16  # bytes of what a command wrote


class JobsScreen(SteadyScreen[None]):
    """Jobs over, or beside, the log of the one under the cursor."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012  Textual's declaration
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x,delete", "cancel", "End job"),
        Binding("escape,q", "app.back", "Back"),
    ]

    def compose(self) -> ComposeResult:
        """A line of figures, the jobs, the log."""
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
        """Show them; the times go on by themselves."""
        self.query_one("#jobs").focus()
        self.draw()
        self.set_interval(1.0, self.draw)

    def job_changed(self, job: Job) -> None:
        """A job goes on, or has ended."""
        self.draw()

    @property
    def chosen(self) -> Job | None:
        """The job under the cursor."""
        row = self.query_one("#jobs", PagedList).row
        return next(
            (job for job in app_of(self).board.jobs if row is not None and row.key == str(job.number)), None
        )

    def draw(self) -> None:
        """All anew."""
        jobs = app_of(self).board.jobs
        active = sum(not job.over for job in jobs)
        self.query_one("#figures", Static).update(f"jobs: {active} active of {len(jobs)}")
        table = self.query_one("#jobs", PagedList)
        table.show([job_row(job) for job in reversed(jobs)], complete=True, keep=len(jobs) == len(table.rows))

    @on(PagedList.Highlighted, "#jobs")
    def follow(self) -> None:
        """The log of the job under the cursor."""
        job = self.chosen
        self.query_one("#log", LinesView).show([] if job is None else log_lines(job))

    def action_cancel(self) -> None:
        """End the job under the cursor."""
        if (job := self.chosen) is not None and not job.over:
            app_of(self).board.cancel(job)
            app_of(self).show_notice(f"job {job.number} is asked to end")


def job_row(job: Job) -> Row:
    """A job as a row."""
    spent = int(job.seconds)
    time = f"{spent // 60}:{spent % 60:02d}" if spent < 36000 else f"{spent // 3600}h"
    far = (
        one_line(job.outcome, 200)
        or job.progress
        or ("" if job.state == "cancelled" else one_line(job.said, 200))
    )
    return Row(
        str(job.number),
        (str(job.number), job.state, time, one_line(job.title, 60), far),
        "dim" if job.over else "strong",
    )


def typed(command: tuple[str, ...]) -> str:
    """A command as one would type it."""
    for program, name in ((REDUCE, "reduce"), (OPSIEVE, "opsieve")):
        if command[: len(program)] == program:
            return shlex.join((name, *command[len(program) :]))
    return shlex.join(command)


def log_lines(job: Job) -> list[Line]:
    """What it ran, what was said, how it ended."""
    found: list[Line] = [((f"$ {one_line(typed(command), 600)}", "dim"),) for command in job.commands]
    found += [((one_line(line, 2000), ""),) for line in job.log]
    if outcome := one_line(job.outcome, 600):
        found += [(), ((outcome, "good"),)]
    for result in job.results:
        found += [(), *_result_lines(result)] if result else []
    if job.state == "failed":
        found.append(((f"it ended with exit code {job.code}", "bad"),))
    return found


def _result_lines(result: bytes) -> list[Line]:
    """What a command wrote: the fields of a JSON object, else text."""
    with suppress(ValueError, RecursionError):
        report = json.loads(result)
        if isinstance(report, dict):
            return [
                ((f"{one_line(name, 40)}: ", "dim"), (one_line(str(value), 600), ""))
                for name, value in report.items()
            ]
    return lines_of(result[:_MOST_SHOWN].decode("utf-8", "replace"), most=200)
