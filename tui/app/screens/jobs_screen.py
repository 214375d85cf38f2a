"""The running jobs in the background (reductions, bisections, attributions, exports, replays, campaigns),
each with its log; and a running campaign: its speed, its failures, its new clusters, read from the store
only, whichever process writes it.
"""

import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from opsieve.gen.model.printable import count_noun, quote_argument
from opsieve.triage.store.rows import CampaignRow, ClusterRow, Counts, NonBugRow
from opsieve.tui.app.protocol import ActionSubject, get_app
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.services import background, job_board
from opsieve.tui.app.views.rows_shown import CLUSTERS, make_cluster_row
from opsieve.tui.app.widgets.paged_list import Column, PagedList, Row
from opsieve.tui.app.widgets.screens import KeyFooter, LineDialog, LinesView, SteadyScreen
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
        # A silent job still gets older.
        self.set_interval(1.0, self.show_jobs)

    def update_job(self, job: job_board.Job) -> None:
        """Update the list after a change of a job."""
        self.show_jobs()

    @property
    def chosen_job(self) -> job_board.Job | None:
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
            # A new job takes the cursor, since it is the one that was just started.
            [make_row(job) for job in reversed(jobs)],
            complete=True,
            keep=len(jobs) == len(table.rows),
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
            get_app(self).show_notice(f"ending job {job.number}")


def make_row(job: job_board.Job) -> Row:
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
    for program, name in ((job_board.REDUCE, "reduce"), (job_board.OPSIEVE, "opsieve")):
        if command[: len(program)] == program:
            return " ".join(map(quote_argument, (name, *command[len(program) :])))
    return " ".join(map(quote_argument, command))


def list_log(job: job_board.Job) -> list[Line]:
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
    """List a command's result: the fields of a JSON object that say something, or text."""
    with suppress(ValueError, RecursionError):
        report = json.loads(result)
        if isinstance(report, dict):
            return [
                ((f"{to_one_line(name.replace('_', ' '), 40)}: ", "dim"), (to_one_line(str(value), 600), ""))
                for name, value in report.items()
                if (value or value is False) and not isinstance(value, dict)
            ]
    # A result may be a whole exported model.
    return to_lines(result[:_MOST_SHOWN].decode("utf-8", "replace"), most=200)


