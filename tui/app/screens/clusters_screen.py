"""The first screen: every cluster, filtered while typing, with a preview that follows the cursor."""

from collections.abc import Sequence
from typing import ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input, Static

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun
from opsieve.triage.store.queries import GROUPINGS, SORTS, Grouping, Queries, Sort
from opsieve.triage.store.rows import ClusterGroup, ClusterPage, ClusterRow, Counts, FingerprintRow
from opsieve.tui.app.protocol import ActionSubject, get_app
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.services.background import run_in_background
from opsieve.tui.app.services.saved_filters import read_filters, save_filter
from opsieve.tui.app.views import rows_shown
from opsieve.tui.app.widgets import screens, visible
from opsieve.tui.app.widgets.paged_list import PagedList, Row

# Rows loaded at first, at a time, and for a jump to the end
FIRST, PAGE, FAR = 200, 1000, 5000
# Seconds that the cursor rests before the preview follows it
_SETTLED = 0.06


class ClustersScreen(screens.SteadyScreen[None]):
    """Clusters, or groups of them."""

    # Textual's declaration
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse", show=False),
        Binding("c", "columns", "Columns", show=False),
        Binding("f", "saved_filters", "Saved filters", show=False),
        Binding("F", "save_filter", "Save this filter", show=False),
        Binding("v", "group", "Group", show=False),
        Binding("escape", "back", "Clear filter, groups or selection", show=False),
        Binding("tab", "app.focus_next", "Next pane", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self.sort: Sort = "rank"
        self.reversed = False
        self.grouping: Grouping | None = None
        self.found: dict[str, ClusterRow] = {}
        self.total = 0
        self.next = ""
        self.counts: Counts | None = None
        # The decision that undo takes back
        self.decided = ""
        self.problem = ""
        # The revision of the store that is shown
        self._seen = -1

    @property
    def subject(self) -> ActionSubject | None:
        """The cluster under the cursor, with the marked ones; None while the screen is being made."""
        table = next(iter(self.query("#clusters").results(PagedList)), None)
        if table is None:
            return None
        row = self.found.get(table.row.key) if table.row is not None and self.grouping is None else None
        return None if row is None else ActionSubject(row, tuple(table.marked))

    def compose(self) -> ComposeResult:
        """Make a line of figures, the filter, and the list beside or above the preview."""
        yield Static(id="figures", markup=False)
        yield Input(
            placeholder="/ filters: words, kind:crash op:Pad target:tvm status:new since:2d",
            id="filter",
            compact=True,
        )
        with Container(id="panes"):
            yield PagedList(rows_shown.CLUSTERS, empty="…", id="clusters")
            yield PagedList(rows_shown.GROUPS, id="groups")
            yield screens.LinesView(wrap=True, id="preview")
        yield screens.KeyFooter()

    def on_mount(self) -> None:
        """Load the first page."""
        self.query_one("#groups").display = False
        self.set_focus(self.query_one("#clusters"))
        self._seen = get_app(self).revision
        self.load_rows()

    def on_screen_resume(self) -> None:
        """Show changes made while another screen was on top."""
        if self._seen not in (-1, get_app(self).revision):
            self.reload_store()

    def reload_store(self) -> None:
        """Reload in place after a change of the store."""
        self._seen = get_app(self).revision
        self.load_rows(keep=True)

    # -- loading

    def load_rows(self, keep: bool = False) -> None:
        """Load rows and figures; with `keep` as many rows as before, without moving the cursor."""
        store, text, sort, down = get_app(self).store, self.filter_text, self.sort, self.reversed

        def read_figures() -> tuple[Counts, str]:
            done = (each.text for each in store.history(most=20) if each.state == "done")
            return store.counts(), next(done, "")

        run_in_background(self, "figures", read_figures, self._show_counts)
        if self.grouping is not None:
            grouping = self.grouping

            def count_groups() -> tuple[ClusterGroup, ...]:
                store.check_filter(text)
                return store.groups(grouping, text)

            run_in_background(self, "rows", count_groups, self._show_groups, self._show_problem)
            return
        wanted = max(FIRST, len(self.found)) if keep else FIRST

        def read_first() -> ClusterPage:
            store.check_filter(text)
            return read_clusters(store, text, sort, down, "", wanted)

        run_in_background(
            self, "rows", read_first, lambda page: self._show_first(page, keep), self._show_problem
        )

    @on(PagedList.More, "#clusters")
    def load_more(self, event: PagedList.More) -> None:
        """Load the next rows."""
        store, after = get_app(self).store, self.next
        text, sort, down = self.filter_text, self.sort, self.reversed
        wanted = FAR if event.far else PAGE

        def read_more() -> ClusterPage:
            return read_clusters(store, text, sort, down, after, wanted)

        if after:
            run_in_background(
                self, "rows", read_more, lambda page: self._show_more(page, event.far), self._show_problem
            )

    def _show_first(self, page: ClusterPage, keep: bool) -> None:
        self.problem = ""
        self.found = {row.id: row for row in page.rows}
        self.total, self.next = page.total, page.next
        table = self.query_one("#clusters", PagedList)
        for gone in [name for name in table.marked if name not in self.found and not page.next]:
            del table.marked[gone]
        table.empty = (
            "no cluster passes this filter; esc clears it"
            if self.filter_text
            else "no failures yet; C shows the campaign"
        )
        table.show_rows(self._make_cells(page.rows), complete=not page.next, keep=keep)
        self._show_figures()

    def _show_more(self, page: ClusterPage, far: bool) -> None:
        fresh = [row for row in page.rows if row.id not in self.found]
        self.found |= {row.id: row for row in fresh}
        self.total, self.next = page.total, page.next
        table = self.query_one("#clusters", PagedList)
        table.extend_rows(self._make_cells(fresh), complete=not page.next)
        if far:
            table.cursor = len(table.rows) - 1
        self._show_figures()

    def _make_cells(self, rows: Sequence[ClusterRow]) -> list[Row]:
        now, most = get_app(self).now(), max((row.members for row in self.found.values()), default=1)
        words = [word.strip('"') for word in self.filter_text.split() if ":" not in word]
        self.query_one("#clusters", PagedList).words = tuple(filter(None, words))
        return [rows_shown.make_cluster_row(row, now, most) for row in rows]

    def _show_groups(self, groups: Sequence[ClusterGroup]) -> None:
        self.problem = ""
        table = self.query_one("#groups", PagedList)
        table.show_rows([rows_shown.make_group_row(group) for group in groups], complete=True, keep=True)
        self._show_figures()

    def _show_problem(self, sentence: str) -> None:
        """Show why a filter cannot match, or a store cannot be read; the rows stay while one types."""
        self.problem = sentence
        self._show_figures()

    def _show_counts(self, found: tuple[Counts, str]) -> None:
        self.counts, self.decided = found
        self._show_figures()

    def _show_figures(self) -> None:
        """Show the numbers of listed, total and separate entries, or a problem."""
        app = get_app(self)
        line = self.query_one("#figures", Static)
        line.set_class(bool(self.problem), "problem")
        if self.problem:
            line.update(visible.to_one_line(self.problem))
            return
        marked = len(self.query_one("#clusters", PagedList).marked)
        words = [
            f"{visible.to_one_line(app.store_title, 30)}:",
            f"{len(self.found):,} of {count_noun(self.total, 'cluster')}",
        ]
        if self.grouping is not None:
            words = [words[0], f"clusters by {self.grouping}"]
        words[1] += f", {marked} selected" if marked else ""
        words.append(f"· by {self.sort}{' reversed' if self.reversed else ''}")
        if self.counts is not None:
            words += rows_shown.list_counts(self.counts, self.decided, self.app.size.width >= 110)
        if jobs := len(app.board.active):
            words.append(f"· {count_noun(jobs, 'job')}")
        line.update(" ".join(words))

    @on(PagedList.Marked)
    def refresh_figures(self) -> None:
        """Update the figures when a job starts or ends, and when rows are selected."""
        self._show_figures()

    # -- the preview

    @on(PagedList.Highlighted, "#clusters")
    def follow_cursor(self) -> None:
        """Show the cluster under the cursor once the cursor rests."""
        self.set_timer(_SETTLED, self._show_preview, name="preview")

    def _show_preview(self) -> None:
        subject = self.subject
        view = self.query_one("#preview", screens.LinesView)
        if subject is None:
            view.show_lines([])
            return
        row, store, now = subject.cluster, get_app(self).store, get_app(self).now()

        def show_cluster(fingerprints: tuple[FingerprintRow, ...]) -> None:
            view.show_lines(
                [*rows_shown.list_cluster(row, now), *rows_shown.list_fingerprints(fingerprints[:20])]
            )

        def show_problem(sentence: str) -> None:
            view.show_lines([*rows_shown.list_cluster(row, now), ((visible.to_one_line(sentence), "bad"),)])

        run_in_background(self, "preview", lambda: store.fingerprints(row.id), show_cluster, show_problem)

    # -- keys

    @on(PagedList.Chosen, "#clusters")
    def open_cluster(self, event: PagedList.Chosen) -> None:
        """Open a cluster."""
        if event.row.key in self.found:
            self.app.push_screen(ClusterScreen(self.found[event.row.key]))

    @on(PagedList.Chosen, "#groups")
    def open_group(self, event: PagedList.Chosen) -> None:
        """Show the clusters of a group."""
        field, value = self.grouping, event.row.key
        self._leave_groups()
        quoted = f'"{value}"' if {" ", ","} & set(value) else value
        asked = self.query_one("#filter", Input)
        asked.value = f"{asked.value} {field}:{quoted}".strip() if value else asked.value
        self.set_focus(self.query_one("#clusters"))

    @on(Input.Changed, "#filter")
    def apply_filter(self, event: Input.Changed) -> None:
        """Filter while typing."""
        if event.value != self.filter_text:
            self.filter_text = event.value
            self.load_rows()

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        """Go back to the list."""
        self.set_focus(self.query_one("#groups" if self.grouping else "#clusters"))

    def action_filter(self) -> None:
        """Go to the filter."""
        self.set_focus(self.query_one("#filter"))

    def action_saved_filters(self) -> None:
        """Choose one of the store's saved filters."""
        filters = read_filters(get_app(self).folder)
        if not filters:
            get_app(self).show_notice("no filter is saved; F saves the one that is set")
            return

        def use_filter(name: str | None) -> None:
            if name is not None:
                self.query_one("#filter", Input).value = filters[name]

        options = [(name, f"{name}: {text}") for name, text in filters.items()]
        self.app.push_screen(screens.ChoiceDialog("Filter by", options), use_filter)

    def action_save_filter(self) -> None:
        """Save the current filter under a name; an empty filter removes the saved one."""
        app, text = get_app(self), self.filter_text.strip()

        def save_named(name: str | None) -> None:
            if name:
                try:
                    save_filter(app.folder, name, text)
                except BadInput as error:
                    app.show_notice(str(error), "error")
                else:
                    app.show_notice(f"filter {name} {'saved; f lists them' if text else 'removed'}")

        question = f"Save the filter {text} as" if text else "Remove which saved filter?"
        self.app.push_screen(screens.LineDialog(question, "", "a name"), save_named)

    def action_sort(self) -> None:
        """Choose an order."""

        def sort_by(sort: str | None) -> None:
            if sort is not None:
                self.sort = cast(Sort, sort)
                self.load_rows()

        self.app.push_screen(
            screens.ChoiceDialog("Sort by", [(name, rows_shown.ORDERS[name]) for name in SORTS], self.sort),
            sort_by,
        )

    @on(PagedList.HeadChosen)
    def sort_by_column(self, event: PagedList.HeadChosen) -> None:
        """Sort by the clicked column; a second click reverses the order."""
        sort = rows_shown.SORT_OF_COLUMN.get(event.title)
        if sort is None:
            return
        self.reversed = not self.reversed if sort == self.sort else False
        self.sort = sort
        self.load_rows()

    def action_columns(self) -> None:
        """Show or hide a column."""
        table = self.query_one("#clusters", PagedList)
        shown = {table.columns[at].title for at, _ in table.fitting}

        def toggle_column(title: str | None) -> None:
            if title is not None:
                table.chosen[title] = title not in shown
                table.refresh()

        names = [column.title for column in table.columns if column.title and column.width]
        options = [(name, f"{name}{' (shown)' if name in shown else ''}") for name in names]
        self.app.push_screen(screens.ChoiceDialog("Show or hide which column?", options), toggle_column)

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.reversed = not self.reversed
        self.load_rows()

    def action_group(self) -> None:
        """Choose a grouping."""

        def group_by(grouping: str | None) -> None:
            if grouping is None:
                return
            if not grouping:
                self._leave_groups()
                return
            self.grouping = cast(Grouping, grouping)
            self.query_one("#clusters").display = self.query_one("#preview").display = False
            self.query_one("#groups").display = True
            self.set_focus(self.query_one("#groups"))
            self.load_rows()

        options = [("", "nothing: the list of clusters"), *((name, name) for name in GROUPINGS)]
        self.app.push_screen(screens.ChoiceDialog("Group by", options, self.grouping or ""), group_by)

    def _leave_groups(self) -> None:
        self.grouping = None
        self.query_one("#clusters").display = self.query_one("#preview").display = True
        self.query_one("#groups").display = False
        self.set_focus(self.query_one("#clusters"))
        self.load_rows()

    def action_back(self) -> None:
        """Go back one step: out of the filter, the groups, the selection, then clear the filter."""
        asked, table = self.query_one("#filter", Input), self.query_one("#clusters", PagedList)
        if asked.has_focus:
            self.leave_filter()
        elif self.grouping is not None:
            self._leave_groups()
        elif table.marked:
            table.clear_marks()
        elif asked.value:
            asked.value = ""
        self.set_focus(table)


def read_clusters(store: Queries, text: str, sort: Sort, down: bool, after: str, wanted: int) -> ClusterPage:
    """Read up to `wanted` clusters behind a place, a page at a time."""
    rows: list[ClusterRow] = []
    while True:
        page = store.clusters(text, sort=sort, reverse=down, after=after, limit=min(PAGE, wanted - len(rows)))
        rows += page.rows
        after = page.next
        if not after or len(rows) >= wanted:
            return ClusterPage(tuple(rows), page.total, after)
