"""One cluster: its members and their reasons, related clusters, decisions, and the difference of two
members.
"""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from opsieve.gen.model.printable import count_noun
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.rows import ClusterRow, FingerprintRow, MemberPage, MemberRow, RelatedRow
from opsieve.tui.app.protocol import ActionSubject, get_app
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.services.background import run_in_background
from opsieve.tui.app.views.rows_shown import (
    MEMBERS,
    compare_members,
    list_cluster,
    list_fingerprints,
    list_history,
    list_related,
    make_member_row,
)
from opsieve.tui.app.widgets.paged_list import PagedList
from opsieve.tui.app.widgets.screens import ChoiceDialog, KeyFooter, LinesView, PageBar, PagedScreen
from opsieve.tui.app.widgets.visible import Line, to_one_line

PAGES = ("about", "why", "related", "history", "difference")
# Rows loaded at first, at a time, and for a jump to the end
FIRST, PAGE, FAR = 200, 1000, 5000


class ClusterScreen(PagedScreen):
    """Members over, or beside, a page about the cluster."""

    # Textual's declaration
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(at + 1), f"page({at})", name.capitalize(), show=False)
            for at, name in enumerate(PAGES)
        ),
        Binding("right_square_bracket", "turn(1)", "Next page", key_display="]", show=False),
        Binding("left_square_bracket", "turn(-1)", "Page before", key_display="[", show=False),
        Binding("s", "split", "Split"),
        Binding("d", "difference", "Difference of two selected members", show=False),
        Binding("o", "open_related", "Open a related cluster", show=False),
        Binding("escape,q,h", "app.back", "Back"),
    ]

    def __init__(self, row: ClusterRow) -> None:
        super().__init__()
        self.row = row
        self.members: dict[str, MemberRow] = {}
        self.related: tuple[RelatedRow, ...] = ()
        self.next = ""
        self.problem = ""
        # The revision of the store that is shown
        self._seen = -1

    @property
    def subject(self) -> ActionSubject:
        """The cluster, with the member under the cursor once the screen is complete."""
        # A key may come before `compose` has made the list.
        under = next((shown.row for shown in self.query("#members").results(PagedList)), None)
        return ActionSubject(self.row, (), under.key if under is not None else "")

    def compose(self) -> ComposeResult:
        """Make a line of figures, the members, and the pages."""
        yield Static(id="figures", markup=False)
        with Container(id="panes"):
            yield PagedList(MEMBERS, empty="…", id="members")
            with Container(id="beside"):
                yield PageBar(PAGES, id="pages")
                yield LinesView(wrap=True, id="page")
        yield KeyFooter()

    def on_mount(self) -> None:
        """Load the members."""
        self.query_one("#members").focus()
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

    def load_rows(self, keep: bool = False) -> None:
        """Load the cluster and its members."""
        store, name = get_app(self).store, self.row.id
        # As many as before, so that the row under the cursor is among them.
        wanted = max(FIRST, len(self.members)) if keep else FIRST

        def read_rows() -> tuple[ClusterRow, MemberPage]:
            return store.cluster(name), read_members(store, name, "", wanted)

        run_in_background(
            self, "rows", read_rows, lambda both: self._show_first(both, keep), self._show_problem
        )

    def _show_first(self, found: tuple[ClusterRow, MemberPage], keep: bool) -> None:
        self.problem = ""
        self.row, page = found
        self.members = {row.name: row for row in page.rows}
        self.next = page.next
        table = self.query_one("#members", PagedList)
        table.empty = "no members"
        # The page about the cluster gets the lines that few members leave.
        table.styles.max_height = max(4, len(page.rows) + 1)
        table.show_rows(
            [make_member_row(row, get_app(self).now()) for row in page.rows],
            complete=not page.next,
            keep=keep,
        )
        self._show_figures()
        self._show_page(keep=keep)

    def _show_problem(self, sentence: str) -> None:
        self.problem = sentence
        self._show_figures()

    @on(PagedList.More, "#members")
    def load_more(self, event: PagedList.More) -> None:
        """Load the next members."""
        store, name, after, far = get_app(self).store, self.row.id, self.next, event.far

        def show_more(page: MemberPage) -> None:
            table = self.query_one("#members", PagedList)
            self.members |= {row.name: row for row in page.rows}
            self.next = page.next
            table.extend_rows(
                [make_member_row(row, get_app(self).now()) for row in page.rows], complete=not page.next
            )
            if far:
                table.cursor = len(table.rows) - 1
            self._show_figures()

        if after:
            run_in_background(
                self,
                "rows",
                lambda: read_members(store, name, after, FAR if far else PAGE),
                show_more,
                self._show_problem,
            )

    def _show_figures(self) -> None:
        line = self.query_one("#figures", Static)
        line.set_class(bool(self.problem), "problem")
        if self.problem:
            line.update(to_one_line(self.problem))
            return
        row = self.row
        pinned = " *" if row.pinned else ""
        line.update(
            f"{row.id}{pinned}  {row.status}  {len(self.members):,} of {count_noun(row.members, 'member')} "
            f" {to_one_line(row.title, 300)}"
        )

    # -- pages

    @on(PageBar.Picked)
    def _show_page(self, keep: bool = False) -> None:
        store, row, now = get_app(self).store, self.row, get_app(self).now()
        view = self.query_one("#page", LinesView)
        name = self.query_one(PageBar).page_name

        def show_lines(lines: Sequence[Line]) -> None:
            view.show_lines(lines, keep=keep is True)

        def show_problem(sentence: str) -> None:
            show_lines([((to_one_line(sentence), "bad"),)])

        if name == "about":

            def show_about(found: Sequence[FingerprintRow]) -> None:
                show_lines([*list_cluster(row, now), *list_fingerprints(found, components=False)])

            run_in_background(self, "page", lambda: store.fingerprints(row.id), show_about, show_problem)
        elif name == "why":
            run_in_background(
                self,
                "page",
                lambda: store.fingerprints(row.id),
                lambda found: show_lines(list_fingerprints(found)[1:]),
                show_problem,
            )
        elif name == "related":
            run_in_background(self, "page", lambda: store.related(row.id), self._show_related, show_problem)
        elif name == "history":
            run_in_background(
                self,
                "page",
                lambda: store.history(row.id),
                lambda found: show_lines(list_history(found)),
                show_problem,
            )
        else:
            show_lines(self._describe_difference())

    def _show_related(self, found: tuple[RelatedRow, ...]) -> None:
        self.related = found
        hint: list[Line] = [(), (("o opens one of them", "dim"),)] if found else []
        self.query_one("#page", LinesView).show_lines([*list_related(found), *hint], keep=True)

    def _describe_difference(self) -> list[Line]:
        table = self.query_one("#members", PagedList)
        names = [name for name in table.marked if name in self.members]
        # Without a selection: the first member and the one under the cursor.
        if len(names) < 2 and table.row is not None and len(self.members) > 1:
            first = next(iter(self.members)) if not names else names[0]
            names = [first, table.row.key]
        if len(names) < 2 or names[0] == names[1]:
            return [(("select two members with space, or move the cursor off the first one", "dim"),)]
        return compare_members(self.members[names[-2]], self.members[names[-1]])

    @on(PagedList.Highlighted, "#members")
    def follow_cursor(self) -> None:
        """Update the difference when the cursor moves."""
        if self.query_one(PageBar).page_name == "difference":
            self._show_page()

    def action_difference(self) -> None:
        """Show the difference of two members."""
        self.query_one(PageBar).current = PAGES.index("difference")
        self._show_page()

    def action_open_related(self) -> None:
        """Choose a related cluster to open."""
        store, name = get_app(self).store, self.row.id

        def offer_related(related: tuple[RelatedRow, ...]) -> None:
            if not related:
                get_app(self).show_notice("no other cluster looks like this one")
                return
            rows = {each.cluster.id: each.cluster for each in related}
            options = [
                (each.cluster.id, f"{each.cluster.id} {each.score:.2f} {to_one_line(each.cluster.title, 80)}")
                for each in related
            ]

            def open_other(other: str | None) -> None:
                if other:
                    self.app.push_screen(ClusterScreen(rows[other]))

            self.app.push_screen(ChoiceDialog(f"Open a cluster like {name}", options), open_other)

        run_in_background(self, "related", lambda: store.related(name), offer_related)

    def action_split(self) -> None:
        """Choose a fingerprint, or the member under the cursor, to split off."""
        store, row, member = get_app(self).store, self.row, self.subject.member

        def split_chosen(name: str | None) -> None:
            if name:
                get_app(self).decide(lambda ledger: ledger.split(name))

        def offer_parts(fingerprints: Sequence[object]) -> None:
            rows = [each for each in fingerprints if isinstance(each, FingerprintRow)]
            options = [(member, f"member {to_one_line(member, 120)}")] if member else []
            if len(rows) > 1:
                options += [
                    (
                        each.key,
                        f"fingerprint {to_one_line(each.key, 80)}, {count_noun(each.count, 'failure')}",
                    )
                    # A cluster that was merged from many can have thousands.
                    for each in rows[:100]
                ]
            if row.members < 2 or not options:
                get_app(self).show_notice(f"{row.id} has one member; there is nothing to split")
                return
            self.app.push_screen(ChoiceDialog(f"What leaves {row.id}?", options), split_chosen)

        run_in_background(self, "split", lambda: store.fingerprints(row.id), offer_parts)

    @on(PagedList.Chosen, "#members")
    def open_member(self, event: PagedList.Chosen) -> None:
        """Open a member."""
        self.app.push_screen(CaseScreen(self.row, event.row.key))


def read_members(store: Queries, name: str, after: str, wanted: int) -> MemberPage:
    """Read up to `wanted` members behind a place, a page at a time."""
    rows: list[MemberRow] = []
    while True:
        page = store.members(name, after=after, limit=min(PAGE, wanted - len(rows)))
        rows += page.rows
        after = page.next
        if not after or len(rows) >= wanted:
            return MemberPage(tuple(rows), page.total, after)
