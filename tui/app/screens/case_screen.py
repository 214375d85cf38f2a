"""One case: what failed, its graph, its tensors, what each target did, its trace, why it is where it is;
replayed on demand.
"""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.triage.store.rows import CaseDetails, ClusterRow
from opsieve.tui.app.protocol import ActionSubject, app_of
from opsieve.tui.app.services.background import in_background
from opsieve.tui.app.services.job_board import OPSIEVE, Job
from opsieve.tui.app.views import case_pages
from opsieve.tui.app.views.case_summary import CaseSummary, read_summary
from opsieve.tui.app.views.replay_lines import replay_lines
from opsieve.tui.app.views.tensor_lines import tensor_lines
from opsieve.tui.app.widgets.key_footer import KeyFooter
from opsieve.tui.app.widgets.lines_view import LinesView
from opsieve.tui.app.widgets.page_bar import PageBar
from opsieve.tui.app.widgets.steady_screen import SteadyScreen
from opsieve.tui.app.widgets.visible import Line, one_line

PAGES = (*case_pages.PAGES, "replay")
# pages that are prose; the others keep their columns
_FLOWING = (
    "overview",
    "tensors",
    "why",
    "origin",
    "replay",
)


class CaseScreen(SteadyScreen[None]):
    """Pages about one failure."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(at + 1), f"page({at})", name.capitalize(), show=False)
            for at, name in enumerate(PAGES)
        ),
        Binding("right_square_bracket", "turn(1)", "Next page", key_display="]", show=False),
        Binding("left_square_bracket", "turn(-1)", "Page before", key_display="[", show=False),
        Binding("z", "other", "Original"),
        Binding("s", "split", "Split out", show=False),
        Binding("escape,q", "app.back", "Back"),
    ]

    def __init__(self, cluster: ClusterRow, member: str, *, replay_on: str | None = None) -> None:
        super().__init__()
        self.cluster, self.member = cluster, member
        self._replay_on = replay_on  # a target to run it on once it is known
        self.case: CaseDetails | None = None
        self.summary: CaseSummary | None = None
        self.summary_problem = ""
        self.original = False  # show the case as it was found though a reduced one is there
        self.replayed: Job | None = None

    @property
    def subject(self) -> ActionSubject:
        """The case."""
        return ActionSubject(self.cluster, (), self.member)

    def compose(self) -> ComposeResult:
        """A line that says what it is, the pages, one of them."""
        yield Static(id="figures", markup=False)
        yield PageBar(PAGES, id="pages")
        yield LinesView(id="page")
        yield KeyFooter()

    def on_mount(self) -> None:
        """Ask for the case."""
        self.query_one("#page").focus()
        self.query_one("#figures", Static).update(one_line(self.member))
        self.load()

    def store_changed(self) -> None:
        """Somebody wrote to the store."""
        self.load()

    def load(self) -> None:
        """Ask for the failure as the store has it, then for what its folder holds."""
        store, member, name = app_of(self).store, self.member, self.cluster.id
        in_background(
            self, "case", lambda: (store.case(member), store.cluster(name)), self._found, self._refuse
        )

    def _found(self, found: tuple[CaseDetails, ClusterRow]) -> None:
        case, self.cluster = found
        same = self.case is not None and (self.case.folder, self.case.reduced) == (case.folder, case.reduced)
        self.case = case
        self._figures()
        self._show_page(keep=same)
        if not same:
            self._load_summary()
        if self._replay_on is not None:
            target, self._replay_on = self._replay_on, None
            self.replay(target)

    def _load_summary(self) -> None:
        case = self.case
        self.summary, self.summary_problem = None, ""
        if case is None:
            return
        folder = case.folder if self.original or case.reduced is None else case.reduced
        if folder is None:
            self.summary_problem = case.problem
            return

        def refused(sentence: str) -> None:
            self.summary_problem = sentence
            self._show_page()

        def found(summary: CaseSummary) -> None:
            self.summary = summary
            self._show_page()

        in_background(self, "sheet", lambda: read_summary(folder), found, refused)

    def _refuse(self, sentence: str) -> None:
        line = self.query_one("#figures", Static)
        line.add_class("problem")
        line.update(one_line(sentence))

    def _figures(self) -> None:
        line, case = self.query_one("#figures", Static), self.case
        if case is None:
            return
        which = "" if case.reduced is None else "  original" if self.original else "  reduced"
        line.remove_class("problem")
        line.update(
            f"{case.cluster}  {self.cluster.status}  {case.member.verdict}{which} "
            f" {one_line(case.member.reason or case.member.message, 300)}"
        )

    # -- pages

    @on(PageBar.Picked)
    def _show_page(self, keep: bool = False) -> None:
        if self.case is not None:
            name = self.query_one(PageBar).name_of_page
            if name == "tensors" and self.replayed is None and self.case.member.kind in WRONG_OUTPUTS:
                self._run_again(self.case.member.target)  # what it gave is not kept
            flows = name in _FLOWING
            self.query_one("#page", LinesView).show(self._lines(self.case), keep=keep is True, wrap=flows)

    def _lines(self, case: CaseDetails) -> Sequence[Line]:
        name = self.query_one(PageBar).name_of_page
        if name == "overview":
            return case_pages.overview(case)
        if name == "observed":
            return case_pages.observed(case.observations, case.problem, self.size.width - 2)
        if name == "trace":
            return case_pages.trace(case.observations, case.components)
        if name == "why":
            return case_pages.why(case.components)
        if name == "replay":
            return replay_lines(self.replayed)
        if self.summary is None:
            return [
                (
                    (
                        one_line(self.summary_problem) or "reading the case …",
                        "warn" if self.summary_problem else "dim",
                    ),
                )
            ]
        if name == "graph":
            return case_pages.graph(self.summary)
        if name == "tensors":
            wrong = case.member.kind in WRONG_OUTPUTS
            return [*tensor_lines(self.replayed, wrong), *case_pages.inputs(self.summary)]
        return case_pages.environment(case, self.summary)

    def action_page(self, at: int) -> None:
        """Show a page."""
        self.query_one(PageBar).current = at

    def action_turn(self, by: int) -> None:
        """The next page, or the one before."""
        self.query_one(PageBar).current += by

    def action_other(self) -> None:
        """The case as it was found, or as reduced."""
        if self.case is None or self.case.reduced is None:
            app_of(self).show_notice("there is no reduced case yet; r reduces it")
            return
        self.original, self.replayed = not self.original, None
        self._figures()
        self._load_summary()
        self._show_page()

    def action_split(self) -> None:
        """Take this member out of its cluster."""
        member = self.member
        app_of(self).decide(lambda ledger: ledger.split(member))

    # -- replay

    def replay(self, target: str) -> None:
        """Run the case again, here, on a target ("": its own), and show what it does."""
        case = self.case
        if case is None or not self._run_again(target or case.member.target):
            app_of(self).show_notice("it cannot be replayed: its case was not kept", "error")
            return
        self.query_one(PageBar).current = PAGES.index("replay")
        self._show_page()

    def _run_again(self, target: str) -> bool:
        """Begin the replay of the case that is shown; False when no case was kept."""
        case = self.case
        folder = (
            None if case is None else case.folder if self.original or case.reduced is None else case.reduced
        )
        if folder is None:
            return False
        module = ("-m", "opsieve.tui.app.services.replay", str(folder), target)
        command = (OPSIEVE[0], *module, *(["--offline"] if app_of(self).offline else []))
        self.replayed = app_of(self).run_job("replay", self.cluster.id, command)
        return True

    def job_changed(self, job: Job) -> None:
        """The replay goes on, or has ended."""
        if job is self.replayed and self.query_one(PageBar).name_of_page in ("replay", "tensors"):
            self._show_page(keep=True)