_NEWEST = 200
# Seconds between looks
_EVERY = 1.0
# Looks over which the rate is measured
_WINDOW = 30


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A store at one moment."""

    counts: Counts
    campaigns: tuple[CampaignRow, ...]
    # Of each campaign, in words
    plans: tuple[str, ...]
    newest: tuple[ClusterRow, ...]
    non_bugs: tuple[NonBugRow, ...]


class CampaignScreen(SteadyScreen[None]):
    """Figures over, or beside, the newest clusters."""

    # Textual's declaration
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fuzz", "Start fuzz"),
        Binding("escape,q", "app.back", "Back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.tests: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self.found: dict[str, ClusterRow] = {}

    @property
    def subject(self) -> ActionSubject | None:
        """The cluster under the cursor; None while the screen is being made."""
        row = next((shown.row for shown in self.query("#newest").results(PagedList)), None)
        return ActionSubject(self.found[row.key]) if row is not None and row.key in self.found else None

    def compose(self) -> ComposeResult:
        """Make a line of figures, all figures, and the newest clusters."""
        yield Static("campaign", id="figures", markup=False)
        with Container(id="panes"):
            yield PagedList(CLUSTERS, empty="no clusters yet", id="newest")
            yield LinesView(wrap=True, id="counts")
        yield KeyFooter()

    def on_mount(self) -> None:
        """Load the figures now and periodically."""
        self.query_one("#newest").focus()
        self.load_figures()
        self.set_interval(_EVERY, self.load_figures)

    def load_figures(self) -> None:
        """Load the figures in a thread."""
        store = get_app(self).store

        def read_snapshot() -> Snapshot:
            # In this thread, since it loads the generator.
            from opsieve.triage.campaign.plan import describe_plan

            newest, campaigns = store.clusters("", sort="first", limit=_NEWEST), store.campaigns()
            plans = tuple(describe_plan(each.generator) for each in campaigns)
            return Snapshot(store.counts(), campaigns, plans, newest.rows, store.non_bugs(most=8))

        background.run_in_background(self, "figures", read_snapshot, self._show_figures, self.show_problem)

    def _show_figures(self, found: Snapshot) -> None:
        now = get_app(self).now()
        self.tests.append((now, found.counts.tests))
        self.found = {row.id: row for row in found.newest}
        self.query_one("#newest", PagedList).show_rows(
            [make_cluster_row(row, now) for row in found.newest], complete=True, keep=True
        )
        line = self.query_one("#figures", Static)
        line.remove_class("problem")
        speed = compute_rate(tuple(self.tests))
        going = f"{speed:.1f} tests/s" if speed else "no tests are being done now; f starts a campaign"
        line.update(
            f"campaign: {count_noun(found.counts.tests, 'test')} · {going} · {len(found.newest):,} of"
            f" {count_noun(found.counts.clusters, 'cluster')}, newest first"
        )
        self.query_one("#counts", LinesView).show_lines(list_figures(found), keep=True)

    @on(PagedList.Chosen, "#newest")
    def open_cluster(self, event: PagedList.Chosen) -> None:
        """Open a cluster."""
        if event.row.key in self.found:
            self.app.push_screen(ClusterScreen(self.found[event.row.key]))

    def action_fuzz(self) -> None:
        """Start a campaign on this store, as a job."""
        app = get_app(self)

        def start_campaign(text: str | None) -> None:
            if text is None:
                return
            words = text.split() or ["onnxruntime"]
            # Targets only: an option typed here would be one of `opsieve fuzz`.
            targets = [word for word in words if not word.startswith("-")]
            command = [*job_board.OPSIEVE, "fuzz", "--store", str(app.folder), "--minutes", "60", "--json"]
            for name in targets:
                command += ["--target", name]
            app.run_job("fuzz", "", tuple(command))

        self.app.push_screen(
            LineDialog(
                "Targets of a campaign of one hour (J shows it, x ends it there)",
                "onnxruntime",
                "onnxruntime tvm openvino",
            ),
            start_campaign,
        )


def compute_rate(seen: tuple[tuple[float, int], ...]) -> float:
    """Return the tests per second between the first and the last look; 0 without progress."""
    # The clock may have been set back.
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return 0.0
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


def list_figures(found: Snapshot) -> list[Line]:
    """List all figures of a store."""
    counts = found.counts
    lines: list[Line] = [
        (("failures", "strong"), (f"  {counts.failures:,} in {count_noun(counts.clusters, 'cluster')}", ""))
    ]
    most = max(counts.failures_by_kind.values(), default=1)
    for kind, many in sorted(counts.failures_by_kind.items(), key=lambda one: -one[1]):
        bar = "█" * max(1, round(20 * many / most))
        clusters = counts.clusters_by_kind.get(kind, 0)
        lines.append(
            (
                (f"  {to_one_line(kind, 20):16}", ""),
                (f"{many:9,}", ""),
                (f"  in {count_noun(clusters, 'cluster')}  ", "dim"),
                (bar, "accent"),
            )
        )
    lines += [(), (("clusters by status", "strong"),)]
    lines += [
        ((f"  {to_one_line(status, 20):16}", ""), (f"{many:9,}", ""))
        for status, many in counts.by_status.items()
    ]
    lines += [(), (("verdicts, test by target", "strong"),)]
    # No division by zero in a new store.
    total = max(1, sum(counts.verdicts.values()))
    for verdict, many in counts.verdicts.items():
        share = f"  {100 * many / total:.1f} %"
        lines.append(((f"  {to_one_line(verdict, 20):16}", ""), (f"{many:9,}", ""), (share, "dim")))
    lines += [(), (("campaigns", "strong"),)]
    for each, plan in zip(found.campaigns, found.plans, strict=True):
        lines.append(
            (
                (f"  {count_noun(each.done, 'test')}, {to_one_line(plan, 300)}, seed {each.seed}", ""),
                (f" on {to_one_line(', '.join(each.targets), 600)}", "dim"),
            )
        )
    if found.non_bugs:
        lines += [(), (("no bugs: what targets lack, most frequent first", "strong"),)]
    for entry in found.non_bugs:
        lines.append(
            (
                (f"  {entry.count:7,} {to_one_line(entry.verdict, 14)} ", "dim"),
                (to_one_line(f"{entry.target}: {entry.what}", 300), ""),
            )
        )
    return lines
