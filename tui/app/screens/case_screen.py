"""One case: failure, graph, tensors, observations, trace and fingerprint; replayed on demand."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from opsieve.backends.verdict import WRONG_OUTPUTS
from opsieve.triage.store.rows import CaseDetails, ClusterRow
from opsieve.tui.app.protocol import ActionSubject, get_app
from opsieve.tui.app.services import background, job_board
from opsieve.tui.app.views import case_pages, case_summary, located_lines, tensor_lines
from opsieve.tui.app.widgets import screens, visible

PAGES = (*case_pages.PAGES, "replay", "path")
# pages that are prose; the others keep their columns
_FLOWING = (
    "path",
    "overview",
    "tensors",
    "why",
    "origin",
    "replay",
)


class CaseScreen(screens.PagedScreen):
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
        # A target to run it on once it is known
        self._replay_on = replay_on
        self.case: CaseDetails | None = None
        self.summary: case_summary.CaseSummary | None = None
        self.summary_problem = ""
        # Show the case as it was found though a reduced one is there
        self.original = False
        self.replayed: job_board.Job | None = None
        self.located: job_board.Job | None = None

    @property
    def subject(self) -> ActionSubject:
        """The case."""
        return ActionSubject(self.cluster, (), self.member)

    def compose(self) -> ComposeResult:
        """Make a headline, the pages, and the view of one of them."""
        yield Static(id="figures", markup=False)
        yield screens.PageBar(PAGES, id="pages")
        yield screens.LinesView(id="page")
        yield screens.KeyFooter()

    def on_mount(self) -> None:
        """Load the case."""
        self.query_one("#page").focus()
        self.query_one("#figures", Static).update(visible.to_one_line(self.member))
        self.load_case()

    def reload_store(self) -> None:
        """Reload after a change of the store."""
        self.load_case()

    def load_case(self) -> None:
        """Load the failure from the store, then the contents of its folder."""
        store, member, name = get_app(self).store, self.member, self.cluster.id
        background.run_in_background(
            self,
            "case",
            lambda: (store.case(member), store.cluster(name)),
            self._show_case,
            self.show_problem,
        )

    def _show_case(self, found: tuple[CaseDetails, ClusterRow]) -> None:
        case, self.cluster = found
        # A decision of another process reloads the screen: the contents of an unchanged folder are not read
        # again.
        same = self.case is not None and (self.case.folder, self.case.reduced) == (case.folder, case.reduced)
        self.case = case
        self._show_figures()
        self._show_page(keep=same)
        if not same:
            self._load_summary()
        if self._replay_on is not None:
            # Once only: a reload of the store must not start it anew.
            target, self._replay_on = self._replay_on, None
            self.replay_case(target)

    def _load_summary(self) -> None:
        self.summary, self.summary_problem = None, ""
        folder = self._find_folder()
        if folder is None:
            self.summary_problem = "" if self.case is None else self.case.problem
            return

        def show_problem(sentence: str) -> None:
            self.summary_problem = sentence
            self._show_page()

        def show_summary(summary: case_summary.CaseSummary) -> None:
            self.summary = summary
            self._show_page()

        background.run_in_background(
            self, "sheet", lambda: case_summary.read_summary(folder), show_summary, show_problem
        )

    def _show_figures(self) -> None:
        line, case = self.query_one("#figures", Static), self.case
        if case is None:
            return
        which = "" if case.reduced is None else "  original" if self.original else "  reduced"
        line.remove_class("problem")
        line.update(
            f"{case.cluster}  {self.cluster.status}  {case.member.verdict}{which} "
            f" {visible.to_one_line(case.member.reason or case.member.message, 300)}"
        )

    # -- pages

    @on(screens.PageBar.Picked)
    def _show_page(self, keep: bool = False) -> None:
        if self.case is not None:
            name = self.query_one(screens.PageBar).page_name
            if name == "tensors" and self.replayed is None and self.case.member.kind in WRONG_OUTPUTS:
                # Its result was not stored.
                self._start_replay(self.case.member.target)
            # Only when the page is opened: locating runs the program several times.
            if name == "path" and self.located is None and (folder := self._find_folder()) is not None:
                command = (*job_board.OPSIEVE, "run", str(folder), "--target", self.case.member.target)
                extra = ("--offline",) if get_app(self).offline else ()
                self.located = get_app(self).run_job(
                    "replay", self.cluster.id, (*command, "--locate", "--json", *extra)
                )
            self.query_one("#page", screens.LinesView).show_lines(
                self._make_lines(self.case), keep=keep is True, wrap=name in _FLOWING
            )

    def _make_lines(self, case: CaseDetails) -> Sequence[visible.Line]:
        name = self.query_one(screens.PageBar).page_name
        if name == "overview":
            return case_pages.list_overview(case)
        if name == "observed":
            return case_pages.list_observations(case.observations, case.problem, self.size.width - 2)
        if name == "trace":
            return case_pages.list_trace(case.observations, case.components)
        if name == "why":
            return case_pages.list_fingerprint(case.components)
        if name == "replay":
            return tensor_lines.list_replay(self.replayed)
        if self.summary is None:
            return [
                (
                    (
                        visible.to_one_line(self.summary_problem) or "reading the case …",
                        "warn" if self.summary_problem else "dim",
                    ),
                )
            ]
        if name == "path":
            return located_lines.list_located_graph(self.located, self.summary.graph)
        if name == "graph":
            return case_pages.list_graph(self.summary)
        if name == "tensors":
            wrong = case.member.kind in WRONG_OUTPUTS
            return [*tensor_lines.list_tensors(self.replayed, wrong), *case_pages.list_inputs(self.summary)]
        return case_pages.list_origin(case, self.summary)

    def action_other(self) -> None:
        """Switch between the original case and the reduced one."""
        if self.case is None or self.case.reduced is None:
            get_app(self).show_notice("there is no reduced case yet; r reduces it")
            return
        # The results belong to the other program.
        self.original, self.replayed, self.located = not self.original, None, None
        self._show_figures()
        self._load_summary()
        self._show_page()

    def action_split(self) -> None:
        """Move this member out of its cluster."""
        member = self.member
        get_app(self).decide(lambda ledger: ledger.split(member))

    # -- replay

    def replay_case(self, target: str) -> None:
        """Run the case again on a target ("": its own), and show the result."""
        case = self.case
        if case is None or not self._start_replay(target or case.member.target):
            get_app(self).show_notice("it cannot be replayed: its case was not kept", "error")
            return
        self.query_one(screens.PageBar).current = PAGES.index("replay")
        self._show_page()

    def _find_folder(self) -> Path | None:
        """Find the folder of the case that is shown; None if it was not kept."""
        case = self.case
        if case is None:
            return None
        return case.folder if self.original or case.reduced is None else case.reduced

    def _start_replay(self, target: str) -> bool:
        """Start the replay of the shown case; False if no case was kept."""
        folder = self._find_folder()
        if folder is None:
            return False
        module = ("opsieve.tui.app.services.replay", str(folder), target)
        # In a process of its own: a compiler that dies would take the interface with it.
        command = (*job_board.OPSIEVE[:-1], *module, *(["--offline"] if get_app(self).offline else []))
        self.replayed = get_app(self).run_job("replay", self.cluster.id, command)
        return True

    def update_job(self, job: job_board.Job) -> None:
        """Update the page after a change of the replay."""
        pages = ("replay", "tensors") if job is self.replayed else ("path",) if job is self.located else ()
        if self.query_one(screens.PageBar).page_name in pages:
            self._show_page(keep=True)
