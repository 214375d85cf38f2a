"""The first screen: every cluster, filtered as one types, with a preview that follows the cursor."""

from collections.abc import Sequence
from typing import ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input, Static

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import counted
from opsieve.triage.store.index.filters import remarks
from opsieve.triage.store.queries import GROUPINGS, SORTS, Grouping, Queries, Sort
from opsieve.triage.store.rows import ClusterPage, ClusterRow, Counts, FingerprintRow
from opsieve.tui.app.protocol import ActionSubject, app_of
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.services.background import in_background
from opsieve.tui.app.services.saved_filters import save_filter, saved_filters
from opsieve.tui.app.views.rows_shown import (
    CLUSTERS,
    GROUPS,
    cluster_cells,
    cluster_lines,
    fingerprint_lines,
    group_cells,
)
from opsieve.tui.app.widgets.dialogs import ChoiceDialog, LineDialog
from opsieve.tui.app.widgets.key_footer import KeyFooter
from opsieve.tui.app.widgets.lines_view import LinesView
from opsieve.tui.app.widgets.paged_list import PagedList, Row
from opsieve.tui.app.widgets.steady_screen import SteadyScreen
from opsieve.tui.app.widgets.visible import one_line

FIRST, PAGE, FAR = 200, 1000, 5000  # rows loaded at first, at a time, and for a jump to the end
_SETTLED = 0.06  # seconds that the cursor rests before the preview follows it


class ClustersScreen(SteadyScreen[None]):
    """Clusters, or groups of them."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012  Textual's declaration
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse", show=False),
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
        self.problem = ""
        self._seen = -1  # the revision of the store that is shown

    @property
    def subject(self) -> ActionSubject | None:
        """The cluster under the cursor, and those marked; None as long as the screen is being made."""
        table = next(iter(self.query("#clusters").results(PagedList)), None)
        if table is None:
            return None
        row = self.found.get(table.row.key) if table.row is not None and self.grouping is None else None
        return None if row is None else ActionSubject(row, tuple(table.marked))

    def compose(self) -> ComposeResult:
        """A line of figures, the filter, the list beside or above the preview."""
        yield Static(id="figures", markup=False)
        yield Input(
            placeholder="/ filters: words, kind:crash op:Pad target:tvm status:new since:2d",
            id="filter",
            compact=True,
        )
        with Container(id="panes"):
            yield PagedList(CLUSTERS, empty="…", id="clusters")
            yield PagedList(GROUPS, id="groups")
            yield LinesView(wrap=True, id="preview")
        yield KeyFooter()

    def on_mount(self) -> None:
        """Ask for the first page."""
        self.query_one("#groups").display = False
        self.set_focus(self.query_one("#clusters"))
        self._seen = app_of(self).revision
        self.load()

    def on_screen_resume(self) -> None:
        """What changed while another screen was there is shown now."""
        if self._seen not in (-1, app_of(self).revision):
            self.store_changed()

    def store_changed(self) -> None:
        """Somebody wrote to the store: load what is shown again, in place."""
        self._seen = app_of(self).revision
        self.load(keep=True)

    # -- loading

    def load(self, keep: bool = False) -> None:
        """Ask for the rows and the figures; with `keep` as many as there are, and the cursor stays."""
        store, text, sort, down = app_of(self).store, self.filter_text, self.sort, self.reversed
        in_background(self, "figures", store.counts, self._count)
        if self.grouping is not None:
            grouping = self.grouping
            in_background(self, "rows", lambda: store.groups(grouping, text), self._group, self._refuse)
            return
        wanted = max(FIRST, len(self.found)) if keep else FIRST
        in_background(
            self,
            "rows",
            lambda: pages(store, text, sort, down, "", wanted),
            lambda page: self._first(page, keep),
            self._refuse,
        )

    @on(PagedList.More, "#clusters")
    def more(self, event: PagedList.More) -> None:
        """The next rows."""
        store, text, sort, down, after = (
            app_of(self).store,
            self.filter_text,
            self.sort,
            self.reversed,
            self.next,
        )
        wanted = FAR if event.far else PAGE

        def found() -> ClusterPage:
            return pages(store, text, sort, down, after, wanted)

        if after:
            in_background(self, "rows", found, lambda page: self._further(page, event.far), self._refuse)

    def _first(self, page: ClusterPage, keep: bool) -> None:
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
        table.show(self._cells(page.rows), complete=not page.next, keep=keep)
        self._figures()

    def _further(self, page: ClusterPage, far: bool) -> None:
        fresh = [row for row in page.rows if row.id not in self.found]
        self.found |= {row.id: row for row in fresh}
        self.total, self.next = page.total, page.next
        table = self.query_one("#clusters", PagedList)
        table.extend(self._cells(fresh), complete=not page.next)
        if far:
            table.cursor = len(table.rows) - 1
        self._figures()

    def _cells(self, rows: Sequence[ClusterRow]) -> list[Row]:
        now = app_of(self).now()
        return [cluster_cells(row, now) for row in rows]

    def _group(self, groups: Sequence[object]) -> None:
        from opsieve.triage.store.rows import ClusterGroup

        self.problem = ""
        table = self.query_one("#groups", PagedList)
        table.show([group_cells(cast(ClusterGroup, group)) for group in groups], complete=True, keep=True)
        self._figures()

    def _refuse(self, sentence: str) -> None:
        self.problem = sentence
        self._figures()

    def _count(self, counts: Counts) -> None:
        self.counts = counts
        self._figures()

    def _figures(self) -> None:
        """The line of figures: what is shown of how many, and what stands apart; or what is wrong."""
        app = app_of(self)
        line = self.query_one("#figures", Static)
        line.set_class(bool(self.problem), "problem")
        if self.problem:
            line.update(one_line(self.problem))
            return
        marked = len(self.query_one("#clusters", PagedList).marked)
        words = [
            f"{one_line(app.title_of_store, 30)}:",
            f"{len(self.found):,} of {counted(self.total, 'cluster')}",
        ]
        if self.grouping is not None:
            words = [words[0], f"clusters by {self.grouping}"]
        words[1] += f", {marked} selected" if marked else ""
        if said := remarks(self.filter_text):
            line.set_class(True, "problem")
            line.update(f"{words[0]} {words[1]} · {one_line(said[0], 200)}")
            return
        words.append(f"· by {self.sort}{' reversed' if self.reversed else ''}")
        if self.counts is not None:
            counts = self.counts
            words.append(f"· {counted(counts.failures, 'failure')}")
            if self.app.size.width >= 110:
                words.append(
                    f"· apart: {counts.unsupported:,} unsupported, {counts.environment:,} environment,"
                    f" {counts.flaky:,} flaky"
                )
        if jobs := len(app.board.active):
            words.append(f"· {counted(jobs, 'job')}")
        line.update(" ".join(words))

    def refresh_figures(self) -> None:
        """A job began or ended."""
        self._figures()

    # -- the preview

    @on(PagedList.Highlighted, "#clusters")
    def follow(self) -> None:
        """Show the cluster under the cursor once the cursor rests."""
        self.set_timer(_SETTLED, self._preview, name="preview")

    def _preview(self) -> None:
        subject = self.subject
        view = self.query_one("#preview", LinesView)
        if subject is None:
            view.show([])
            return
        row, store, now = subject.cluster, app_of(self).store, app_of(self).now()

        def shown(fingerprints: tuple[FingerprintRow, ...]) -> None:
            view.show([*cluster_lines(row, now), *fingerprint_lines(fingerprints[:20])])

        def refused(sentence: str) -> None:
            view.show([*cluster_lines(row, now), ((one_line(sentence), "bad"),)])

        in_background(self, "preview", lambda: store.fingerprints(row.id), shown, refused)

    @on(PagedList.Marked)
    def marks_changed(self) -> None:
        """Tell how many are selected."""
        self._figures()

    # -- keys

    @on(PagedList.Chosen, "#clusters")
    def open(self, event: PagedList.Chosen) -> None:
        """Drill into a cluster."""
        if event.row.key in self.found:
            self.app.push_screen(ClusterScreen(self.found[event.row.key]))

    @on(PagedList.Chosen, "#groups")
    def narrow(self, event: PagedList.Chosen) -> None:
        """Show the clusters of a group."""
        field, value = self.grouping, event.row.key
        self._ungroup()
        quoted = f'"{value}"' if " " in value or not value else value
        asked = self.query_one("#filter", Input)
        asked.value = f"{asked.value} {field}:{quoted}".strip() if value else asked.value
        self.set_focus(self.query_one("#clusters"))

    @on(Input.Changed, "#filter")
    def typed(self, event: Input.Changed) -> None:
        """Filter as one types."""
        if event.value != self.filter_text:
            self.filter_text = event.value
            self.load()

    @on(Input.Submitted, "#filter")
    def filtered(self) -> None:
        """Back to the list."""
        self.set_focus(self.query_one("#groups" if self.grouping else "#clusters"))

    def action_filter(self) -> None:
        """To the filter."""
        self.set_focus(self.query_one("#filter"))

    def action_saved_filters(self) -> None:
        """Choose a filter that was saved with the store."""
        filters = saved_filters(app_of(self).folder)
        if not filters:
            app_of(self).show_notice("no filter is saved; F saves the one that is set")
            return

        def chosen(name: str | None) -> None:
            if name is not None:
                self.query_one("#filter", Input).value = filters[name]

        options = [(name, f"{name}: {text}") for name, text in filters.items()]
        self.app.push_screen(ChoiceDialog("Filter by", options), chosen)

    def action_save_filter(self) -> None:
        """Save the filter that is set under a name; without one remove what has the name."""
        app, text = app_of(self), self.filter_text.strip()

        def written(name: str | None) -> None:
            if name:
                try:
                    save_filter(app.folder, name, text)
                except (BadInput, KeyError) as error:
                    app.show_notice(
                        str(error) if isinstance(error, BadInput) else f"no filter is called {name}", "error"
                    )
                else:
                    app.show_notice(f"filter {name} {'saved; f lists them' if text else 'removed'}")

        question = f"Save the filter {text} as" if text else "Remove which saved filter?"
        self.app.push_screen(LineDialog(question, "", "a name"), written)

    def action_sort(self) -> None:
        """Choose an order."""

        def chosen(sort: str | None) -> None:
            if sort is not None:
                self.sort = cast(Sort, sort)
                self.load()

        names = {
            "rank": "rank: read in this order",
            "members": "members: how many failures",
            "last": "last seen",
            "first": "first seen",
        }
        names |= {
            "size": "size of the smallest case",
            "severity": "grave ones first (severity)",
            "title": "title",
            "id": "id",
        }
        self.app.push_screen(
            ChoiceDialog("Sort by", [(name, names[name]) for name in SORTS], self.sort), chosen
        )

    def action_reverse(self) -> None:
        """The opposite order."""
        self.reversed = not self.reversed
        self.load()

    def action_group(self) -> None:
        """Choose what to group by."""

        def chosen(grouping: str | None) -> None:
            if grouping is None:
                return
            if not grouping:
                self._ungroup()
                return
            self.grouping = cast(Grouping, grouping)
            self.query_one("#clusters").display = self.query_one("#preview").display = False
            self.query_one("#groups").display = True
            self.set_focus(self.query_one("#groups"))
            self.load()

        options = [("", "nothing: the list of clusters"), *((name, name) for name in GROUPINGS)]
        self.app.push_screen(ChoiceDialog("Group by", options, self.grouping or ""), chosen)

    def _ungroup(self) -> None:
        self.grouping = None
        self.query_one("#clusters").display = self.query_one("#preview").display = True
        self.query_one("#groups").display = False
        self.set_focus(self.query_one("#clusters"))
        self.load()

    def action_back(self) -> None:
        """One step back: out of the filter, out of the groups, no selection, no filter."""
        asked, table = self.query_one("#filter", Input), self.query_one("#clusters", PagedList)
        if asked.has_focus:
            self.filtered()
        elif self.grouping is not None:
            self._ungroup()
        elif table.marked:
            table.clear_marks()
        elif asked.value:
            asked.value = ""
        self.set_focus(table)


def pages(store: Queries, text: str, sort: Sort, down: bool, after: str, wanted: int) -> ClusterPage:
    """So many rows behind a place, a page at a time."""
    rows: list[ClusterRow] = []
    while True:
        page = store.clusters(text, sort=sort, reverse=down, after=after, limit=min(PAGE, wanted - len(rows)))
        rows += page.rows
        after = page.next
        if not after or len(rows) >= wanted:
            return ClusterPage(tuple(rows), page.total, after)
